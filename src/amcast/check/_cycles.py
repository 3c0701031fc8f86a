"""The shortest cycle among messages that could not be merged: the smallest evidence of a wrong order.

A knot is a set of messages and some lanes, the sequences in which groups delivered them. Each message has a position in
the lane of each of its destinations; all messages that a lane lacks are at its end. Message a precedes b if some lane
has a at a smaller position than b.

There are too many precedences to list, and no need to. From a message, only the smallest position reached in each lane
after k steps matters, and one step from lane g to lane h is a lookup in a table of suffix minima: the smallest position
in h of any message at or after a position of g. All messages take their steps at once, as array operations, and the
first that can step back to itself closes a shortest cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.run import Int32s, Int64s

_NEVER = np.int32(2**31 - 2)
_CELLS_PER_STEP = 50_000_000  # half a second or so; a larger knot is searched only near the heads of its lanes


@dataclass(frozen=True, slots=True)
class Knot:
    lanes: Int64s  # the group index of each lane
    messages: Int64s  # the message of each number
    lengths: Int64s  # of the lanes
    entry: Int64s  # the number of a message, ascending, once for each of its lanes,
    lane: Int64s  # that lane,
    pos: Int64s  # and its position there; the lane's length if it is missing there


@dataclass(frozen=True, slots=True)
class Cycle:
    """lanes[i] has messages[i] before messages[i + 1], the last one has the last before the first."""

    messages: list[int]
    lanes: list[int]


# ----------------------------------------------------------------------------- cycles of two messages


def find_inversions(knot: Knot, limit: int) -> list[Cycle]:
    """For each two lanes that order two messages differently one such pair; the first few of them."""
    start = np.searchsorted(knot.entry, np.arange(len(knot.messages) + 1))
    by_lane = np.argsort(knot.lane, kind="stable")
    bounds = np.searchsorted(knot.lane[by_lane], np.arange(len(knot.lanes) + 1))
    found: list[tuple[int, Cycle]] = []
    for lane in range(len(knot.lanes)):
        found += _inversions_with(knot, lane, by_lane[bounds[lane] : bounds[lane + 1]], start)
    found.sort(key=lambda item: item[0])
    return [cycle for _, cycle in found[:limit]]


def _inversions_with(knot: Knot, lane: int, entries: Int64s, start: Int64s) -> list[tuple[int, Cycle]]:
    """Sorted by position in this lane, positions in another lane must not fall: where they fall is an inversion."""
    message, here = knot.entry[entries], knot.pos[entries]
    sizes = start[message + 1] - start[message]
    offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    other = np.repeat(start[message], sizes) + offsets
    here = np.repeat(here, sizes)
    later = knot.lane[other] > lane
    other, here = other[later], here[later]
    order = np.lexsort((knot.pos[other], here, knot.lane[other]))
    other, here = other[order], here[order]
    falls = np.flatnonzero(
        (knot.lane[other][1:] == knot.lane[other][:-1]) & (knot.pos[other][1:] < knot.pos[other][:-1])
    )
    _, first = np.unique(knot.lane[other[falls]], return_index=True)
    return [
        (
            int(here[row]),
            Cycle(
                [int(knot.entry[other[row]]), int(knot.entry[other[row + 1]])],
                [lane, int(knot.lane[other[row]])],
            ),
        )
        for row in falls[first].tolist()
    ]


# ---------------------------------------------------------------------------------- cycles of any length


def shortest_cycles(knot: Knot, limit: int) -> list[Cycle]:
    """Cycles of the smallest length there is, without a common message, at most `limit` of them."""
    chosen = _near_heads(knot)
    walk = _Walk(knot, chosen)
    closed = walk.run_until_closed()
    cycles: list[Cycle] = []
    used: set[int] = set()
    for source in closed.tolist():
        if len(cycles) == limit:
            break
        if source not in used:
            numbers, lanes = walk.trace_back(source)
            if used.isdisjoint(numbers):
                cycles.append(Cycle([int(chosen[number]) for number in numbers], lanes))
            used.update(numbers)
    return cycles


def _near_heads(knot: Knot) -> Int64s:
    """All messages, or as many as the work allows, nearest to the heads first: the heads alone contain a cycle."""
    nearest = np.full(len(knot.messages), _NEVER, np.int64)
    np.minimum.at(nearest, knot.entry, knot.pos)
    order = np.argsort(nearest, kind="stable")
    heads = int(np.count_nonzero(nearest == 0))
    count = len(order)
    while count > heads and count * len(_lane_pairs(knot, order[:count])) > _CELLS_PER_STEP:
        count = max(heads, count // 2)
    return np.sort(order[:count])


def _lane_pairs(knot: Knot, chosen: Int64s) -> list[tuple[int, int]]:
    """Lanes that have a message in common: both (g, h) and (h, g)."""
    taken = np.isin(knot.entry, chosen)
    entry, lane = knot.entry[taken], knot.lane[taken]
    pairs = {(0, 0)}
    for distance in range(1, len(knot.lanes)):
        same = np.flatnonzero(entry[distance:] == entry[:-distance])
        if not len(same):
            break
        codes = np.unique(lane[same] * len(knot.lanes) + lane[same + distance]).tolist()
        pairs.update(divmod(code, len(knot.lanes)) for code in codes)
    pairs.discard((0, 0))
    return sorted(pairs | {(second, first) for first, second in pairs})


class _Walk:
    """All chosen messages at once: from each, the smallest position reached in every lane after k steps."""

    def __init__(self, knot: Knot, chosen: Int64s) -> None:
        self._pairs = _lane_pairs(knot, chosen)
        self._pos = _positions(knot, chosen)
        self._addressed = self._pos >= 0
        self._lengths = [int(self._pos[:, lane].max(initial=0)) for lane in range(len(knot.lanes))]
        self._suffix = {pair: self._suffix_minima(*pair) for pair in self._pairs}
        self._reached = [np.where(self._addressed, self._pos, _NEVER)]

    def _suffix_minima(self, lane: int, other: int) -> Int32s:
        both = self._addressed[:, lane] & self._addressed[:, other]
        # One more than the last position, so that a step from the end of a lane leads nowhere.
        minima = np.full(self._lengths[lane] + 2, _NEVER, np.int32)
        np.minimum.at(minima, self._pos[both, lane], self._pos[both, other])
        return np.minimum.accumulate(minima[::-1])[::-1]

    def run_until_closed(self) -> Int64s:
        """Takes steps until some messages precede themselves, and returns these, in order."""
        while True:
            before = self._reached[-1]
            assert (before < _NEVER).any(), "a knot has a cycle, so some walk never ends"
            after = np.full_like(before, _NEVER)
            for lane, other in self._pairs:
                here = np.minimum(before[:, lane], self._lengths[lane]) + 1
                np.minimum(after[:, other], self._suffix[lane, other][here], out=after[:, other])
            self._reached.append(after)
            closed = np.flatnonzero((self._addressed & (after < self._pos)).any(axis=1))
            if len(closed):
                return closed

    def trace_back(self, source: int) -> tuple[list[int], list[int]]:
        """The messages of the cycle through `source`, from it on, and the lane of each step."""
        target = source
        messages: list[int] = []
        lanes: list[int] = []
        for reached in reversed(self._reached):
            lane = int(np.argmax(self._addressed[target] & (reached[source] < self._pos[target])))
            target = int(np.argmax(self._pos[:, lane] == reached[source, lane]))
            messages.append(target)
            lanes.append(lane)
        assert messages[-1] == source, "a walk begins at its source"
        return messages[::-1], lanes[::-1]


def _positions(knot: Knot, chosen: Int64s) -> npt.NDArray[np.int32]:
    """A row for each chosen message, a column for each lane; -1 where it is not addressed.

    Positions are counted anew among the chosen messages; those that a lane lacks keep one common last place.
    """
    rows = np.flatnonzero(np.isin(knot.entry, chosen))
    pos = np.full((len(chosen), len(knot.lanes)), -1, np.int32)
    for lane in range(len(knot.lanes)):
        mine = rows[knot.lane[rows] == lane]
        _, dense = np.unique(knot.pos[mine], return_inverse=True)
        pos[np.searchsorted(chosen, knot.entry[mine]), lane] = dense
    return pos
