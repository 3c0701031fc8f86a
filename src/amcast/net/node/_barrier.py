"""What a process issues after a record waits until the disk has that record.

    the process issues    persist 7    send a    deliver b    persist 8    send c
    the disk has 7        a leaves, b is delivered; c still waits
    the disk has 8        c leaves

The process itself does not wait: it handles the next inputs, and their effects queue up behind those held back already.
In memory mode nothing is written, and nothing waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ...core import Record, encode
from ..disk.records import RecordLog


class DiskBarrier:
    def __init__(self, records: RecordLog) -> None:
        self.writes = records.writes
        self.is_up = False  # effects must be held back now
        self._records = records
        self._last = 0  # the number of the last record that was appended
        self._held: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()

    def append(self, record: Record) -> None:
        if self.writes:
            self._last = self._records.append(encode(record))
            self.is_up = True
        else:
            self._records.append(b"")  # it is only counted

    def append_snapshot(self, record: Record) -> None:
        if self.writes:
            self._last = self._records.append_snapshot(encode(record))
            self.is_up = True
        else:
            self._records.append_snapshot(b"")

    def hold(self, action: Callable[..., None], *args: Any) -> None:
        """To be called instead of the action while the barrier is up."""
        self._held.append((self._last, action, args))

    def release(self) -> None:
        """Performs what was held back for records that are durable by now, in the order in which it was issued."""
        durable, held = self._records.durable, self._held
        while held and held[0][0] <= durable:
            _, action, args = held.popleft()
            action(*args)
        self.is_up = bool(held) or self._last > durable

    def clear(self) -> None:
        """The node has stopped: what is held back is never performed. After a restart the records bring it again."""
        self._held.clear()

    @property
    def undurable(self) -> int:
        """How many records are on their way to the disk."""
        return max(0, self._last - self._records.durable)
