"""The properties of recorded runs, checked on Spark: verdicts for many runs at once, evidence for what fails."""

from .checker import check_files, violations_frame
from .report import RunReport

__all__ = ["RunReport", "check_files", "violations_frame"]
