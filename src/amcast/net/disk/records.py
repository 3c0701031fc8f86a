"""The record log, a node's write-ahead log: what a process persists, in order, to be read back after a crash.

    loop     append, append, commit      append, commit    append, commit
                              |                       \\         |
    writer                    write, sync -----------> write both, sync ----->
                                           |                             |
    loop                                   on_durable(2)                 on_durable(4)

Appending adds to a list in memory. `commit`, once a turn of the event loop, hands the list to a thread that writes and
syncs it. What is appended during a sync is written together after it (group commit). A snapshot is a record that
replaces all earlier ones: it is written to a file of its own, and the files before it are deleted. Records that follow
a snapshot are written after it.

In `sync` mode, every record that was reported as durable is found when the log is opened again, with all records before
it, unless the disk fails; and a disk that failed is recognised (`_segments.py`). Of the records that were not reported,
a first part may be found.

In `async` mode a record counts as durable when the kernel has it; segments are synced when they are full. Killing the
process loses nothing, a crash of the machine what the kernel had not written yet: the last seconds. In `memory` mode
nothing is written, and no folder is needed. Whether a log without records is new, or was lost, is not to be seen here:
the data folder says so (`node/data_folder.py`), and `before_first` tells it when it has something to lose.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from ..system import system
from ._recovery import Recovered, recover
from ._writer import ClosingError, Job, RecordWriter
from .files import CorruptLogError, locked

__all__ = ["ClosingError", "CorruptLogError", "Durability", "RecordLog"]

SEGMENT_BYTES = 64 << 20


class Durability(StrEnum):
    SYNC = "sync"
    ASYNC = "async"
    MEMORY = "memory"


def _nothing() -> None:
    pass


class RecordLog:
    """All methods belong to one thread. The callbacks are called from another, the writer's."""

    def __init__(self, lock: int, found: Recovered | None, writer: RecordWriter | None) -> None:
        self.recovered = found.records if found else []
        self.note = found.note if found else None  # for people: that a torn write was cut off
        self._lock = lock
        self._writer = writer
        self.writes = writer is not None  # false in memory mode
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
        before_first: Callable[[], None] = _nothing,
    ) -> RecordLog:
        """All callbacks are called from the writer's thread.

        `on_durable` is told the number up to which all records are durable; in memory mode it is never called.
        `on_failure` is told why no more records will become durable. `before_snapshot` is called before a snapshot is
        written, and must make durable what could be rebuilt so far from the records that the snapshot replaces. If it
        can't, it raises ClosingError: then neither the snapshot nor anything after it is written. `before_first` is
        called before the first record since `open` is reported as durable.
        """
        if durability is Durability.MEMORY:
            return RecordLog(-1, None, None)
        with locked(folder) as (lock, stack):
            found = recover(folder)
            is_sync = durability is Durability.SYNC
            writer = RecordWriter(
                folder, found, is_sync, on_durable, on_failure, before_first, before_snapshot, segment_bytes
            )
            stack.pop_all()
        return RecordLog(lock, found, writer)

    @property
    def durable(self) -> int:
        """The number of the last record that counts as durable."""
        return self._last if self._writer is None else self._writer.durable

    @property
    def is_settled(self) -> bool:
        """Whether all that was appended is durable."""
        return self.durable == self._last

    @property
    def synced(self) -> int:
        """The number of the last record that not even a crash of the machine loses. Always 0 in memory mode."""
        return 0 if self._writer is None else self._writer.synced

    @property
    def waits_for_space(self) -> bool:
        """Whether the disk is full: nothing becomes durable until there is space again."""
        return self._writer is not None and self._writer.waits_for_space

    def forget_recovered(self) -> None:
        self.recovered = []

    def append(self, record: bytes) -> int:
        """Returns the record's number: 1, 2, 3... over all boots of the process."""
        if self._writer is not None:
            self._pending.append(record)
        self._last += 1
        return self._last

    def append_snapshot(self, record: bytes) -> int:
        """Once it is durable, the records before it are deleted."""
        self._close_batch()
        number = self.append(record)
        self._pending = []
        if self._writer is not None:
            self._jobs.append(Job(number, [record], True))
        return number

    def drop_pending(self) -> None:
        """Forgets what was appended since the last commit, as a crash would."""
        self._pending, self._jobs = [], []

    def commit(self) -> None:
        if self._writer is not None:
            self._close_batch()
            for job in self._jobs:
                self._writer.submit(job)
            self._jobs = []

    def close(self) -> None:
        """Writes and syncs what was appended, if the disk has not failed, and unlocks the folder.

        It waits for the writer. So while a writer may wait for this thread in `before_snapshot`, it must not be called
        before that wait is told to end.
        """
        if self._lock < 0:
            return
        self.commit()
        if self._writer is not None:
            self._writer.close()
        system().close(self._lock)
        self._lock = -1

    def _close_batch(self) -> None:
        if self._pending:
            self._jobs.append(Job(self._last - len(self._pending) + 1, self._pending, False))
            self._pending = []
