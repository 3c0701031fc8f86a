"""The report about runs, a folder: a page that needs no other file, and the figures and tables that are in it."""

from ._html import embed_svg
from ._style import STYLE
from ._write import PAGE, Written, free_place, write_report

__all__ = ["PAGE", "STYLE", "Written", "embed_svg", "free_place", "write_report"]
