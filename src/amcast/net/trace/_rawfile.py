"""Reads raw files, whose form is in `_rawformat.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core import BATCH_LIMIT, UsageError
from ...trace import NULL
from ...trace.packing import PROCESS_DELIVERY, WIRE
from ...trace.run import row_type
from ._rawformat import (
    CLOSED,
    DELIVERY_RUN,
    END_AT,
    FLUSH_ORDER,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MULTICAST_RUN,
    OLDER,
    OLDER_HEADER,
    OPEN,
    ROTATED,
    VERSION,
    Header,
    segment_of,
)

ROWS = {"wire": row_type(WIRE), "multicasts": row_type(MULTICAST_RUN), "deliveries": row_type(DELIVERY_RUN)}

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


class RawFile:
    """One raw file, which may still grow. Its rows are taken once: it remembers up to where.

    It may also be dropped by its node while it is read: then it has no more rows, and `is_gone`.
    """

    def __init__(self, path: Path, header: Header, header_bytes: int = HEADER_BYTES) -> None:
        self.path = path
        self.table = header.table
        self.process = header.process
        self.group = header.group
        self.boot = header.boot
        self.segment = header.segment
        self.is_gone = False
        self.end = OPEN  # how it ended, as of the last `look`
        self._begin = self._taken = header_bytes
        self._end_at: int | None = None  # its size, once it has ended
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
        rows = self._read(self._begin, self._taken)
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
        if not len(runs):
            return np.empty(0, row_type(PROCESS_DELIVERY))
        if not are_counts(counts):
            raise self.damaged("there is a row in it that is no delivery")
        steps = steps_of(counts)
        rows = np.empty(len(steps), row_type(PROCESS_DELIVERY))
        for name, _ in PROCESS_DELIVERY:
            rows[name] = np.repeat(runs[name], counts)
        if len(rows) > len(runs):
            rows["pos"] += steps
            rows["msg"] += steps
            rows["ts"] += np.where(rows["ts"] == NULL, 0, steps)
        return rows

    def take_lines(self) -> list[bytes]:
        size = self._size()
        if size == self._taken:
            return []
        data = b""
        with self._unless_gone(), self.path.open("rb") as file:
            file.seek(self._taken)
            data = file.read(size - self._taken)
        whole, feed, _ = data.rpartition(b"\n")
        self._taken += len(whole) + len(feed)
        return whole.split(b"\n") if feed else []

    @property
    def has_rows(self) -> bool:
        return self._taken > self._begin

    @property
    def bytes_left(self) -> int:
        return self._size() - self._taken

    @property
    def is_whole(self) -> bool:
        """False if it was gone before all its rows were taken, or may have been."""
        return not self.is_gone or self._end_at == self._taken

    def look(self) -> None:
        """Looks how it ended. If it has, the rows that are read after this are its last ones."""
        with self._unless_gone(), self.path.open("rb") as file:
            file.seek(END_AT)
            self.end = file.read(1)

    def damaged(self, what: str) -> UsageError:
        return UsageError(f"{self.path} is damaged: {what}; copy it again, or leave this run out")

    def _size(self) -> int:
        size = self._taken
        with self._unless_gone():
            size = self.path.stat().st_size
            if self.end in (CLOSED, ROTATED):
                self._end_at = size
        if size < self._taken:
            raise self.damaged("it became shorter while it was read")
        return size

    def _read(self, start: int, stop: int) -> Rows:
        row = ROWS[self.table]
        rows: Rows = np.empty(0, row)
        if stop - start < row.itemsize:  # most files of a quiet node: they need not be opened
            return rows
        try:
            with self._unless_gone():
                rows = np.fromfile(self.path, row, (stop - start) // row.itemsize, offset=start)
        except MemoryError as error:
            raise self.damaged(f"no memory holds its {stop - start:,} bytes") from error
        return rows

    @contextmanager
    def _unless_gone(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            self.is_gone = True


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
    yield from sorted(found, key=lambda file: (file.process, file.boot, file.segment, file.table))


def _open(path: Path) -> RawFile | None:
    """None if it has no header: it was created a moment ago, or on a full disk. Or if its node has just dropped it."""
    foreign = UsageError(f"{path} is not a trace file of a node: remove it")
    if segment_of(path.name) is None or (os.path.lexists(path) and not path.is_file()):
        raise foreign
    try:
        with path.open("rb") as file:
            data = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return None
    version = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 2], "little")
    layout = OLDER_HEADER if version == OLDER else HEADER
    if len(data) < layout.size:
        return None
    if not data.startswith(MAGIC):
        raise foreign
    if version not in (VERSION, OLDER):
        raise UsageError(f"{path} was written by another version of amcast: collect it with that one")
    fields: tuple[Any, ...] = layout.unpack(data[: layout.size])
    header = Header(FLUSH_ORDER[fields[2]] if fields[2] < len(FLUSH_ORDER) else "?", *fields[4:])
    if header.file_name != path.name:
        raise UsageError(f"{path} is {header.file_name} by its header: give it its name back")
    return RawFile(path, header, layout.size)
