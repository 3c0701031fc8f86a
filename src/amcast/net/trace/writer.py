"""How a node traces, on its hot path: rows are packed into memory, and each table gets one write at the end of a turn.

A node calls `flush` at the end of each turn of its event loop, before anything of that turn leaves for the network. So
whatever others have seen of the node is in the kernel, and `kill -9` does not lose it. Deliveries of the turn that was
interrupted are lost here, but the process delivers them again after its restart. `collect` turns the files into a run.

The trace is written in segments, and the oldest are dropped when a limit is passed (`_retention.py`). A new segment
begins at the end of a turn, when everything of the turn is written: a crash meanwhile loses no row.

Tracing never stops a node. When a write fails, as on a full disk, tracing ends, `failed` says why, and a mark in the
files says that rows are missing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId, StampedMessage, delivery_runs, unpack
from ...core.batch import common_size
from ...trace import FINAL, NULL
from ...trace.packing import WIRE, packer
from ...trace.schema import RESTORED
from ..system import system
from ._rawformat import (
    CLOSED,
    DELIVERY_RUN,
    DROPPED,
    END_AT,
    FAILED,
    FLUSH_ORDER,
    IDLE,
    MAGIC,
    MULTICAST_RUN,
    ROTATED,
    STATE,
    TOUCHES,
    Header,
    Touches,
)
from ._retention import Bounds, Retention

__all__ = ["Bounds", "TraceWriter"]

_NO_FILE = -1
_WHOLE = Bounds()

_pack_multicasts = packer(MULTICAST_RUN)
_pack_deliveries = packer(DELIVERY_RUN)
_pack_wire = packer(WIRE)


class TraceWriter:
    """Traces one boot of one process, with the times of its own clock. The group of a client is -1."""

    def __init__(
        self,
        folder: Path,
        process: ProcessId,
        group: GroupId,
        boot: int,
        wire: bool,
        idle: Sequence[int] = (),
        bounds: Bounds = _WHOLE,
    ) -> None:
        """`idle`: earlier boots that did nothing. A folder that is set back forgets them, a trace does not."""
        self.failed: str | None = None
        self.records_wire = wire
        self._numbers: dict[str, int] = {}  # of the kinds of wire messages
        self._kinds: list[bytes] = []
        self._wire: list[bytes] = []
        self._faults: list[bytes] = []
        self._multicasts: list[bytes] = []
        self._deliveries: list[bytes] = []
        self._files: list[_File] = []
        self._folder = folder
        self._process, self._group, self._boot, self._segment = process, group, boot, 0
        self._bounds = bounds
        self._retention = Retention(folder, process, bounds)
        self._refuse_other_boot()
        self._open()
        if idle:
            self.fault(IDLE, msgspec.json.encode(idle).decode(), 0)
        self._drop_old()

    def multicast(
        self,
        msg: MessageId,
        sender: ProcessId,
        seq: int,
        dst: Sequence[GroupId],
        t_us: int,
        nbytes: int,
        count: int = 1,  # of a run of messages that begins with this one
    ) -> None:
        left = len(dst)
        for group in dst:
            left -= 1
            self._multicasts.append(_pack_multicasts(msg, sender, seq, t_us, nbytes, group, left, count))

    def multicast_all(self, messages: Sequence[AppMessage], t_us: int) -> None:
        """Multicasts of messages and batches."""
        for message in messages:
            size = common_size(message)
            if size is not None:
                self.multicast(message.id, message.sender, message.seq, message.dst, t_us, size, message.count)
            else:
                for each in unpack(message):
                    self.multicast(each.id, each.sender, each.seq, each.dst, t_us, len(each.payload))

    def touches(self, msg: MessageId, objects: Sequence[int], t_us: int) -> None:
        """The message reads or writes these objects. Said before its multicast."""
        self.fault(TOUCHES, msgspec.json.encode(Touches(msg, list(objects))).decode(), t_us)

    def delivery(self, pos: int, msg: MessageId, kind: int, ts: int | None, t_us: int) -> None:
        self._deliveries.append(_pack_deliveries(pos, msg, kind, NULL if ts is None else ts, t_us, 1))

    def deliver_all(self, first: int, batch: Sequence[StampedMessage], has_batches: bool, t_us: int) -> None:
        """Final deliveries, of messages and batches, at the positions from `first` on."""
        rows = self._deliveries
        for position, id_, ts, count in delivery_runs(first, batch, has_batches):
            rows.append(_pack_deliveries(position, id_, FINAL, NULL if ts is None else ts, t_us, count))

    def restored(self, position: int, t_us: int) -> None:
        """The process received a state that covers all positions below this one."""
        self._deliveries.append(_pack_deliveries(position, 0, STATE, NULL, t_us, 1))

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
            self._kinds.append(msgspec.json.encode(kind) + b"\n")
        about = NULL if msg is None else msg
        received = NULL if received_us is None else received_us
        self._wire.append(_pack_wire(src, dst, number, about, nbytes, sent_us, received))

    def fault(self, what: str, detail: str, t_us: int) -> None:
        assert what != RESTORED, "a received state is recorded in its place among the deliveries"
        self._faults.append(msgspec.json.encode((t_us, what, detail)) + b"\n")

    def flush(self) -> None:
        for file in self._files:
            rows = file.rows
            if rows:
                self._write(file, rows[0] if len(rows) == 1 else b"".join(rows))
                rows.clear()
                self._is_used = True
        if self._is_full():
            self._rotate()

    def close(self) -> None:
        """Marks an orderly end: files without this mark are those of a crash."""
        self.flush()
        if self.failed is None:
            self._mark(CLOSED)
        self._close_files()

    # ------------------------------------------------------------------------------------------- segments

    def _is_full(self) -> bool:
        bounds = self._bounds
        if not bounds.bytes or self.failed is not None or not self._files:
            return False
        if sum(file.size for file in self._files) >= bounds.segment_bytes:
            return True
        return bounds.segment_us > 0 and abs(system().wall_us() - self._begun_us) >= bounds.segment_us

    def _rotate(self) -> None:
        """The files of the next segment are there before those of this one say that it has ended."""
        if not self._is_used:
            self._begun_us = system().wall_us()
        else:
            ended = self._files
            self._segment += 1
            self._numbers.clear()
            self._open()
            self._mark(ROTATED if self.failed is None else FAILED, ended)
            for file in ended:
                system().close(file.fd)
            files = [(file.path, file.size) for file in ended]
            self._retention.add(self._boot, self._segment - 1, files, system().wall_us())
        self._drop_old()

    def _drop_old(self) -> None:
        due = self._retention.due(system().wall_us()) if self._bounds.bytes else None
        if due is None or self.failed is not None:
            return
        self.fault(DROPPED, msgspec.json.encode(due).decode(), 0)
        for file in self._files:
            if file.table == "faults":
                self._write(file, b"".join(file.rows))
                file.rows.clear()
        if self.failed is None:  # otherwise nobody would know why they are gone
            self._retention.drop(due)

    # ---------------------------------------------------------------------------------------------- files

    def _refuse_other_boot(self) -> None:
        """Two nodes have the same id, or two boots the same number."""
        for path in self._retention.files_of(self._boot)[:1]:
            _mark_broken(path)
            self._stop(FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)))

    def _open(self) -> None:
        """Opens the files of a segment."""
        buffers = {
            "kinds": self._kinds,
            "wire": self._wire,
            "faults": self._faults,
            "multicasts": self._multicasts,
            "deliveries": self._deliveries,
        }
        self._begun_us = system().wall_us()
        self._is_used = False  # nothing is in it but the word of what was dropped
        self._files = []
        for table in FLUSH_ORDER:
            header = Header(table, self._process, self._group, self._boot, self._segment)
            self._files.append(_File(table, self._folder / header.file_name, buffers[table]))
            self._create(self._files[-1], header)

    def _create(self, file: _File, header: Header) -> None:
        """Fails if the file exists."""
        if self.failed is not None:
            return
        try:
            system().mkdir(self._folder)
            file.fd = system().open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except OSError as error:
            if isinstance(error, FileExistsError):
                _mark_broken(file.path)
            self._stop(error)
            return
        self._write(file, header.encode())

    def _write(self, file: _File, data: bytes) -> None:
        if self.failed is not None:
            return
        try:
            written = system().write(file.fd, data)
            while written < len(data):
                written += system().write(file.fd, data[written:])
            file.size += written
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        self.failed = f"{error.filename or self._folder}: tracing stopped: {error.strerror or error}"
        self._mark(FAILED)

    def _mark(self, end: bytes, files: Sequence[_File] | None = None) -> None:
        for file in self._files if files is None else files:
            with suppress(OSError):
                system().pwrite(file.fd, end, END_AT)

    def _close_files(self) -> None:
        for file in self._files:
            if file.fd != _NO_FILE:
                system().close(file.fd)
        self._files = []


@dataclass
class _File:
    """A raw file of the segment that is being written."""

    table: str
    path: Path
    rows: list[bytes]  # that are to be written
    fd: int = _NO_FILE
    size: int = 0


def _mark_broken(path: Path) -> None:
    """Marks a file of another boot with this number: rows of this process are missing, since this boot has no place."""
    with suppress(OSError):
        file = system().open(path, os.O_RDWR)
        try:
            if system().pread(file, len(MAGIC), 0) == MAGIC:
                system().pwrite(file, FAILED, END_AT)
        finally:
            system().close(file)
