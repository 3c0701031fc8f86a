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
    Incarnation,
    Learn,
    LearnerRecord,
    ReadAt,
    ReadIndex,
    SnapshotRecord,
    State,
    ballot_of,
    decode_readd,
    owner_of,
)
from .reads import Reads

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
        self.process = process
        self._topology = topology
        self._config = config
        self.slots: dict[int, Slot] = {}
        self.next = 0  # the first instance that was not handed up yet
        self.floor = 0  # slots below are forgotten
        self.incarnations: dict[ProcessId, Incarnation] = {}  # members taken back after they lost their disk
        self.leader_ballot: Ballot = ballot_of(0, topology.members(group)[0])
        self.snapshot_next = 0  # the first instance that is not in the snapshot: a restart begins there
        self._handed_bytes = 0  # of all values handed up
        self._snapshot_bytes = 0  # of those that are in the snapshot
        self._recovered: list[Decision] = []
        self.ticks = 0
        self._asked_at = -1  # instance and tick of the last CATCH-UP: it asks for an instance once a tick at most
        self._asked_tick = -1
        self._last_next = 0  # `next` at the last heartbeat
        self.reads = Reads()
        self._freshness = 0
        self.tick_key = f"log.{group}.tick"
        self.members: tuple[ProcessId, ...] = ()
        self.others: tuple[ProcessId, ...] = ()
        self.counter = VoteCounter(())
        self._refresh_members()

    # -- what the layer above sees

    @property
    def is_leader(self) -> bool:
        return False

    @property
    def leader(self) -> ProcessId | None:
        return owner_of(self.leader_ballot)

    @property
    def durable_next(self) -> int:
        """The first instance that a restart would need again."""
        return self.snapshot_next

    def recover(self, records: Sequence[Record]) -> None:
        """A remote learner starts from its last snapshot and learns the rest of the log again."""
        for record in records:
            if isinstance(record, LearnerRecord):
                self.recover_from(record)

    def recover_from(self, snapshot: LearnerRecord | SnapshotRecord) -> None:
        self.next = self.floor = self.snapshot_next = snapshot.next
        self.incarnations = dict(snapshot.incarnations)
        self._recovered = [StateReceived(snapshot.state)]

    def on_boot(self, out: Outbox) -> list[Decision]:
        out.set_timer(self.tick_key, self._config.tick_us)
        decisions, self._recovered = self._recovered, []
        return decisions

    def propose(self, entry: Any, out: Outbox, lazy: bool = False) -> None:
        """A remote learner orders nothing."""

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> list[Decision]:
        match message:
            case Accepted():
                return self.on_accepted(sender, message)
            case Accept():
                return self.on_accept(sender, message)
            case Heartbeat():
                return self.on_heartbeat(sender, message, out)
            case Learn():
                return self._on_learn(sender, message, out)
            case State():
                return self.on_state(sender, message, out)
            case ReadAt():
                if self.is_member(sender):
                    self.reads.take(message)
                return []
            case _:
                return []

    def on_timer(self, key: TimerKey, out: Outbox) -> list[Decision]:
        if key == self.tick_key:
            self.tick(out)
            read = self.overdue_read(out)
            if read is not None:
                self.ask_for_read(read, self.members, out)
        return []

    def tick(self, out: Outbox) -> None:
        self.ticks += 1
        self._refresh_members()
        out.set_timer(self.tick_key, self._config.tick_us)

    def compact(self, state: bytes, out: Outbox) -> None:
        self.cover()
        out.snapshot(LearnerRecord(self.next, dict(self.incarnations), state))
        self.truncate(self.next)

    def resume(self, next_: int) -> None:
        """Goes on with this instance: the layer above has all before it, by other means, and nothing from it on."""
        if next_ > self.next:
            self.next = next_
            self.truncate(next_)
        elif next_ < self.next:
            self.next = self.floor = next_

    def cover(self) -> None:
        """The layer above has made durable what was handed up so far: a restart asks for nothing before."""
        self.snapshot_next = self.next
        self._snapshot_bytes = self._handed_bytes

    def send_state(self, peer: ProcessId, state: bytes, out: Outbox) -> None:
        out.send(peer, State(self.group, self.next, self.incarnations, state))

    # -- votes

    def _refresh_members(self) -> None:
        """Members may change while messages flow; the topology keeps one tuple for as long as they do not."""
        members = self._topology.members(self.group)
        if members is not self.members:
            self.members = members
            self.counter = VoteCounter(members)
            self.others = tuple(p for p in members if p != self.process)

    def is_member(self, process: ProcessId) -> bool:
        return self._topology.group_of(process) == self.group

    def slot(self, instance: int) -> Slot:
        slot = self.slots.get(instance)
        if slot is None:
            slot = self.slots[instance] = Slot()
        return slot

    def on_accepted(self, sender: ProcessId, message: Accepted) -> list[Decision]:
        if message.instance < self.next:
            return []
        slot = self.slot(message.instance)
        if slot.decided or not self.count_vote(slot, message.ballot, sender):
            return []
        return self.advance()

    def count_vote(self, slot: Slot, ballot: Ballot, voter: ProcessId) -> bool:
        """Whether the vote decided the instance.

        Votes of older ballots are dropped: had they decided, the newer ballot carries the same value.
        """
        voters = slot.voters
        if ballot != slot.vote_ballot:
            if ballot < slot.vote_ballot:
                return False
            slot.vote_ballot = ballot
            voters = 0
        counter = self.counter
        slot.voters = voters = voters | counter.bits.get(voter, 0)
        # The votes say which ballot won; the value is known only from that ballot's own 2a.
        slot.decided = decided = slot.ballot == ballot and voters.bit_count() >= counter.needed
        return decided

    def hold_value(self, slot: Slot, ballot: Ballot, value: bytes) -> None:
        if ballot > slot.ballot and not slot.decided:
            slot.ballot = ballot
            slot.value = value
            slot.decided = slot.vote_ballot == ballot and self.counter.is_quorum(slot.voters)

    def on_accept(self, sender: ProcessId, message: Accept) -> list[Decision]:
        if not self.is_member(sender) or message.instance < self.next:
            return []
        slot = self.slot(message.instance)
        self.hold_value(slot, message.ballot, message.value)
        if message.voted and not slot.decided:
            self.count_vote(slot, message.ballot, sender)
        return self.advance()

    def advance(self) -> list[Decision]:
        """Hands up what is decided, as far as there is no gap."""
        decisions: list[Decision] = []
        slots, next_, handed_bytes = self.slots, self.next, self._handed_bytes
        while (slot := slots.get(next_)) is not None and slot.decided:
            value = slot.value
            readd = decode_readd(value) if value[:1] == COMMAND else None
            if readd is not None:
                readd.apply_to(self.incarnations)
            elif value:
                decisions.append(Decided(next_, value))
            slot.before = handed_bytes
            handed_bytes += len(value)
            next_ += 1
        self.next, self._handed_bytes = next_, handed_bytes
        config, new_bytes = self._config, handed_bytes - self._snapshot_bytes
        if next_ - self.snapshot_next >= config.snapshot_every or new_bytes >= config.snapshot_bytes:
            decisions.append(SnapshotDue())
        return decisions

    # -- reads

    @property
    def freshness(self) -> int:
        return self._freshness

    @property
    def leader_id(self) -> ProcessId:
        return owner_of(self.leader_ballot)

    def begin_read(self, read: int, out: Outbox) -> None:
        if self.reads.begin(read):
            self.ask_for_read(read, (self.leader_id,), out)

    def reads_done(self, out: Outbox) -> int:
        read = self.reads.advance(self.next)
        if read is not None:
            self.ask_for_read(read, (self.leader_id,), out)
        return self.reads.done

    def ask_for_read(self, read: int, members: Sequence[ProcessId], out: Outbox) -> None:
        """Whoever leads answers."""
        out.send_all(members, ReadIndex(self.group, read))

    def overdue_read(self, out: Outbox) -> int | None:
        """With every tick. What a read waits for may never be sent by itself: this process is perhaps no longer in the
        audience."""
        if self.reads.lacks(self.next) and self.leader_id != self.process:
            self.ask(self.leader_id, out)
        return self.reads.overdue()

    # -- catching up

    def on_heartbeat(self, sender: ProcessId, message: Heartbeat, out: Outbox) -> list[Decision]:
        if not self.is_member(sender) or message.ballot < self.leader_ballot:
            return []
        self.leader_ballot = message.ballot
        out.send(sender, HeartbeatAck(self.group, message.ballot, self.durable_next))
        if self.next >= message.decided:
            self._freshness += 1
        self._ask_if_stuck(sender, message.decided, out)
        self.truncate(min(message.floor, self.next))
        return []

    def _ask_if_stuck(self, peer: ProcessId, decided: int, out: Outbox) -> None:
        """Votes may still be under way: asks only if nothing was handed up between two heartbeats."""
        if decided > self.next and self.next == self._last_next:
            self.ask(peer, out)
        self._last_next = self.next

    def ask(self, peer: ProcessId, out: Outbox) -> None:
        if (self._asked_at, self._asked_tick) != (self.next, self.ticks):
            self._asked_at, self._asked_tick = self.next, self.ticks
            out.send(peer, CatchUp(self.group, self.next))

    def _on_learn(self, sender: ProcessId, message: Learn, out: Outbox) -> list[Decision]:
        if not self.is_member(sender):
            return []
        for instance, value in enumerate(message.values, message.first):
            if instance >= self.next:
                self._learn(instance, value)
        before = self.next
        decisions = self.advance()
        if self.next > before and self._is_full(message.values):
            self.ask(sender, out)
        return decisions

    def _is_full(self, values: Sequence[bytes]) -> bool:
        """Whether an answer to a learner that lags has no room for another value."""
        return len(values) >= self._config.learn_chunk or sum(map(len, values)) >= self._config.learn_bytes

    def _learn(self, instance: int, value: bytes) -> None:
        slot = self.slot(instance)
        if not slot.decided:
            slot.ballot, slot.value, slot.decided = DECIDED_BALLOT, value, True

    def on_state(self, sender: ProcessId, message: State, out: Outbox) -> list[Decision]:
        if not self.is_member(sender) or message.next <= self.next:
            return []
        self.next = message.next
        self.incarnations = dict(message.incarnations)
        self.truncate(message.next)
        self.ask(sender, out)
        return [StateReceived(message.state, message.next), *self.advance()]

    def lag_floor(self) -> int:
        """The first instance whose value is still kept for learners that lag."""
        floor = self.next - self._config.lag_max
        too_many = self._handed_bytes - self._config.lag_bytes
        if too_many > 0:
            kept = range(self.floor, self.next)
            dropped = bisect_left(kept, too_many, key=lambda instance: self.slots[instance].before)
            floor = max(floor, self.floor + dropped) if dropped else floor
        return floor

    def truncate(self, floor: int) -> None:
        for instance in range(self.floor, min(floor, self.next)):
            self.slots.pop(instance, None)
        self.floor = max(self.floor, min(floor, self.next))
