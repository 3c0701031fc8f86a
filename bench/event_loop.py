"""The bare event loop against SimPy: the same ping-pong, in pairs of nodes, with a constant delay a hop.

In SimPy every node is a process with a mailbox (`simpy.Store`), as its manual has it. The put is not waited for: a
store without a limit takes it at once, and waiting would only slow SimPy down.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import simpy

from amcast.sim.engine import EventLoop

from ._figures import Figure, Progress, Sizes, cpu_seconds

_DELAY_US = 50
_TARGET = 8.0

Outcome = tuple[int, int]  # hops, virtual end time


class _Node:
    __slots__ = ("_loop", "peer", "received")

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.peer = self
        self.received = 0

    def receive(self, hops_left: int) -> None:
        self.received += 1
        if hops_left:
            loop = self._loop
            loop.at(loop.now + _DELAY_US, self.peer.receive, hops_left - 1)


def _ours(nodes: int, hops: int) -> Outcome:
    loop = EventLoop()
    everyone = [_Node(loop) for _ in range(nodes)]
    for one, other in zip(everyone[::2], everyone[1::2], strict=True):
        one.peer, other.peer = other, one
        loop.at(_DELAY_US, other.receive, hops - 1)
    loop.run(until=1 << 62)
    return sum(node.received for node in everyone), loop.now


class _Process:
    __slots__ = ("_env", "inbox", "peer", "received")

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self.inbox = simpy.Store(env)
        self.peer = self
        self.received = 0

    def run(self, hops_left: int | None) -> Generator[simpy.Event, int, None]:
        """Whoever starts has a number of hops to begin with."""
        if hops_left is not None:
            yield self._env.timeout(_DELAY_US)
            self.peer.inbox.put(hops_left - 1)
        while True:
            hops_left = yield self.inbox.get()
            self.received += 1
            if hops_left:
                yield self._env.timeout(_DELAY_US)
                self.peer.inbox.put(hops_left - 1)


def _simpy(nodes: int, hops: int) -> Outcome:
    env = simpy.Environment()
    everyone = [_Process(env) for _ in range(nodes)]
    for one, other in zip(everyone[::2], everyone[1::2], strict=True):
        one.peer, other.peer = other, one
        env.process(one.run(hops))
        env.process(other.run(None))
    env.run()
    return sum(process.received for process in everyone), int(env.now)


def measure(sizes: Sizes, progress: Progress) -> list[Figure]:
    nodes, hops = sizes.loop_nodes, sizes.loop_hops
    expected = (nodes // 2 * hops, hops * _DELAY_US)
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(sizes.loop_rounds):
        progress(f"round {number + 1} of {sizes.loop_rounds}")
        for times, side in ((ours, _ours), (theirs, _simpy)):
            seconds, outcome = cpu_seconds(partial(side, nodes, hops))
            assert outcome == expected, f"{side.__name__} made {outcome} hops and time, not {expected}"
            times.append(seconds)
    mine, peers = expected[0] / min(ours), expected[0] / min(theirs)
    detail = (
        f"{nodes} nodes, {expected[0]:,} hops: {mine:,.0f} hops/CPU s, SimPy {peers:,.0f}; "
        f"best of {sizes.loop_rounds} rounds each, in turns"
    )
    return [Figure("event-loop", mine / peers, "x SimPy", detail, _TARGET)]
