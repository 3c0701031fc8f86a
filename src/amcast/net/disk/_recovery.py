"""What a folder of a record log still holds, and whether that is all it was trusted with.

The newest snapshot stands for everything before it. Each snapshot ends a segment, so a segment is either covered by it,
and left over from a crash before it could be deleted, or it comes after it, and then none may be missing. A segment is
only begun when the one before is durable: whatever is bad in any but the last is damage.

That the last segment is missing as a whole can't be seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from ._files import CorruptLogError, is_used, sync_folder
from ._segments import (
    FILE_HEADER,
    LOG,
    SNAPSHOT,
    SegmentFile,
    SegmentReader,
    file_header,
    files,
    open_salt,
    path_of,
    tidy,
)

_CHECKSUM = 4
_batch: msgspec.msgpack.Decoder[list[bytes]] = msgspec.msgpack.Decoder(list[bytes])


class Recovered(NamedTuple):
    records: list[bytes]
    last: int  # the number of the last record
    salt: int
    segment: SegmentFile | None  # to go on with
    note: str | None  # what was cut off


def snapshot_parts(number: int, record: bytes, salt: int) -> tuple[bytes, bytes, bytes]:
    return file_header(SNAPSHOT, number, salt), crc32(record, salt).to_bytes(_CHECKSUM, "little"), record


def forget_before(folder: Path, snapshot: int) -> None:
    """Deletes what the snapshot covers. After a crash in here the next opener goes on with it."""
    for kind in (LOG, SNAPSHOT):
        for number in files(folder, kind):
            if number < snapshot:
                path_of(folder, kind, number).unlink()
    sync_folder(folder)


def recover(folder: Path) -> Recovered:
    tidy(folder, (LOG, SNAPSHOT))
    snapshots = files(folder, SNAPSHOT)
    salt = open_salt(folder, is_empty=not snapshots and not files(folder, LOG))
    records: list[bytes] = []
    last = 0
    if snapshots:
        last = snapshots[-1]
        records.append(_read_snapshot(path_of(folder, SNAPSHOT, last), last, salt))
        forget_before(folder, last)
    segments = [number for number in files(folder, LOG) if number > last]
    reader: SegmentReader | None = None
    for number in segments:
        path = path_of(folder, LOG, number)
        if number != last + 1:
            raise CorruptLogError(path, f"the file with the records {last + 1} to {number - 1} is missing")
        reader = SegmentReader(path, LOG, number, salt)
        last = _read_segment(reader, last, records)
        if reader.is_torn and (number != segments[-1] or reader.claim_beyond() > last + 1):
            raise CorruptLogError(path, f"what was durable is damaged at byte {reader.end}, after record {last}")
    return Recovered(records, last, salt, *_reopen(reader, last))


def _reopen(reader: SegmentReader | None, last: int) -> tuple[SegmentFile | None, str | None]:
    if reader is None:
        return None, None
    note = None
    if reader.was_being_written:
        torn = len(reader.data) - reader.end
        note = f"{reader.path}: cut off {torn} bytes after record {last} that were being written when it stopped"
    if reader.end < FILE_HEADER:
        reader.path.unlink()
        return None, note
    return SegmentFile.reopen(reader), note


def _read_segment(reader: SegmentReader, last: int, records: list[bytes]) -> int:
    for first, count, _, body in reader.frames():
        if first != last + 1:
            raise CorruptLogError(reader.path, f"record {last + 1} is missing: what follows is record {first}")
        if count:
            try:
                batch = _batch.decode(body)
            except msgspec.DecodeError as error:
                raise CorruptLogError(reader.path, f"record {first} can't be decoded ({error})") from error
            records += batch
            last += len(batch)
    return last


def _read_snapshot(path: Path, number: int, salt: int) -> bytes:
    data = path.read_bytes()
    start = file_header(SNAPSHOT, number, salt)
    record = data[FILE_HEADER + _CHECKSUM :]
    if data[: FILE_HEADER + _CHECKSUM] != start + crc32(record, salt).to_bytes(_CHECKSUM, "little"):
        raise CorruptLogError(path, "this snapshot is damaged, or of another log or version")
    return record


def was_used(folder: Path, recovered: Recovered) -> bool:
    return bool(recovered.records) or is_used(folder)
