"""The event loop: discrete events in integer microseconds, ties in the order in which they were scheduled."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventLoop:
    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._seq = 0
        self._stopped = False

    def at(self, time: int, action: Callable[..., None], *args: Any) -> None:
        self._seq += 1
        heappush(self._heap, (time, self._seq, action, args))

    def pending(self) -> list[tuple[Callable[..., None], tuple[Any, ...]]]:
        """What is scheduled and was not handled yet, in the order in which it would have been."""
        return [(action, args) for _, _, action, args in sorted(self._heap, key=lambda event: event[:2])]

    def stop(self) -> None:
        """Ends `run` after the event that is being handled."""
        self._stopped = True

    def run(self, until: int) -> bool:
        """Handles events up to this time. True if it was stopped, false if time or events ran out."""
        heap = self._heap
        self._stopped = False
        while heap and not self._stopped:
            time, _, action, args = heappop(heap)
            if time > until:
                heappush(heap, (time, _, action, args))
                break
            self.now = time
            self.events += 1
            action(*args)
        return self._stopped
