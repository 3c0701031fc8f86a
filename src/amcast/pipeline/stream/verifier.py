"""Verifies a run while it grows: rows go in as they arrive, violations come out, once each.

Each log is followed by position. Rows that arrive before those before them wait; a gap that is still there after as
many triggers as the watch is patient is a lost row, unless the process was restored to where the gap ends. The first
replica to reach a position extends the log of its group, the others are compared with it; what all of them have
confirmed is forgotten.

A log that lost a row is judged no further, and one that contradicts another replica is compared no further: after one
wrong row every later one looks wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...check import Violation
from ...core import GroupId, MessageId, ProcessId, UsageError, message_name
from ...trace.schema import CRASH, FINAL, RESTART, RESTORED, RunInfo, group_of_process
from ._end import check_end
from .ledger import Ledger
from .reporter import Reporter
from .state import GroupState, LogState, WatchState

TAIL_MAX = 1 << 18  # positions that a group's log is kept for its slowest replica

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Arrived:
    """The new rows of a trigger, in any order."""

    multicasts: Sequence[tuple[MessageId, ProcessId, Sequence[GroupId]]] = ()
    logs: dict[tuple[ProcessId, int], LogRows] = field(default_factory=dict)  # by process and kind
    faults: Sequence[tuple[ProcessId, int, str, str]] = ()  # process, time, what, detail


@dataclass(frozen=True)
class LogRows:
    grp: Numbers
    pos: Numbers
    msg: Numbers
    ts: list[int | None]


class Verifier:
    def __init__(self, info: RunInfo, state: WatchState, patience: int = 1) -> None:
        self.state = state
        self._info = info
        self._patience = patience
        self._group_of = group_of_process(info)
        for group in info.groups:
            known = state.groups.setdefault(group.id, GroupState(group.id, group.processes))
            if known.members != group.processes:
                raise UsageError(f"run.json: the members of g{group.id} changed while the run was watched")
            for process in group.processes:
                self._log(process, FINAL)
        self._report = Reporter(info, state)
        self._ledger = Ledger(state, self._report, info.claims)

    def _log(self, process: ProcessId, kind: int) -> LogState:
        key = process << 1 | kind
        log = self.state.logs.get(key)
        if log is None:
            log = self.state.logs[key] = LogState(process, kind, self._group_of.get(process))
        return log

    def feed(self, arrived: Arrived) -> list[Violation]:
        """The rows of one trigger; none of them if nothing came."""
        self.state.tick += 1
        for fault in sorted(arrived.faults, key=lambda row: row[1]):
            self._take_fault(*fault)
        for message, sender, dst in sorted(arrived.multicasts):
            self._ledger.multicast(message, sender, dst)
        for process, kind in sorted(arrived.logs):
            self._log(process, FINAL)  # a stranger has one as well
            self._take_rows(self._log(process, kind), arrived.logs[process, kind])
        self._pull_waiting()
        self._give_up(self._patience)
        self._ledger.merge()
        self._forget()
        return self._report.take()

    def finish(self, info: RunInfo) -> list[Violation]:
        """Nothing comes any more: what is missing now is missing for good."""
        self._give_up(0)
        self._ledger.merge()
        for process, positions in self.state.restored.items():
            self._restore_at_end(self._log(process, FINAL), max(positions))
        check_end(info, self.state, self._report)
        self.state.finished = True
        return self._report.take()

    def _restore_at_end(self, log: LogState, position: int) -> None:
        """It was handed state and delivered nothing after it."""
        if log.group is None or log.halted or log.diverged or position <= log.next:
            return
        log.next = position
        end = self.state.groups[log.group].end
        if position > end and not log.misnumbered:
            name = self._report.name(log.process)
            what = f"{name} was handed state over position {end}, which no replica of its group delivered"
            self._report.fail("positions", [], [log.process], what)

    # ---------------------------------------------------------------------------------------- faults

    def _take_fault(self, process: ProcessId, t_us: int, what: str, detail: str) -> None:
        if what in (CRASH, RESTART):
            if t_us >= self.state.down.get(process, (t_us, False))[0]:
                self.state.down[process] = (t_us, what == CRASH)
        elif what == RESTORED:
            self.state.restored.setdefault(process, []).append(_position(process, detail))

    # ------------------------------------------------------------------------------------------ logs

    def _take_rows(self, log: LogState, rows: LogRows) -> None:
        self.state.deliveries += len(rows.pos)
        if log.halted:
            return
        self._check_group_column(log, rows)
        order = np.argsort(rows.pos, kind="stable")
        pos, msg = rows.pos[order], rows.msg[order].tolist()
        ts = [rows.ts[row] for row in order.tolist()]
        if not log.early and pos[0] == log.next and (np.diff(pos) == 1).all() and log.next <= self._end(log):
            self._accept(log, msg, ts)
            return
        for position, message, stamp in zip(pos.tolist(), msg, ts, strict=True):
            if position < log.next or position in log.early:
                self._misnumber(log, position, message)
            else:
                log.early[position] = (message, stamp)
        self._pull(log)

    def _end(self, log: LogState) -> int:
        """How far this log may go: a restored replica waits until others have what it was handed."""
        follows = log.kind == FINAL and log.group is not None and not log.diverged
        return self.state.groups[log.group].end if follows and log.group is not None else log.next

    def _pull(self, log: LogState) -> bool:
        """Takes what is waiting and has its turn. True if there was something."""
        if log.next in log.early and log.next <= self._end(log):
            msgs: list[MessageId] = []
            stamps: list[int | None] = []
            while log.next + len(msgs) in log.early:
                message, ts = log.early.pop(log.next + len(msgs))
                msgs.append(message)
                stamps.append(ts)
            self._accept(log, msgs, stamps)
            log.gap_since = None
            pulled = True
        else:
            pulled = False
        if log.early and log.gap_since is None:
            log.gap_since = self.state.tick
        return pulled

    def _pull_waiting(self) -> None:
        moved = True
        while moved:
            moved = sum(self._pull(log) for log in self.state.logs.values() if log.early) > 0

    def _accept(self, log: LogState, msgs: list[MessageId], stamps: list[int | None]) -> None:
        first = log.next
        log.next += len(msgs)
        if log.kind != FINAL or log.group is None:
            self._ledger.deliver(log.process, log.kind, first, msgs, stamps)
            return
        self._check_rising(log, msgs, stamps)
        if log.diverged:
            return
        group = self.state.groups[log.group]
        if first < group.base:
            known = f"{self._report.name(log.process)} is too far behind to be compared with other replicas"
            self._report.unknown("replicas", known)
            cut = min(group.base - first, len(msgs))
            first, msgs, stamps = first + cut, msgs[cut:], stamps[cut:]
        at = first - group.base
        common = min(len(msgs), group.end - first)
        if group.msgs[at : at + common] != msgs[:common]:
            self._diverge(log, group, first, msgs)
            return
        if group.stamps[at : at + common] != stamps[:common]:
            self._check_same_stamps(log, group, at, stamps[:common])
        if common < len(msgs):
            group.msgs += msgs[common:]
            group.stamps += stamps[common:]
            self._ledger.deliver(log.process, FINAL, first + common, msgs[common:], stamps[common:])

    def _give_up(self, patience: int) -> None:
        """Gaps that nobody filled: handed over, or lost."""
        while True:
            late = [log for log in self.state.logs.values() if self._is_late(log, patience)]
            for log in late:
                first = min(log.early)
                if first > log.next and log.kind == FINAL and first in self.state.restored.get(log.process, ()):
                    log.next = first
                    log.gap_since = self.state.tick
                else:
                    self._lose(log, first)
            if not late:
                break
            self._pull_waiting()
        self._ledger.give_up_unknown(patience)

    def _is_late(self, log: LogState, patience: int) -> bool:
        return bool(log.early) and log.gap_since is not None and self.state.tick - log.gap_since >= patience

    def _lose(self, log: LogState, first: int) -> None:
        message = log.early[first][0]
        name = self._report.name(log.process)
        if first == log.next:
            missing = self.state.groups[log.group].end if log.group is not None else first
            what = f"{name} was handed state over position {missing}, which no replica of its group delivered"
        elif log.next == 0:
            what = f"the log of {name} begins at position {first} with {message_name(message)}, not at 0"
        else:
            what = f"the log of {name} goes from position {log.next - 1} to {first}, where {message_name(message)} is"
        if not log.misnumbered:
            self._report.fail("positions", [message], [log.process], what)
        log.misnumbered = log.halted = True
        self._report.unjudged(f"the log of {name} lost a row: what follows in it is not judged")
        log.early.clear()
        log.gap_since = None
        if log.group is not None and log.kind == FINAL:
            group = self.state.groups[log.group]
            if all(self._log(process, FINAL).halted for process in group.members):
                self._ledger.forget_group(group)

    def _misnumber(self, log: LogState, position: int, message: MessageId) -> None:
        if not log.misnumbered:
            log.misnumbered = True
            other = log.early.get(position)
            both = f"{message_name(other[0])} and {message_name(message)}" if other else message_name(message)
            what = f"{self._report.name(log.process)} delivered two messages at position {position}: {both}"
            if other is None:
                what = f"{self._report.name(log.process)} delivered {both} at position {position}, which it had filled"
            self._report.fail("positions", [message], [log.process], what)

    # --------------------------------------------------------------------------------------- replicas

    def _diverge(self, log: LogState, group: GroupState, first: int, msgs: list[MessageId]) -> None:
        log.diverged = True
        at = next(i for i, message in enumerate(msgs) if message != group.msgs[first - group.base + i])
        here, there = msgs[at], group.msgs[first - group.base + at]
        other = max((p for p in group.members if p != log.process), key=lambda p: self._log(p, FINAL).next)
        names = self._report.name(log.process), self._report.name(other)
        one, two = message_name(here), message_name(there)
        what = f"{names[0]} delivered {one} at position {first + at}, where {names[1]} delivered {two}"
        self._report.fail("replicas", [here, there], [log.process, other], what)
        if self._contradicts_order(group, first + at, here, there):
            order = f"{names[0]} delivered {one} before {two}; {names[1]} delivered {two} before {one}"
            for name in ("prefix", "acyclic"):
                self._report.fail(name, [here, there], [log.process, other], order)
        self._report.unjudged(f"{names[0]} contradicts other replicas: what follows in its log is not judged")

    def _contradicts_order(self, group: GroupState, position: int, here: MessageId, there: MessageId) -> bool:
        """Both are addressed to the group, and neither is a repetition: that is a matter of integrity."""
        later = group.msgs[position - group.base + 1 :]
        new = self.state.open.get(here)
        is_new = here in later or (new is not None and group.id in new.left)
        old = self.state.open.get(there)
        is_addressed = there in self.state.settled if old is None else group.id in old.dst
        return is_new and is_addressed and there not in self.state.repeated

    def _check_group_column(self, log: LogState, rows: LogRows) -> None:
        if log.group is not None and (rows.grp != log.group).any():
            row = int(np.argmax(rows.grp != log.group))
            done = f"{self._report.name(log.process)} delivered {message_name(int(rows.msg[row]))}"
            what = f"{done} as a member of g{rows.grp[row]}, which it is not"
            self._report.fail("integrity", [int(rows.msg[row])], [log.process], what)

    # ------------------------------------------------------------------------------------- timestamps

    def _check_rising(self, log: LogState, msgs: list[MessageId], stamps: list[int | None]) -> None:
        last = log.last_ts
        for index, ts in enumerate(stamps):
            if ts is None:
                continue
            if last is not None and ts <= last:
                done = f"{self._report.name(log.process)} delivered {message_name(msgs[index])} with timestamp {ts}"
                self._report.fail("timestamps", [msgs[index]], [log.process], f"{done} after one with {last}")
                log.last_ts = max(last, *(stamp for stamp in stamps if stamp is not None))
                return
            last = ts
        log.last_ts = last

    def _check_same_stamps(self, log: LogState, group: GroupState, at: int, stamps: list[int | None]) -> None:
        for index, ts in enumerate(stamps):
            other = group.stamps[at + index]
            if ts is not None and other is not None and ts != other:
                message = group.msgs[at + index]
                what = f"{message_name(message)} has timestamp {other} at another replica of g{group.id}"
                what += f" and {ts} at {self._report.name(log.process)}"
                self._report.fail("timestamps", [message], [log.process], what)
                return

    # -------------------------------------------------------------------------------------- forgetting

    def _forget(self) -> None:
        for group in self.state.groups.values():
            logs = [self._log(process, FINAL) for process in group.members]
            judged = [log.next for log in logs if not log.halted and not log.diverged]
            low = max(min(judged, default=group.end), group.end - TAIL_MAX)
            cut = min(low, group.end) - group.base
            if cut > 0:
                del group.msgs[:cut], group.stamps[:cut]
                group.base += cut
        self._ledger.forget_stamps()


def _position(process: ProcessId, detail: str) -> int:
    try:
        position = msgspec.json.decode(detail, type=dict[str, Any]).get("position")
    except msgspec.DecodeError:
        position = None
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise UsageError(f'faults: process {process} was restored to {detail!r}, not {{"position": N}}')
    return position
