"""Which of the multicasts that several processes recorded go into the run, in numpy, whole columns at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np

from ...trace import Multicasts
from ...trace.run import Int64s
from ._rawfile import Mask, Rows, are_counts, steps_of


def multicasts_of(rows: Rows) -> tuple[Multicasts, int]:
    """The messages of all runs whose rows are complete, and how many rows these are. ValueError if rows are damaged."""
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
    """Each message once, as of its earliest time, without those seen before; in the order of time.

    Two messages with one id are both kept, so that the checker sees the collision.
    """
    rows = _pick(rows, np.lexsort((rows.t_us, rows.msg)))
    is_first = np.concatenate((np.ones(1, np.bool_), np.diff(rows.msg) != 0))[: len(rows)]
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    kept = np.flatnonzero((is_first | _differ(rows, first)) & ~seen.has(rows.msg))
    seen.add(rows.msg[kept])
    return _pick(rows, kept[np.lexsort((rows.msg[kept], rows.t_us[kept]))])


def _differ(rows: Multicasts, others: Int64s) -> Mask:
    """Which rows are not the same message as another row, `others`, that is given for each."""
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
    """For each start, as many consecutive numbers as its size says: 5 and 9 with sizes 2 and 1 give 5, 6, 9."""
    return np.repeat(starts, sizes) + steps_of(sizes)


class Ids:
    """A set of message ids, kept as ranges. A sender's ids are consecutive, so a long run needs few of them."""

    def __init__(self) -> None:
        self._starts = np.zeros(0, np.int64)
        self._stops = np.zeros(0, np.int64)

    def has(self, ids: Int64s) -> Mask:
        if not len(self._starts):
            return np.zeros(len(ids), np.bool_)
        at = np.searchsorted(self._starts, ids, side="right") - 1
        return (at >= 0) & (ids < self._stops[at])

    def has_between(self, start: int, stop: int) -> bool:
        """Whether any id from `start` on and below `stop` is in the set."""
        at = int(np.searchsorted(self._stops, start, side="right"))
        return at < len(self._starts) and int(self._starts[at]) < stop

    def add(self, ids: Int64s) -> None:
        """Adds ids that are not in the set. They are sorted, and may repeat."""
        starts = np.concatenate((self._starts, ids))
        order = np.argsort(starts, kind="stable")  # fast, since both parts are sorted
        starts, stops = starts[order], np.concatenate((self._stops, ids + 1))[order]
        apart = starts[1:] > stops[:-1]
        self._starts = starts[np.concatenate((np.ones(1, np.bool_), apart))[: len(starts)]]
        self._stops = stops[np.concatenate((apart, np.ones(1, np.bool_)))[: len(stops)]]

    def all(self) -> Iterator[int]:
        for start, stop in zip(self._starts.tolist(), self._stops.tolist(), strict=True):
            yield from range(start, stop)

    @property
    def ranges(self) -> int:
        return len(self._starts)
