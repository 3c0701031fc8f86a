"""The properties of recorded runs, checked on Spark: verdicts for many runs at once, evidence for what fails."""

from .checker import check_files, violations_frame
from .findings import PROPERTIES, RunReport, Verdict, Violation

__all__ = ["PROPERTIES", "RunReport", "Verdict", "Violation", "check_files", "violations_frame"]
