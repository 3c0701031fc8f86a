"""The files that a node traces into, `<table>.<process>.<boot>.raw`: a header, then rows in the order of recording.

    multicasts, deliveries, wire   rows of a fixed size, so that a torn last one is seen by the size of the file
    faults, kinds                  lines of JSON; a torn last one has no line feed

A multicast is one row for each destination, which count down to 0: the message is whole when the 0 is there. These rows
stand for a run of messages, each one above the other and of the same size. A row of `deliveries` stands for a run too,
of positions, messages and timestamps; who reads gets a row each. It may also say that state was handed over. `kinds`
has the names behind the numbers in `wire`, in order.

Files of one boot are written in the order of `FLUSH_ORDER`, and whatever another process does because of a row happens
after it is written: who reads the tables in the opposite order finds the reason of everything that it found.
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

ADDRESSED = np.dtype([*MULTICAST.descr, ("grp", "<i4"), ("left", "<i4"), ("count", "<i4")])
RUN = np.dtype([*PROCESS_DELIVERY.descr, ("count", "<i4")])
HANDED = 2  # a kind in `deliveries`: no message, but state that covers all positions below this one

FLUSH_ORDER = ("kinds", "wire", "faults", "multicasts", "deliveries")
ROWS = {"wire": WIRE, "multicasts": ADDRESSED, "deliveries": RUN}

MAGIC = b"amctrace"
VERSION = 3
_HEADER = Struct("<8sHBBiii")  # magic, version, table, how it ended, process, group, boot
HEADER_BYTES = _HEADER.size
END_AT = 11  # how a file ended is written over a byte of the header: that needs no room on a full disk
OPEN, CLOSED, FAILED = b"\0", b"\1", b"\2"  # FAILED: what followed could not be written

_NAME = re.compile(r"([a-z]+)\.(\d{1,9})\.(\d{1,9})\.raw")

Rows = npt.NDArray[np.void]


def are_counts(counts: npt.NDArray[np.int32]) -> bool:
    """Whether these can be the lengths of runs."""
    return not len(counts) or 0 < counts.min() <= counts.max() <= BATCH_LIMIT


def steps_of(counts: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """0, 1, 2... for each run."""
    ends = np.cumsum(counts, dtype=np.int64)
    steps: npt.NDArray[np.int64] = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    return steps


class Header(NamedTuple):
    table: str
    process: ProcessId
    group: GroupId
    boot: int


def file_name(table: str, process: ProcessId, boot: int) -> str:
    return f"{table}.{process}.{boot}.raw"


def encode_header(header: Header) -> bytes:
    number = FLUSH_ORDER.index(header.table)
    return _HEADER.pack(MAGIC, VERSION, number, 0, header.process, header.group, header.boot)


class RawFile:
    """One file, which may still grow. It remembers how far it was taken in."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.table = header.table
        self.process = header.process
        self.group = header.group
        self.boot = header.boot
        self._taken = HEADER_BYTES
        self._run_ends = np.zeros(0, np.int64)  # of what was read last

    def rows(self) -> Rows:
        """Whole rows that were not taken yet."""
        rows = self._read(self._taken, self._size())
        if self.table != "deliveries":
            return rows
        self._run_ends = np.cumsum(rows["count"], dtype=np.int64)
        return self._spread(rows)

    def rows_before(self) -> Rows:
        """Those that were."""
        rows = self._read(HEADER_BYTES, self._taken)
        return self._spread(rows) if self.table == "deliveries" else rows

    def take_rows(self, count: int) -> None:
        """So many of those that were read last."""
        if self.table == "deliveries" and count:
            runs = int(np.searchsorted(self._run_ends, count)) + 1
            assert self._run_ends[runs - 1] == count, "runs are taken whole"
            count = runs
        self._taken += count * ROWS[self.table].itemsize

    def _spread(self, runs: Rows) -> Rows:
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
    def left_bytes(self) -> int:
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


def raw_files(folder: Path, known: dict[str, RawFile]) -> Iterator[RawFile]:
    """The files of a folder that are not known yet, by process and boot. What has no business there is an error."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in known and not entry.name.startswith("."):
                file = _open(folder / entry.name)
                if file is not None:
                    found.append(file)
    yield from sorted(found, key=lambda file: (file.process, file.boot, file.table))


def _open(path: Path) -> RawFile | None:
    """None: it was just made, or the disk was full then, and has no header."""
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
    table = FLUSH_ORDER[number] if number < len(FLUSH_ORDER) else "?"
    if file_name(table, process, boot) != path.name:
        raise UsageError(f"{path} is {file_name(table, process, boot)} by its header: give it its name back")
    return RawFile(path, Header(table, process, group, boot))
