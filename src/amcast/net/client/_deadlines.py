"""Futures that end with a TimeoutError when their time is over. One timer for all costs far less than one for each."""

from __future__ import annotations

import asyncio
from typing import Any

_NEVER_S = float("inf")
_PAUSE_S = 0.005  # between two looks, at least: there may be many deadlines of different lengths

Waiting = asyncio.Future[Any]


class Deadlines:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # By how long they may take. Futures that may take equally long end in the order in which they began, so that
        # only the first of each is looked at.
        self._open: dict[float, dict[Waiting, float]] = {}
        self._look: asyncio.TimerHandle | None = None
        self._look_s = _NEVER_S  # when

    def begin(self, future: Waiting, timeout: float) -> float:
        """Returns when its time is over, by the loop's clock."""
        deadline_s = self._loop.time() + timeout
        same = self._open.get(timeout)
        if same is None:
            self._open[timeout] = {future: deadline_s}
        else:
            same[future] = deadline_s
        if deadline_s < self._look_s:
            self._look_at(deadline_s)
        return deadline_s

    def end(self, future: Waiting, timeout: float) -> None:
        """The timer stays: it finds others to look after, or nothing."""
        same = self._open[timeout]
        del same[future]
        if not same:
            del self._open[timeout]

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_at(self, deadline_s: float) -> None:
        self.close()
        self._look_s = deadline_s
        self._look = self._loop.call_at(deadline_s, self._look_again)

    def _look_again(self) -> None:
        self._look, self._look_s = None, _NEVER_S
        now_s = self._loop.time()
        next_s = _NEVER_S
        for same in self._open.values():
            for future, deadline_s in same.items():
                if deadline_s > now_s:
                    next_s = min(next_s, deadline_s)
                    break
                if not future.done():
                    future.set_exception(TimeoutError())
        if next_s < _NEVER_S:
            self._look_at(max(next_s, now_s + _PAUSE_S))
