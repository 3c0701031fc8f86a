"""The properties of recorded runs, checked on Spark: many runs at once, and runs of any size.

What is here is Spark's own: how the work is cut into tasks, how tasks read files, and the proofs that a large run is
right, in pieces. The exact judge that a task calls for a whole run is `amcast.check`.
"""

from .checker import check_files, violations_frame
from .report import RunReport

__all__ = ["RunReport", "check_files", "violations_frame"]
