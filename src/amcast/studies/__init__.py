"""Studies: the same load on several protocols, destinations and networks, as one table and one figure.

A study is data (`plan.py`): lists of values, and every combination of them is a cell. A cell is one simulated run,
which is checked and measured where it runs (`cell.py`): in local processes (`local.py`) or in the tasks of a Spark job
(`on_spark.py`). Its result follows from the cell alone, so the table of a study has the same bytes wherever it was
made.
"""

from .cell import Result, run_cell
from .folder import CellFolder, StudyFolder
from .plan import Cell, Study, cells_of, read_study
from .table import table_of

__all__ = ["Cell", "CellFolder", "Result", "Study", "StudyFolder", "cells_of", "read_study", "run_cell", "table_of"]
