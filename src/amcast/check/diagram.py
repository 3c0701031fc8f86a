"""A violation as a picture, `space_time_svg` for a page, `space_time_text` for a terminal.

What is wrong with messages is shown as a space-time diagram, what is wrong with operations as bars that overlap.
"""

from __future__ import annotations

from ..trace import Run
from . import _svg, _text
from ._overlap import overlap_svg, overlap_text
from .report import Violation


def space_time_svg(run: Run, violation: Violation) -> str:
    """For a page: a lane for each process, with the violation's messages, or a bar for each of its operations."""
    return overlap_svg(violation) if violation.operations else _svg.space_time_svg(run, violation)


def space_time_text(run: Run, violation: Violation) -> str:
    """For a terminal: the same in 80 columns."""
    return overlap_text(violation) if violation.operations else _text.space_time_text(run, violation)
