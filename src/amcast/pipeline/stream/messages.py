"""Follows each message from its multicast until all its groups have delivered it, in one order.

A message is *open* until every destination group has delivered it and it is merged: each group has a lane, the messages
that it delivered and that are not merged yet, and a message is merged when it is at the head of the lanes of all its
destinations. Then it is *settled*, and only its id is kept. If messages wait for each other in a cycle, the cycle is
reported with the batch that closes it; one of its messages is dropped, and the merge goes on without it.

The row of a delivery may arrive before the row of its multicast. The message is then *unknown*, and its lane waits. If
the multicast does not arrive within `patience` triggers, the message counts as one that nobody multicast.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...check.report import CONFLICT_ORDER, NO_STAMPS
from ...core import GroupId, MessageId, ProcessId, UsageError, message_name
from ...trace.schema import FINAL
from .cycles import Cycle, Lanes, find_cycle
from .reporter import Reporter, groups_text
from .state import GroupState, Open, Unknown, WatchState

_REPEATED_MAX = 100
_STAMPS_MAX = 1 << 20  # timestamps to remember while an idle group keeps them from being forgotten


class Messages:
    def __init__(self, state: WatchState, reporter: Reporter, claims: Sequence[str]) -> None:
        self._state = state
        self._report = reporter
        self._stamps_trim = max(256, 2 * len(state.stamps))
        if CONFLICT_ORDER in claims:
            state.order_off = True
        if "timestamps" in claims and "timestamps" not in state.verdicts:
            reporter.unknown("timestamps", NO_STAMPS)

    # ------------------------------------------------------------------------------------ multicasts

    def multicast(self, message: MessageId, sender: ProcessId, dst: Sequence[GroupId]) -> None:
        state = self._state
        if not dst or len(set(dst)) < len(dst) or any(group not in state.groups for group in dst):
            what = f"has the destinations {list(dst)}, which are none, repeated, or not in run.json"
            raise UsageError(f"multicasts: {message_name(message)} {what}; record the run again")
        state.multicasts += 1
        if message in state.open or message in state.settled:
            what = f"{message_name(message)} was multicast twice: an id must name one message"
            self._report.fail("integrity", [message], [sender], what)
            return
        one = Open(sender, tuple(sorted(dst)), [group for group in sorted(dst) if not state.groups[group].halted])
        state.open[message] = one
        unknown = state.unknown.pop(message, None)
        if unknown is not None:
            for process, kind, position, ts in unknown.rows:
                self._deliver(message, one, process, kind, position, ts)
        self._settle_if_done(message, one)

    # ------------------------------------------------------------------------------------ deliveries

    def deliver(
        self, process: ProcessId, kind: int, first: int, msgs: Sequence[MessageId], stamps: Sequence[int | None]
    ) -> None:
        """Takes deliveries of one process, from the position `first` on, that no other replica made before it."""
        known = self._state.open
        group = self._group_of(process)
        for position, (message, ts) in enumerate(zip(msgs, stamps, strict=True), first):
            one = known.get(message)
            if one is None:
                self._deliver_unknown(message, process, kind, position, ts)
            elif self._deliver(message, one, process, kind, position, ts) and kind == FINAL and group is not None:
                if len(one.dst) > 1 and not self._state.order_off:
                    group.lane.append(message)
                else:
                    self._settle_if_done(message, one)

    def _group_of(self, process: ProcessId) -> GroupState | None:
        track = self._state.tracks[process << 1 | FINAL]
        return None if track.group is None else self._state.groups[track.group]

    def _deliver(
        self, message: MessageId, one: Open, process: ProcessId, kind: int, position: int, ts: int | None
    ) -> bool:
        group = self._group_of(process)
        name = self._report.name(process)
        if group is None or group.id not in one.dst:
            what = f"{name} delivered {message_name(message)}, which was multicast to {groups_text(one.dst)} only"
            self._report.fail("integrity", [message], [process], what)
            return False
        if kind != FINAL:
            return self._deliver_guess(message, one, process)
        if group.id not in one.left:
            if not group.halted:
                what = f"{name} delivered {message_name(message)} more than once, again at position {position}"
                self._repeat(message, process, what)
            return False
        one.left.remove(group.id)
        if ts is not None:
            self._stamp(message, one, process, group, ts)
        return True

    def _repeat(self, message: MessageId, process: ProcessId, what: str) -> None:
        if len(self._state.repeated) < _REPEATED_MAX and message not in self._state.repeated:
            self._state.repeated.append(message)
        self._report.fail("integrity", [message], [process], what)

    def _deliver_guess(self, message: MessageId, one: Open, process: ProcessId) -> bool:
        if process in one.guessed:
            what = f"{self._report.name(process)} delivered {message_name(message)} optimistically more than once"
            self._report.fail("integrity", [message], [process], what)
            return False
        one.guessed.append(process)
        return True

    def _deliver_unknown(
        self, message: MessageId, process: ProcessId, kind: int, position: int, ts: int | None
    ) -> None:
        state = self._state
        if message in state.settled:
            if kind == FINAL:  # an optimistic delivery of a settled message may only have been read late
                done = f"{self._report.name(process)} delivered {message_name(message)} at position {position}"
                self._repeat(
                    message, process, f"{done}, when all its groups had delivered it: again, or not sent there"
                )
            return
        unknown = state.unknown.setdefault(message, Unknown(state.tick))
        unknown.rows.append((process, kind, position, ts))
        group = self._group_of(process)
        if kind == FINAL and group is not None and not state.order_off:
            group.lane.append(message)

    def give_up_unknown(self, patience: int) -> None:
        state = self._state
        late = [message for message, unknown in state.unknown.items() if state.tick - unknown.since >= patience]
        for message in late:
            processes = list(dict.fromkeys(process for process, *_ in state.unknown.pop(message).rows))
            what = f"{self._report.name(processes[0])} delivered {message_name(message)}, which nobody multicast"
            self._report.fail_by_absence("integrity", [message], processes, what)

    def _settle_if_done(self, message: MessageId, one: Open) -> None:
        """Settles a message that all groups delivered, unless it is to be merged: then the merge settles it."""
        merges = len(one.dst) > 1 and not one.dropped and not self._state.order_off and self._homes(one)
        if not one.left and not merges:
            self._settle(message)

    def _settle(self, message: MessageId) -> None:
        del self._state.open[message]
        self._state.settled.add(message)

    def forget_group(self, group: GroupState) -> None:
        """No replica of the group is judged any more: its deliveries are not waited for."""
        group.halted = True
        group.lane.clear()
        for message, one in list(self._state.open.items()):
            if group.id in one.left:
                one.left.remove(group.id)
                if not one.left and not any(message in other.lane for other in self._state.groups.values()):
                    self._settle(message)

    # ----------------------------------------------------------------------------------------- order

    def merge(self) -> None:
        """Merges what can be merged, and reports every cycle in the rest."""
        self._drain()
        while not self._state.order_off:
            found = self._find_cycle()
            if found is None:
                return
            self._report_cycle(found)
            dropped = self._state.open[found.messages[0]]
            dropped.dropped = True
            self._settle_if_done(found.messages[0], dropped)
            if self._report.is_full("acyclic"):
                self._stop_following()
            self._drain()

    def _drain(self) -> None:
        state = self._state
        waits: dict[MessageId, int] = {}
        heads = {group.id: 0 for group in state.groups.values() if group.lane}
        moved = list(heads)
        while moved:
            id_ = moved.pop()
            lane = state.groups[id_].lane
            at = heads[id_]
            while at < len(lane) and lane[at] not in state.unknown and not self._is_ordered(lane[at], id_):
                at += 1
            heads[id_] = at
            if at == len(lane) or lane[at] in state.unknown:
                continue
            message = lane[at]
            homes = self._homes(state.open[message])
            waits[message] = waits.get(message, 0) + 1
            if waits[message] == len(homes):
                self._settle(message)
                for home in homes:
                    heads[home] += 1
                    moved.append(home)
        for id_, at in heads.items():
            if at:
                del state.groups[id_].lane[:at]

    def _is_ordered(self, message: MessageId, group: GroupId) -> bool:
        one = self._state.open.get(message)
        return one is not None and not one.dropped and len(one.dst) > 1 and group in one.dst

    def _homes(self, one: Open) -> list[GroupId]:
        return [group for group in one.dst if not self._state.groups[group].halted]

    def _find_cycle(self) -> Cycle | None:
        state = self._state
        lanes: Lanes = {}
        for group in state.groups.values():
            if not group.halted:
                lanes[group.id] = [m for m in dict.fromkeys(group.lane) if self._is_ordered(m, group.id)]
        return find_cycle(lanes, {m: self._homes(state.open[m]) for lane in lanes.values() for m in lane})

    def _report_cycle(self, cycle: Cycle) -> None:
        steps, witnesses = [], []
        for index, (message, lane) in enumerate(zip(cycle.messages, cycle.lanes, strict=True)):
            then = cycle.messages[(index + 1) % len(cycle.messages)]
            group = self._state.groups[lane]
            witness = max(group.members, key=lambda process: self._state.tracks[process << 1 | FINAL].next)
            how = "without" if lane in self._state.open[then].left else "before"
            steps.append(f"{self._report.name(witness)} delivered {message_name(message)} {how} {message_name(then)}")
            witnesses.append(witness)
        for name in ("prefix", "acyclic") if len(cycle.messages) == 2 else ("acyclic",):
            self._report.fail(name, cycle.messages, witnesses, "; ".join(steps))
        self._report.unknown("prefix", "a cycle was reported: the order of one of its messages is not checked further")

    def _stop_following(self) -> None:
        self._state.order_off = True
        for group in self._state.groups.values():
            group.lane.clear()
        for message, one in list(self._state.open.items()):
            self._settle_if_done(message, one)

    # ------------------------------------------------------------------------------------ timestamps

    def _stamp(self, message: MessageId, one: Open, process: ProcessId, group: GroupState, ts: int) -> None:
        state = self._state
        if state.verdicts.get("timestamps") is None or state.reasons.get("timestamps") == NO_STAMPS:
            self._report.begin("timestamps")
            if state.unjudged is not None:
                self._report.unknown("timestamps", state.unjudged)
        group.last_ts = ts if group.last_ts is None else max(ts, group.last_ts)
        if one.ts is None:
            one.ts = ts
            other = state.stamps.setdefault(ts, message)
            if other != message:
                what = f"{message_name(other)} and {message_name(message)} have the same timestamp {ts}"
                self._report.fail("timestamps", [other, message], [process], what)
        elif one.ts != ts:
            name = self._report.name(process)
            what = f"{message_name(message)} has timestamp {one.ts} in another group and {ts} at {name}"
            self._report.fail("timestamps", [message], [process], what)

    def forget_stamps(self) -> None:
        """Timestamps rise at every process, so one that all groups are beyond can't be given to another message."""
        state = self._state
        if len(state.stamps) <= self._stamps_trim:
            return
        reached = [group.last_ts for group in state.groups.values() if not group.halted]
        known = [ts for ts in reached if ts is not None]
        if known and len(known) == len(reached):
            low = min(known)
            state.stamps = {ts: message for ts, message in state.stamps.items() if ts > low}
        if len(state.stamps) > _STAMPS_MAX:
            state.stamps = dict(sorted(state.stamps.items())[-_STAMPS_MAX // 2 :])
            self._report.unknown("timestamps", "a group is idle: not all timestamps could be compared")
        self._stamps_trim = max(256, 2 * len(state.stamps))
