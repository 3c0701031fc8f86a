"""What several nodes and boots recorded, made one: which rows count, in numpy, whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from ...trace import FINAL, OPTIMISTIC, Multicasts
from ...trace.run import Int64s
from ._rawfile import HANDED, Rows, are_counts, steps_of

Mask = npt.NDArray[np.bool_]
Reach = tuple[int, int]  # the position that comes next in the final and in the optimistic log


# ------------------------------------------------------------------------------------------------- deliveries


def new_rows(rows: Rows, reach: Reach) -> tuple[Mask, Reach]:
    """Which rows of a process go beyond all before them, and where that leads. Others are repeats, or contradict."""
    new = np.empty(len(rows), np.bool_)
    ends = list(reach)
    for log, mine in _logs(rows):
        end = rows["pos"][mine] + (rows["kind"][mine] != HANDED)
        before = np.maximum.accumulate(np.concatenate(([reach[log]], end)))
        new[mine] = end > before[:-1]
        ends[log] = int(before[-1])
    return new, (ends[FINAL], ends[OPTIMISTIC])


def contradictions(rows: Rows, new: Mask) -> Mask:
    """Of all rows of a process: those that are not new, and not what was delivered at that position at first.

    What is delivered where state was handed over before is no contradiction: it was covered by that state.
    """
    found = np.zeros(len(rows), np.bool_)
    for _, mine in _logs(rows):
        delivered = mine[rows["kind"][mine] != HANDED]
        first, again = delivered[new[delivered]], delivered[~new[delivered]]
        if len(first) and len(again):
            pos = rows["pos"]
            at = first[np.minimum(np.searchsorted(pos[first], pos[again]), len(first) - 1)]
            other = (rows["msg"][at] != rows["msg"][again]) | (rows["ts"][at] != rows["ts"][again])
            found[again] = (pos[at] == pos[again]) & other
    return found


def _logs(rows: Rows) -> tuple[tuple[int, Int64s], tuple[int, Int64s]]:
    optimistic = rows["kind"] == OPTIMISTIC
    return (FINAL, np.flatnonzero(~optimistic)), (OPTIMISTIC, np.flatnonzero(optimistic))


# ------------------------------------------------------------------------------------------------- multicasts


def multicasts_of(rows: Rows) -> tuple[Multicasts, int]:
    """The messages of all whole runs, and how many rows these are. ValueError if it can't be."""
    ends = np.flatnonzero(rows["left"] == 0)
    whole = int(ends[-1]) + 1 if len(ends) else 0
    rows = rows[:whole]
    start = np.concatenate((np.zeros(1, np.int64), ends + 1))
    sizes = np.diff(start)
    heads = rows[start[:-1]]
    counts_down = rows["left"] == np.repeat(ends, sizes) - np.arange(whole)
    if not counts_down.all() or any((rows[name] != np.repeat(heads[name], sizes)).any() for name in ("msg", "count")):
        raise ValueError("the destinations of a message do not count down to the last one")
    counts = heads["count"]
    if not are_counts(counts):
        raise ValueError("there is a row in it that is no multicast")
    msg, sender, seq, t_us, size = (heads[name] for name in ("msg", "sender", "seq", "t_us", "bytes"))
    runs = Multicasts(msg, sender, seq, start, rows["grp"], t_us, size)
    messages = _pick(runs, np.repeat(np.arange(len(heads)), counts))
    steps = steps_of(counts)
    for column in (messages.msg, messages.client_seq):
        column += steps
    return messages, whole


def joined(parts: Sequence[Multicasts]) -> Multicasts:
    columns = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(Multicasts)
        if field.name != "dst_start"
    }
    sizes = np.concatenate([np.diff(part.dst_start) for part in parts])
    return Multicasts(dst_start=_starts(sizes), **columns)


def merged(rows: Multicasts, seen: Ids) -> Multicasts:
    """Each message once, as it was seen first, by time. An id that names two messages stays twice: it must not."""
    rows = _pick(rows, np.lexsort((rows.t_us, rows.msg)))
    is_first = np.concatenate((np.ones(1, np.bool_), np.diff(rows.msg) != 0))[: len(rows)]
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    kept = np.flatnonzero((is_first | _differ(rows, first)) & ~seen.has(rows.msg))
    seen.add(rows.msg[kept])
    return _pick(rows, kept[np.lexsort((rows.msg[kept], rows.t_us[kept]))])


def _differ(rows: Multicasts, others: Int64s) -> Mask:
    """Which rows are another message than the row that is named for each."""
    sizes = np.diff(rows.dst_start)
    differ: Mask = sizes != sizes[others]
    for column in (rows.sender, rows.client_seq, rows.bytes):
        differ |= column != column[others]
    same = np.flatnonzero(~differ & (others != np.arange(len(rows))))
    here = _spread(rows.dst_start[same], sizes[same])
    there = _spread(rows.dst_start[others[same]], sizes[same])
    differ[np.repeat(same, sizes[same])[rows.dst[here] != rows.dst[there]]] = True
    return differ


def _pick(rows: Multicasts, order: Int64s) -> Multicasts:
    sizes = np.diff(rows.dst_start)[order]
    return Multicasts(
        rows.msg[order],
        rows.sender[order],
        rows.client_seq[order],
        _starts(sizes),
        rows.dst[_spread(rows.dst_start[order], sizes)],
        rows.t_us[order],
        rows.bytes[order],
    )


def _starts(sizes: Int64s) -> Int64s:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


def _spread(starts: Int64s, sizes: Int64s) -> Int64s:
    """start, start + 1... for each start, as many as its size says."""
    return np.repeat(starts, sizes) + steps_of(sizes)


class Ids:
    """A set of message ids as ranges: those of a sender close up, so that it stays small however long a run is."""

    def __init__(self) -> None:
        self._starts = np.zeros(0, np.int64)
        self._stops = np.zeros(0, np.int64)

    def has(self, ids: Int64s) -> Mask:
        if not len(self._starts):
            return np.zeros(len(ids), np.bool_)
        at = np.searchsorted(self._starts, ids, side="right") - 1
        return (at >= 0) & (ids < self._stops[at])

    def add(self, ids: Int64s) -> None:
        """Those that are not in it; one may be there twice."""
        starts = np.concatenate((self._starts, ids))
        order = np.argsort(starts, kind="stable")  # which is quick, since both are sorted
        starts, stops = starts[order], np.concatenate((self._stops, ids + 1))[order]
        apart = starts[1:] > stops[:-1]
        self._starts = starts[np.concatenate((np.ones(1, np.bool_), apart))[: len(starts)]]
        self._stops = stops[np.concatenate((apart, np.ones(1, np.bool_)))[: len(stops)]]

    @property
    def ranges(self) -> int:
        return len(self._starts)
