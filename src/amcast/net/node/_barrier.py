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

_MARK_BYTES = 64 << 10


class DiskBarrier:
    def __init__(self, records: RecordLog) -> None:
        self.writes = records.writes
        self.is_up = False  # effects must be held back now
        self._records = records
        self._last = 0  # the number of the last record that was appended
        self._held: deque[tuple[int, int, Callable[..., bool | None], tuple[Any, ...]]] = deque()
        self._held_bytes = 0
        self._appended_bytes = 0
        self._durable_bytes = 0
        # Numbers of some records, and how many bytes there are up to each.
        self._marks: deque[tuple[int, int]] = deque()

    def append(self, record: Record) -> None:
        if self.writes:
            data = encode(record)
            self._last = self._records.append(data)
            self._count(len(data))
        else:
            self._records.append(b"")  # it is only counted

    def append_snapshot(self, record: Record) -> None:
        if self.writes:
            data = encode(record)
            self._last = self._records.append_snapshot(data)
            self._count(len(data))
        else:
            self._records.append_snapshot(b"")

    def _count(self, size: int) -> None:
        self.is_up = True
        self._appended_bytes = total = self._appended_bytes + size
        marks = self._marks
        if total - (marks[-1][1] if marks else self._durable_bytes) >= _MARK_BYTES:
            marks.append((self._last, total))

    def hold(self, size: int, action: Callable[..., bool | None], *args: Any) -> None:
        """To be called instead of the action while the barrier is up. `size`: the bytes that only this action keeps.

        An action that returns False could not be performed: it is tried again at the next release, and all that follows
        waits for it.
        """
        self.is_up = True
        self._held_bytes += size
        self._held.append((self._last, size, action, args))

    def release(self) -> None:
        """Performs what was held back for records that are durable by now, in the order in which it was issued."""
        durable, held = self._records.durable, self._held
        while held and held[0][0] <= durable:
            _, size, action, args = held[0]
            if action(*args) is False:
                break
            held.popleft()
            self._held_bytes -= size
        self.is_up = bool(held) or self._last > durable
        while self._marks and self._marks[0][0] <= durable:
            self._durable_bytes = self._marks.popleft()[1]
        if self._last <= durable:
            self._durable_bytes = self._appended_bytes

    def clear(self) -> None:
        """The node has stopped: what is held back is never performed. After a restart the records bring it again."""
        self._held.clear()
        self._held_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """About how much memory is taken by what waits for the disk: records, and messages held back for them."""
        return self._appended_bytes - self._durable_bytes + self._held_bytes

    @property
    def undurable(self) -> int:
        """How many records are on their way to the disk."""
        return max(0, self._last - self._records.durable)
