"""Registers in which no value is written twice: each read names the write that it saw.

All that was done with one value, its write and its reads, is called a *version*. In an order that explains the reads, a
version stands in one piece: a read that stood behind another write would have seen that one. So versions are ordered as
a whole, and one must precede another if one of its operations ended before one of the other's began: if the earliest
end of the first is before the latest beginning of the second. If such demands go round in a circle, two versions each
demand to be first: the one of the circle with the latest beginning comes after all others, and before its successor.
So it is enough to look at pairs, and two sorts find them (Gibbons and Korach give the rule in other words).

Besides, what is read must have been written, and no read may end before its write began.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.run import Int64s

Bools = npt.NDArray[np.bool_]
Keys = npt.NDArray[Any]  # of int64 or uint64

NEVER = (1 << 62) - 1  # the end of an operation that had no answer; all times are below


def suspects(
    object_: Keys, version: Keys, is_write: Bools, is_initial: Bools, invoked: Int64s, returned: Int64s
) -> Keys:
    """The objects that are not proved linearizable: they are not, or a value was written twice. The others are.

    A row is a read that was answered or a write. `version` is the same for rows of one object and one value, and
    differs otherwise; `is_initial` marks rows about the value that all objects have at first.
    """
    if not len(object_):
        return object_
    by_version = np.argsort(version)
    sorted_ = version[by_version]
    starts = np.flatnonzero(np.concatenate(([True], sorted_[1:] != sorted_[:-1])))
    begun, ended, writes = invoked[by_version], returned[by_version], is_write[by_version]
    first_end: Int64s = np.minimum.reduceat(ended, starts)
    last_begin: Int64s = np.maximum.reduceat(begun, starts)
    written = np.add.reduceat(writes.astype(np.int64), starts)
    write_begin = np.minimum.reduceat(np.where(writes, begun, NEVER), starts)
    first_read_end = np.minimum.reduceat(np.where(writes, NEVER, ended), starts)
    initial: Bools = is_initial[by_version[starts]]
    owner: Keys = object_[by_version[starts]]
    is_odd = np.where(initial, written != 0, (written != 1) | (first_read_end < write_begin))
    first_end[initial] = -NEVER
    return np.unique(np.concatenate((owner[is_odd], _crossed(owner, first_end, last_begin))))


def _crossed(owner: Keys, first_end: Int64s, last_begin: Int64s) -> Keys:
    """The owners of two versions that each must precede the other."""
    by_end = np.lexsort((first_end, owner))
    owner, first_end, last_begin = owner[by_end], first_end[by_end], last_begin[by_end]
    number = np.cumsum(np.concatenate(([0], owner[1:] != owner[:-1])))
    end, begin, width = _comparable(first_end, last_begin)
    end, begin = number * width + end, number * width + begin  # so that times of different owners compare as these do
    latest = np.maximum.accumulate(begin)
    # Of a pair, take the one that ends later. Versions before it, whose ends are before its last beginning, must
    # precede it; if one of them begins after its first end, it must precede that one too.
    before = np.where(begin > end, np.arange(len(end)), np.searchsorted(end, begin))
    has_any = before > 0
    is_crossed = np.zeros(len(end), np.bool_)
    is_crossed[has_any] = latest[before[has_any] - 1] > end[has_any]
    return owner[is_crossed]


def _comparable(first_end: Int64s, last_begin: Int64s) -> tuple[Int64s, Int64s, int]:
    """Times as small numbers from 0, in the same order, and how many there are."""
    real = first_end[np.abs(first_end) < NEVER]
    low = min(int(last_begin.min()), int(real.min(initial=NEVER))) - 1
    high = max(int(last_begin.max()), int(real.max(initial=-NEVER))) + 1
    if (high - low + 1) * len(first_end) < 1 << 62:
        return np.clip(first_end, low, high) - low, last_begin - low, high - low + 1
    ranks = np.unique(np.concatenate((first_end, last_begin)), return_inverse=True)[1]
    return ranks[: len(first_end)], ranks[len(first_end) :], int(ranks.max()) + 1
