"""The trace of a run, tables of what it did: recorded while it goes on, written as one folder, read back.

Readers trust nothing in a folder, since other programs write such folders too. Nodes use the words of `schema` and
`packing` alone, and do not load numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazily
from .schema import FINAL, NULL, OPTIMISTIC, TABLES, Fault, GroupInfo, RunInfo, process_name

if TYPE_CHECKING:
    from .operations import Operations
    from .reader import read_run, read_run_info
    from .recorder import Recorder
    from .run import Answers, Deliveries, Multicasts, Objects, Run, Tables, WireRows, make_run
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
    "Objects",
    "Operations",
    "Recorder",
    "Run",
    "RunInfo",
    "Tables",
    "WireRows",
    "make_run",
    "process_name",
    "read_run",
    "read_run_info",
    "write_run",
]

__getattr__ = lazily(
    __name__,
    dict.fromkeys(("read_run", "read_run_info"), "reader")
    | dict.fromkeys(("Answers", "Deliveries", "Multicasts", "Objects", "Run", "Tables", "WireRows", "make_run"), "run")
    | dict.fromkeys(("GrowingRun", "write_run"), "writer")
    | {"Operations": "operations", "Recorder": "recorder"},
)
