"""Futures that end when their time is over: on time, in any order, and with one timer for all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amcast.net.client._deadlines import Deadlines


class _Clock:
    """A loop's clock and timers, by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = asyncio.get_running_loop()
        self.now_s = 1_000.0
        self.timers: list[tuple[float, Any]] = []
        monkeypatch.setattr(self.loop, "time", lambda: self.now_s)
        monkeypatch.setattr(self.loop, "call_at", self._call_at)

    def _call_at(self, when_s: float, action: Any) -> Any:
        timer = (when_s, action)
        self.timers.append(timer)
        return _Handle(self.timers, timer)

    def go_to(self, now_s: float) -> None:
        while self.timers and min(self.timers)[0] <= now_s:
            timer = min(self.timers)
            self.timers.remove(timer)
            self.now_s = timer[0]
            timer[1]()
        self.now_s = now_s


class _Handle:
    def __init__(self, timers: list[tuple[float, Any]], timer: tuple[float, Any]) -> None:
        self._timers, self._timer = timers, timer

    def cancel(self) -> None:
        if self._timer in self._timers:
            self._timers.remove(self._timer)


def _run(test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with monkeypatch.context() as patch:
            test(_Clock(patch))

    asyncio.run(main())


def _is_over(future: asyncio.Future[None]) -> bool:
    return future.done() and isinstance(future.exception(), TimeoutError)


def test_each_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def test(clock: _Clock) -> None:
        deadlines = Deadlines()
        long, short, longer = (clock.loop.create_future() for _ in range(3))
        assert deadlines.begin(long, 30.0) == 1_030.0
        deadlines.begin(short, 2.0)
        clock.go_to(1_001.0)
        deadlines.begin(longer, 30.0)
        clock.go_to(1_001.9)
        assert not short.done()
        clock.go_to(1_002.0)
        assert _is_over(short)
        assert not long.done()
        deadlines.end(short, 2.0)
        clock.go_to(1_030.5)
        assert _is_over(long)
        assert not longer.done()
        clock.go_to(1_031.0)
        assert _is_over(longer)

    _run(test, monkeypatch)


def test_one_that_has_ended_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def test(clock: _Clock) -> None:
        deadlines = Deadlines()
        done, ended, last = (clock.loop.create_future() for _ in range(3))
        for future in (done, ended):
            deadlines.begin(future, 1.0)
        deadlines.begin(last, 3.0)
        done.set_result(None)
        deadlines.end(ended, 1.0)
        clock.go_to(1_002.0)
        assert done.exception() is None
        assert not ended.done()
        assert not last.done()
        clock.go_to(1_003.0)
        assert _is_over(last), "the timer went on to the next one"

    _run(test, monkeypatch)


def test_many_that_begin_and_end_keep_one_timer_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def test(clock: _Clock) -> None:
        deadlines = Deadlines()
        for at in range(1_000):
            clock.go_to(1_000.0 + at)
            future = clock.loop.create_future()
            deadlines.begin(future, 30.0)
            deadlines.end(future, 30.0)
            assert len(clock.timers) == 1
        assert deadlines._open == {}
        deadlines.close()
        assert clock.timers == []

    _run(test, monkeypatch)
