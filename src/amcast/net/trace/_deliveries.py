"""Which of the deliveries that a process recorded in its boots go into the run, in numpy, whole columns at a time."""

from __future__ import annotations

import numpy as np

from ...core import GroupId, ProcessId, UsageError
from ...trace import FINAL, OPTIMISTIC, Deliveries
from ...trace.packing import PROCESS_DELIVERY
from ...trace.run import Int64s, row_type
from ._rawfile import Boot, Mask, RawFile, Rows
from ._rawformat import STATE

_HighWater = tuple[int, int]  # the position after the highest one so far, of final and of optimistic deliveries

_REPEATED_GUESS = 3  # a kind of delivery that is in no file: see `_Guesses`


class CollectedDeliveries:
    """What one process delivered in all its boots."""

    def __init__(self, process: ProcessId, group: GroupId) -> None:
        self.process = process
        self.group = group
        self.next = 0  # the position after the highest one that it delivered; a received state does not count
        self.first: int | None = None  # the lowest position that it delivered
        self.is_compared = True  # False: it delivered something again, and what it delivered before is gone
        self._high_water = (0, 0)
        self._last_us = -(1 << 62)
        self._files: list[RawFile] = []
        self._guesses: dict[int, _Guesses] = {}  # by boot, for boots after the first

    @property
    def end(self) -> int:
        """Like `next`, but a received state counts."""
        return self._high_water[FINAL]

    def add(self, file: RawFile) -> None:
        if file.group != self.group:
            what = f"process {file.process} is in g{file.group} there, and in g{self.group} in another boot"
            raise UsageError(f"{file.path}: {what}: these are traces of two clusters")
        self._files.append(file)
        self._files.sort(key=lambda file: (file.boot, file.segment))

    def take(self, boots: dict[int, Boot], known: int | None) -> tuple[Rows, int]:
        """The new rows that go into the run, and how many others were repeats.

        `known` is the position up to which some replica's deliveries were read. If this process received a state that
        goes further, that row and what follows wait: the deliveries that it covers are read in the next step.
        """
        parts: list[Rows] = []
        for file in self._files:
            parts.append(self._continued(file, self._read(file, boots[file.boot]), parts))
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if known is not None:
            early = np.flatnonzero((rows["kind"] == STATE) & (rows["pos"] > known))
            rows = rows[: early[0]] if len(early) else rows
        count = len(rows)
        rows = _without_repeated_guesses(rows)
        kept, self._high_water = _new_rows(rows, self._high_water)
        if not kept.all():
            before = _without_repeated_guesses(self._taken(self._files))
            self._look_what_is_left(before, rows[~kept])
            everything = np.concatenate((before, rows))
            new, _ = _new_rows(everything, (0, 0))
            kept |= _contradictions(everything, new)[len(before) :]
        self._advance(parts, count)
        repeats = int((~kept & (rows["kind"] != STATE)).sum()) + count - len(rows)
        rows = rows if kept.all() else rows[kept]
        final = rows["pos"][rows["kind"] == FINAL]
        if len(final):
            self.next = max(self.next, int(final.max()) + 1)
            self.first = int(final.min()) if self.first is None else min(self.first, int(final.min()))
        return self._in_time(rows), repeats

    def _look_what_is_left(self, before: Rows, repeats: Rows) -> None:
        """Repeats are compared with the rows that were taken before: some of these may have been dropped since."""
        if any(file.is_gone for file in self._files):
            left, again = (rows["pos"][rows["kind"] == FINAL] for rows in (before, repeats))
            self.is_compared &= not len(again) or (len(left) > 0 and int(left.min()) <= int(again.min()))

    def _in_time(self, rows: Rows) -> Rows:
        """A process recorded its rows in their order. If its clock was set back meanwhile, their times stand still."""
        if len(rows):
            times = np.maximum.accumulate(np.maximum(rows["t_us"], self._last_us))
            self._last_us = int(times[-1])
            if (times != rows["t_us"]).any():
                rows = rows.copy()
                rows["t_us"] = times
        return rows

    def _continued(self, file: RawFile, rows: Rows, earlier: list[Rows]) -> Rows:
        """The rows of a file, in which optimistic deliveries get positions after those of earlier boots."""
        others = [other for other in self._files if other.boot < file.boot]
        if others and file.boot not in self._guesses and (rows["kind"] == OPTIMISTIC).any():
            before = self._taken(others)
            is_known = not any(other.is_gone for other in others)
            self.is_compared &= is_known
            self._guesses[file.boot] = _Guesses(np.concatenate((before, *earlier[: len(others)])), is_known)
        guesses = self._guesses.get(file.boot)
        if guesses is not None:
            segments = [part for other, part in zip(self._files, earlier, strict=False) if other.boot == file.boot]
            guesses.renumber(rows, guesses.repeated + sum(map(_repeated_guesses, segments)))
        return rows

    def _taken(self, files: list[RawFile]) -> Rows:
        """The rows of these files that were taken already."""
        parts: list[Rows] = [np.zeros(0, row_type(PROCESS_DELIVERY))]
        repeated: dict[int, int] = {}  # guesses that were left out, by boot
        for file in files:
            rows = file.rows_taken()
            if file.boot in self._guesses:
                self._guesses[file.boot].renumber(rows, repeated.get(file.boot, 0))
                repeated[file.boot] = repeated.get(file.boot, 0) + _repeated_guesses(rows)
            parts.append(rows)
        return np.concatenate(parts)

    def _read(self, file: RawFile, boot: Boot) -> Rows:
        rows = file.rows()
        kind = rows["kind"]
        if ((kind < FINAL) | (kind > STATE)).any() or (rows["pos"] < 0).any():
            raise file.damaged("there is a row in it that is no delivery")
        boot.saw(rows["t_us"])
        return rows

    def _advance(self, parts: list[Rows], count: int) -> None:
        for file, part in zip(self._files, parts, strict=True):
            taken = min(len(part), count)
            file.take_rows(taken)
            count -= taken
            if file.boot in self._guesses:
                self._guesses[file.boot].repeated += _repeated_guesses(part[:taken])


class _Guesses:
    """Optimistic deliveries of a process in one boot after its first.

    After a restart a process knows nothing of its earlier guesses. It counts their positions from 0 again, and may
    guess messages that it delivered before, optimistically or finally. The application had these already: they are left
    out, and the others get positions after the guesses of earlier boots.
    """

    def __init__(self, earlier: Rows, is_known: bool = True) -> None:
        """If some of the earlier rows are not known, nobody can tell which guesses are new: all are left out."""
        self._is_known = is_known
        earlier = _without_repeated_guesses(earlier)
        new, _ = _new_rows(earlier, (0, 0))
        self._known = np.unique(earlier["msg"][new & (earlier["kind"] != STATE)])
        guessed = earlier["pos"][earlier["kind"] == OPTIMISTIC]
        self._first = int(guessed.max()) + 1 if len(guessed) else 0
        self.repeated = 0  # how many of the rows that were taken are left out

    def renumber(self, rows: Rows, repeated: int) -> None:
        """Gives the guesses in `rows` their positions in the run; `repeated` guesses before them were left out."""
        mine = np.flatnonzero(rows["kind"] == OPTIMISTIC)
        known = np.isin(rows["msg"][mine], self._known) | (not self._is_known)
        rows["pos"][mine] += self._first - repeated - np.cumsum(known)
        rows["kind"][mine[known]] = _REPEATED_GUESS


def _repeated_guesses(rows: Rows) -> int:
    return int((rows["kind"] == _REPEATED_GUESS).sum())


def _without_repeated_guesses(rows: Rows) -> Rows:
    repeated = rows["kind"] == _REPEATED_GUESS
    return rows[~repeated] if repeated.any() else rows


def _new_rows(rows: Rows, high_water: _HighWater) -> tuple[Mask, _HighWater]:
    """Which rows of a process are above the high-water mark of all before them, and the mark after them.

    The others repeat a delivery, or contradict one.
    """
    new = np.empty(len(rows), np.bool_)
    marks = list(high_water)
    for kind, mine in _by_kind(rows):
        end = rows["pos"][mine] + (rows["kind"][mine] != STATE)
        before = np.maximum.accumulate(np.concatenate(([high_water[kind]], end)))
        new[mine] = end > before[:-1]
        marks[kind] = int(before[-1])
    return new, (marks[FINAL], marks[OPTIMISTIC])


def _contradictions(rows: Rows, new: Mask) -> Mask:
    """Which rows, of all rows of a process, deliver something else than the first delivery at their position did.

    A delivery at a position that a received state covers is no contradiction: the process had delivered nothing there.
    """
    found = np.zeros(len(rows), np.bool_)
    for _, mine in _by_kind(rows):
        delivered = mine[rows["kind"][mine] != STATE]
        first, again = delivered[new[delivered]], delivered[~new[delivered]]
        if len(first) and len(again):
            pos = rows["pos"]
            at = first[np.minimum(np.searchsorted(pos[first], pos[again]), len(first) - 1)]
            other = (rows["msg"][at] != rows["msg"][again]) | (rows["ts"][at] != rows["ts"][again])
            found[again] = (pos[at] == pos[again]) & other
    return found


def _by_kind(rows: Rows) -> tuple[tuple[int, Int64s], tuple[int, Int64s]]:
    """The indexes of final rows, states included, and those of optimistic ones."""
    optimistic = rows["kind"] == OPTIMISTIC
    return (FINAL, np.flatnonzero(~optimistic)), (OPTIMISTIC, np.flatnonzero(optimistic))


def delivery_columns(delivered: list[tuple[CollectedDeliveries, Rows]]) -> Deliveries:
    """Process after process: its final deliveries, then its optimistic ones."""
    parts = [np.zeros(0, row_type(PROCESS_DELIVERY))]
    for _, rows in delivered:
        optimistic = rows["kind"] == OPTIMISTIC
        parts.append(rows[np.argsort(optimistic, kind="stable")] if optimistic.any() else rows)
    process = np.array([one.process for one, _ in delivered], np.int32)
    group = np.array([one.group for one, _ in delivered], np.int32)
    pos, msg, kind, ts, t_us = (
        np.concatenate([rows[name] for rows in parts]) for name in ("pos", "msg", "kind", "ts", "t_us")
    )
    sizes = [len(rows) for _, rows in delivered]
    return Deliveries(np.repeat(process, sizes), np.repeat(group, sizes), pos, msg, kind, ts, t_us)
