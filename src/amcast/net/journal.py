"""The delivery log: what a node delivered, by position, for clients that follow it and applications that are replayed.

Appending keeps the message in memory; `flush`, once a turn of the event loop, writes what was appended at one go. That
survives the process. What the machine may forget is delivered again from the record log, up to the next snapshot:
before a snapshot takes the place of the records, `sync` must have run.

Recent messages are read from memory, older ones from the disk. The oldest are dropped, a segment at a time.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from ..core import AppMessage, message_name
from ._disk import CorruptLogError, is_full, locked
from ._history import ENTRY_BYTES, Entry, History, entry_bytes, sync_and_close
from .storage import SEGMENT_BYTES, Durability

__all__ = ["DeliveryLog", "PositionGoneError"]

_WINDOW_MESSAGES = 65_536
_WINDOW_BYTES = 128 << 20
_WINDOW_SLACK = 1.125  # the window is cut seldom, because cutting moves all that stays
_COMPARED_BYTES = 1 << 20


class PositionGoneError(Exception):
    """What is asked for was dropped or never known here: `first` is the first position that there is."""

    def __init__(self, first: int) -> None:
        super().__init__(f"positions below {first} are gone: start at {first}")
        self.first = first


class DeliveryLog:
    """For one thread, but `sync` may be called from another. Positions kept: `first <= position < next`."""

    def __init__(self, folder: Path, history: History | None, lock: int, keep_messages: int) -> None:
        self._folder = folder
        self._history = history
        self._folder_lock = lock
        self._keep = keep_messages if history is not None else min(keep_messages, _WINDOW_MESSAGES)
        self._access = threading.Lock()
        self.note = history.note if history is not None else None
        self.next = history.next if history is not None else 0
        self._window: list[Entry] = []
        self._window_first = self.next
        self._window_bytes = 0  # of what was flushed
        self._flushed = self.next  # what is below is in the history, if there is one
        self._compared: list[Entry] = []
        self._compared_first = 0
        self._failure: OSError | None = None

    @staticmethod
    def open(
        folder: Path, durability: Durability, keep_messages: int = 10_000_000, segment_bytes: int = SEGMENT_BYTES
    ) -> DeliveryLog:
        if durability is Durability.MEMORY:
            return DeliveryLog(folder, None, -1, keep_messages)
        with locked(folder) as (lock, stack):
            history = History(folder, segment_bytes)
            stack.pop_all()
        return DeliveryLog(folder, history, lock, keep_messages)

    @property
    def first(self) -> int:
        return self._history.first if self._history is not None else self._window_first

    # -- writing

    def append(self, position: int, message: AppMessage, ts: int | None) -> bool:
        """Whether it is new: after a restart, what was delivered since the last snapshot comes again."""
        if position == self.next:
            self._window.append((message, ts))
            self.next = position + 1
            return True
        if position > self.next:
            raise CorruptLogError(
                self._folder / "delivered-*", f"positions {self.next} to {position - 1} were delivered and are missing"
            )
        known = self._known(position)
        if known is not None and known.id != message.id:
            raise AssertionError(
                f"{message_name(message.id)} comes at position {position}, where {message_name(known.id)} was delivered"
            )
        return False

    def extend(self, batch: Sequence[Entry]) -> None:
        """Many at the next positions, all of them new."""
        self._window.extend(batch)
        self.next += len(batch)

    def skip_to(self, position: int) -> None:
        """State was handed over that covers all below this position. What is known of it already stays."""
        if position <= self.next:
            return
        with self._access:
            if self._history is not None:
                self._history.begin_at(position)
            self._window = []
            self._window_bytes = 0
            self.next = self._window_first = self._flushed = position

    def flush(self) -> None:
        """Hands all that was appended to the kernel. On a full disk it stays in memory, for the next time."""
        if self._flushed != self.next:
            with self._access:
                self._flush()

    def sync(self) -> None:
        """All that was appended is durable, or this raises an error; once it did, it always does."""
        if self._history is None:
            return
        with self._access:
            if self._failure is not None:
                raise self._failure
            if not self._flush():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
            position, fds = self._history.begin_sync()
        try:
            sync_and_close(fds, self._folder)
        except OSError as error:
            self._failure = error
            raise
        with self._access:
            self._history.end_sync(position)

    def close(self) -> None:
        if self._folder_lock >= 0 and self._history is not None:
            self.flush()
            self._history.close()
            os.close(self._folder_lock)
            self._folder_lock = -1

    def _flush(self) -> bool:
        """Whether there was space for it."""
        new = self._window[self._flushed - self._window_first :]
        if self._history is not None and new:
            try:
                self._history.write(new)
            except OSError as error:
                if not is_full(error):
                    raise
                return False
            self._history.drop_before(self._history.next - self._keep)
        self._flushed += len(new)
        self._window_bytes += sum([len(message.payload) for message, _ in new]) + ENTRY_BYTES * len(new)
        self._cut_window()
        return True

    def _cut_window(self) -> None:
        messages = min(_WINDOW_MESSAGES, self._keep)
        kept = self._flushed - self._window_first
        if kept <= messages * _WINDOW_SLACK and self._window_bytes <= _WINDOW_BYTES * _WINDOW_SLACK:
            return
        cut = max(0, kept - messages)
        size = self._window_bytes - sum(map(entry_bytes, self._window[:cut]))
        while size > _WINDOW_BYTES and cut < kept - 1:
            size -= entry_bytes(self._window[cut])
            cut += 1
        del self._window[:cut]
        self._window_first += cut
        self._window_bytes = size

    # -- reading

    def read(self, position: int, limit_bytes: int) -> list[Entry]:
        """Messages and their timestamps from this position on: at least one if there is one, then up to the limit."""
        with self._access:
            if position < self.first:
                raise PositionGoneError(self.first)
            if position >= self.next:
                return []
            if position < self._window_first:
                assert self._history is not None
                return self._history.read(position, limit_bytes)
            found: list[Entry] = []
            index = position - self._window_first
            while index < len(self._window) and (limit_bytes > 0 or not found):
                entry = self._window[index]
                limit_bytes -= entry_bytes(entry)
                if limit_bytes < 0 and found:
                    break
                found.append(entry)
                index += 1
            return found

    def _known(self, position: int) -> AppMessage | None:
        """What was delivered at a position below `next`. Asked for one position after the other, it is fast."""
        if position < self.first:
            return None
        at = position - self._compared_first
        if not 0 <= at < len(self._compared):
            self._compared = self.read(position, _COMPARED_BYTES)
            self._compared_first = position
            at = 0
        return self._compared[at][0]
