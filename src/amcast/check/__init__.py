"""The fast checker of recorded runs: a verdict for each property, evidence for what fails, diagrams of it."""

from .checker import check_run
from .diagram import space_time_svg, space_time_text
from .report import PROPERTIES, Report, Verdict, Violation, worst

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
