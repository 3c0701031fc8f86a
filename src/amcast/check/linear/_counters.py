"""One counter that never goes down: a total that is too low or too high for the times is found without a search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from ...trace.operations import UNSEEN
from ._history import Operation


def contradiction(operations: Sequence[Operation]) -> list[Operation] | None:
    """A read, and the adds that contradict it; None says nothing."""
    if any(len(each.calls) > 1 or each.calls[0].verb not in ("add", "total") for each in operations):
        return None
    adds = [each for each in operations if each.calls[0].verb == "add"]
    if any(_amount(each) < 0 for each in adds):
        return None
    by_end = sorted(adds, key=lambda each: each.returned)
    by_begin = sorted(adds, key=lambda each: each.invoked)
    ends, begins = [each.returned for each in by_end], [each.invoked for each in by_begin]
    ended, begun = ([0, *accumulate(map(_amount, some))] for some in (by_end, by_begin))
    for read in operations:
        if read.calls[0].verb == "total" and read.results[0] is not UNSEEN:
            done, possible = bisect_left(ends, read.invoked), bisect_right(begins, read.returned)
            if read.results[0] < ended[done]:
                return sorted([*by_end[:done], read], key=lambda each: each.key)
            if read.results[0] > begun[possible]:
                return sorted([*by_begin[:possible], read], key=lambda each: each.key)
    return None


def _amount(add: Operation) -> int:
    return int(add.calls[0].arguments[0])
