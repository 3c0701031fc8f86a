"""The learner: counts votes, hands decided instances up in order, asks for what it misses.

Every member of a group is a learner; a process of another group may be one as well (a remote learner), which is
how a protocol follows several groups' logs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from ...core import GroupId, Outbox, ProcessId, Record, TimerKey, Topology, VoteCounter, Wire
from ..base import Decided, Decision, Log, SnapshotDue, StateReceived
from .config import PaxosConfig
from .messages import (
    COMMAND,
    Accept,
    Accepted,
    Ballot,
    CatchUp,
    Heartbeat,
    HeartbeatAck,
    Learn,
    LearnerRecord,
    State,
    ballot_of,
    decode_readd,
    owner_of,
)

DECIDED_BALLOT: Ballot = (1 << 62) - 1  # stands for "known to be decided": higher than every real ballot


class Slot:
    """One instance: the value held, and the votes counted in the highest ballot seen."""

    __slots__ = ("ballot", "before", "decided", "value", "vote_ballot", "voters")

    def __init__(self) -> None:
        self.ballot: Ballot = -1
        self.value = b""
        self.vote_ballot: Ballot = -1
        self.voters = 0
        self.decided = False
        self.before = 0  # bytes of all values that were handed up before this one


class Learner(Log):
    def __init__(self, group: GroupId, process: ProcessId, topology: Topology, config: PaxosConfig) -> None:
        self.group = group
        self._process = process
        self._topology = topology
        self._config = config
        self._slots: dict[int, Slot] = {}
        self._next = 0  # the first instance that was not handed up yet
        self._floor = 0  # slots below are forgotten
        self._incarnations: dict[ProcessId, int] = {}  # members taken back after they lost their disk
        self._leader_ballot: Ballot = ballot_of(0, topology.members(group)[0])
        self._snapshot_next = 0  # a restart comes back to here
        self._handed_bytes = 0  # of all values handed up
        self._snapshot_bytes = 0  # of those that a restart does not come back to
        self._is_first_start = True
        self._recovered: list[Decision] = []
        self._ticks = 0
        self._asked_at = -1  # the instance and the tick of the last catch-up: one question a tick and gap
        self._asked_tick = -1
        self._last_next = 0
        self._tick_key = f"log.{group}.tick"
        self._members: tuple[ProcessId, ...] = ()
        self._others: tuple[ProcessId, ...] = ()
        self._counter = VoteCounter(())
        self._refresh_members()

    # -- what the layer above sees

    @property
    def is_leader(self) -> bool:
        return False

    @property
    def leader(self) -> ProcessId | None:
        return owner_of(self._leader_ballot)

    def recover(self, records: Sequence[Record]) -> None:
        """A remote learner starts from its last snapshot and learns the rest of the log again."""
        self._is_first_start = False
        for record in records:
            if isinstance(record, LearnerRecord):
                self._next = self._floor = self._snapshot_next = record.next
                self._incarnations = dict(record.incarnations)
                self._recovered = [StateReceived(record.state)]

    def on_boot(self, out: Outbox) -> list[Decision]:
        out.set_timer(self._tick_key, self._config.tick_us)
        decisions, self._recovered = self._recovered, []
        return decisions

    def propose(self, entry: Any, out: Outbox, lazy: bool = False) -> None:
        """A remote learner orders nothing."""

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> list[Decision]:
        match message:
            case Accepted():
                return self._on_accepted(sender, message, out)
            case Accept():
                return self._on_accept(sender, message, out)
            case Heartbeat():
                return self._on_heartbeat(sender, message, out)
            case Learn():
                return self._on_learn(sender, message, out)
            case State():
                return self._on_state(sender, message, out)
            case _:
                return []

    def on_timer(self, key: TimerKey, out: Outbox) -> list[Decision]:
        if key != self._tick_key:
            return []
        self._ticks += 1
        self._refresh_members()
        out.set_timer(self._tick_key, self._config.tick_us)
        return self._on_tick(out)

    def _on_tick(self, out: Outbox) -> list[Decision]:
        return []

    def compact(self, state: bytes, out: Outbox) -> None:
        self.cover()
        out.snapshot(LearnerRecord(self._next, dict(self._incarnations), state))
        self._truncate(self._next)

    def resume(self, next_: int) -> None:
        """Goes on from here: the layer above has what comes before, and nothing of what follows."""
        if next_ > self._next:
            self._skip_to(next_)
            self._truncate(next_)
        elif next_ < self._next:
            self._next = self._floor = next_

    def cover(self) -> None:
        """The layer above has made durable what was handed up so far: a restart asks for nothing before."""
        self._snapshot_next = self._next
        self._snapshot_bytes = self._handed_bytes

    def send_state(self, peer: ProcessId, state: bytes, out: Outbox) -> None:
        out.send(peer, State(self.group, self._next, self._incarnations, state))

    # -- votes

    def _refresh_members(self) -> None:
        """Members may change while messages flow; the topology keeps one tuple for as long as they do not."""
        members = self._topology.members(self.group)
        if members is not self._members:
            self._members = members
            self._counter = VoteCounter(members)
            self._others = tuple(p for p in members if p != self._process)

    def _is_member(self, process: ProcessId) -> bool:
        return self._topology.group_of(process) == self.group

    def _slot(self, instance: int) -> Slot:
        slot = self._slots.get(instance)
        if slot is None:
            slot = self._slots[instance] = Slot()
        return slot

    def _on_accepted(self, sender: ProcessId, message: Accepted, out: Outbox) -> list[Decision]:
        if message.instance < self._next:
            return []
        slot = self._slot(message.instance)
        if slot.decided or not self._count_vote(slot, message.ballot, sender):
            return []
        return self._advance(out)

    def _count_vote(self, slot: Slot, ballot: Ballot, voter: ProcessId) -> bool:
        """Whether the vote decided the instance.

        Votes of older ballots are dropped: had they decided, the newer ballot carries the same value.
        """
        if ballot < slot.vote_ballot:
            return False
        if ballot > slot.vote_ballot:
            slot.vote_ballot = ballot
            slot.voters = 0
        slot.voters |= self._counter.bit(voter)
        # The votes say which ballot won; the value is known only from that ballot's own 2a.
        slot.decided = slot.ballot == ballot and self._counter.is_quorum(slot.voters)
        return slot.decided

    def _hold_value(self, slot: Slot, ballot: Ballot, value: bytes) -> None:
        if ballot > slot.ballot and not slot.decided:
            slot.ballot = ballot
            slot.value = value
            slot.decided = slot.vote_ballot == ballot and self._counter.is_quorum(slot.voters)

    def _on_accept(self, sender: ProcessId, message: Accept, out: Outbox) -> list[Decision]:
        if not self._is_member(sender) or message.instance < self._next:
            return []
        slot = self._slot(message.instance)
        self._hold_value(slot, message.ballot, message.value)
        if message.voted and not slot.decided:
            self._count_vote(slot, message.ballot, sender)
        return self._advance(out)

    def _advance(self, out: Outbox) -> list[Decision]:
        decisions: list[Decision] = []
        slots = self._slots
        while (slot := slots.get(self._next)) is not None and slot.decided:
            readd = decode_readd(slot.value) if slot.value[:1] == COMMAND else None
            if readd is not None:
                self._incarnations[readd.process] = readd.incarnation
            elif slot.value:
                decisions.append(Decided(self._next, slot.value))
            slot.before = self._handed_bytes
            self._handed_bytes += len(slot.value)
            self._next += 1
        if self._is_snapshot_due():
            decisions.append(SnapshotDue())
        return decisions

    def _is_snapshot_due(self) -> bool:
        config, new_bytes = self._config, self._handed_bytes - self._snapshot_bytes
        return self._next - self._snapshot_next >= config.snapshot_every or new_bytes >= config.snapshot_bytes

    # -- catching up

    def _on_heartbeat(self, sender: ProcessId, message: Heartbeat, out: Outbox) -> list[Decision]:
        if not self._is_member(sender) or message.ballot < self._leader_ballot:
            return []
        self._leader_ballot = message.ballot
        out.send(sender, HeartbeatAck(self.group, message.ballot, self._snapshot_next))
        self._ask_if_stuck(sender, message.decided, out)
        self._truncate(min(message.floor, self._next))
        return []

    def _ask_if_stuck(self, peer: ProcessId, decided: int, out: Outbox) -> None:
        """Votes may still be under way: ask only for what did not come between two heartbeats."""
        if decided > self._next and self._next == self._last_next:
            self._ask(peer, out)
        self._last_next = self._next

    def _ask(self, peer: ProcessId, out: Outbox) -> None:
        if (self._asked_at, self._asked_tick) != (self._next, self._ticks):
            self._asked_at, self._asked_tick = self._next, self._ticks
            out.send(peer, CatchUp(self.group, self._next))

    def _on_learn(self, sender: ProcessId, message: Learn, out: Outbox) -> list[Decision]:
        if not self._is_member(sender):
            return []
        for instance, value in enumerate(message.values, message.first):
            if instance >= self._next:
                self._learn(instance, value)
        before = self._next
        decisions = self._advance(out)
        if self._next > before and self._is_full(message.values):
            self._ask(sender, out)
        return decisions

    def _is_full(self, values: Sequence[bytes]) -> bool:
        """Whether an answer to a learner that lags has no room for another value."""
        return len(values) >= self._config.learn_chunk or sum(map(len, values)) >= self._config.learn_bytes

    def _learn(self, instance: int, value: bytes) -> None:
        slot = self._slot(instance)
        if not slot.decided:
            slot.ballot, slot.value, slot.decided = DECIDED_BALLOT, value, True

    def _on_state(self, sender: ProcessId, message: State, out: Outbox) -> list[Decision]:
        if not self._is_member(sender) or message.next <= self._next:
            return []
        self._skip_to(message.next)
        self._incarnations = dict(message.incarnations)
        self._truncate(message.next)
        self._ask(sender, out)
        return [StateReceived(message.state), *self._advance(out)]

    def _skip_to(self, next_: int) -> None:
        self._next = next_

    def _lag_floor(self) -> int:
        """From where on values are kept for learners that lag."""
        floor = self._next - self._config.lag_max
        too_many = self._handed_bytes - self._config.lag_bytes
        if too_many > 0:
            kept = range(self._floor, self._next)
            dropped = bisect_left(kept, too_many, key=lambda instance: self._slots[instance].before)
            floor = max(floor, self._floor + dropped) if dropped else floor
        return floor

    def _truncate(self, floor: int) -> None:
        for instance in range(self._floor, min(floor, self._next)):
            self._slots.pop(instance, None)
        self._floor = max(self._floor, min(floor, self._next))
