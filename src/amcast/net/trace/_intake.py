"""Takes in raw files while they grow: each step reads what is new in them, and makes tables of a run of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from ...core import GroupId, ProcessId, UsageError
from ...core.ids import GROUP_ID_LIMIT
from ...trace import NULL, Deliveries, Fault, Multicasts, Objects, RunInfo, Tables, WireRows
from ...trace.operations import NO_OPERATIONS, Operations
from ...trace.packing import WIRE
from ...trace.run import Int32s, row_type
from ...trace.schema import CRASH, RESTART, RESTORED, process_name
from ._deliveries import CollectedDeliveries, delivery_columns
from ._histories import Histories
from ._multicasts import Ids, joined, merged, multicasts_of
from ._rawfile import Boot, RawFile, Rows, raw_files
from ._rawformat import (
    CLOSED,
    DROPPED,
    FAILED,
    FLUSH_ORDER,
    IDLE,
    MULTICAST_RUN,
    OPEN,
    STATE,
    TOUCHES,
    Dropped,
    Header,
    Touches,
)
from .clients import CAME, LEFT, ClientEnds, ClientWord
from .evidence import Expect, Found, Table, dropped_evidence, missing_evidence

_T = TypeVar("_T")

# Makes the description of a run, once it is known which groups each sender multicast to: (sender, group) pairs.
Describe = Callable[[Iterable[tuple[ProcessId, GroupId]]], RunInfo]

_TIME_LIMIT = 1 << 62


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
    repeats: int = 0  # deliveries that were made again after a restart
    torn_bytes: int = 0  # of torn last rows
    stopped: tuple[ProcessId, ...] = ()  # processes that failed to write rows
    missing: tuple[str, ...] = ()  # what should be there and is not, in words


class Intake:
    """Each `take` reads what was written since the last one."""

    def __init__(self, folder: Path, expect: Expect, histories: Path | None = None) -> None:
        """`histories`: where clients wrote down what they did. It is taken in at the end."""
        self.report = CollectReport()
        self._histories = histories
        self._unproven: dict[str, str] = {}
        self._expect = expect
        self._folder = folder
        self._files: dict[str, RawFile] = {}
        self._delivered: dict[ProcessId, CollectedDeliveries] = {}
        self._multicast_ids = Ids()
        self._touching = Ids()  # messages of which it is known which objects they touch
        self._touches: list[tuple[int, int]] = []  # messages and objects that were read in this step
        self._sent = np.zeros(0, np.int64)  # sender * GROUP_ID_LIMIT + group, each pair once
        self._kinds = _Kinds()
        self._boots: dict[ProcessId, dict[int, Boot]] = {}  # by their numbers
        self._restarted: set[tuple[ProcessId, int]] = set()  # boots that are recorded as a crash and a restart
        self._idle: dict[ProcessId, frozenset[int]] = {}
        self._dropped: dict[ProcessId, Dropped] = {}  # by their nodes' word
        self._clients = ClientEnds()
        self._epoch_us: int | None = None

    def description(self, describe: Describe) -> RunInfo:
        """The description of all that was taken in, to its end, with what is missing of it."""
        info = describe([divmod(pair, GROUP_ID_LIMIT) for pair in self._sent.tolist()])
        expected = self._expect()
        missing = list(missing_evidence(info, expected, self._found()))
        if expected and not missing and not self.report.multicasts and not self.report.deliveries:
            missing.append("nothing was multicast: there is nothing to judge")
        self.report = replace(self.report, missing=tuple(missing))
        regions = {str(client): region for client, region in self._clients.regions().items()}
        extra = {**info.extra, "regions": {**info.extra.get("regions", {}), **regions}}
        unproven = {**info.unproven, **self._unproven}
        return msgspec.structs.replace(info, missing=(*info.missing, *missing), unproven=unproven, extra=extra)

    def dropped(self, info: RunInfo) -> tuple[str, ...]:
        """What was dropped before it was taken in, so far, in words."""
        found = sorted(self._found().items())
        return tuple(word for process, mine in found for word in dropped_evidence(process_name(info, process), mine))

    def _found(self) -> dict[ProcessId, Found]:
        boots: dict[ProcessId, dict[int, dict[int, dict[str, Table]]]] = {}
        for file in self._files.values():
            segments = boots.setdefault(file.process, {}).setdefault(file.boot, {})
            segments.setdefault(file.segment, {})[file.table] = Table(file.end, file.has_rows, file.is_whole)
        none = CollectedDeliveries(0, 0)
        found = {}
        for process, mine in boots.items():
            delivered = self._delivered.get(process, none)
            idle, dropped = self._idle.get(process, frozenset()), self._dropped.get(process)
            found[process] = Found(mine, delivered.end, idle, dropped, delivered.first, delivered.is_compared)
        return found

    def take(self, is_last: bool) -> Tables:
        try:
            self._discover(is_last)
            for file in self._files.values():
                file.look()
            # Each node writes causes first, multicasts before deliveries. Reading in reverse order misses no cause.
            deliveries, faults = self._take_deliveries(is_last)
            multicasts = self._take_multicasts()
            wire = self._take_wire()
            faults += self._take_faults()
            objects = self._take_objects()
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
        moved = [replace(fault, t_us=fault.t_us - epoch) for fault in by_time]
        operations = self._take_operations(epoch) if is_last else NO_OPERATIONS
        return Tables(multicasts, deliveries, wire, moved, operations=operations, objects=objects)

    def _discover(self, is_last: bool) -> None:
        found: dict[tuple[ProcessId, int, int], list[RawFile]] = {}
        for file in raw_files(self._folder, self._files):
            found.setdefault((file.process, file.boot, file.segment), []).append(file)
        for (process, boot, segment), files in sorted(found.items()):
            if is_last or self._is_there(process, boot, segment, files, found):
                for file in files:
                    self._add(file)

    def _add(self, file: RawFile) -> None:
        self._files[file.path.name] = file
        self._boots.setdefault(file.process, {}).setdefault(file.boot, Boot())
        if file.table == "deliveries":
            self._delivered.setdefault(file.process, CollectedDeliveries(file.process, file.group)).add(file)

    def _is_there(
        self,
        process: ProcessId,
        boot: int,
        segment: int,
        files: list[RawFile],
        found: Iterable[tuple[ProcessId, int, int]],
    ) -> bool:
        """Whether a segment can be read. One that is just being begun waits, and so do those that follow it.

        A boot that has ended will not go on with what it began.
        """
        if any(one == process and other > boot for one, other, _ in found):
            return True
        before = Header("deliveries", process, files[0].group, boot, segment - 1).file_name
        is_next = segment == 0 or before in self._files or not (self._folder / before).exists()
        return is_next and len(files) == len(FLUSH_ORDER)

    def _files_of(self, table: str) -> list[RawFile]:
        found = [file for file in self._files.values() if file.table == table]
        return sorted(found, key=lambda file: (file.process, file.boot, file.segment))

    # ---------------------------------------------------------------------------------------- the tables

    def _take_deliveries(self, is_last: bool) -> tuple[Deliveries, list[Fault]]:
        parts: list[tuple[CollectedDeliveries, Rows]] = []
        faults = []
        for process, delivered in sorted(self._delivered.items()):
            known = max(other.next for other in self._delivered.values() if other.group == delivered.group)
            rows, repeats = delivered.take(self._boots[process], None if is_last else known)
            states = rows["kind"] == STATE
            for pos, t_us in zip(rows["pos"][states].tolist(), rows["t_us"][states].tolist(), strict=True):
                faults.append(Fault(process, t_us, RESTORED, json.dumps({"position": pos})))
            parts.append((delivered, rows[~states] if states.any() else rows))
            self.report = replace(self.report, repeats=self.report.repeats + repeats)
        return delivery_columns(parts), faults

    def _take_multicasts(self) -> Multicasts:
        parts = [multicasts_of(np.zeros(0, row_type(MULTICAST_RUN)))[0]]
        for file in self._files_of("multicasts"):
            found = file.rows()
            if not len(found):
                continue
            try:
                part, rows = multicasts_of(found)
            except ValueError as error:
                raise file.damaged(str(error)) from error
            file.take_rows(rows)
            self._boots[file.process][file.boot].saw(part.t_us)
            parts.append(part)
        new = merged(joined(parts), self._multicast_ids)
        sent = np.repeat(new.sender * GROUP_ID_LIMIT, np.diff(new.dst_start)) + new.dst
        self._sent = np.unique(np.concatenate((self._sent, sent)))
        return new

    def _take_wire(self) -> WireRows:
        parts = [np.zeros(0, row_type(WIRE))]
        kinds = [np.zeros(0, np.int32)]
        for file in self._files_of("wire"):
            names = self._files.get(file.path.name.replace("wire", "kinds", 1))
            if names is not None:  # otherwise both were created a moment ago, between looking for the one and the other
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
        for file in self._files_of("faults"):
            for line in file.take_lines():
                t_us, what, detail = _decode(file, line, tuple[int, str, str])
                if what == IDLE:
                    boots = _decode(file, detail.encode(), frozenset[int])
                    self._idle[file.process] = self._idle.get(file.process, frozenset()) | boots
                    continue
                if what == DROPPED:  # later words cover earlier ones
                    self._dropped[file.process] = _decode(file, detail.encode(), Dropped)
                    continue
                if abs(t_us) >= _TIME_LIMIT:
                    raise file.damaged(f"{t_us} is no time")
                if what == TOUCHES:
                    touches = _decode(file, detail.encode(), Touches)
                    self._touches += [(touches.message, each) for each in touches.objects]
                    continue
                if what in (CAME, LEFT):
                    word = _decode(file, detail.encode(), ClientWord)
                    self._clients.take(file.process, file.boot, t_us, what, word)
                else:
                    faults.append(Fault(file.process, t_us, what, detail))
                self._boots[file.process][file.boot].saw(np.array([t_us]))
        return faults

    def _take_objects(self) -> Objects:
        """Every process that hears of a message from its sender says which objects it touches: each counts once."""
        pairs = np.unique(np.array(self._touches, np.int64).reshape(-1, 2), axis=0)
        self._touches = []
        pairs = pairs[~self._touching.has(pairs[:, 0])]
        self._touching.add(pairs[:, 0])
        return Objects(pairs[:, 0].copy(), pairs[:, 1].copy())

    def _take_operations(self, epoch_us: int) -> Operations:
        if self._histories is None:
            return NO_OPERATIONS
        histories = Histories(self._histories, epoch_us)
        unrecorded = 0 if histories.is_empty else histories.unrecorded(self._multicast_ids.all())
        if unrecorded:
            self._unproven["linearizability"] = f"operations that no client wrote down: {unrecorded:,}"
        return histories.columns()

    def _restarts(self, is_last: bool) -> list[Fault]:
        """A crash and a restart for each new boot, once it has rows, which say when; at the end, without."""
        faults = []
        for process, boots in sorted(self._boots.items()):
            for before, boot in pairwise(sorted(boots)):
                old, new = boots[before], boots[boot]
                known = new.has_rows or (is_last and old.has_rows)
                if known and (process, boot) not in self._restarted:
                    self._restarted.add((process, boot))
                    back = new.first if new.has_rows else old.last
                    down = min(old.last, back) if old.has_rows else back  # clocks may be set back
                    faults += [Fault(process, down, CRASH, ""), Fault(process, back, RESTART, "")]
        return faults

    # ---------------------------------------------------------------------------------------- the end, the sums

    def _close(self) -> list[Fault]:
        """Looks at how files ended: which processes failed to write rows, and who crashed at last."""
        torn = sum(file.bytes_left for file in self._files.values())
        failed = {file.process for file in self._files.values() if file.end == FAILED}
        self.report = replace(self.report, torn_bytes=torn, stopped=tuple(sorted(failed)))
        faults = []
        closed: dict[ProcessId, int] = {}  # the last boots of processes that ended in good order
        found = self._found()
        for process, boots in sorted(self._boots.items()):
            boot = max(boots)
            mine = {table.end for table in found[process].last.values()}
            if OPEN in mine and boots[boot].has_rows:
                faults.append(Fault(process, boots[boot].last, CRASH, ""))
            elif mine == {CLOSED}:
                closed[process] = boot
        return faults + self._clients.crashes(closed, self._multicast_ids)

    def _count(self, multicasts: Multicasts, deliveries: Deliveries, wire: WireRows, faults: list[Fault]) -> None:
        was = self.report
        self.report = replace(
            was,
            files=len(self._files),
            processes=len(self._boots),
            restarts=len(self._restarted),
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


class _Kinds:
    """The kinds of wire messages. Each file has numbers of its own for them; the run has one number for each kind."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._numbers: dict[Path, list[int]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._number)

    def numbers(self, file: RawFile, names: RawFile, kind: Int32s) -> Int32s:
        """The numbers of the run for those in a file; `names` is the file with their names."""
        known = self._numbers.setdefault(names.path, [])
        for line in names.take_lines():
            known.append(self._number.setdefault(_decode(names, line, str), len(self._number)))
        if len(kind) and not 0 <= kind.min() <= kind.max() < len(known):
            raise file.damaged(f"it speaks of a kind of message that {names.path.name} does not name")
        return np.array(known, np.int32)[kind]


def _decode(file: RawFile, line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise file.damaged(f"a line of it makes no sense ({error})") from error
