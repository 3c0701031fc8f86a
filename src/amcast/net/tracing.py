"""What a node writes down on its hot path: rows packed into memory, and one write a table at the end of a turn.

A node calls `flush` at the end of each turn of its event loop, before anything of that turn leaves for the network and
before a snapshot goes to disk. What anybody ever saw of it is then in the page cache, where `kill -9` can't reach it;
the deliveries that were lost all come again after the restart. `collect` turns the files into a run.

Tracing never stops a node. When a write fails, as on a full disk, tracing ends, `failed` says why, and a mark in the
files says that something is missing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from ..core import BATCH_LIMIT, AppMessage, GroupId, MessageId, ProcessId, Timestamp, sender_of, seq_of, unpack_ids
from ..core.batch import payload_sizes
from ..core.ids import SEQ_MASK
from ..trace import FINAL, NULL
from ..trace.packing import LOG_ROW, WIRE, packer
from ..trace.schema import RESTORED
from ._rawfile import ADDRESSED, CLOSED, END_AT, FAILED, FLUSH_ORDER, HANDED, Header, encode_header, file_name

_NO_FILE = -1

_MANY = 24  # rows that numpy packs for less than one struct after the other

_pack_addressed = packer(ADDRESSED)
_pack_log_row = packer(LOG_ROW)
_pack_wire = packer(WIRE)


class TraceWriter:
    """The files of one boot of one process; a client, which has no group, says -1. Times are those of its own clock."""

    def __init__(self, folder: Path, process: ProcessId, group: GroupId, boot: int, wire: bool) -> None:
        self.failed: str | None = None
        self.records_wire = wire
        self._numbers: dict[str, int] = {}  # of kinds
        self._kinds = bytearray()
        self._wire = bytearray()
        self._faults = bytearray()
        self._multicasts = bytearray()
        self._deliveries = bytearray()
        self._files: list[tuple[int, bytearray]] = []
        self._folder = folder
        self._open(process, group, boot)

    def multicast(
        self, msg: MessageId, sender: ProcessId, seq: int, dst: Sequence[GroupId], t_us: int, nbytes: int
    ) -> None:
        left = len(dst)
        for group in dst:
            left -= 1
            self._multicasts += _pack_addressed(msg, sender, seq, t_us, nbytes, group, left)

    def multicast_all(self, message: AppMessage, t_us: int) -> None:
        """A message, or all messages of a batch."""
        id_, dst = message.id, message.dst
        if message.count < _MANY:
            for each, size in zip(unpack_ids(message), payload_sizes(message), strict=True):
                self.multicast(each, sender_of(each), seq_of(each), dst, t_us, size)
            return
        rows = np.empty((message.count, len(dst)), ADDRESSED)
        ids = np.array(unpack_ids(message), np.int64)[:, None]
        rows["msg"], rows["sender"], rows["seq"], rows["t_us"] = ids, sender_of(id_), ids & SEQ_MASK, t_us
        rows["bytes"] = np.array(payload_sizes(message), np.int32)[:, None]
        rows["grp"], rows["left"] = dst, np.arange(len(dst))[::-1]
        self._multicasts += rows.tobytes()

    def delivery(self, pos: int, msg: MessageId, kind: int, ts: int | None, t_us: int) -> None:
        self._deliveries += _pack_log_row(pos, msg, kind, NULL if ts is None else ts, t_us)

    def deliver_all(
        self, first: int, batch: Sequence[tuple[AppMessage, Timestamp | None]], has_batches: bool, t_us: int
    ) -> None:
        """Messages and batches, from a position on. With batches, timestamps are theirs: see `core.batch`."""
        pos = first
        for message, ts in batch:
            count = message.count
            stamp = NULL if ts is None else ts * BATCH_LIMIT if has_batches else ts
            if count < _MANY:
                step = 0 if ts is None else 1
                for index, id_ in enumerate(unpack_ids(message)):
                    self._deliveries += _pack_log_row(pos + index, id_, FINAL, stamp + index * step, t_us)
            else:
                rows = np.empty(count, LOG_ROW)
                rows["pos"], rows["msg"] = np.arange(pos, pos + count), unpack_ids(message)
                rows["kind"], rows["t_us"] = FINAL, t_us
                rows["ts"] = stamp if ts is None else np.arange(stamp, stamp + count)
                self._deliveries += rows.tobytes()
            pos += count

    def restored(self, position: int, t_us: int) -> None:
        """State was handed over that covers all positions below this one. It has its place among the deliveries."""
        self._deliveries += _pack_log_row(position, 0, HANDED, NULL, t_us)

    def wire(
        self,
        src: ProcessId,
        dst: ProcessId,
        kind: str,
        msg: MessageId | None,
        nbytes: int,
        sent_us: int,
        received_us: int | None,
    ) -> None:
        if not self.records_wire:
            return
        try:
            number = self._numbers[kind]
        except KeyError:
            number = self._numbers[kind] = len(self._numbers)
            self._kinds += msgspec.json.encode(kind) + b"\n"
        about = NULL if msg is None else msg
        self._wire += _pack_wire(src, dst, number, about, nbytes, sent_us, NULL if received_us is None else received_us)

    def fault(self, what: str, detail: str, t_us: int) -> None:
        assert what != RESTORED, "what was handed over is told in its place among the deliveries"
        self._faults += msgspec.json.encode((t_us, what, detail)) + b"\n"

    def flush(self) -> None:
        for file, rows in self._files:
            if rows:
                self._write(file, rows)
                rows.clear()

    def close(self) -> None:
        """An orderly end: a process that leaves without it crashed."""
        self.flush()
        if self.failed is None:
            self._mark(CLOSED)
        for file, _ in self._files:
            if file != _NO_FILE:
                os.close(file)
        self._files = []

    # ---------------------------------------------------------------------------------------------- files

    def _open(self, process: ProcessId, group: GroupId, boot: int) -> None:
        buffers = {
            "kinds": self._kinds,
            "wire": self._wire,
            "faults": self._faults,
            "multicasts": self._multicasts,
            "deliveries": self._deliveries,
        }
        for table in FLUSH_ORDER:
            header = Header(table, process, group, boot)
            self._files.append((self._create(header), buffers[table]))

    def _create(self, header: Header) -> int:
        """A file that is there already is another's: two nodes have one id, or a boot was counted twice."""
        if self.failed is not None:
            return _NO_FILE
        path = self._folder / file_name(header.table, header.process, header.boot)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._stop(error)
            return _NO_FILE
        self._write(file, encode_header(header))
        return file

    def _write(self, file: int, data: bytes | bytearray) -> None:
        if self.failed is not None:
            return
        try:
            written = os.write(file, data)
            while written < len(data):
                written += os.write(file, data[written:])
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        self.failed = f"{error.filename or self._folder}: tracing stopped: {error.strerror or error}"
        self._mark(FAILED)

    def _mark(self, end: bytes) -> None:
        for file, _ in self._files:
            with suppress(OSError):
                os.pwrite(file, end, END_AT)
