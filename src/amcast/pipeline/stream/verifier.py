"""Verifies a run while it grows: rows go in as they arrive, violations come out, once each.

The deliveries of each process are followed by position. Rows can arrive out of order: positions 7 and 8 are here, 6 is
not; then 7 and 8 wait. If 6 has not come after `patience` triggers, its row is lost, unless the process was restored at
7, that is, got state instead of earlier messages. The first replica to reach a position says what its group delivers
there; the others are compared with it. Positions that all replicas have reached are forgotten.

After one wrong row every later one looks wrong. So a process that lost a row is not judged any more, and a replica that
contradicts another one is not compared any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...check import Violation
from ...core import GroupId, MessageId, ProcessId, UsageError, message_name
from ...trace.schema import (
    CRASH,
    FINAL,
    RESTART,
    RESTORED,
    RunInfo,
    group_of_process,
    restored_position,
    settled_below,
)
from ._end import check_end
from .messages import Messages
from .reporter import Reporter
from .state import GroupState, Track, WatchState

_TAIL_MAX = 1 << 18  # deliveries of a group that are kept until its slowest replica has made them too

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Arrived:
    """The rows that arrived since the last trigger, in any order."""

    multicasts: Sequence[tuple[MessageId, ProcessId, Sequence[GroupId]]] = ()
    deliveries: dict[tuple[ProcessId, int], DeliveryRows] = field(default_factory=dict)  # by process and kind
    faults: Sequence[tuple[ProcessId, int, str, str]] = ()  # process, time, what, detail


@dataclass(frozen=True)
class DeliveryRows:
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
                self._track(process, FINAL)
        self._report = Reporter(info, state)
        self._messages = Messages(state, self._report, info.claims)

    def _track(self, process: ProcessId, kind: int) -> Track:
        key = process << 1 | kind
        track = self.state.tracks.get(key)
        if track is None:
            track = self.state.tracks[key] = Track(process, kind, self._group_of.get(process))
        return track

    def look_for_evidence(self, info: RunInfo) -> None:
        """A run says what is missing of it before the rows that follow arrive."""
        self._report.look_for_evidence(info)

    def feed(self, arrived: Arrived) -> list[Violation]:
        """Takes the rows of one trigger. One without rows counts too, since `patience` is a number of triggers."""
        self.state.tick += 1
        for fault in sorted(arrived.faults, key=lambda row: row[1]):
            self._take_fault(*fault)
        for message, sender, dst in sorted(arrived.multicasts):
            self._messages.multicast(message, sender, dst)
        for process, kind in sorted(arrived.deliveries):
            self._track(process, FINAL)  # also of a process that is in no group: `Messages` asks it for the group
            self._take_rows(self._track(process, kind), arrived.deliveries[process, kind])
        self._pull_waiting()
        self._give_up(self._patience)
        self._messages.merge()
        self._forget()
        return self._report.take()

    def finish(self, info: RunInfo) -> list[Violation]:
        """Ends the run: no rows follow, so what is missing now is lost, or was never recorded."""
        self._report.look_for_evidence(info)
        self._give_up(0)
        self._messages.merge()
        for process, positions in self.state.restored.items():
            self._restore_at_end(self._track(process, FINAL), max(positions))
        check_end(info, self.state, self._report)
        self.state.finished = True
        return self._report.take()

    def _restore_at_end(self, track: Track, position: int) -> None:
        """A process that was restored, and then delivered nothing, ends at the position of its restore."""
        if track.group is None or track.halted or track.diverged or position <= track.next:
            return
        track.next = position
        end = self.state.groups[track.group].end
        if position > end and not track.misnumbered:
            name = self._report.name(track.process)
            what = f"{name} was handed state over position {end}, which no replica of its group delivered"
            self._report.fail_by_absence("positions", [], [track.process], what)

    # ---------------------------------------------------------------------------------------- faults

    def _take_fault(self, process: ProcessId, t_us: int, what: str, detail: str) -> None:
        if what in (CRASH, RESTART):
            if t_us >= self.state.down.get(process, (t_us, False))[0]:
                self.state.down[process] = (t_us, what == CRASH)
                self.state.settled_below[process] = settled_below(detail)
        elif what == RESTORED:
            position = restored_position(detail)
            if position is None:
                raise UsageError(f'faults: process {process} was restored to {detail!r}, not {{"position": N}}')
            self.state.restored.setdefault(process, []).append(position)

    # ------------------------------------------------------------------------------------- deliveries

    def _take_rows(self, track: Track, rows: DeliveryRows) -> None:
        self.state.deliveries += len(rows.pos)
        if track.halted:
            return
        self._check_group_column(track, rows)
        order = np.argsort(rows.pos, kind="stable")
        pos, msg = rows.pos[order], rows.msg[order].tolist()
        ts = [rows.ts[row] for row in order.tolist()]
        if not track.early and pos[0] == track.next and (np.diff(pos) == 1).all() and track.next <= self._end(track):
            self._accept(track, msg, ts)
            return
        for position, message, stamp in zip(pos.tolist(), msg, ts, strict=True):
            if position < track.next or position in track.early:
                self._misnumber(track, position, message)
            else:
                track.early[position] = (message, stamp)
        self._pull(track)

    def _end(self, track: Track) -> int:
        """The largest `next` at which rows may be taken.

        A restored replica must wait until another one has delivered the positions that its state covers.
        """
        follows = track.kind == FINAL and track.group is not None and not track.diverged
        return self.state.groups[track.group].end if follows and track.group is not None else track.next

    def _pull(self, track: Track) -> bool:
        """Takes the waiting rows whose turn has come. True if there were any."""
        if track.next in track.early and track.next <= self._end(track):
            msgs: list[MessageId] = []
            stamps: list[int | None] = []
            while track.next + len(msgs) in track.early:
                message, ts = track.early.pop(track.next + len(msgs))
                msgs.append(message)
                stamps.append(ts)
            self._accept(track, msgs, stamps)
            track.gap_since = None
            pulled = True
        else:
            pulled = False
        if track.early and track.gap_since is None:
            track.gap_since = self.state.tick
        return pulled

    def _pull_waiting(self) -> None:
        moved = True
        while moved:
            moved = sum(self._pull(track) for track in self.state.tracks.values() if track.early) > 0

    def _accept(self, track: Track, msgs: list[MessageId], stamps: list[int | None]) -> None:
        first = track.next
        track.next += len(msgs)
        if track.kind != FINAL or track.group is None:
            self._messages.deliver(track.process, track.kind, first, msgs, stamps)
            return
        self._check_rising(track, msgs, stamps)
        if track.diverged:
            return
        group = self.state.groups[track.group]
        if first < group.base:
            known = f"{self._report.name(track.process)} is too far behind to be compared with other replicas"
            self._report.unknown("replicas", known)
            cut = min(group.base - first, len(msgs))
            first, msgs, stamps = first + cut, msgs[cut:], stamps[cut:]
        at = first - group.base
        common = min(len(msgs), group.end - first)
        if group.msgs[at : at + common] != msgs[:common]:
            self._diverge(track, group, first, msgs)
            return
        if group.stamps[at : at + common] != stamps[:common]:
            self._check_same_stamps(track, group, at, stamps[:common])
        if common < len(msgs):
            group.msgs += msgs[common:]
            group.stamps += stamps[common:]
            self._messages.deliver(track.process, FINAL, first + common, msgs[common:], stamps[common:])

    def _give_up(self, patience: int) -> None:
        """Ends the gaps that lasted for `patience` triggers: the process was restored after the gap, or lost a row."""
        while True:
            late = [track for track in self.state.tracks.values() if self._is_late(track, patience)]
            for track in late:
                first = min(track.early)
                if first > track.next and track.kind == FINAL and first in self.state.restored.get(track.process, ()):
                    track.next = first
                    track.gap_since = self.state.tick
                else:
                    self._lose(track, first)
            if not late:
                break
            self._pull_waiting()
        self._messages.give_up_unknown(patience)

    def _is_late(self, track: Track, patience: int) -> bool:
        return bool(track.early) and track.gap_since is not None and self.state.tick - track.gap_since >= patience

    def _lose(self, track: Track, first: int) -> None:
        message = track.early[first][0]
        name = self._report.name(track.process)
        if first == track.next:
            missing = self.state.groups[track.group].end if track.group is not None else first
            what = f"{name} was handed state over position {missing}, which no replica of its group delivered"
        elif track.next == 0:
            what = f"the deliveries of {name} begin at position {first} with {message_name(message)}, not at 0"
        else:
            here = message_name(message)
            what = f"the deliveries of {name} go from position {track.next - 1} to {first}, where {here} is"
        if not track.misnumbered:
            self._report.fail_by_absence("positions", [message], [track.process], what)
        track.misnumbered = track.halted = True
        self._report.unjudged(f"a delivery of {name} is missing: its later ones are not judged")
        track.early.clear()
        track.gap_since = None
        if track.group is not None and track.kind == FINAL:
            group = self.state.groups[track.group]
            if all(self._track(process, FINAL).halted for process in group.members):
                self._messages.forget_group(group)

    def _misnumber(self, track: Track, position: int, message: MessageId) -> None:
        if not track.misnumbered:
            track.misnumbered = True
            other = track.early.get(position)
            first = "an earlier one" if other is None else message_name(other[0])
            what = f"{self._report.name(track.process)} delivered two messages at position {position}"
            what += f": {first} and {message_name(message)}"
            self._report.fail("positions", [message], [track.process], what)

    # --------------------------------------------------------------------------------------- replicas

    def _diverge(self, track: Track, group: GroupState, first: int, msgs: list[MessageId]) -> None:
        track.diverged = True
        at = next(i for i, message in enumerate(msgs) if message != group.msgs[first - group.base + i])
        here, there = msgs[at], group.msgs[first - group.base + at]
        other = max((p for p in group.members if p != track.process), key=lambda p: self._track(p, FINAL).next)
        names = self._report.name(track.process), self._report.name(other)
        one, two = message_name(here), message_name(there)
        what = f"{names[0]} delivered {one} at position {first + at}, where {names[1]} delivered {two}"
        self._report.fail("replicas", [here, there], [track.process, other], what)
        if not self.state.order_off and self._contradicts_order(group, first + at, here, there):
            order = f"{names[0]} delivered {one} before {two}; {names[1]} delivered {two} before {one}"
            for name in ("prefix", "acyclic"):
                self._report.fail(name, [here, there], [track.process, other], order)
        self._report.unjudged(f"{names[0]} contradicts other replicas: its later deliveries are not judged")

    def _contradicts_order(self, group: GroupState, position: int, here: MessageId, there: MessageId) -> bool:
        """Whether two messages at one position are also delivered in opposite orders.

        Not if one of them is not for this group, or was delivered before: that violates integrity, not order.
        """
        later = group.msgs[position - group.base + 1 :]
        new = self.state.open.get(here)
        is_new = here in later or (new is not None and group.id in new.left)
        old = self.state.open.get(there)
        is_addressed = there in self.state.settled if old is None else group.id in old.dst
        return is_new and is_addressed and there not in self.state.repeated

    def _check_group_column(self, track: Track, rows: DeliveryRows) -> None:
        if track.group is not None and (rows.grp != track.group).any():
            row = int(np.argmax(rows.grp != track.group))
            done = f"{self._report.name(track.process)} delivered {message_name(int(rows.msg[row]))}"
            what = f"{done} as a member of g{rows.grp[row]}, which it is not"
            self._report.fail("integrity", [int(rows.msg[row])], [track.process], what)

    # ------------------------------------------------------------------------------------- timestamps

    def _check_rising(self, track: Track, msgs: list[MessageId], stamps: list[int | None]) -> None:
        last = track.last_ts
        for index, ts in enumerate(stamps):
            if ts is None:
                continue
            if last is not None and ts <= last:
                done = f"{self._report.name(track.process)} delivered {message_name(msgs[index])} with timestamp {ts}"
                self._report.fail("timestamps", [msgs[index]], [track.process], f"{done} after one with {last}")
                track.last_ts = max(last, *(stamp for stamp in stamps if stamp is not None))
                return
            last = ts
        track.last_ts = last

    def _check_same_stamps(self, track: Track, group: GroupState, at: int, stamps: list[int | None]) -> None:
        for index, ts in enumerate(stamps):
            other = group.stamps[at + index]
            if ts is not None and other is not None and ts != other:
                message = group.msgs[at + index]
                what = f"{message_name(message)} has timestamp {other} at another replica of g{group.id}"
                what += f" and {ts} at {self._report.name(track.process)}"
                self._report.fail("timestamps", [message], [track.process], what)
                return

    # -------------------------------------------------------------------------------------- forgetting

    def _forget(self) -> None:
        for group in self.state.groups.values():
            tracks = [self._track(process, FINAL) for process in group.members]
            judged = [track.next for track in tracks if not track.halted and not track.diverged]
            low = max(min(judged, default=group.end), group.end - _TAIL_MAX)
            cut = min(low, group.end) - group.base
            if cut > 0:
                del group.msgs[:cut], group.stamps[:cut]
                group.base += cut
        self._messages.forget_stamps()
