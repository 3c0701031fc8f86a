"""The fast checker of recorded runs: a verdict for each property, evidence for what fails, diagrams of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazily
from .report import PROPERTIES, Report, Verdict, Violation, worst

if TYPE_CHECKING:
    from .checker import check_run
    from .diagram import space_time_svg, space_time_text

__all__ = [
    "PROPERTIES",
    "Report",
    "Verdict",
    "Violation",
    "check_run",
    "space_time_svg",
    "space_time_text",
    "worst",
]

# Nodes know the names of the properties, and do not check.
__getattr__ = lazily(__name__, {"check_run": "checker", "space_time_svg": "diagram", "space_time_text": "diagram"})
