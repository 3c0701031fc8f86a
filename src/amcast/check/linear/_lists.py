"""One list to which no value is appended twice: each read tells the order of all appends before it.

What was read must be beginnings of the longest that was read. That one gives each append its place, and each read
stands behind the last append that it saw; what nobody saw comes at the end. No operation may have ended before one that
stands in front of it began.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._history import Operation
from .versions import NEVER


def are_distinct(operations: Sequence[Operation]) -> bool:
    """Whether this is one list, and no value is appended to it twice."""
    if any(len(each.calls) > 1 or each.calls[0].verb not in ("append", "items") for each in operations):
        return False
    values = [each.calls[0].arguments[0] for each in operations if each.calls[0].verb == "append"]
    return len(set(values)) == len(values)


def contradiction(operations: Sequence[Operation]) -> list[Operation] | None:
    """A few operations that no order explains; None if there are none such."""
    appends = {each.calls[0].arguments[0]: each for each in operations if each.calls[0].verb == "append"}
    reads = [each for each in operations if each.calls[0].verb == "items" and each.tells]
    longest = max(reads, key=lambda each: len(each.results[0]), default=None)
    order = () if longest is None else longest.results[0]
    for read in reads:
        if len(set(read.results[0])) < len(read.results[0]) or not appends.keys() >= set(read.results[0]):
            return [read]
        if read.results[0] != order[: len(read.results[0])]:
            assert longest is not None
            return [longest, read]
    place = {value: 2 * number for number, value in enumerate(order, 1)}
    ranked = [(2 * len(read.results[0]) + 1, read) for read in reads]
    for value, each in appends.items():
        if value in place or each.is_answered:
            ranked.append((place.get(value, 2 * len(order) + 2), each))
    pair = _against_time(ranked)
    if pair is None:
        return None
    both_append = all(each.calls[0].verb == "append" for each in pair)
    return [*pair, *([longest] if both_append and longest is not None else [])]


def _against_time(ranked: list[tuple[int, Operation]]) -> list[Operation] | None:
    """The first operation, and one that stands behind it and had ended before it began."""
    by_rank = sorted(ranked, key=lambda each: (-each[0], each[1].key))
    best: Operation | None = None  # of what stands behind: the one that ended first
    waiting: list[Operation] = []  # of the same rank: they may stand either way
    rank = NEVER
    for here, each in by_rank:
        if here != rank:
            best = min([*waiting, *([] if best is None else [best])], key=lambda every: every.returned, default=None)
            waiting, rank = [], here
        if best is not None and best.precedes(each):
            return [best, each]
        waiting.append(each)
    return None
