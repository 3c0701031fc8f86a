"""Recovery of a record log: reads its records, and refuses if some that were durable are damaged or missing.

The newest snapshot replaces everything before it. A snapshot ends the segment that is being written, so each segment is
before it or after it. Segments before it are left over from a crash before they could be deleted, and deleted now. Of
those after it none may be missing. A segment is begun when the one before is durable, so a bad frame in any but the
last one is damage; in the last one it may be a torn write (`_segments.py`).

One loss is not noticed: that of the last segment as a whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from ..system import system
from ._segments import (
    FILE_HEADER,
    RECORDS,
    SNAPSHOT,
    SegmentFile,
    SegmentReader,
    file_header,
    files,
    open_salt,
    path_of,
    tidy,
)
from .files import CorruptLogError, sync_folder

_CHECKSUM = 4
_decoder: msgspec.msgpack.Decoder[list[bytes]] = msgspec.msgpack.Decoder(list[bytes])


class Recovered(NamedTuple):
    records: list[bytes]
    last: int  # the number of the last record
    salt: int
    segment: SegmentFile | None  # the last one, for more records
    note: str | None  # for people: that a torn write was cut off


def snapshot_parts(number: int, record: bytes, salt: int) -> tuple[bytes, bytes, bytes]:
    return file_header(SNAPSHOT, number, salt), crc32(record, salt).to_bytes(_CHECKSUM, "little"), record


def delete_before(folder: Path, snapshot: int) -> None:
    """Deletes the files that the snapshot replaces. After a crash in here, recovery does the rest."""
    for kind in (RECORDS, SNAPSHOT):
        for number in files(folder, kind):
            if number < snapshot:
                system().unlink(path_of(folder, kind, number))
    sync_folder(folder)


def recover(folder: Path) -> Recovered:
    tidy(folder, (RECORDS, SNAPSHOT))
    snapshots = files(folder, SNAPSHOT)
    salt = open_salt(folder, is_empty=not snapshots and not files(folder, RECORDS))
    records: list[bytes] = []
    last = 0
    if snapshots:
        last = snapshots[-1]
        records.append(_read_snapshot(path_of(folder, SNAPSHOT, last), last, salt))
        delete_before(folder, last)
    segments = [number for number in files(folder, RECORDS) if number > last]
    reader: SegmentReader | None = None
    for number in segments:
        path = path_of(folder, RECORDS, number)
        if number != last + 1:
            raise CorruptLogError(path, f"the file with the records {last + 1} to {number - 1} is missing")
        reader = SegmentReader(path, RECORDS, number, salt)
        last = _read_segment(reader, last, records)
        if reader.has_rest and (number != segments[-1] or reader.high_water_beyond() > last + 1):
            raise CorruptLogError(path, f"what was durable is damaged at byte {reader.end}, after record {last}")
    return Recovered(records, last, salt, *_reopen(reader, last))


def _reopen(reader: SegmentReader | None, last: int) -> tuple[SegmentFile | None, str | None]:
    if reader is None:
        return None, None
    note = None
    if reader.has_torn_write:
        torn = len(reader.data) - reader.end
        note = f"{reader.path}: cut off {torn} bytes after record {last} that were being written when it stopped"
    if reader.end < FILE_HEADER:
        system().unlink(reader.path)
        return None, note
    return SegmentFile.reopen(reader), note


def _read_segment(reader: SegmentReader, last: int, records: list[bytes]) -> int:
    for first, count, _, body in reader.frames():
        if first != last + 1:
            raise CorruptLogError(reader.path, f"record {last + 1} is missing: what follows is record {first}")
        if count:
            try:
                batch = _decoder.decode(body)
            except msgspec.DecodeError as error:
                raise CorruptLogError(reader.path, f"record {first} can't be decoded ({error})") from error
            records += batch
            last += len(batch)
    return last


def _read_snapshot(path: Path, number: int, salt: int) -> bytes:
    data = system().read_file(path)
    start = file_header(SNAPSHOT, number, salt)
    record = data[FILE_HEADER + _CHECKSUM :]
    if data[: FILE_HEADER + _CHECKSUM] != start + crc32(record, salt).to_bytes(_CHECKSUM, "little"):
        raise CorruptLogError(path, "this snapshot is damaged, or of another log or version")
    return record
