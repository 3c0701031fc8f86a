"""The files of a delivery log: delivered messages by position, in segments; the oldest segments are dropped.

A write goes to the kernel, and outlives the process. Syncs are rare and run beside the writes, so when the machine
stops several segments may be unsynced, and any part of them may be missing. On opening, segments are read from the
newest back to the first one that is known to be durable. The log ends at the first gap after that: if positions up to
40 are found, and then 60 and more, `next` is 41. Segments before are indexed when they are first read.

A log may have gaps: a replica was given another one's state instead of some messages, and goes on after them.

    delivered-0, delivered-30    up to 40        segments as they were written
    filled-40                    40 to 70        messages that another replica sent later
                                 70 to 100       still missing
    delivered-100                from 100 on     a beginning

A segment whose first frame is empty is a beginning: the frame tells where the log ended before, at 40, which was made
durable first. So recovery never looks below a beginning for what was being written. A filled segment has such a first
frame too, which tells where the segment ends, and appears under its name when it is whole and durable.
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
    FILLED,
    FRAME_HEADER,
    SegmentFile,
    SegmentReader,
    file_header,
    files,
    open_salt,
    pack_frame,
    path_of,
    tidy,
    unpack_header,
)
from .files import CorruptLogError, is_full, read_at, sync, sync_folder, write_file

_FRAME_DELIVERIES = 512  # a turn with more makes several frames, so that to read one message is to read few others
_INDEX_MESSAGES = 1_000
_BLOCK_BYTES = 64 << 10
_END = 8  # bytes of the body of a first frame: the position where the log ended before, or where a filled segment ends
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


class PositionGoneError(Exception):
    """The position that was asked for is not in the log any more, or never was; `first` is the next one that is."""

    def __init__(self, first: int) -> None:
        super().__init__(f"this position is gone: start at {first}")
        self.first = first


class _Scanned(NamedTuple):
    """A segment that was read on opening, up to the first bad frame."""

    first: int
    next: int
    high_water: int  # the highest in it
    ended: int | None  # of a beginning: where the log ended before
    places: Index
    reader: SegmentReader


class _Segment:
    """`end` is the position after its last one; none for the segment that is being written."""

    __slots__ = ("end", "first", "index", "is_filled", "path")

    def __init__(
        self, path: Path, first: int, end: int | None, index: Index | None = None, is_filled: bool = False
    ) -> None:
        self.path = path
        self.first = first
        self.end = end
        self.index = index
        self.is_filled = is_filled


class DeliveryFiles:
    """Holds positions below `next`. Calls must not overlap, but `write_fill` may run beside all others.

    A sync is split in two, so that writes go on meanwhile: the caller syncs files between `begin_sync` and `end_sync`.
    """

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        tidy(folder, (DELIVERED, FILLED))
        delivered = files(folder, DELIVERED)
        self._salt = open_salt(folder, is_empty=not delivered)
        self._segments: list[_Segment] = []  # by position
        self._firsts: list[int] = []  # of each segment
        self._unsynced: list[tuple[SegmentFile, int]] = []  # full segments, and the end of each
        self._file: SegmentFile | None = None
        self.note: str | None = None
        self.next = 0
        self._recover(delivered)
        self._find_filled()
        self._synced = self.next

    @property
    def first(self) -> int:
        return self._firsts[0] if self._firsts else self.next

    # -- recovery

    def _recover(self, delivered: list[int]) -> None:
        scanned: list[_Scanned] = []
        high_water = 0
        for first in reversed(delivered):
            segment = self._scan(first)
            scanned.insert(0, segment)
            high_water = max(high_water, segment.high_water)
            if segment.ended is not None or high_water >= first:
                break
        if not scanned:
            return
        kept = self._without_gap(scanned, high_water)
        for segment in scanned[len(kept) :]:
            system().unlink(segment.reader.path)
        if len(kept) < len(scanned):
            # If the power failed now, a deleted segment could come back, and new ones for the positions before it could
            # be missing: then it would look as if the log began with it.
            sync_folder(self._folder)
        self._find_older(delivered[: -len(scanned)], scanned[0])
        for segment in kept:
            if self._file is not None:
                self._file.close()
                self._segments[-1].end = segment.first
            self._file = SegmentFile.reopen(segment.reader)
            self._insert(_Segment(segment.reader.path, segment.first, None, segment.places))
        self.next = kept[-1].next if kept else scanned[0].first

    def _find_older(self, firsts: list[int], after: _Scanned) -> None:
        """Segments that are known to be durable. A beginning tells where the one before it ends."""
        end = after.first if after.ended is None else after.ended
        for first in reversed(firsts):
            path = path_of(self._folder, DELIVERED, first)
            ended = self._read_end(path, DELIVERED, first)
            if end > first:
                self._insert(_Segment(path, first, end))
                end = first if ended is None else ended
            else:
                system().unlink(path)  # the log went on elsewhere before anything was written to it

    def _find_filled(self) -> None:
        """Deletes what is no whole segment, or lies in no gap. If it is missing then, it is filled again."""
        for first in files(self._folder, FILLED):
            path = path_of(self._folder, FILLED, first)
            end = self._read_end(path, FILLED, first)
            if end is not None and self._is_free(first, end):
                self._insert(_Segment(path, first, end, is_filled=True))
            else:
                system().unlink(path)

    def _is_free(self, first: int, end: int) -> bool:
        """Whether these positions lie in a gap."""
        return any(start <= first < end <= stop for start, stop in self.gaps())

    def _read_end(self, path: Path, kind: str, first: int) -> int | None:
        """What the first frame tells, if it is an empty one."""
        fd = system().open(path, os.O_RDONLY)
        try:
            data = read_at(fd, FILE_HEADER + FRAME_HEADER + _END, 0)
        finally:
            system().close(fd)
        header = unpack_header(data, FILE_HEADER, self._salt)
        if header is None or header[1] != 0 or data[:FILE_HEADER] != file_header(kind, first, self._salt):
            return None
        body = data[FILE_HEADER + FRAME_HEADER :]
        return int.from_bytes(body, "little") if crc32(body, self._salt) == header[0] else None

    def _insert(self, segment: _Segment) -> None:
        at = bisect_right(self._firsts, segment.first)
        self._firsts.insert(at, segment.first)
        self._segments.insert(at, segment)

    def _scan(self, first: int) -> _Scanned:
        reader = SegmentReader(path_of(self._folder, DELIVERED, first), DELIVERED, first, self._salt)
        next_, high_water, ended = first, 0, None
        index = Index()
        offset = reader.end
        for frame_first, count, frame_high_water, body in reader.frames():
            if frame_first != next_:
                raise CorruptLogError(reader.path, f"position {next_} is missing: what follows is {frame_first}")
            if count == 0 and offset == FILE_HEADER:
                ended = int.from_bytes(body, "little")
            index.add(frame_first, offset)
            offset = reader.end
            next_ += count
            high_water = max(high_water, frame_high_water)
        if reader.has_rest:
            high_water = max(high_water, reader.high_water_beyond())
        return _Scanned(first, next_, high_water, ended, index, reader)

    def _without_gap(self, scanned: list[_Scanned], high_water: int) -> list[_Scanned]:
        """The segments up to the first gap. All positions below the high-water mark were durable, and must be there."""
        kept: list[_Scanned] = []
        for segment in scanned:
            # A segment without a header lost all that was in it, also if segments after it were not lost.
            if segment.reader.end < FILE_HEADER or (kept and kept[-1].next != segment.first):
                break
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
        frames, places, position = self._pack(self.next, file.size, self._synced, deliveries)
        file.append(b"".join(frames))
        file.write_behind()
        index = self._segments[-1].index
        assert index is not None
        for place in places:
            index.add(*place)
        self.next = position

    def _pack(
        self, position: int, offset: int, high_water: int, deliveries: list[StampedMessage]
    ) -> tuple[list[bytes], list[tuple[int, int]], int]:
        """Frames, the position and the offset of each, and the position after them."""
        frames, places = [], []
        for start in range(0, len(deliveries), _FRAME_DELIVERIES):
            chunk = deliveries[start : start + _FRAME_DELIVERIES]
            count = sum([message.count for message, _ in chunk])
            frames.append(pack_frame(self._salt, position, count, high_water, encode(chunk)))
            places.append((position, offset))
            position += count
            offset += len(frames[-1])
        return frames, places, position

    def _writable(self) -> SegmentFile:
        file = self._file
        if file is not None and file.size >= self._segment_bytes and self.next > self._firsts[-1]:
            self._unsynced.append((file, self.next))
            self._segments[-1].end = self.next
            self._file = None
        if self._file is None:
            self._file = SegmentFile.create(self._folder, DELIVERED, self.next, self._salt)
            self._insert(_Segment(self._file.path, self.next, None, Index()))
        return self._file

    def begin_sync(self) -> tuple[int, list[int]]:
        """The position below which all is durable once these files are synced. The caller syncs and closes them."""
        files = [file for file, _ in self._unsynced]
        if self._file is not None:
            files.append(self._file)
        return self.next, [system().dup(file.fd) for file in files]

    def end_sync(self, position: int) -> None:
        self._synced = max(self._synced, position)
        while self._unsynced and self._unsynced[0][1] <= position:
            self._unsynced.pop(0)[0].close()

    def drop_before(self, position: int) -> None:
        """Deletes the segments that have no position at or above this one."""
        while len(self._segments) > 1 and (end := self._segments[0].end) is not None and end <= position:
            del self._firsts[0]
            self._delete(self._segments.pop(0))

    def _delete(self, segment: _Segment) -> None:
        for each in [each for each in self._unsynced if each[0].path == segment.path]:
            self._unsynced.remove(each)
            each[0].close()
        system().unlink(segment.path)

    # -- gaps

    def begin_at(self, position: int) -> None:
        """The log goes on at this position. A crash leaves the log as before or after."""
        synced, fds = self.begin_sync()
        sync_and_close(fds, self._folder)
        self.end_sync(synced)
        ended = self._ended()
        file = SegmentFile.create(self._folder, DELIVERED, position, self._salt)
        try:
            # The high-water mark is where the log ended: if this frame is torn, what is below it must still be there.
            file.append(pack_frame(self._salt, position, 0, ended, ended.to_bytes(_END, "little")))
            sync(file.fd)
            sync_folder(self._folder)
        except OSError:
            file.close()
            system().unlink(file.path)
            raise
        if self._file is not None:
            self._segments[-1].end = self.next
        self._close_files()
        if self._firsts and self._firsts[-1] == self.next:
            del self._firsts[-1]
            self._delete(self._segments.pop())  # nothing was written to it
        self._file = file
        self._insert(_Segment(file.path, position, None, Index()))
        self.next = self._synced = position

    def _ended(self) -> int:
        """Where the deliveries of this process itself end. The last segment may be a beginning without any yet."""
        for segment in reversed(self._segments):
            end = self.next if segment.end is None else segment.end
            if not segment.is_filled and end > segment.first:
                return end
        return 0

    def gaps(self) -> Iterator[tuple[int, int]]:
        """The ranges of positions below `next` that are missing, from the lowest to the highest."""
        end: int | None = 0
        for segment in self._segments:
            if end is not None and end < segment.first:
                yield end, segment.first
            end = segment.end

    def write_fill(self, first: int, deliveries: list[StampedMessage]) -> int:
        """Writes a segment that lies in a gap, whole and durable, and returns its end: `add_fill` makes it known."""
        frames, _, end = self._pack(first, 0, first, deliveries)
        head = pack_frame(self._salt, first, 0, first, end.to_bytes(_END, "little"))
        path = path_of(self._folder, FILLED, first)
        write_file(path, file_header(FILLED, first, self._salt), head, *frames)
        return end

    def add_fill(self, first: int, end: int) -> None:
        assert self._is_free(first, end), "only gaps are filled"
        self._insert(_Segment(path_of(self._folder, FILLED, first), first, end, is_filled=True))

    # -- closing

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
        for file in (*[file for file, _ in self._unsynced], *([self._file] if self._file else [])):
            file.close()
        self._unsynced, self._file = [], None

    # -- reading

    def read(self, position: int, limit_bytes: int) -> tuple[int, list[StampedMessage]]:
        """Deliveries from this position on: at least one, then up to the limit or the end of the segment.

        The first one may be a batch that begins before the position: so where it begins is returned too.
        """
        segment = self._segment_of(position)
        fd = system().open(segment.path, os.O_RDONLY)
        try:
            return self._read(fd, segment.path, self._index(fd, segment).offset(position), position, limit_bytes)
        finally:
            system().close(fd)

    def has(self, position: int) -> bool:
        try:
            self._segment_of(position)
        except PositionGoneError:
            return False
        return True

    def _segment_of(self, position: int) -> _Segment:
        assert position < self.next
        after = bisect_right(self._firsts, position)
        if after > 0:
            segment = self._segments[after - 1]
            if segment.end is None or position < segment.end:
                return segment
        raise PositionGoneError(self._firsts[after] if after < len(self._firsts) else self.next)

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

    def _index(self, fd: int, segment: _Segment) -> Index:
        if segment.index is None:
            segment.index = Index()
            for at, position, _, _, _ in self._frames(fd, segment.path, FILE_HEADER):
                segment.index.add(position, at)
        return segment.index

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
