"""Multi-Paxos for a group of 2f+1 processes: a log that survives f crashes, and the restart of any number.

Guarantees: all members (and remote learners) are handed the same values in the same order; what was decided stays
decided, through any number of crashes and restarts with the disk intact, and through the loss of the disks of up to f
members at a time. Progress when a majority is up and messages arrive in bounded time. Two message delays from the
leader to all learners; a stable leader runs phase 1 once.

A member is made of a learner, an acceptor, an election, an audience and a leadership, each in a file that opens with
its law; this one takes inputs and hands each to the part that it concerns. A part knows only those named before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from ...core import GroupId, Outbox, ProcessId, Record, TimerKey, Topology, Wire
from ..base import Decision, Log, SnapshotDue, StateWanted
from .acceptor import Acceptor
from .audience import Audience, Projection
from .config import PaxosConfig
from .election import LEADER, Election, Votes
from .leadership import Leadership
from .learner import Learner
from .messages import (
    Accept,
    Accepted,
    CatchUp,
    Confirm,
    Confirmed,
    Heartbeat,
    HeartbeatAck,
    Nack,
    Outdated,
    Prepare,
    Promise,
    ReadIndex,
    Readmission,
    Rejoin,
    State,
    owner_of,
    round_of,
)
from .reads import ReadRounds


class MultiPaxos(Log):
    def __init__(
        self,
        group: GroupId,
        process: ProcessId,
        topology: Topology,
        config: PaxosConfig,
        rng: Random,
        remote_learners: Sequence[ProcessId] = (),
        projection: Projection | None = None,
    ) -> None:
        self.group = group
        self._is_first_start = True
        self._learner = learner = Learner(group, process, topology, config)
        self._acceptor = acceptor = Acceptor(process, learner, rng)
        self._election = election = Election(process, config, rng, learner, acceptor)
        self._audience = audience = Audience(topology, config, learner, remote_learners, projection)
        self._leadership = leadership = Leadership(config, learner, acceptor, election, audience)
        self._rounds = ReadRounds(learner, election, leadership)

    # -- what the layer above sees

    @property
    def is_leader(self) -> bool:
        return self._election.role == LEADER

    @property
    def leads_round(self) -> int:
        """The round of the ballot with which this process leads, or last led: no two of its leaderships share one."""
        return round_of(self._election.ballot)

    @property
    def leader(self) -> ProcessId | None:
        return self._learner.leader

    @property
    def is_silent(self) -> bool:
        return not self._acceptor.is_member

    def recover(self, records: Sequence[Record]) -> None:
        self._is_first_start = False
        self._acceptor.recover(records)

    def on_boot(self, out: Outbox) -> list[Decision]:
        decisions = self._learner.on_boot(out)
        self._election.be_patient()
        if self._is_first_start:
            self._acceptor.format(out)
            if self._election.start():
                return self._leadership.begin({}, out)
        return decisions

    def serve(self, remote_learners: Sequence[ProcessId]) -> None:
        """From now on these processes of other groups follow the log."""
        self._audience.serve(remote_learners)

    def propose(self, entry: Any, out: Outbox, lazy: bool = False) -> None:
        if self._election.role == LEADER:
            leadership = self._leadership
            leadership.batch.append(entry)
            if not lazy:
                leadership.hurry(out)

    def propose_all(self, entries: Sequence[Any], out: Outbox) -> None:
        if self._election.role == LEADER and entries:
            self._leadership.batch.extend(entries)
            self._leadership.hurry(out)

    def compact(self, state: bytes, out: Outbox) -> None:
        if not self._acceptor.is_member:
            if not self._acceptor.may_return():
                return
            self._acceptor.return_to_group()
            self._election.be_patient()
        self._learner.cover()
        self._acceptor.snapshot(state, out)
        self._learner.truncate(self._learner.lag_floor())

    def send_state(self, peer: ProcessId, state: bytes, out: Outbox) -> None:
        self._learner.send_state(peer, state, out)

    # -- inputs

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> list[Decision]:
        if not self._acceptor.is_member:
            return self._on_message_outside(sender, message, out)
        match message:
            case Accepted():
                self._leadership.on_sign_of_life(sender, message.ballot)
                decisions = self._learner.on_accepted(sender, message)
            case Accept():
                return self._on_accept(sender, message, out)
            case HeartbeatAck():
                self._leadership.on_heartbeat_ack(sender, message)
                return []
            case Heartbeat():
                return self._on_heartbeat(sender, message, out)
            case CatchUp():
                return [] if self._audience.answer(sender, message, out) else [StateWanted(sender)]
            case Prepare():
                self._election.on_prepare(sender, message, out)
                return []
            case Promise():
                return self._lead(self._election.on_promise(sender, message, out), out)
            case Nack():
                self._election.on_nack(sender, message)
                return []
            case Rejoin():
                return self._leadership.on_rejoin(sender, message, out)
            case ReadIndex():
                if self._election.leads:
                    self._rounds.ask(sender, message.read, out)
                return []
            case Confirm():
                self._on_confirm(sender, message, out)
                return []
            case Confirmed():
                self._rounds.on_confirmed(sender, message, out)
                return []
            case State():
                decisions = self._learner.on_state(sender, message, out)
                if self._election.role == LEADER:
                    self._leadership.skip_to(message.next)
            case _:
                decisions = self._learner.on_message(sender, message, out)
        if self._election.role == LEADER and self._learner.next > self._leadership.handed_up:
            self._leadership.on_handed_up(out)
        return decisions

    def _on_message_outside(self, sender: ProcessId, message: Wire, out: Outbox) -> list[Decision]:
        """Without its disk a member only learns, until the group takes it back; its first snapshot is its return."""
        match message:
            case Readmission():
                return self._on_readmission(sender, message, out)
            case Outdated():
                self._acceptor.on_outdated(message)
                return []
            case CatchUp():
                return [] if self._audience.answer(sender, message, out) else [StateWanted(sender)]
            case _:
                learned = self._learner.on_message(sender, message, out)
        decisions: list[Decision] = [decision for decision in learned if not isinstance(decision, SnapshotDue)]
        if self._acceptor.may_return():
            decisions.append(SnapshotDue())
        return decisions

    def _on_readmission(self, sender: ProcessId, message: Readmission, out: Outbox) -> list[Decision]:
        if message.incarnation != self._acceptor.incarnation:
            return []
        self._acceptor.readmit(message)
        if self._learner.next >= message.decided:
            return [SnapshotDue()]
        self._learner.ask(sender, out)
        return []

    def on_timer(self, key: TimerKey, out: Outbox) -> list[Decision]:
        if key == self._leadership.propose_key:
            return self._leadership.on_propose_timer(out)
        if key == self._rounds.confirm_key:
            self._rounds.begin_round(out)
            return []
        if key == self._learner.tick_key:
            self._learner.tick(out)
            self._read_again(out)
            return self._on_tick(out)
        return []

    def _on_tick(self, out: Outbox) -> list[Decision]:
        election = self._election
        if self._acceptor.leave_if_replaced():
            election.step_down()
        if not self._acceptor.is_member:
            out.send_all(self._learner.others, Rejoin(self.group, self._acceptor.incarnation))
        elif election.role != LEADER:
            return self._lead(election.on_tick(out), out)
        elif not self._leadership.is_answered():
            election.step_down()
        elif election.must_rise():
            return self._lead(election.rise(out), out)
        else:
            self._leadership.on_tick(out)
        return []

    def _lead(self, votes: Votes | None, out: Outbox) -> list[Decision]:
        """If the election was won: it then says which votes to propose again."""
        return [] if votes is None else self._leadership.begin(votes, out)

    # -- reads

    def begin_read(self, read: int, out: Outbox) -> None:
        if self._learner.reads.begin(read):
            self._ask_for_read(read, (self._learner.leader_id,), out)

    def reads_done(self, out: Outbox) -> int:
        read = self._learner.reads.advance(self._learner.next)
        if read is not None:
            self._ask_for_read(read, (self._learner.leader_id,), out)
        return self._learner.reads.done

    def _ask_for_read(self, read: int, members: Sequence[ProcessId], out: Outbox) -> None:
        if self._election.leads:
            self._rounds.ask(self._learner.process, read, out)
        else:
            self._learner.ask_for_read(read, members, out)

    def _read_again(self, out: Outbox) -> None:
        self._rounds.on_tick(out)
        read = self._learner.overdue_read(out)
        if read is not None:
            self._ask_for_read(read, self._learner.others, out)

    def _on_confirm(self, sender: ProcessId, message: Confirm, out: Outbox) -> None:
        if owner_of(message.ballot) != sender or not self._learner.is_member(sender):
            return
        if message.ballot < self._acceptor.promised:
            out.send(sender, Nack(self.group, self._acceptor.promised))
        else:
            out.send(sender, Confirmed(self.group, message.ballot, message.round))

    @property
    def freshness(self) -> int | None:
        if len(self._learner.members) == 1 and self._election.leads:
            return None
        return self._learner.freshness + self._leadership.freshness

    # -- a member that hears a leader

    def _on_accept(self, sender: ProcessId, message: Accept, out: Outbox) -> list[Decision]:
        acceptor, learner, ballot = self._acceptor, self._learner, message.ballot
        if owner_of(ballot) != sender or not learner.is_member(sender):
            return []
        if ballot < acceptor.promised:
            out.send(sender, Nack(self.group, acceptor.promised))
            return []
        self._election.follow(ballot)
        if message.instance < learner.floor:
            return [StateWanted(sender)]  # decided and forgotten here, and its leader does not know
        slot = acceptor.vote(ballot, message.instance, message.value, out)
        if message.voted and not slot.decided:
            learner.count_vote(slot, ballot, sender)
        # A repeated 2a means that a vote was lost: it is told again, for a decided instance as well. If the leader's
        # vote came with the 2a, each member of a group of three decides by its own vote, and need not tell the other.
        decides = message.voted and len(learner.members) <= 3
        told = (sender, *self._audience.remote) if decides else self._audience.all()
        out.send_all(told, Accepted(self.group, ballot, message.instance))
        return learner.advance()

    def _on_heartbeat(self, sender: ProcessId, message: Heartbeat, out: Outbox) -> list[Decision]:
        if owner_of(message.ballot) != sender:
            return []
        if message.ballot < self._acceptor.promised:
            out.send(sender, Nack(self.group, self._acceptor.promised))
            return []
        self._election.follow(message.ballot)
        return self._learner.on_heartbeat(sender, message, out)
