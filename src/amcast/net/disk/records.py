"""The record log: what a process persists, in order, durable in groups, read back after a crash.

    loop     append, append, commit      append, commit    append, commit
                              |                       \\         |
    writer                    write, sync -----------> write both, sync ----->
                                           |                             |
    loop                                   on_durable(2)                 on_durable(4)

Appending costs a list entry. `commit`, once a turn of the event loop, hands what was appended to a thread that writes
and syncs; what comes meanwhile makes the next batch. A snapshot is a record that makes all earlier ones dispensable: it
is written to a file of its own, and the files before it go. Records after a snapshot wait for it.

Guarantee in `sync` mode: a record whose number was reported durable is found again by the next opener, with all before
it, unless the disk fails; and a disk that failed is recognised, see `_segments.py`. Records that were not reported are
found or not, from some number on.

In `async` mode a record counts as durable when the kernel has it, and is synced now and then: a kill of the process
takes nothing, a crash of the machine the last seconds. In `memory` mode nothing is written. The folder only remembers
that it was used, so that a process that starts again knows that it has forgotten.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from ...core import UsageError
from ._files import CorruptLogError, is_used, locked, mark_used
from ._recovery import Recovered, recover, was_used
from ._segments import LOG, SNAPSHOT, files
from ._writer import Job, LogWriter

__all__ = ["CorruptLogError", "Durability", "RecordLog"]

SEGMENT_BYTES = 64 << 20


class Durability(StrEnum):
    SYNC = "sync"
    ASYNC = "async"
    MEMORY = "memory"


def _nothing() -> None:
    pass


class RecordLog:
    """All methods are for one thread. Only the callbacks come from another, the writer's."""

    def __init__(
        self, folder: Path, durability: Durability, lock: int, found: Recovered | None, writer: LogWriter | None
    ) -> None:
        self.folder = folder
        self.durability = durability
        self.recovered = found.records if found else []
        self.note = found.note if found else None  # about a torn tail, for the log that people read
        self.is_new = not (was_used(folder, found) if found else is_used(folder))
        self._lock = lock
        self._writer = writer
        self._is_sync = durability is Durability.SYNC
        self._is_marked = (
            self._is_sync or not self.is_new
        )  # in sync mode the writer marks it before it reports anything
        self._last = found.last if found else 0
        self._pending: list[bytes] = []
        self._jobs: list[Job] = []

    @staticmethod
    def open(
        folder: Path,
        durability: Durability,
        on_durable: Callable[[int], None],
        on_failure: Callable[[OSError], None],
        before_snapshot: Callable[[], None] = _nothing,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> RecordLog:
        """All callbacks are called from the writer's thread.

        `on_durable` gets the number up to which all is durable (in memory mode it is never called).
        `on_failure` says that nothing will be durable any more. `before_snapshot` must make durable what can't be had
        from the records any more once the snapshot replaces them; it runs between their being written and its.
        """
        with locked(folder) as (lock, stack):
            is_sync = durability is Durability.SYNC
            found = writer = None
            if durability is Durability.MEMORY:
                _refuse_records(folder)
            else:
                found = recover(folder)
                writer = LogWriter(folder, found, is_sync, on_durable, on_failure, before_snapshot, segment_bytes)
            stack.pop_all()
        return RecordLog(folder, durability, lock, found, writer)

    @property
    def durable(self) -> int:
        """The number of the last record that is durable, or counts as such."""
        return self._last if self._writer is None else self._writer.durable

    @property
    def waits_for_space(self) -> bool:
        """Whether the disk is full: nothing becomes durable until there is space again."""
        return self._writer is not None and self._writer.waits_for_space

    def forget_recovered(self) -> None:
        self.recovered = []

    def append(self, record: bytes) -> int:
        """Returns the record's number: 1, 2, 3... over all lives of the log."""
        if not self._is_marked:
            self._mark()
        if self._writer is not None:
            self._pending.append(record)
        self._last += 1
        return self._last

    def append_snapshot(self, record: bytes) -> int:
        """All records before it may be forgotten once it is durable."""
        self._close_batch()
        number = self.append(record)
        self._pending = []
        if self._writer is not None:
            self._jobs.append(Job(number, [record], True))
        return number

    def commit(self) -> None:
        if self._writer is not None:
            self._close_batch()
            for job in self._jobs:
                self._writer.submit(job)
            self._jobs = []

    def close(self) -> None:
        """Writes and syncs what was appended, if the disk allows, and gives up the folder."""
        if self._lock < 0:
            return
        self.commit()
        if self._writer is not None:
            self._writer.close()
        os.close(self._lock)
        self._lock = -1

    def _close_batch(self) -> None:
        if self._pending:
            self._jobs.append(Job(self._last - len(self._pending) + 1, self._pending, False))
            self._pending = []

    def _mark(self) -> None:
        mark_used(self.folder)
        self._is_marked = True


def _refuse_records(folder: Path) -> None:
    if files(folder, LOG) or files(folder, SNAPSHOT):
        raise UsageError(f"{folder}: holds a durable log, which memory mode would contradict: choose another folder")
