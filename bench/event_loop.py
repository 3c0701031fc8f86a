"""The bare event loop against SimPy: the same ping-pong, in pairs of nodes, with a constant delay a hop.

In SimPy every node is a process with a mailbox (`simpy.Store`), as in SimPy's manual. `put` is not waited for: a store
without a limit takes the message at once, and waiting would only slow SimPy down.

In the measurement with a target all pairs play in step, so that many events have the same time, as in a busy local
network. For information, it is repeated with a different time for each event, as in a wide area network.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial

import simpy

from amcast.sim.engine import EventLoop

from ._figures import Figure, Progress, Sizes, cpu_seconds

_TARGET = 8.0

Outcome = tuple[int, int]  # hops, virtual end time


@dataclass(frozen=True)
class Game:
    """Pair i starts after i times `apart_us`."""

    pairs: int
    hops: int  # of each pair
    delay_us: int
    apart_us: int

    def outcome(self) -> Outcome:
        return self.pairs * self.hops, (self.pairs - 1) * self.apart_us + self.hops * self.delay_us


class _Node:
    __slots__ = ("_delay_us", "_loop", "peer", "received")

    def __init__(self, loop: EventLoop, delay_us: int) -> None:
        self._loop = loop
        self._delay_us = delay_us
        self.peer = self
        self.received = 0

    def receive(self, hops_left: int) -> None:
        self.received += 1
        if hops_left:
            loop = self._loop
            loop.at(loop.now + self._delay_us, self.peer.receive, hops_left - 1)


def _ours(game: Game) -> Outcome:
    loop = EventLoop()
    nodes = [_Node(loop, game.delay_us) for _ in range(2 * game.pairs)]
    for pair, (one, other) in enumerate(zip(nodes[::2], nodes[1::2], strict=True)):
        one.peer, other.peer = other, one
        loop.at(pair * game.apart_us + game.delay_us, other.receive, game.hops - 1)
    loop.run()
    return sum(node.received for node in nodes), loop.now


class _Process:
    __slots__ = ("_delay_us", "_env", "inbox", "peer", "received")

    def __init__(self, env: simpy.Environment, delay_us: int) -> None:
        self._env = env
        self._delay_us = delay_us
        self.inbox = simpy.Store(env)
        self.peer = self
        self.received = 0

    def serve(self, start_us: int, hops: int) -> Generator[simpy.Event, int, None]:
        yield self._env.timeout(start_us + self._delay_us)
        self.peer.inbox.put(hops - 1)
        yield from self.play()

    def play(self) -> Generator[simpy.Event, int, None]:
        while True:
            hops_left = yield self.inbox.get()
            self.received += 1
            if hops_left:
                yield self._env.timeout(self._delay_us)
                self.peer.inbox.put(hops_left - 1)


def _simpy(game: Game) -> Outcome:
    env = simpy.Environment()
    processes = [_Process(env, game.delay_us) for _ in range(2 * game.pairs)]
    for pair, (one, other) in enumerate(zip(processes[::2], processes[1::2], strict=True)):
        one.peer, other.peer = other, one
        env.process(one.serve(pair * game.apart_us, game.hops))
        env.process(other.play())
    env.run()
    return sum(process.received for process in processes), int(env.now)


def measure(sizes: Sizes, progress: Progress) -> list[Figure]:
    pairs, hops = sizes.loop_nodes // 2, sizes.loop_hops
    in_step = Game(pairs, hops, delay_us=50, apart_us=0)
    scattered = Game(pairs, hops, delay_us=pairs, apart_us=1)  # no two events at one moment
    ratio, detail = _compare(in_step, sizes.loop_rounds, progress)
    other_ratio, other_detail = _compare(scattered, sizes.loop_rounds, progress)
    return [
        Figure("event-loop", ratio, "x SimPy", detail, _TARGET),
        Figure("event-loop-scattered", other_ratio, "x SimPy", other_detail),
    ]


def _compare(game: Game, rounds: int, progress: Progress) -> tuple[float, str]:
    expected = game.outcome()
    best = {_ours: float("inf"), _simpy: float("inf")}
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for side in best:
            seconds, outcome = cpu_seconds(partial(side, game))
            assert outcome == expected, f"{side.__name__}: hops and end {outcome}, not {expected}"
            best[side] = min(best[side], seconds)
    ours, theirs = (expected[0] / seconds for seconds in best.values())
    detail = (
        f"{2 * game.pairs} nodes, {expected[0]:,} hops: {ours:,.0f} hops/CPU s, SimPy {theirs:,.0f}; "
        f"best of {rounds} rounds each, in turns"
    )
    return ours / theirs, detail
