"""The event loop: discrete events in integer microseconds, ties in the order in which they were scheduled."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

_LAST = 1 << 62  # a sequence number above all others: the event is the last one of its time


class EventLoop:
    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._seq = 0
        self._stopped = False
        self._timed_out = False

    @property
    def events(self) -> int:
        """How many events were handled."""
        return self._seq - len(self._heap)

    def at(self, time: int, action: Callable[..., None], *args: Any) -> None:
        self._seq = seq = self._seq + 1
        heappush(self._heap, (time, seq, action, args))

    def pending(self) -> list[tuple[Callable[..., None], tuple[Any, ...]]]:
        """What is scheduled and was not handled yet, in the order in which it would have been."""
        return [(action, args) for _, _, action, args in sorted(self._heap, key=lambda event: event[:2])]

    def stop(self) -> None:
        """Ends `run` after the event that is being handled."""
        self._stopped = True

    def run(self, until: int | None = None) -> bool:
        """Handles events, up to this time if one is given. True if it was stopped, false if time or events ran out."""
        heap = self._heap
        self._stopped = self._timed_out = False
        # The end is an event as well: comparing times at every step would cost more than the rest of this loop.
        end = (0 if until is None else until, _LAST, self._time_out, ())
        if until is not None:
            heappush(heap, end)
        while not self._stopped:
            if not heap:
                return False
            time, _, action, args = heappop(heap)
            self.now = time
            action(*args)
        if until is not None and not self._timed_out:
            heap.remove(end)
            heapify(heap)
        return not self._timed_out

    def _time_out(self) -> None:
        self._stopped = self._timed_out = True
