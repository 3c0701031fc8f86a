"""The trace of a run, tables of what it did: recorded while it goes on, written as one folder, read back.

Readers trust nothing in a folder, since other programs write such folders too.
"""

from ._convert import to_tables
from .reader import read_run, read_run_info
from .recorder import Recorder
from .run import NULL, Answers, Deliveries, Fault, Multicasts, Run, WireRows, make_run
from .schema import FINAL, OPTIMISTIC, TABLES, GroupInfo, RunInfo, process_name
from .writer import GrowingRun, write_run

__all__ = [
    "FINAL",
    "NULL",
    "OPTIMISTIC",
    "TABLES",
    "Answers",
    "Deliveries",
    "Fault",
    "GroupInfo",
    "GrowingRun",
    "Multicasts",
    "Recorder",
    "Run",
    "RunInfo",
    "WireRows",
    "make_run",
    "process_name",
    "read_run",
    "read_run_info",
    "to_tables",
    "write_run",
]
