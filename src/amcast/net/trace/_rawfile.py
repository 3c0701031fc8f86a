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

import os
import re
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core import BATCH_LIMIT, GroupId, ProcessId, UsageError
from ...trace import NULL
from ...trace.packing import MULTICAST, PROCESS_DELIVERY, WIRE

MULTICAST_RUN = np.dtype([*MULTICAST.descr, ("grp", "<i4"), ("left", "<i4"), ("count", "<i4")])
DELIVERY_RUN = np.dtype([*PROCESS_DELIVERY.descr, ("count", "<i4")])
STATE = 2  # a kind in `deliveries`, beside final and optimistic: a state that covers all positions below this one

IDLE = "idle"  # a word in `faults`: boots before this one that ended before the process took part in anything

FLUSH_ORDER = ("kinds", "wire", "faults", "multicasts", "deliveries")
ROWS = {"wire": WIRE, "multicasts": MULTICAST_RUN, "deliveries": DELIVERY_RUN}

MAGIC = b"amctrace"
VERSION = 4
_HEADER = Struct("<8sHBBiii")  # magic, version, table, how it ended, process, group, boot
HEADER_BYTES = _HEADER.size
END_AT = 11  # the byte of the header that says how the file ended; overwriting it needs no space on a full disk
OPEN, CLOSED, FAILED = b"\0", b"\1", b"\2"  # FAILED: a write failed, and rows are missing

_NAME = re.compile(r"([a-z]+)\.(\d{1,9})\.(\d{1,9})\.raw")

Rows = npt.NDArray[np.void]
Mask = npt.NDArray[np.bool_]


def are_counts(counts: npt.NDArray[np.int32]) -> bool:
    """Whether all of these are possible lengths of runs."""
    return not len(counts) or 0 < counts.min() <= counts.max() <= BATCH_LIMIT


def steps_of(counts: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """For each run 0, 1, 2... up to its length: counts of 2 and 3 give 0, 1, 0, 1, 2."""
    ends = np.cumsum(counts, dtype=np.int64)
    steps: npt.NDArray[np.int64] = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    return steps


class Header(NamedTuple):
    table: str
    process: ProcessId
    group: GroupId
    boot: int

    @property
    def file_name(self) -> str:
        return f"{self.table}.{self.process}.{self.boot}.raw"

    def encode(self) -> bytes:
        return _HEADER.pack(MAGIC, VERSION, FLUSH_ORDER.index(self.table), OPEN[0], self.process, self.group, self.boot)


class RawFile:
    """One raw file, which may still grow. Its rows are taken once: it remembers up to where."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.table = header.table
        self.process = header.process
        self.group = header.group
        self.boot = header.boot
        self._taken = HEADER_BYTES
        self._run_ends = np.zeros(0, np.int64)  # the deliveries up to the end of each run in the last `rows`

    def rows(self) -> Rows:
        """The rows that are not taken yet, runs expanded, without a torn last one."""
        rows = self._read(self._taken, self._size())
        if self.table != "deliveries":
            return rows
        self._run_ends = np.cumsum(rows["count"], dtype=np.int64)
        return self._expanded(rows)

    def rows_taken(self) -> Rows:
        """The rows that are taken already."""
        rows = self._read(HEADER_BYTES, self._taken)
        return self._expanded(rows) if self.table == "deliveries" else rows

    def take_rows(self, count: int) -> None:
        """Takes the first `count` of the rows that the last `rows` returned."""
        if self.table == "deliveries" and count:
            runs = int(np.searchsorted(self._run_ends, count)) + 1
            assert self._run_ends[runs - 1] == count, "a run is taken as a whole"
            count = runs
        self._taken += count * ROWS[self.table].itemsize

    def _expanded(self, runs: Rows) -> Rows:
        counts = runs["count"]
        if not are_counts(counts):
            raise self.damaged("there is a row in it that is no delivery")
        steps = steps_of(counts)
        rows = np.empty(len(steps), PROCESS_DELIVERY)
        for name in PROCESS_DELIVERY.names or ():
            rows[name] = np.repeat(runs[name], counts)
        if len(rows) > len(runs):
            rows["pos"] += steps
            rows["msg"] += steps
            rows["ts"] += np.where(rows["ts"] == NULL, 0, steps)
        return rows

    def take_lines(self) -> list[bytes]:
        size = self._size()
        with self.path.open("rb") as file:
            file.seek(self._taken)
            whole, feed, _ = file.read(size - self._taken).rpartition(b"\n")
        self._taken += len(whole) + len(feed)
        return whole.split(b"\n") if feed else []

    @property
    def bytes_left(self) -> int:
        return self._size() - self._taken

    @property
    def end(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(END_AT)
            return file.read(1)

    def damaged(self, what: str) -> UsageError:
        return UsageError(f"{self.path} is damaged: {what}; copy it again, or leave this run out")

    def _size(self) -> int:
        size = self.path.stat().st_size
        if size < self._taken:
            raise self.damaged("it became shorter while it was read")
        return size

    def _read(self, start: int, stop: int) -> Rows:
        row = ROWS[self.table]
        try:
            rows: Rows = np.fromfile(self.path, row, (stop - start) // row.itemsize, offset=start)
        except MemoryError as error:
            raise self.damaged(f"no memory holds its {stop - start:,} bytes") from error
        return rows


class Boot:
    """The times of the first and the last row of one boot."""

    def __init__(self) -> None:
        self.has_rows = False
        self.first = 0
        self.last = 0

    def saw(self, t_us: npt.NDArray[np.int64]) -> None:
        if len(t_us):
            first, last = int(t_us.min()), int(t_us.max())
            self.first = min(self.first, first) if self.has_rows else first
            self.last = max(self.last, last) if self.has_rows else last
            self.has_rows = True


def raw_files(folder: Path, known: dict[str, RawFile]) -> Iterator[RawFile]:
    """The raw files in a folder that are not known yet, by process and boot. Other files there are an error."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in known and not entry.name.startswith("."):
                file = _open(folder / entry.name)
                if file is not None:
                    found.append(file)
    yield from sorted(found, key=lambda file: (file.process, file.boot, file.table))


def _open(path: Path) -> RawFile | None:
    """None if it has no header: it was created a moment ago, or on a full disk."""
    foreign = UsageError(f"{path} is not a trace file of a node: remove it")
    name = _NAME.fullmatch(path.name)
    if name is None or name[1] not in FLUSH_ORDER or not path.is_file():
        raise foreign
    with path.open("rb") as file:
        data = file.read(HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return None
    if not data.startswith(MAGIC):
        raise foreign
    fields: tuple[Any, ...] = _HEADER.unpack(data)
    _, version, number, _, process, group, boot = fields
    if version != VERSION:
        raise UsageError(f"{path} was written by another version of amcast: collect it with that one")
    header = Header(FLUSH_ORDER[number] if number < len(FLUSH_ORDER) else "?", process, group, boot)
    if header.file_name != path.name:
        raise UsageError(f"{path} is {header.file_name} by its header: give it its name back")
    return RawFile(path, header)
