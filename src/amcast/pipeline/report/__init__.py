"""The report about runs: one folder, one page that needs nothing else, and everything that it was made of."""

from .._whole import free_place, refuse_occupied
from ._write import PAGE, Written, write_report

__all__ = ["PAGE", "Written", "free_place", "refuse_occupied", "write_report"]
