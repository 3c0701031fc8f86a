"""Segment files: the layout of both logs on disk, and how a torn write is told from damage.

A log is a sequence of segment files. The name of a segment has the number of its first record or, in the delivery log,
its first position. A segment begins with a header, and goes on with frames, one for each write:

    magic, header's checksum, body's checksum, count, length, first number, high-water mark | body

The high-water mark is the number below which everything was durable when the frame was written. It tells a torn write
from damage. Say that a bad frame is found where record 7 should be. If no frame after it has a high-water mark above 7,
the bad one was being written when the machine stopped: nobody was told that it is durable, and it is cut off. Otherwise
the disk has lost what it promised to keep, and the log is not opened. A header whose checksum is right is believed even
if its body is damaged.

A segment may be used again under a higher number, since a disk overwrites a file sooner than it makes one grow. Frames
of its former use are recognised by their numbers, which are below that of the file now, and ignored.

Checksums start from a number that is drawn for each folder, the salt, so that a payload can't pass for a frame.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from ...core import UsageError
from ..system import system
from .files import (
    LOCK_FILE,
    CorruptLogError,
    start_writing,
    sync,
    sync_folder,
    write_at,
    write_file,
)

VERSION = 2
SALT_FILE = "salt"

RECORDS = "log"
SNAPSHOT = "snapshot"
DELIVERED = "delivered"
FILLED = "filled"
_MAGIC = {RECORDS: b"amc-log", SNAPSHOT: b"amc-snp", DELIVERED: b"amc-dlv", FILLED: b"amc-fil"}
_SALT_MAGIC = b"amc-slt"

_FILE = struct.Struct("<7sBQI")  # magic, version, number, checksum
FILE_HEADER = _FILE.size
_FRAME = struct.Struct("<4sIIIQQQ")
_CHECKED = 8  # the header's checksum covers its bytes from here on
FRAME_HEADER = _FRAME.size
_FRAME_MAGIC = b"\xa7frm"
_BEHIND_BYTES = 1 << 20

Frame = tuple[int, int, int, memoryview]  # first number, count, high-water mark, body
Header = tuple[int, int, int, int, int]  # body's checksum, count, length, first number, high-water mark


def path_of(folder: Path, kind: str, number: int) -> Path:
    return folder / f"{kind}-{number:020d}.amc"


def file_header(kind: str, number: int, salt: int) -> bytes:
    start = _FILE.pack(_MAGIC[kind], VERSION, number, 0)[:-4]
    return start + crc32(start, salt).to_bytes(4, "little")


def pack_frame(salt: int, first: int, count: int, high_water: int, body: bytes) -> bytes:
    header = _FRAME.pack(_FRAME_MAGIC, 0, crc32(body, salt), count, len(body), first, high_water)
    return b"".join((_FRAME_MAGIC, crc32(header[_CHECKED:], salt).to_bytes(4, "little"), header[_CHECKED:], body))


def unpack_header(data: bytes, offset: int, salt: int) -> Header | None:
    """The header of the frame at this offset; none if there is none, or a damaged one."""
    if offset + FRAME_HEADER > len(data):
        return None
    magic, checksum, body_checksum, count, length, first, high_water = _FRAME.unpack_from(data, offset)
    if magic != _FRAME_MAGIC or crc32(data[offset + _CHECKED : offset + FRAME_HEADER], salt) != checksum:
        return None
    return body_checksum, count, length, first, high_water


def files(folder: Path, kind: str) -> list[int]:
    """The numbers of the files of this kind, ascending."""
    name = re.compile(rf"{kind}-([0-9]{{20}})\.amc")
    return sorted(int(found[1]) for found in map(name.fullmatch, system().names_in(folder)) if found)


def tidy(folder: Path, kinds: Sequence[str]) -> None:
    """Deletes files that were not finished, and refuses a folder with files of something else."""
    ours = {path_of(folder, kind, number) for kind in kinds for number in files(folder, kind)}
    ours.update(folder / name for name in (LOCK_FILE, SALT_FILE))
    for path in [folder / name for name in system().names_in(folder)]:
        if path.suffix == ".tmp":
            system().unlink(path)
        elif path not in ours:
            raise UsageError(f"{path}: is no file of this log: move it away, or choose another folder for the log")


def open_salt(folder: Path, is_empty: bool) -> int:
    """The number that checksums start from. It is drawn when the folder has no log yet."""
    path = folder / SALT_FILE
    if is_empty and not system().exists(path):
        salt = system().random_bits(32)  # nobody who sends payloads can guess it
        start = _FILE.pack(_SALT_MAGIC, VERSION, salt, 0)[:-4]
        write_file(path, start, crc32(start).to_bytes(4, "little"))
        return salt
    data = system().read_file(path) if system().exists(path) else b""
    if len(data) != FILE_HEADER or crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise CorruptLogError(path, "is missing or damaged")
    _refuse_other_version(path, data, _SALT_MAGIC)
    return int(_FILE.unpack(data)[2])


def _refuse_other_version(path: Path, data: bytes, magic: bytes) -> None:
    if data[:7] == magic and len(data) > 7 and data[7] not in (0, VERSION):
        raise CorruptLogError(path, f"is damaged or of format version {data[7]}, and this program reads {VERSION}")


class SegmentReader:
    """Reads a whole segment: the frames up to the first bad one, and what the bytes after it say."""

    def __init__(self, path: Path, kind: str, number: int, salt: int) -> None:
        self.path = path
        self.data = system().read_file(path)
        self._number = number
        self._salt = salt
        self.end = 0  # of the good frames that were read so far
        self.durable_end = 0  # of the good frames that a high-water mark in this file says were durable
        expected = file_header(kind, number, salt)
        start = self.data[:FILE_HEADER]
        if start == expected:
            self.end = FILE_HEADER
        elif not expected.startswith(start) and start.strip(b"\0"):
            _refuse_other_version(path, start, _MAGIC[kind])
            raise CorruptLogError(path, "its first bytes are damaged, or it is a file of another log")

    def frames(self) -> Iterator[Frame]:
        data, salt = self.data, self._salt
        view = memoryview(data)
        numbered_end = self.end  # of the last frame that has records; a note after it may not be durable
        while self.end and (header := unpack_header(data, self.end, salt)):
            body_checksum, count, length, first, high_water = header
            if first < self._number:
                return
            body_at = self.end + FRAME_HEADER
            body = view[body_at : body_at + length]
            if len(body) != length or crc32(body, salt) != body_checksum:
                return
            if high_water == first:
                self.durable_end = numbered_end
            self.end = body_at + length
            if count:
                numbered_end = self.end
            yield first, count, high_water, body

    def high_water_beyond(self) -> int:
        """The highest high-water mark after the good frames, wherever a whole header is found there."""
        return max((high_water for _, high_water in self._beyond()), default=0)

    def _beyond(self) -> Iterator[tuple[int, int]]:
        """The first number and the high-water mark of each whole header after the good frames."""
        at = self.data.find(_FRAME_MAGIC, self.end)
        while at >= 0:
            header = unpack_header(self.data, at, self._salt)
            if header is not None:
                yield header[3:]
            at = self.data.find(_FRAME_MAGIC, at + 1)

    @property
    def has_rest(self) -> bool:
        """Whether anything comes after the good frames: a torn write, damage, or frames of the file's former use."""
        return self.end < len(self.data)

    @property
    def has_torn_write(self) -> bool:
        """Whether a write was torn. If nothing but frames of the file's former use follows the good ones, none was."""
        firsts = [first for first, _ in self._beyond()]
        return self.has_rest and (not firsts or max(firsts) >= self._number)


class SegmentFile:
    """A segment that is written to. An append that fails changes nothing, so that it can be tried again."""

    def __init__(self, fd: int, path: Path, size: int) -> None:
        self.fd = fd
        self.path = path
        self.size = size
        self._behind = size  # up to here the kernel was asked to start writing

    @classmethod
    def create(cls, folder: Path, kind: str, number: int, salt: int) -> SegmentFile:
        path = path_of(folder, kind, number)
        segment = cls(system().open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), path, 0)
        try:
            segment.append(file_header(kind, number, salt))
        except OSError:
            segment.close()
            raise
        return segment

    @classmethod
    def reuse(cls, spare: Path, folder: Path, kind: str, number: int, salt: int) -> SegmentFile:
        """Overwrites a segment that is not needed any more. Its new header is durable before it gets its new name."""
        path = path_of(folder, kind, number)
        segment = cls(system().open(spare, os.O_RDWR), path, 0)
        try:
            segment.append(file_header(kind, number, salt))
            sync(segment.fd)
            system().rename(spare, path)
        except OSError:
            segment.close()
            raise
        return segment

    @classmethod
    def reopen(cls, reader: SegmentReader) -> SegmentFile:
        """Cuts off what follows the good frames, and makes these durable.

        Frames that may not be durable are written once more. A sync alone would not do: after one that failed, they may
        be in the kernel's memory only, and count as written there.
        """
        segment = cls(system().open(reader.path, os.O_RDWR), reader.path, reader.end)
        if reader.has_rest:
            system().ftruncate(segment.fd, reader.end)
        if reader.durable_end < reader.end:
            write_at(segment.fd, reader.data[reader.durable_end : reader.end], reader.durable_end)
        sync(segment.fd)
        sync_folder(reader.path.parent)
        return segment

    def append(self, data: bytes) -> None:
        try:
            write_at(self.fd, data, self.size)
        except OSError:
            system().ftruncate(self.fd, self.size)
            raise
        self.size += len(data)

    def write_behind(self) -> None:
        """Now and then asks the kernel to start writing, so that little is left to do at the next sync."""
        if self.size - self._behind >= _BEHIND_BYTES:
            start_writing(self.fd, self._behind, self.size - self._behind)
            self._behind = self.size

    def trim(self) -> None:
        """Cuts off what is left of the file's former use."""
        if system().size_of(self.fd) > self.size:
            system().ftruncate(self.fd, self.size)

    def close(self) -> None:
        system().close(self.fd)
