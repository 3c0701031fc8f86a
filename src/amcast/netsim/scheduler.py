"""Virtual time for programs that block: events in integer microseconds, ties in the order of scheduling.

An event is a call. Most return at once: a turn of some node's event loop. But code of nodes may also wait in the middle
of a call: for a sync, for a thread that it joins, for an event. Its stack then has to stay where it is while other
events are handled. So events are handled by *carriers*, real threads of which exactly one runs at any time:

    carrier 1    events ... turn of g1.p0 waits for a sync . . . . . . . . . . . . goes on, ends | rests
    carrier 2                                             events ... "synced" . . . . . . . . . . events ...

When an event waits, another carrier goes on with the events that follow. Whoever ends the wait lends its turn to the
stack that waited, and gets it back when that stack has ended or waits again. What runs next never depends on the
operating system.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Carrier:
    """A thread that handles events, or whose stack waits in the middle of one."""

    __slots__ = ("lender", "turn")

    def __init__(self) -> None:
        self.turn = threading.Lock()  # held while it must not run
        self.turn.acquire()
        self.lender: Carrier | None = None  # who woke it, and waits until it has ended or waits again


class Scheduler:
    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._seq = 0
        self._is_stopped = False
        self._main = self._running = Carrier()
        self._resting: list[Carrier] = []
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None
        self.abandon: Callable[[], None] = lambda: None  # called if an event raises: must end all stacks that wait

    def at(self, time: int, action: Callable[..., None], *args: Any) -> None:
        self._seq = seq = self._seq + 1
        heappush(self._heap, (time, seq, action, args))

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> None:
        self._seq = seq = self._seq + 1
        heappush(self._heap, (self.now + delay, seq, action, args))

    def stop(self) -> None:
        """Ends `run` after the event that is being handled. No stack may be waiting any more."""
        self._is_stopped = True

    def run(self) -> None:
        """Handles events until it is stopped, or none are left. Raises what an event raised."""
        self._handle_events(self._main)
        self._is_stopped = True
        for carrier in self._resting:
            if carrier is not self._main:
                carrier.turn.release()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Suspends the stack that calls it, until `wake` is called for its carrier."""
        me = self._running
        lender, me.lender = me.lender, None
        self._pass_on(lender or self._resting_carrier())
        me.turn.acquire()

    @property
    def running(self) -> Carrier:
        """The carrier whose stack asks."""
        return self._running

    def wake(self, carrier: Carrier) -> None:
        """Lets a stack that waits go on, now. Returns when it has ended or waits again."""
        me = self._running
        carrier.lender = me
        self._pass_on(carrier)
        me.turn.acquire()

    def _pass_on(self, carrier: Carrier) -> None:
        self._running = carrier
        carrier.turn.release()

    def _resting_carrier(self) -> Carrier:
        if self._resting:
            return self._resting.pop()
        carrier = Carrier()
        thread = threading.Thread(target=self._begin, args=(carrier,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return carrier

    def _begin(self, carrier: Carrier) -> None:
        carrier.turn.acquire()
        self._handle_events(carrier)

    def _handle_events(self, me: Carrier) -> None:
        heap = self._heap
        while not self._is_stopped and heap:
            self.now, _, action, args = heappop(heap)
            self.events += 1
            try:
                action(*args)
            except BaseException as error:
                if self._error is None:
                    self._error = error
                    self.abandon()
                self._is_stopped = True
            if me.lender is not None:
                lender, me.lender = me.lender, None
                self._resting.append(me)
                self._pass_on(lender)
                me.turn.acquire()
        if me is not self._main and self._main in self._resting:
            # The end: the thread that called `run` returns from it.
            self._resting.remove(self._main)
            self._pass_on(self._main)
