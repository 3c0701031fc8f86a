"""The delivery log: what a node delivered, by position, for clients that follow it and applications that are replayed.

Appending keeps the message in memory. `flush`, once a turn of the event loop, hands all that was appended to the
kernel, where it outlives the process. What a crash of the machine loses here is delivered again when the node restarts,
from the records since the last snapshot. So `sync` must have run before a snapshot replaces records.

Recent messages are read from a window in memory, older ones from the disk. A batch is stored as it was delivered, and
readers get its messages one by one.

What a node promises: a message that was acknowledged can be had from the delivery logs of its group for as long as the
retention says, whatever restarts. The last `keep_messages` are kept, and more if the node's application has no durable
snapshot that covers them (`keep_from`); older ones are dropped, a segment at a time. A replica that was away for long
is given a state instead of messages. Its log then has a gap: what it held before stays, it goes on after the gap, and
the node fills the gap from the logs of the other members. A position in a gap is gone for readers until then, and they
ask another member. A gap stays only if no member has the messages: since all of those that had them lost their disks,
or since the retention has passed them everywhere. In memory mode there are no files, and only the window is kept. What
it holds before a gap stays as well, but the gap is not filled: whoever gave the state has these messages.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path

from ...core import AppMessage, StampedMessage, message_name, unpack_deliveries
from ..system import system
from ._delivery_files import OVERHEAD_BYTES, DeliveryFiles, PositionGoneError, size_of, sync_and_close
from .files import CorruptLogError, is_full, locked
from .records import SEGMENT_BYTES, Durability

__all__ = ["DeliveryLog", "PositionGoneError", "size_of"]

_WINDOW_MESSAGES = 65_536
_WINDOW_BYTES = 128 << 20
_WINDOW_SLACK = 1.125  # how far the window outgrows its limit before it is cut, since a cut moves all that stays
_COMPARED_BYTES = 1 << 20
_RETRY_S = 0.2  # between attempts on a full disk: each writes all that waits
_MEMORY_DELIVERIES = 64  # in memory mode, the window is cut once in so many deliveries


class DeliveryLog:
    """Holds positions below `next`. It belongs to one thread, but any may call `sync` and `write_fill`."""

    def __init__(
        self, folder: Path, files: DeliveryFiles | None, lock: int, keep_messages: int, has_batches: bool
    ) -> None:
        self._folder = folder
        self._files = files
        self._folder_lock = lock
        self._has_batches = has_batches
        self._keep = keep_messages if files is not None else min(keep_messages, _WINDOW_MESSAGES)
        self._access = system().lock()
        self.keep_from: int | None = None  # nothing from here on is dropped: the application may need it after a crash
        self.note = files.note if files is not None else None
        self.next = files.next if files is not None else 0
        self._window: list[StampedMessage] = []  # the latest deliveries
        self._window_at: list[int] = []  # the position of each
        self._window_first = self.next
        self._holes: list[tuple[int, int]] = []  # of the window: only in memory mode it goes on after a gap
        self._window_flushed = 0  # how many of the window's deliveries are flushed
        self._window_bytes = 0  # the size of these
        self._compared: list[StampedMessage] = []  # read ahead, to compare with what is delivered again
        self._compared_first = 0
        self._failure: OSError | None = None
        self.unflushed_bytes = 0  # what a full disk did not take yet
        self._counted = 0  # how many of the window's deliveries are flushed, or counted in it
        self._retry_s = 0.0

    @staticmethod
    def open(
        folder: Path,
        durability: Durability,
        keep_messages: int = 10_000_000,
        segment_bytes: int = SEGMENT_BYTES,
        has_batches: bool = False,
    ) -> DeliveryLog:
        """`has_batches`: whether the protocol takes batches. Timestamps depend on it, see `core.batch`."""
        if durability is Durability.MEMORY:
            return DeliveryLog(folder, None, -1, keep_messages, has_batches)
        with locked(folder) as (lock, stack):
            files = DeliveryFiles(folder, segment_bytes)
            stack.pop_all()
        return DeliveryLog(folder, files, lock, keep_messages, has_batches)

    @property
    def first(self) -> int:
        """The lowest position that is held."""
        return self._files.first if self._files is not None else self._window_first

    # -- writing

    def append(self, position: int, message: AppMessage, ts: int | None) -> bool:
        """False if the log has it already: a process that restarts delivers again what came since its last snapshot."""
        if position == self.next:
            self.extend(((message, ts),))
            return True
        if position > self.next:
            raise CorruptLogError(
                self._folder / "delivered-*", f"positions {self.next} to {position - 1} were delivered and are missing"
            )
        assert position + message.count <= self.next, "a batch is in the log as a whole or not at all"
        for place, each, _ in unpack_deliveries(position, ((message, ts),), self._has_batches):
            known = self._known(place)
            if known is not None and known.id != each.id:
                raise AssertionError(
                    f"{message_name(each.id)} comes at position {place}, where {message_name(known.id)} was delivered"
                )
        return False

    def extend(self, batch: Sequence[StampedMessage]) -> None:
        """Appends deliveries at the positions from `next` on."""
        self._window.extend(batch)
        next_, at = self.next, self._window_at
        for message, _ in batch:
            at.append(next_)
            next_ += message.count
        self.next = next_

    def skip_to(self, position: int) -> None:
        """The process was given a state that covers all positions below this one. A log that is behind goes on here.

        What it holds stays.
        """
        if position <= self.next:
            return
        with self._access:
            if self._files is None and self._window:
                self._holes.append((self.next, position))
                self.next = position
                return
            if self._files is not None:
                self._flush_or_raise()
                self._files.begin_at(position)
            self._window, self._window_at = [], []
            self._window_bytes = self._window_flushed = self._counted = 0
            self.next = self._window_first = position

    def flush(self) -> None:
        """Hands all that was appended to the kernel. If the disk is full, it stays in memory until the next flush."""
        new = len(self._window) - self._window_flushed
        if new and (self._files is not None or new >= _MEMORY_DELIVERIES):
            with self._access:
                if not self.unflushed_bytes or system().monotonic_s() >= self._retry_s:
                    self._flush()
                else:
                    self._count_unflushed()

    def sync(self) -> None:
        """Makes all that was appended durable. Once the disk has failed to sync, every later call fails too."""
        if self._files is None:
            return
        with self._access:
            if self._failure is not None:
                raise self._failure
            self._flush_or_raise()
            position, fds = self._files.begin_sync()
        try:
            sync_and_close(fds, self._folder)
        except OSError as error:
            self._failure = error
            raise
        with self._access:
            self._files.end_sync(position)

    def close(self) -> None:
        if self._folder_lock >= 0 and self._files is not None:
            self.flush()
            self._files.close()
            system().close(self._folder_lock)
            self._folder_lock = -1

    def _flush_or_raise(self) -> None:
        if not self._flush():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))

    def _flush(self) -> bool:
        """False if there is no space on the disk."""
        new = self._window[self._window_flushed :]
        if self._files is not None and new:
            try:
                self._files.write(new)
            except OSError as error:
                if not is_full(error):
                    raise
                self._count_unflushed()
                self._retry_s = system().monotonic_s() + _RETRY_S
                return False
            self._files.drop_before(self._kept_from(self._files.next))
        self._window_flushed += len(new)
        self.unflushed_bytes = 0
        self._counted = self._window_flushed
        self._window_bytes += sum([len(message.payload) for message, _ in new]) + OVERHEAD_BYTES * len(new)
        self._cut_window()
        return True

    def _count_unflushed(self) -> None:
        self.unflushed_bytes += sum(map(size_of, self._window[self._counted :]))
        self._counted = len(self._window)

    def _cut_window(self) -> None:
        """Drops the oldest deliveries of the window if it is too large. All are flushed now; the last one stays."""
        messages = min(_WINDOW_MESSAGES, self._keep)
        kept = self.next - self._window_first
        if kept <= messages * _WINDOW_SLACK and self._window_bytes <= _WINDOW_BYTES * _WINDOW_SLACK:
            return
        window, at = self._window, self._window_at
        cut = max(0, bisect_right(at, self.next - messages) - 1)
        size = self._window_bytes - sum(map(size_of, window[:cut]))
        while size > _WINDOW_BYTES and cut < len(window) - 1:
            size -= size_of(window[cut])
            cut += 1
        if cut:
            del window[:cut], at[:cut]
            self._window_flushed -= cut
            self._counted -= cut
            self._window_first = at[0]
            self._window_bytes = size
            self._holes = [hole for hole in self._holes if hole[1] > at[0]]

    def _kept_from(self, next_: int) -> int:
        wanted = max(0, next_ - self._keep)
        return wanted if self.keep_from is None else min(wanted, self.keep_from)

    # -- gaps

    def gaps(self) -> list[tuple[int, int]]:
        """The ranges of positions that are missing, though the retention asks for some of them."""
        if self._files is None:
            return []
        with self._access:
            return [(start, end) for start, end in self._files.gaps() if end > self.kept_from]

    @property
    def kept_from(self) -> int:
        """What is below this position may be dropped."""
        return self._kept_from(self.next)

    def write_fill(self, first: int, deliveries: list[StampedMessage]) -> int:
        """Writes and syncs deliveries that lie in a gap, and returns the position after them: see `add_fill`."""
        assert self._files is not None
        return self._files.write_fill(first, deliveries)

    def add_fill(self, first: int, end: int) -> None:
        """From now on, what `write_fill` wrote is part of the log."""
        assert self._files is not None
        with self._access:
            self._files.add_fill(first, end)

    # -- reading

    def read(self, position: int, limit_bytes: int) -> list[StampedMessage]:
        """Messages and their timestamps from this position on: at least one if there is one, then up to the limit."""
        begins, found = self.read_stored(position, limit_bytes)
        unpacked = unpack_deliveries(begins, found, self._has_batches)
        return [(message, ts) for at, message, ts in unpacked if at >= position]

    def read_stored(self, position: int, limit_bytes: int) -> tuple[int, list[StampedMessage]]:
        """The same as it was delivered: the first one may be a batch that begins below, so this tells where it begins.

        Raises PositionGoneError if the position is in a gap, or was dropped.
        """
        with self._access:
            if position >= self.next:
                return position, []
            if position < self.first:
                raise PositionGoneError(self.first)
            if self._files is None or position >= self._window_first:
                return self._read_window(position, limit_bytes)
            return self._files.read(position, limit_bytes)

    def has(self, position: int) -> bool:
        with self._access:
            if not self.first <= position < self.next:
                return False
            if self._files is None:
                return self._hole_from(position)[0] > position
            return position >= self._window_first or self._files.has(position)

    def after_hole(self, position: int) -> int:
        """The lowest position from this one on that is held, or will be. Gaps that are being filled do not count."""
        with self._access:
            start, end = self._hole_from(position)
            return max(self.first, end if start <= position else position)

    def _hole_from(self, position: int) -> tuple[int, int]:
        """The first hole of the window that ends above this position; the end of the log if there is none."""
        return next((hole for hole in self._holes if hole[1] > position), (self.next, self.next))

    def _read_window(self, position: int, limit_bytes: int) -> tuple[int, list[StampedMessage]]:
        found: list[StampedMessage] = []
        first = bisect_right(self._window_at, position) - 1
        hole, end = self._hole_from(position)
        if hole <= position:
            raise PositionGoneError(end)
        for index in range(first, bisect_left(self._window_at, hole)):
            delivery = self._window[index]
            limit_bytes -= size_of(delivery)
            if limit_bytes < 0 and found:
                break
            found.append(delivery)
        return self._window_at[first], found

    def _known(self, position: int) -> AppMessage | None:
        """What was delivered at a position below `next`; none if it is missing. Fast when positions come in order."""
        at = position - self._compared_first
        if not 0 <= at < len(self._compared):
            if not self.has(position):
                return None
            self._compared = self.read(position, _COMPARED_BYTES)
            self._compared_first = position
            at = 0
        return self._compared[at][0]
