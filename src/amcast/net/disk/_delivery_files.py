"""The files of a delivery log: delivered messages by position, in segments; the oldest segments are dropped.

A write goes to the kernel, and outlives the process. Syncs are rare and run beside the writes, so when the machine
stops several segments may be unsynced, and any part of them may be missing. On opening, segments are read from the
newest back to the first one that is known to be durable. The log ends at the first gap after that: if positions up to
40 are found, and then 60 and more, `next` is 41. Segments before are indexed when they are first read.

A segment whose first frame is empty is a new beginning: a replica was given another one's state instead of the messages
below this position, and nothing below it is kept.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from ...core import StampedMessage, encode
from ..system import system
from ._segments import (
    DELIVERED,
    FILE_HEADER,
    FRAME_HEADER,
    SegmentFile,
    SegmentReader,
    files,
    open_salt,
    pack_frame,
    path_of,
    tidy,
    unpack_header,
)
from .files import CorruptLogError, is_full, read_at, sync, sync_folder

_FRAME_DELIVERIES = 512  # a turn with more makes several frames, so that to read one message is to read few others
_INDEX_MESSAGES = 1_000
_BLOCK_BYTES = 64 << 10
_decoder: msgspec.msgpack.Decoder[list[StampedMessage]] = msgspec.msgpack.Decoder(list[StampedMessage])


OVERHEAD_BYTES = 32  # of a delivery besides its payload: about what it takes in memory and on disk


def size_of(delivery: StampedMessage) -> int:
    return OVERHEAD_BYTES + len(delivery[0].payload)


class Index:
    """Where frames of a segment are in its file: one frame for about a thousand messages."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._offsets: list[int] = []

    def add(self, position: int, offset: int) -> None:
        if not self._positions or position >= self._positions[-1] + _INDEX_MESSAGES:
            self._positions.append(position)
            self._offsets.append(offset)

    def offset(self, position: int) -> int:
        """The offset of the last indexed frame that does not begin after this position."""
        return self._offsets[max(0, bisect_right(self._positions, position) - 1)] if self._offsets else FILE_HEADER


class _Scanned(NamedTuple):
    """A segment that was read on opening, up to the first bad frame."""

    first: int
    next: int
    high_water: int  # the highest in it
    is_beginning: bool
    reader: SegmentReader


class DeliveryFiles:
    """Holds the positions `first <= position < next`. Calls must not overlap.

    A sync is split in two, so that writes go on meanwhile: the caller syncs files between `begin_sync` and `end_sync`.
    """

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        tidy(folder, (DELIVERED,))
        self._firsts = files(folder, DELIVERED)
        self._salt = open_salt(folder, is_empty=not self._firsts)
        self._indexes: dict[int, Index] = {}  # by the segment's first position
        self._unsynced: list[SegmentFile] = []  # full segments
        self._file: SegmentFile | None = None
        self.note: str | None = None
        self.next = 0
        self._recover()
        self._synced = self.next

    @property
    def first(self) -> int:
        return self._firsts[0] if self._firsts else self.next

    # -- recovery

    def _recover(self) -> None:
        scanned: list[_Scanned] = []
        high_water = 0
        for first in reversed(self._firsts):
            segment = self._scan(first)
            scanned.insert(0, segment)
            high_water = max(high_water, segment.high_water)
            if segment.is_beginning:
                self.drop_before(first)
            if segment.is_beginning or high_water >= first:
                break
        kept = self._without_gap(scanned, high_water)
        for segment in scanned[len(kept) :]:
            self._firsts.remove(segment.first)
            system().unlink(segment.reader.path)
        for segment in kept:
            if self._file is not None:
                self._file.close()
            self._file = SegmentFile.reopen(segment.reader)
        if scanned:
            self.next = kept[-1].next if kept else scanned[0].first

    def _scan(self, first: int) -> _Scanned:
        reader = SegmentReader(path_of(self._folder, DELIVERED, first), DELIVERED, first, self._salt)
        next_, high_water, is_beginning = first, 0, False
        index = self._indexes[first] = Index()
        offset = reader.end
        for frame_first, count, frame_high_water, _ in reader.frames():
            if frame_first != next_:
                raise CorruptLogError(reader.path, f"position {next_} is missing: what follows is {frame_first}")
            is_beginning = is_beginning or (count == 0 and offset == FILE_HEADER)
            index.add(frame_first, offset)
            offset = reader.end
            next_ += count
            high_water = max(high_water, frame_high_water)
        if reader.has_rest:
            high_water = max(high_water, reader.high_water_beyond())
        return _Scanned(first, next_, high_water, is_beginning, reader)

    def _without_gap(self, scanned: list[_Scanned], high_water: int) -> list[_Scanned]:
        """The segments up to the first gap. All positions below the high-water mark were durable, and must be there."""
        kept: list[_Scanned] = []
        for segment in scanned:
            if kept and kept[-1].next != segment.first:
                break
            if segment.reader.end >= FILE_HEADER:
                kept.append(segment)
            if segment.reader.has_rest:
                break
        next_ = kept[-1].next if kept else scanned[0].first if scanned else 0
        if high_water > next_:
            path = kept[-1].reader.path if kept else self._folder
            raise CorruptLogError(path, f"position {next_}, which was durable, is damaged or missing")
        lost = [segment.reader for segment in scanned if segment.reader.has_rest or segment not in kept]
        if any(reader.data for reader in lost):
            self.note = f"{lost[0].path}: cut off what was being written at position {next_} when it stopped"
        return kept

    # -- writing

    def write(self, deliveries: list[StampedMessage]) -> None:
        """Writes deliveries at the positions from `next` on: all of them or, with an error, none."""
        file = self._writable()
        offset, position = file.size, self.next
        frames, places = [], []
        for start in range(0, len(deliveries), _FRAME_DELIVERIES):
            chunk = deliveries[start : start + _FRAME_DELIVERIES]
            count = sum([message.count for message, _ in chunk])
            frames.append(pack_frame(self._salt, position, count, self._synced, encode(chunk)))
            places.append((position, offset))
            position += count
            offset += len(frames[-1])
        file.append(b"".join(frames))
        file.write_behind()
        index = self._indexes[self._firsts[-1]]
        for place in places:
            index.add(*place)
        self.next = position

    def _writable(self) -> SegmentFile:
        file = self._file
        if file is not None and file.size >= self._segment_bytes and self.next > self._firsts[-1]:
            self._unsynced.append(file)
            self._file = None
        if self._file is None:
            self._file = SegmentFile.create(self._folder, DELIVERED, self.next, self._salt)
            self._firsts.append(self.next)
            self._indexes[self.next] = Index()
        return self._file

    def begin_sync(self) -> tuple[int, list[int]]:
        """The position below which all is durable once these files are synced. The caller syncs and closes them."""
        full = [file.fd for file in self._unsynced]
        self._unsynced = []
        return self.next, full if self._file is None else [*full, system().dup(self._file.fd)]

    def end_sync(self, position: int) -> None:
        self._synced = max(self._synced, position)

    def drop_before(self, position: int) -> None:
        """Deletes the segments that have no position at or above this one."""
        while len(self._firsts) > 1 and self._firsts[1] <= position:
            first = self._firsts.pop(0)
            self._indexes.pop(first, None)
            path = path_of(self._folder, DELIVERED, first)
            for file in [file for file in self._unsynced if file.path == path]:
                self._unsynced.remove(file)
                file.close()
            system().unlink(path)

    def begin_at(self, position: int) -> None:
        """Forgets everything below this position, where the log goes on. A crash leaves the log as before or after."""
        file = SegmentFile.create(self._folder, DELIVERED, position, self._salt)
        try:
            file.append(pack_frame(self._salt, position, 0, position, b""))
            sync(file.fd)
            sync_folder(self._folder)
        except OSError:
            file.close()
            system().unlink(file.path)
            raise
        self._close_files()
        self._file = file
        self._firsts.append(position)
        self._indexes[position] = Index()
        self.next = self._synced = position
        self.drop_before(position)

    def close(self) -> None:
        position, fds = self.begin_sync()
        sync_and_close(fds, self._folder)
        self.end_sync(position)
        self._write_high_water()
        self._close_files()

    def _write_high_water(self) -> None:
        """Notes in the segment that all of it is durable. Not in an empty one, where it would mean a new beginning."""
        if self._file is not None and self._file.size > FILE_HEADER:
            try:
                self._file.append(pack_frame(self._salt, self.next, 0, self._synced, b""))
            except OSError as error:
                if not is_full(error):
                    raise

    def _close_files(self) -> None:
        for file in (*self._unsynced, *([self._file] if self._file else [])):
            file.close()
        self._unsynced, self._file = [], None

    # -- reading

    def read(self, position: int, limit_bytes: int) -> tuple[int, list[StampedMessage]]:
        """Deliveries from this position on: at least one, then up to the limit or the end of the segment.

        The first one may be a batch that begins before the position: so where it begins is returned too.
        """
        assert self.first <= position < self.next
        first = self._firsts[bisect_right(self._firsts, position) - 1]
        path = path_of(self._folder, DELIVERED, first)
        fd = system().open(path, os.O_RDONLY)
        try:
            return self._read(fd, path, self._index(fd, path, first).offset(position), position, limit_bytes)
        finally:
            system().close(fd)

    def _read(
        self, fd: int, path: Path, offset: int, position: int, limit_bytes: int
    ) -> tuple[int, list[StampedMessage]]:
        found: list[StampedMessage] = []
        begins = position
        for at, first, count, checksum, body in self._frames(fd, path, offset):
            if first + count <= position:
                continue
            if first > position or crc32(body, self._salt) != checksum:
                raise CorruptLogError(path, f"position {position} is damaged or missing at byte {at}")
            for delivery in _decoder.decode(body):
                next_ = first + delivery[0].count
                if next_ > position:
                    limit_bytes -= size_of(delivery)
                    if limit_bytes < 0 and found:
                        return begins, found
                    begins = begins if found else first
                    found.append(delivery)
                first = next_
            position = first
        if not found:
            raise CorruptLogError(path, f"position {position} is missing")
        return begins, found

    def _index(self, fd: int, path: Path, first: int) -> Index:
        index = self._indexes.get(first)
        if index is None:
            index = Index()
            for at, position, _, _, _ in self._frames(fd, path, FILE_HEADER):
                index.add(position, at)
            self._indexes[first] = index
        return index

    def _frames(self, fd: int, path: Path, offset: int) -> Iterator[tuple[int, int, int, int, memoryview]]:
        """Offset, first position, count, checksum and body of each frame. The caller compares body and checksum."""
        block, start = b"", offset
        while True:
            header = unpack_header(block, offset - start, self._salt)
            if header is None:
                block, start = read_at(fd, _BLOCK_BYTES, offset), offset
                header = unpack_header(block, 0, self._salt)
                if header is None:
                    if block:
                        raise CorruptLogError(path, f"it is damaged at byte {offset}")
                    return
            checksum, count, length, first, _ = header
            end = offset + FRAME_HEADER + length
            if end > start + len(block):
                block, start = read_at(fd, FRAME_HEADER + length, offset), offset
            yield offset, first, count, checksum, memoryview(block)[offset + FRAME_HEADER - start : end - start]
            offset = end


def sync_and_close(fds: list[int], folder: Path) -> None:
    try:
        for fd in fds:
            sync(fd)
        sync_folder(folder)
    finally:
        for fd in fds:
            system().close(fd)
