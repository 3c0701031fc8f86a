"""Segment files: how batches stand on disk, and what can be known of a file that was not closed in peace.

A file's name holds the number of its first entry. It opens with a header, then come frames, one for each batch:

    magic, checksum of the rest of this header, checksum of the body, count, length, first number, claim | body

The claim says below which number everything was durable when the frame was written. It tells a torn tail from damage:
where a frame is bad, and no later one claims it was durable, then it was being written when the machine stopped, nobody
was told of it, and it goes. If one does claim it, the disk has lost what it promised to keep. A header that is whole
proves its claim, whatever became of its body.

A file may be used again under another number: to write over what is there takes a disk less time than to make a file
grow. What is left of its former frames has lower numbers than it has now, and is no part of it.

Checksums start from a number that is drawn for each folder, so that a payload can't pass for a frame.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from ...core import UsageError
from ._files import (
    LOCK_FILE,
    USED_FILE,
    CorruptLogError,
    start_writing,
    sync,
    sync_folder,
    write_at,
    write_file,
)

VERSION = 1
SALT_FILE = "salt"

LOG = "log"
SNAPSHOT = "snapshot"
DELIVERED = "delivered"
_MAGIC = {LOG: b"amc-log", SNAPSHOT: b"amc-snp", DELIVERED: b"amc-dlv"}
_SALT_MAGIC = b"amc-slt"

_FILE = struct.Struct("<7sBQI")  # magic, version, number, checksum
FILE_HEADER = _FILE.size
_FRAME = struct.Struct("<4sIIIQQQ")
_CHECKED = 8  # from here on the header is under its checksum
FRAME_HEADER = _FRAME.size
_FRAME_MAGIC = b"\xa7frm"
_BEHIND_BYTES = 1 << 20

Frame = tuple[int, int, int, memoryview]  # first number, count, claim, body
Header = tuple[int, int, int, int, int]  # body's checksum, count, length, first number, claim


def path_of(folder: Path, kind: str, number: int) -> Path:
    return folder / f"{kind}-{number:020d}.amc"


def file_header(kind: str, number: int, salt: int) -> bytes:
    start = _FILE.pack(_MAGIC[kind], VERSION, number, 0)[:-4]
    return start + crc32(start, salt).to_bytes(4, "little")


def pack_frame(salt: int, first: int, count: int, claim: int, body: bytes) -> bytes:
    header = _FRAME.pack(_FRAME_MAGIC, 0, crc32(body, salt), count, len(body), first, claim)
    return b"".join((_FRAME_MAGIC, crc32(header[_CHECKED:], salt).to_bytes(4, "little"), header[_CHECKED:], body))


def unpack_header(data: bytes, offset: int, salt: int) -> Header | None:
    """None where there is no frame's header, or a damaged one."""
    if offset + FRAME_HEADER > len(data):
        return None
    magic, checksum, body_checksum, count, length, first, claim = _FRAME.unpack_from(data, offset)
    if magic != _FRAME_MAGIC or crc32(data[offset + _CHECKED : offset + FRAME_HEADER], salt) != checksum:
        return None
    return body_checksum, count, length, first, claim


def files(folder: Path, kind: str) -> list[int]:
    """The numbers of the files of this kind, ascending."""
    return sorted(int(path.stem.removeprefix(f"{kind}-")) for path in folder.glob(f"{kind}-{'[0-9]' * 20}.amc"))


def tidy(folder: Path, kinds: Sequence[str]) -> None:
    """Removes drafts of files, and refuses what does not belong here."""
    ours = {path_of(folder, kind, number) for kind in kinds for number in files(folder, kind)}
    ours.update(folder / name for name in (LOCK_FILE, USED_FILE, SALT_FILE))
    for path in sorted(folder.iterdir()):
        if path.suffix == ".tmp":
            path.unlink()
        elif path not in ours:
            raise UsageError(f"{path}: is no file of this log: move it away, or choose another folder for the log")


def open_salt(folder: Path, is_empty: bool) -> int:
    """The number that checksums start from; drawn when the first file is about to be written."""
    path = folder / SALT_FILE
    if is_empty and not path.exists():
        # Nobody who sends payloads knows when, to the nanosecond, this folder was made, and where.
        stat = os.stat(folder)
        salt = crc32(f"{stat.st_ctime_ns} {stat.st_ino}".encode())
        start = _FILE.pack(_SALT_MAGIC, VERSION, salt, 0)[:-4]
        write_file(path, start, crc32(start).to_bytes(4, "little"))
        return salt
    data = path.read_bytes() if path.exists() else b""
    if len(data) != FILE_HEADER or crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise CorruptLogError(path, "is missing or damaged")
    _refuse_other_version(path, data, _SALT_MAGIC)
    return int(_FILE.unpack(data)[2])


def _refuse_other_version(path: Path, data: bytes, magic: bytes) -> None:
    if data[:7] == magic and len(data) > 7 and data[7] not in (0, VERSION):
        raise CorruptLogError(path, f"is damaged or of format version {data[7]}, and this program reads {VERSION}")


class SegmentReader:
    """A whole segment in memory: the frames that can be trusted, and whether more should be there."""

    def __init__(self, path: Path, kind: str, number: int, salt: int) -> None:
        self.path = path
        self.data = path.read_bytes()
        self._number = number
        self._salt = salt
        self.end = 0  # up to here all is well
        self.settled = 0  # up to here the file itself says that it was durable
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
        while self.end and (header := unpack_header(data, self.end, salt)):
            body_checksum, count, length, first, claim = header
            if first < self._number:
                return
            body_at = self.end + FRAME_HEADER
            body = view[body_at : body_at + length]
            if len(body) != length or crc32(body, salt) != body_checksum:
                return
            if claim == first:
                self.settled = self.end
            self.end = body_at + length
            yield first, count, claim, body

    def claim_beyond(self) -> int:
        """The highest claim that can be found after the end of the trusted frames."""
        return max((claim for _, claim in self._beyond()), default=0)

    def _beyond(self) -> Iterator[tuple[int, int]]:
        """The first number and the claim of each header after the end of the trusted frames."""
        at = self.data.find(_FRAME_MAGIC, self.end)
        while at >= 0:
            header = unpack_header(self.data, at, self._salt)
            if header is not None:
                yield header[3:]
            at = self.data.find(_FRAME_MAGIC, at + 1)

    @property
    def is_torn(self) -> bool:
        return self.end < len(self.data)

    @property
    def was_being_written(self) -> bool:
        """What comes after the end, or some of it: otherwise all of it is left from a former use of the file."""
        firsts = [first for first, _ in self._beyond()]
        return self.is_torn and (not firsts or max(firsts) >= self._number)


class SegmentFile:
    """A segment that is written to. An append that fails leaves it as it was, so that it can be tried again."""

    def __init__(self, fd: int, path: Path, size: int) -> None:
        self.fd = fd
        self.path = path
        self.size = size
        self._leaving = size  # up to here the kernel was asked to write to the disk

    @classmethod
    def create(cls, folder: Path, kind: str, number: int, salt: int) -> SegmentFile:
        path = path_of(folder, kind, number)
        segment = cls(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), path, 0)
        try:
            segment.append(file_header(kind, number, salt))
        except OSError:
            segment.close()
            raise
        return segment

    @classmethod
    def reuse(cls, spare: Path, folder: Path, kind: str, number: int, salt: int) -> SegmentFile:
        """Takes a file that nobody needs any more. It has its new name only when it has its new header."""
        path = path_of(folder, kind, number)
        segment = cls(os.open(spare, os.O_RDWR), path, 0)
        try:
            segment.append(file_header(kind, number, salt))
            sync(segment.fd)
            os.rename(spare, path)
        except OSError:
            segment.close()
            raise
        return segment

    @classmethod
    def reopen(cls, reader: SegmentReader) -> SegmentFile:
        """Cuts off a torn tail and makes the rest durable.

        What is not known to be durable is written once more: after a sync that failed it may be in the kernel's memory
        alone, and marked as clean.
        """
        segment = cls(os.open(reader.path, os.O_RDWR), reader.path, reader.end)
        if reader.is_torn:
            os.ftruncate(segment.fd, reader.end)
        if reader.settled < reader.end:
            write_at(segment.fd, reader.data[reader.settled : reader.end], reader.settled)
        sync(segment.fd)
        sync_folder(reader.path.parent)
        return segment

    def append(self, data: bytes) -> None:
        try:
            write_at(self.fd, data, self.size)
        except OSError:
            os.ftruncate(self.fd, self.size)
            raise
        self.size += len(data)

    def write_behind(self) -> None:
        """Lets the kernel begin with what is there, now and then, so that little is left to do when it is synced."""
        if self.size - self._leaving >= _BEHIND_BYTES:
            start_writing(self.fd, self._leaving, self.size - self._leaving)
            self._leaving = self.size

    def trim(self) -> None:
        """Cuts off what is left from a former use."""
        if os.fstat(self.fd).st_size > self.size:
            os.ftruncate(self.fd, self.size)

    def close(self) -> None:
        os.close(self.fd)
