"""The report about runs, a folder: a page that needs no other file, and the figures and tables that are in it."""

from ._write import PAGE, Written, free_place, write_report

__all__ = ["PAGE", "Written", "free_place", "write_report"]
