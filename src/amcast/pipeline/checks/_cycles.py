"""The shortest cycle in a knot of messages: the smallest evidence of a wrong order.

A knot is a strong component of the precedences, lane by lane. Cycles of two messages are looked for among all of its
messages, by sorting: where the positions in one lane fall along another, two messages are in different orders. Longer
ones are found by breadth-first search over the lanes: a message precedes all that come after it in a lane, so
reaching a position opens the rest of the lane, and each lane is opened once a search.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ._read import Int64s

_SOURCES_MAX = 400  # searches in one knot; those that are left out begin further from the heads


@dataclass(frozen=True, slots=True)
class Cycle:
    """lanes[i] has messages[i] before messages[i + 1], the last one has the last before the first."""

    messages: list[int]  # indexes into the messages of the knot
    lanes: list[int]


@dataclass(frozen=True, slots=True)
class Knot:
    lanes: list[int]  # the group index of each lane
    messages: Int64s  # the number of each message
    entry: list[Int64s]  # of each lane: its messages in order, then those that it lacks, as indexes into `messages`
    lengths: list[int]  # how many of them it has

    @classmethod
    def of(cls, lanes: list[int], heads: list[Int64s], tails: list[Int64s]) -> Knot:
        messages = np.unique(np.concatenate(heads))
        entry = [
            np.searchsorted(messages, np.concatenate((head, tail[np.isin(tail, messages)])))
            for head, tail in zip(heads, tails, strict=True)
        ]
        return cls(lanes, messages, entry, [len(head) for head in heads])

    def positions(self, lane: int) -> Int64s:
        """Of the entries of a lane; all that it lacks are at its end."""
        return np.minimum(np.arange(len(self.entry[lane])), self.lengths[lane])


# ------------------------------------------------------------------------------------ cycles of two messages


def find_inversions(knot: Knot, limit: int) -> list[Cycle]:
    """For each two lanes that order two messages differently one such pair; the first few of them."""
    found: list[tuple[int, Cycle]] = []
    for one in range(len(knot.lanes)):
        here = np.full(len(knot.messages), -1)
        here[knot.entry[one]] = knot.positions(one)
        for other in range(one + 1, len(knot.lanes)):
            pair = _inversion(here, knot.entry[other], knot.positions(other))
            if pair is not None:
                at, first, then = pair
                found.append((at, Cycle([first, then], [knot.lanes[one], knot.lanes[other]])))
    found.sort(key=lambda item: item[0])
    return [cycle for _, cycle in found[:limit]]


def _inversion(here: Int64s, entry: Int64s, there: Int64s) -> tuple[int, int, int] | None:
    """Where it is here, what comes first here, and what follows it here and precedes it there."""
    shared = here[entry] >= 0
    entry, there = entry[shared], there[shared]
    order = np.lexsort((there, here[entry]))
    falls = np.flatnonzero(np.diff(there[order]) < 0)
    if not len(falls):
        return None
    first, then = entry[order[falls[0]]], entry[order[falls[0] + 1]]
    return int(here[first]), int(first), int(then)


# -------------------------------------------------------------------------------------- cycles of any length


def shortest_cycles(knot: Knot, limit: int) -> list[Cycle]:
    """Cycles of the smallest length found, without a common message, at most `limit` of them."""
    search = _Search(knot)
    best: list[Cycle] = []
    used: set[int] = set()
    for source in search.sources():
        cycle = search.through(source, len(best[0].messages) if best else None)
        if cycle is None:
            continue
        if best and len(cycle.messages) < len(best[0].messages):
            best, used = [], set()
        if used.isdisjoint(cycle.messages):
            best.append(cycle)
            used.update(cycle.messages)
        if len(best) == limit and len(best[0].messages) == 3:
            break  # none is shorter: those of two were looked for before
    return best[:limit]


class _Search:
    def __init__(self, knot: Knot) -> None:
        self._knot = knot
        self._entries = [entry.tolist() for entry in knot.entry]
        self._places: list[list[tuple[int, int]]] = [[] for _ in knot.messages]
        for lane, entries in enumerate(self._entries):
            for at, message in enumerate(entries[: knot.lengths[lane]]):
                self._places[message].append((lane, at))

    def sources(self) -> list[int]:
        """Messages, those at the heads of lanes first."""
        nearest = [min((at for _, at in places), default=0) for places in self._places]
        return sorted(range(len(nearest)), key=nearest.__getitem__)[:_SOURCES_MAX]

    def through(self, source: int, longest: int | None) -> Cycle | None:
        """A shortest cycle through a message, if it is no longer than that."""
        opened = [len(entries) for entries in self._entries]  # from here on, a lane's messages are in the queue
        came: dict[int, tuple[int, int]] = {}  # from which message, in which lane
        queue = deque([(source, 1)])
        while queue:
            message, length = queue.popleft()
            if longest is not None and length > longest:
                return None
            for lane, at in self._places[message]:
                entries = self._entries[lane]
                for then in entries[at + 1 : opened[lane]]:
                    if then not in came:
                        came[then] = (message, lane)
                        if then == source:
                            return self._trace_back(came, source)
                        queue.append((then, length + 1))
                opened[lane] = min(opened[lane], at + 1)
        return None

    def _trace_back(self, came: dict[int, tuple[int, int]], source: int) -> Cycle:
        messages: list[int] = []
        lanes: list[int] = []
        message = source
        while True:
            message, lane = came[message]
            messages.append(message)
            lanes.append(self._knot.lanes[lane])
            if message == source:
                return Cycle(messages[::-1], lanes[::-1])
