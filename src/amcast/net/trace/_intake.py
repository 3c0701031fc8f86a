"""Takes in raw files as they grow, and gives their new rows as the tables of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from ...core import GroupId, ProcessId, UsageError
from ...trace import FINAL, NULL, OPTIMISTIC, Deliveries, Fault, Multicasts, RunInfo, WireRows, to_tables
from ...trace.packing import PROCESS_DELIVERY, WIRE
from ...trace.run import Int32s, Int64s
from ...trace.schema import CRASH, RESTART, RESTORED
from ._merge import Ids, contradictions, joined, merged, multicasts_of, new_rows
from ._rawfile import ADDRESSED, FAILED, HANDED, OPEN, RawFile, Rows, raw_files

_T = TypeVar("_T")

_TIME_LIMIT = 1 << 62
_LEFT_OUT = 3  # a kind that no file has: a guess that the application had before


@dataclass(frozen=True, slots=True)
class CollectReport:
    """What became of the raw files."""

    files: int = 0
    processes: int = 0
    restarts: int = 0
    multicasts: int = 0
    deliveries: int = 0
    wire: int = 0
    faults: int = 0
    repeats: int = 0  # deliveries that came again after a restart
    torn_bytes: int = 0  # of last rows
    stopped: tuple[ProcessId, ...] = ()  # processes that could not write all: a run with one is not complete


class Intake:
    """Each `take` reads what was written since the one before."""

    def __init__(self, folder: Path) -> None:
        self.report = CollectReport()
        self._folder = folder
        self._files: dict[str, RawFile] = {}
        self._logs: dict[ProcessId, _Log] = {}
        self._seen = Ids()
        self._kinds = _Kinds()
        self._lives: dict[ProcessId, dict[int, _Life]] = {}  # by boot
        self._told: set[tuple[ProcessId, int]] = set()  # boots that are in the faults already
        self._epoch_us: int | None = None

    def judged(self, info: RunInfo) -> RunInfo:
        return msgspec.structs.replace(info, complete=info.complete and not self.report.stopped)

    def take(self, is_last: bool) -> dict[str, pa.Table]:
        try:
            self._discover()
            # What led to a row is older, and read later: so it is there.
            deliveries, faults = self._take_deliveries(is_last)
            multicasts = self._take_multicasts()
            wire = self._take_wire()
            faults += self._take_faults()
            faults += self._restarts(is_last)
            if is_last:
                faults += self._close()
        except OSError as error:
            where = error.filename or self._folder
            raise UsageError(f"{where}: can't be read: {error.strerror or error}") from error
        self._count(multicasts, deliveries, wire, faults)
        epoch = self._epoch(multicasts, deliveries, wire, faults)
        for column in (multicasts.t_us, deliveries.t_us, wire.sent_us):
            column -= epoch
        wire.received_us[wire.received_us != NULL] -= epoch
        by_time = sorted(faults, key=lambda fault: fault.t_us)
        return to_tables(multicasts, deliveries, wire, [replace(fault, t_us=fault.t_us - epoch) for fault in by_time])

    def _discover(self) -> None:
        for file in raw_files(self._folder, self._files):
            self._files[file.path.name] = file
            self._lives.setdefault(file.process, {}).setdefault(file.boot, _Life())
            if file.table == "deliveries":
                self._logs.setdefault(file.process, _Log(file.process, file.group)).add(file)

    def _of(self, table: str) -> list[RawFile]:
        found = [file for file in self._files.values() if file.table == table]
        return sorted(found, key=lambda file: (file.process, file.boot))

    # ---------------------------------------------------------------------------------------- the tables

    def _take_deliveries(self, is_last: bool) -> tuple[Deliveries, list[Fault]]:
        parts: list[tuple[_Log, Rows]] = []
        faults = []
        for _, log in sorted(self._logs.items()):
            others = [other.delivered for other in self._logs.values() if other.group == log.group]
            rows, repeats = log.take(self._lives[log.process], None if is_last else max(others))
            handed = rows["kind"] == HANDED
            for pos, t_us in zip(rows["pos"][handed].tolist(), rows["t_us"][handed].tolist(), strict=True):
                faults.append(Fault(log.process, t_us, RESTORED, json.dumps({"position": pos})))
            parts.append((log, rows[~handed] if handed.any() else rows))
            self.report = replace(self.report, repeats=self.report.repeats + repeats)
        return _delivery_columns(parts), faults

    def _take_multicasts(self) -> Multicasts:
        parts = [multicasts_of(np.zeros(0, ADDRESSED))[0]]
        for file in self._of("multicasts"):
            try:
                part, rows = multicasts_of(file.rows())
            except ValueError as error:
                raise file.damaged(str(error)) from error
            file.take_rows(rows)
            self._lives[file.process][file.boot].saw(part.t_us)
            parts.append(part)
        return merged(joined(parts), self._seen)

    def _take_wire(self) -> WireRows:
        parts = [np.zeros(0, WIRE)]
        kinds = [np.zeros(0, np.int32)]
        for file in self._of("wire"):
            names = self._files.get(file.path.name.replace("wire", "kinds", 1))
            if names is not None:  # else both files were made just now
                parts.append(file.rows())
                file.take_rows(len(parts[-1]))
                kinds.append(self._kinds.numbers(file, names, parts[-1]["kind"]))
        rows = np.concatenate(parts)
        src, dst, msg, size, sent, received = (
            rows[name].copy() for name in ("src", "dst", "msg", "bytes", "sent_us", "received_us")
        )
        return WireRows(src, dst, np.concatenate(kinds), self._kinds.names, msg, size, sent, received)

    def _take_faults(self) -> list[Fault]:
        faults = []
        for file in self._of("faults"):
            for line in file.take_lines():
                t_us, what, detail = _decode(file, line, tuple[int, str, str])
                if abs(t_us) >= _TIME_LIMIT:
                    raise file.damaged(f"{t_us} is no time")
                faults.append(Fault(file.process, t_us, what, detail))
                self._lives[file.process][file.boot].saw(np.array([t_us]))
        return faults

    def _restarts(self, is_last: bool) -> list[Fault]:
        """A boot that has written nothing yet is told of when it has, or at the end."""
        faults = []
        for process, lives in sorted(self._lives.items()):
            for before, boot in pairwise(sorted(lives)):
                old, new = lives[before], lives[boot]
                known = new.has_rows or (is_last and old.has_rows)
                if known and (process, boot) not in self._told:
                    self._told.add((process, boot))
                    back = new.first if new.has_rows else old.last
                    down = min(old.last, back) if old.has_rows else back  # clocks may be set back
                    faults += [Fault(process, down, CRASH, ""), Fault(process, back, RESTART, "")]
        return faults

    # ---------------------------------------------------------------------------------------- all of it

    def _close(self) -> list[Fault]:
        """What the last files tell: who could not write all, and who ended without closing them."""
        torn = sum(file.left_bytes for file in self._files.values())
        ends = {file: file.end for file in self._files.values()}
        failed = {file.process for file, end in ends.items() if end == FAILED}
        self.report = replace(self.report, torn_bytes=torn, stopped=tuple(sorted(failed)))
        faults = []
        for process, lives in sorted(self._lives.items()):
            boot = max(lives)
            mine = [end for file, end in ends.items() if (file.process, file.boot) == (process, boot)]
            if OPEN in mine and lives[boot].has_rows:
                faults.append(Fault(process, lives[boot].last, CRASH, ""))
        return faults

    def _count(self, multicasts: Multicasts, deliveries: Deliveries, wire: WireRows, faults: list[Fault]) -> None:
        was = self.report
        self.report = replace(
            was,
            files=len(self._files),
            processes=len(self._lives),
            restarts=len(self._told),
            multicasts=was.multicasts + len(multicasts),
            deliveries=was.deliveries + len(deliveries),
            wire=was.wire + len(wire),
            faults=was.faults + len(faults),
        )

    def _epoch(self, multicasts: Multicasts, deliveries: Deliveries, wire: WireRows, faults: list[Fault]) -> int:
        if self._epoch_us is None:
            columns = (multicasts.t_us, deliveries.t_us, wire.sent_us)
            times = [int(column.min()) for column in columns if len(column)] + [fault.t_us for fault in faults]
            if not times:
                return 0
            self._epoch_us = min(times)
        return self._epoch_us


class _Log:
    """What one process delivered, over all its boots."""

    def __init__(self, process: ProcessId, group: GroupId) -> None:
        self.process = process
        self.group = group
        self.delivered = 0  # the position after the last one that was delivered here, not handed over
        self._reach = (0, 0)
        self._files: list[RawFile] = []
        self._guesses: dict[int, _Guesses] = {}  # of boots after the first

    def add(self, file: RawFile) -> None:
        if file.group != self.group:
            what = f"process {file.process} is in g{file.group} there, and in g{self.group} in another boot"
            raise UsageError(f"{file.path}: {what}: these are traces of two clusters")
        self._files.append(file)
        self._files.sort(key=lambda file: file.boot)

    def take(self, lives: dict[int, _Life], known: int | None) -> tuple[Rows, int]:
        """New rows that count, and the number of repeats among all.

        State over positions that nobody is `known` to have delivered is not told of yet: it came from a replica whose
        rows are read a moment later.
        """
        parts: list[Rows] = []
        for file in self._files:
            parts.append(self._continued(file, self._read(file, lives[file.boot]), parts))
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if known is not None:
            early = np.flatnonzero((rows["kind"] == HANDED) & (rows["pos"] > known))
            rows = rows[: early[0]] if len(early) else rows
        count = len(rows)
        rows = _counted(rows)
        kept, self._reach = new_rows(rows, self._reach)
        if not kept.all():
            before = _counted(np.concatenate([self._before(file) for file in self._files]))
            everything = np.concatenate((before, rows))
            new, _ = new_rows(everything, (0, 0))
            kept |= contradictions(everything, new)[len(before) :]
        self._advance(parts, count)
        repeats = int((~kept & (rows["kind"] != HANDED)).sum()) + count - len(rows)
        rows = rows if kept.all() else rows[kept]
        final = rows["pos"][rows["kind"] == FINAL]
        self.delivered = max(self.delivered, int(final.max()) + 1 if len(final) else 0)
        return rows, repeats

    def _continued(self, file: RawFile, rows: Rows, earlier: list[Rows]) -> Rows:
        """The guesses of a later boot, numbered from where the earlier ones ended."""
        if earlier and file.boot not in self._guesses and (rows["kind"] == OPTIMISTIC).any():
            before = [self._before(other) for other in self._files[: len(earlier)]]
            self._guesses[file.boot] = _Guesses(np.concatenate((*before, *earlier)))
        guesses = self._guesses.get(file.boot)
        if guesses is not None:
            guesses.go_on(rows, guesses.left_out)
        return rows

    def _before(self, file: RawFile) -> Rows:
        rows = file.rows_before()
        if file.boot in self._guesses:
            self._guesses[file.boot].go_on(rows, 0)
        return rows

    def _read(self, file: RawFile, life: _Life) -> Rows:
        rows = file.rows()
        kind = rows["kind"]
        if ((kind < FINAL) | (kind > HANDED)).any() or (rows["pos"] < 0).any():
            raise file.damaged("there is a row in it that is no delivery")
        life.saw(rows["t_us"])
        return rows

    def _advance(self, parts: list[Rows], count: int) -> None:
        for file, part in zip(self._files, parts, strict=True):
            taken = min(len(part), count)
            file.take_rows(taken)
            count -= taken
            if file.boot in self._guesses:
                self._guesses[file.boot].left_out += int((part["kind"][:taken] == _LEFT_OUT).sum())


class _Guesses:
    """What a process delivers optimistically after a restart.

    It knows nothing of its earlier guesses: it counts from 0 again, and may repeat them or guess what it had delivered
    for good. The application had these already, so they are left out, and its log goes on.
    """

    def __init__(self, earlier: Rows) -> None:
        earlier = _counted(earlier)
        new, _ = new_rows(earlier, (0, 0))
        self._known = np.unique(earlier["msg"][new & (earlier["kind"] != HANDED)])
        guessed = earlier["pos"][earlier["kind"] == OPTIMISTIC]
        self._first = int(guessed.max()) + 1 if len(guessed) else 0
        self.left_out = 0  # of what was taken

    def go_on(self, rows: Rows, left_out: int) -> None:
        """Numbers them anew; so many were left out before."""
        mine = np.flatnonzero(rows["kind"] == OPTIMISTIC)
        known = np.isin(rows["msg"][mine], self._known)
        rows["pos"][mine] += self._first - left_out - np.cumsum(known)
        rows["kind"][mine[known]] = _LEFT_OUT


def _counted(rows: Rows) -> Rows:
    left_out = rows["kind"] == _LEFT_OUT
    return rows[~left_out] if left_out.any() else rows


class _Life:
    """The time from the first to the last row of one boot."""

    def __init__(self) -> None:
        self.has_rows = False
        self.first = 0
        self.last = 0

    def saw(self, t_us: Int64s) -> None:
        if len(t_us):
            first, last = int(t_us.min()), int(t_us.max())
            self.first = min(self.first, first) if self.has_rows else first
            self.last = max(self.last, last) if self.has_rows else last
            self.has_rows = True


class _Kinds:
    """The names of wire messages: each file numbers them in its own way."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._numbers: dict[Path, list[int]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._number)

    def numbers(self, file: RawFile, names: RawFile, kind: Int32s) -> Int32s:
        known = self._numbers.setdefault(names.path, [])
        for line in names.take_lines():
            known.append(self._number.setdefault(_decode(names, line, str), len(self._number)))
        if len(kind) and not 0 <= kind.min() <= kind.max() < len(known):
            raise file.damaged(f"it speaks of a kind of message that {names.path.name} does not name")
        return np.array(known, np.int32)[kind]


def _delivery_columns(logs: list[tuple[_Log, Rows]]) -> Deliveries:
    """Each log in one piece: final deliveries, then optimistic ones."""
    parts = [np.zeros(0, PROCESS_DELIVERY)]
    for _, rows in logs:
        optimistic = rows["kind"] == OPTIMISTIC
        parts.append(rows[np.argsort(optimistic, kind="stable")] if optimistic.any() else rows)
    process = np.array([log.process for log, _ in logs], np.int32)
    group = np.array([log.group for log, _ in logs], np.int32)
    pos, msg, kind, ts, t_us = (
        np.concatenate([rows[name] for rows in parts]) for name in ("pos", "msg", "kind", "ts", "t_us")
    )
    sizes = [len(rows) for _, rows in logs]
    return Deliveries(np.repeat(process, sizes), np.repeat(group, sizes), pos, msg, kind, ts, t_us)


def _decode(file: RawFile, line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise file.damaged(f"a line of it makes no sense ({error})") from error
