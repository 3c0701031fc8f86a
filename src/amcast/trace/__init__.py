"""What a run did, as tables: recorded while it goes on, written as one folder, read back with suspicion."""

from .reader import read_run, read_run_info
from .recorder import Recorder
from .run import NULL, Deliveries, Fault, Multicasts, Run, WireRows, make_run
from .schema import FINAL, OPTIMISTIC, TABLES, GroupInfo, RunInfo, process_name
from .writer import write_run

__all__ = [
    "FINAL",
    "NULL",
    "OPTIMISTIC",
    "TABLES",
    "Deliveries",
    "Fault",
    "GroupInfo",
    "Multicasts",
    "Recorder",
    "Run",
    "RunInfo",
    "WireRows",
    "make_run",
    "process_name",
    "read_run",
    "read_run_info",
    "write_run",
]
