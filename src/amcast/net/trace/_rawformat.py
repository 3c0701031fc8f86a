"""Raw files, which nodes trace into: a header, then rows in the order of recording.

    deliveries.0.1.raw             the table, the process, its boot; the first segment of that boot
    deliveries.0.1.7.raw           segment 7

    multicasts, deliveries, wire   rows of a fixed size; what is left at the end of the file is a torn row
    faults, kinds                  lines of JSON; a last one without a line feed is torn

A multicast is a row for each of its destinations. `left` says how many follow, so that it is seen whether all are
there. Such rows stand for a run of `count` messages with consecutive ids and payloads of the same size. A row of
`deliveries` stands for a run too: ids, positions and timestamps rise by one. It may also say that the process received
a state instead of deliveries (`STATE`). `kinds` has the names of the wire messages that are numbers in `wire`, in the
order of numbers.

A boot goes on in a new segment when one is full: a new file for each table. Files of the one before are marked ROTATED
when those of the next are there, so that it is seen if the end of a boot is missing. `_retention.py` says which
segments are dropped.

A node writes its tables in the order of `FLUSH_ORDER`, causes first, and before anything leaves for other processes. So
a reader that opens the tables in reverse order, deliveries first, finds the multicast of each delivery that it saw.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Annotated, NamedTuple

import msgspec

from ...core import GroupId, MessageId, ProcessId
from ...trace.packing import MULTICAST, PROCESS_DELIVERY, Row

MULTICAST_RUN: Row = (*MULTICAST, ("grp", "<i4"), ("left", "<i4"), ("count", "<i4"))
DELIVERY_RUN: Row = (*PROCESS_DELIVERY, ("count", "<i4"))
STATE = 2  # a kind in `deliveries`, beside final and optimistic: a state that covers all positions below this one

# Words in `faults` that do not go into the run.
IDLE = "idle"  # boots before this one that ended before the process took part in anything
DROPPED = "dropped"  # which of the oldest segments were removed on purpose: a `Dropped`
TOUCHES = "touches"  # which objects a message reads or writes: a `Touches`. Written before the multicast itself

FLUSH_ORDER = ("kinds", "wire", "faults", "multicasts", "deliveries")

MAGIC = b"amctrace"
VERSION = 5
HEADER = Struct("<8sHBBiiii")  # magic, version, table, how it ended, process, group, boot, segment
HEADER_BYTES = HEADER.size
OLDER = 4  # had no segments: a file was a whole boot
OLDER_HEADER = Struct("<8sHBBiii")
END_AT = 11  # the byte of the header that says how the file ended; overwriting it needs no space on a full disk
OPEN, CLOSED, FAILED, ROTATED = b"\0", b"\1", b"\2", b"\3"  # FAILED: a write failed, and rows are missing

_NAME = re.compile(r"([a-z]+)\.(\d{1,9})\.(\d{1,9})(?:\.([1-9]\d{0,8}))?\.raw")


class Header(NamedTuple):
    table: str
    process: ProcessId
    group: GroupId
    boot: int
    segment: int = 0

    @property
    def file_name(self) -> str:
        return f"{self.table}.{self.process}.{self.boot}{f'.{self.segment}' if self.segment else ''}.raw"

    def encode(self) -> bytes:
        return HEADER.pack(MAGIC, VERSION, FLUSH_ORDER.index(self.table), OPEN[0], *self[1:])


class Dropped(msgspec.Struct, frozen=True):
    """Everything that a process traced up to this segment was removed on purpose, and by which limit."""

    boot: int
    segment: int
    limit: str  # in words: "the limit of 1 GB"


class Touches(msgspec.Struct, frozen=True, array_like=True):
    message: Annotated[MessageId, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    objects: list[Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]]  # by their numbers


def segment_of(name: str) -> tuple[str, ProcessId, int, int] | None:
    """The table, the process, the boot and the segment that a file has by its name; None if it is no raw file."""
    found = _NAME.fullmatch(name)
    if found is None or found[1] not in FLUSH_ORDER:
        return None
    return found[1], int(found[2]), int(found[3]), int(found[4] or 0)
