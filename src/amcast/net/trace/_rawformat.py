"""Raw files, which nodes trace into: `<table>.<process>.<boot>.raw`, a header, then rows in the order of recording.

    multicasts, deliveries, wire   rows of a fixed size; what is left at the end of the file is a torn row
    faults, kinds                  lines of JSON; a last one without a line feed is torn

A multicast is a row for each of its destinations. `left` says how many follow, so that it is seen whether all are
there. Such rows stand for a run of `count` messages with consecutive ids and payloads of the same size. A row of
`deliveries` stands for a run too: ids, positions and timestamps rise by one. It may also say that the process received
a state instead of deliveries (`STATE`). `kinds` has the names of the wire messages that are numbers in `wire`, in the
order of numbers.

A node writes its tables in the order of `FLUSH_ORDER`, causes first, and before anything leaves for other processes. So
a reader that opens the tables in reverse order, deliveries first, finds the multicast of each delivery that it saw.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ...core import GroupId, ProcessId
from ...trace.packing import MULTICAST, PROCESS_DELIVERY, Row

MULTICAST_RUN: Row = (*MULTICAST, ("grp", "<i4"), ("left", "<i4"), ("count", "<i4"))
DELIVERY_RUN: Row = (*PROCESS_DELIVERY, ("count", "<i4"))
STATE = 2  # a kind in `deliveries`, beside final and optimistic: a state that covers all positions below this one

IDLE = "idle"  # a word in `faults`: boots before this one that ended before the process took part in anything

FLUSH_ORDER = ("kinds", "wire", "faults", "multicasts", "deliveries")

MAGIC = b"amctrace"
VERSION = 4
HEADER = Struct("<8sHBBiii")  # magic, version, table, how it ended, process, group, boot
HEADER_BYTES = HEADER.size
END_AT = 11  # the byte of the header that says how the file ended; overwriting it needs no space on a full disk
OPEN, CLOSED, FAILED = b"\0", b"\1", b"\2"  # FAILED: a write failed, and rows are missing


class Header(NamedTuple):
    table: str
    process: ProcessId
    group: GroupId
    boot: int

    @property
    def file_name(self) -> str:
        return f"{self.table}.{self.process}.{self.boot}.raw"

    def encode(self) -> bytes:
        return HEADER.pack(MAGIC, VERSION, FLUSH_ORDER.index(self.table), OPEN[0], self.process, self.group, self.boot)
