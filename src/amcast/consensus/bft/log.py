"""A log for a group of 3f+1 processes of which f may lie: PBFT's three phases, as Mod-SMaRt has them.

Guarantees: all members that tell the truth are handed the same values in the same order, each approved by one of them
at least; what was decided stays decided, through any number of crashes and restarts with the disk intact. A member that
lost its disk counts as a liar until the log has taken it back. Progress when n-f members that tell the truth are up and
messages arrive in bounded time. Two message delays from the leader to all members if all write in time, else three.

    leader       members
       |--PROPOSE-->|          `Proposed` goes up; the layer above approves of values, or has the leader replaced.
       |            |          It is not asked about a value that f+1 members wrote: see `votes.py`
       |<--WRITE----|--WRITE-->|   the value is on this member's disk
       |<--ACCEPT---|--ACCEPT->|   and that it is prepared; not if all members have written

Why two members never decide differently. In one view: n-f members or more wrote the decided digest, and each that
tells the truth writes one digest an instance and view, also after a restart, since its disk has it. Two quorums share
such a member. In a later view: see `choice.py`. A member that lost its disk may have forgotten votes for instances up
to `ahead` beyond what it had been handed. It is taken back by an entry of the log, and votes again when all of these
instances are decided; what it said about views under an earlier incarnation counts for nobody (`Views._is_current`).

A member is made of a ledger, checkpoints, views, a way back (`rejoin.py`), proposals, votes, catch-up and reads, each
in a file that opens with its law. A part knows only those named before it. This file takes inputs, and hands each to
the part that it concerns.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from ...core import GroupId, Outbox, ProcessId, Record, TimerKey, Topology, Wire, encode
from ..base import Decision, Elected, Log, SnapshotDue, StateReceived
from ..multipaxos.config import PaxosConfig
from .catch_up import CatchUp, Questions, decode_state
from .checkpoints import Checkpoints
from .ledger import Ledger
from .members import Members
from .messages import (
    COMMAND,
    NO_DIGEST,
    NOTHING,
    Accept,
    AskRead,
    AskRejoin,
    AskState,
    AskValue,
    AskValues,
    BftMemberRecord,
    CheckpointRecord,
    CheckpointState,
    HandedState,
    NewView,
    Outrun,
    PreparedRecord,
    Propose,
    ReadUpTo,
    Status,
    Value,
    Values,
    View,
    ViewChange,
    ViewRecord,
    Write,
    WrittenRecord,
    digest_of,
)
from .proper import Proper
from .proposals import Proposals
from .reads import QuorumReads
from .rejoin import Rejoin
from .views import Views
from .votes import Votes

_STATUS_TICKS = 2


class Bft(Log):
    def __init__(
        self,
        group: GroupId,
        process: ProcessId,
        topology: Topology,
        config: PaxosConfig,
        rng: Random,
        two_phases: bool = True,
    ) -> None:
        """`two_phases`: what all members wrote is decided at once. Members need not agree on it."""
        self.group = group
        self._process = process
        self._config = config
        self._rng = rng
        self._members = members = Members(group, process, topology)
        self._ledger = ledger = Ledger(members, config)
        self._checkpoints = Checkpoints(members)
        self._views = views = Views(members, config, ledger, self._checkpoints)
        self._rejoin = rejoin = Rejoin(members, ledger)
        self._proposals = Proposals(group, config, ledger, self._checkpoints)
        self._votes = Votes(members, config, ledger, views, rejoin, two_phases)
        self._catch_up = CatchUp(members, config, ledger, self._checkpoints, rejoin)
        self._reads = QuorumReads(members, ledger, views, rejoin)
        self._questions = Questions()
        self._proper = Proper(members, config, ledger.ahead)
        self.ticks = 0
        self._is_first_start = True
        # The view in which it led, perhaps, before it restarted: it may have proposed anything
        self._resigned: View = -1
        self._recovered: list[Decision] = []
        self._tick_key = f"log.{group}.tick"
        self._advance_key = f"log.{group}.advance"

    # -- what the layer above sees

    @property
    def is_leader(self) -> bool:
        views = self._views
        is_in_charge = views.installed and views.leader == self._process and views.view != self._resigned
        return is_in_charge and self._rejoin.is_member

    @property
    def leader(self) -> ProcessId | None:
        return self._views.leader

    @property
    def is_silent(self) -> bool:
        return not self._rejoin.is_member

    @property
    def patience(self) -> int:
        """For how many ticks work may wait before the leader is suspected."""
        return self._views.patience

    @property
    def view(self) -> View:
        return self._views.view

    @property
    def astray(self) -> int:
        """How often this member's state was not the one that f+1 others had."""
        return self._checkpoints.astray

    def propose(self, entry: Any, out: Outbox, lazy: bool = False) -> None:
        if self.is_leader:
            self._proposals.add(entry, out)

    def approve(self, view: View, instance: int, out: Outbox) -> list[Decision]:
        """The layer above stands behind the proposal of this view for this instance."""
        slot = self._ledger.slots.get(instance)
        if slot is None or slot.view != view or not self._votes.may_write(slot):
            return []
        self._votes.write(instance, slot, out)
        return self._advance(out)

    def suspect(self, out: Outbox) -> list[Decision]:
        """The leader was caught, or lets work wait for too long."""
        if not self._views.installed or not self._rejoin.is_member:
            return []
        return self._leave_for(self._views.view + 1, out)

    def begin_read(self, read: int, out: Outbox) -> None:
        self._reads.begin(read, self.ticks, out)

    def reads_done(self, out: Outbox) -> int:
        return self._reads.done(self.ticks, out)

    @property
    def freshness(self) -> int | None:
        return None if len(self._members.all) == 1 else self._reads.freshness

    def send_state(self, peer: ProcessId, state: bytes, out: Outbox) -> None:
        raise AssertionError("this log hands over states of checkpoints by itself")

    # -- the disk

    def recover(self, records: Sequence[Record]) -> None:
        views = self._views
        self._is_first_start = False
        for record in records:
            match record:
                case CheckpointRecord():
                    self._recover_checkpoint(record)
                case WrittenRecord():
                    digest = digest_of(record.value)
                    slot = self._ledger.slot(record.instance)
                    slot.written[digest] = record.view
                    slot.values[digest] = record.value
                    views.view = max(views.view, record.view)
                case PreparedRecord():
                    slot = self._ledger.slot(record.instance)
                    slot.prepared_view, slot.prepared = record.view, record.digest
                case ViewRecord():
                    views.view = max(views.view, record.view)
                case BftMemberRecord():
                    self._rejoin.incarnation = record.incarnation
        views.installed = views.view == 0
        if not records:
            self._rejoin.begin_without_disk(self._rng)
        elif views.leader == self._process:
            self._resigned = views.view

    def _recover_checkpoint(self, record: CheckpointRecord) -> None:
        self._rejoin.incarnation = record.incarnation
        self._views.view = record.view
        state = decode_state(record.state)
        ledger = self._ledger
        ledger.slots = {}
        ledger.begin_at(state.next, record.base, record.base_bytes, state.incarnations)
        ledger.floor = record.low
        self._checkpoints.recover(record.low, record.checkpoints)
        if record.base == state.next:
            self._checkpoints.state_next, self._checkpoints.state = state.next, record.state
        for voted in record.votes:
            ledger.slot(voted.instance).recover(voted)
        for instance, value in record.values:
            ledger.slot(instance).values[digest_of(value)] = value
        self._views.known_from = record.known_from
        self._recovered = [StateReceived(state.state)]

    def on_boot(self, out: Outbox) -> list[Decision]:
        views = self._views
        out.set_timer(self._tick_key, self._config.tick_us)
        if self._is_first_start:
            out.persist(BftMemberRecord(self._rejoin.incarnation))
            return [Elected()] if self.is_leader else []
        decisions, self._recovered = self._recovered, []
        if self._rejoin.is_member:
            self._send_status(out)
            if self._resigned == views.view:
                decisions += self._leave_for(views.view + 1, out)
            elif not views.installed:
                decisions += self._leave_for(views.view, out)  # others may need to hear it again
        return decisions

    def compact(self, state: bytes, out: Outbox) -> None:
        ledger, rejoin = self._ledger, self._rejoin
        packed = encode(CheckpointState(ledger.next, ledger.incarnations, state))
        if ledger.at_checkpoint:
            self._checkpoints.take(ledger.next, packed)
            ledger.pass_checkpoint()
        if rejoin.may_return():
            rejoin.is_member = True
            self._views.known_from = ledger.floor
        if rejoin.is_member:
            out.snapshot(self._checkpoint_record(packed))
            self._send_status(out)
            self._settle()
        if ledger.has_more:
            out.set_timer(self._advance_key, 0)

    def _checkpoint_record(self, packed: bytes) -> CheckpointRecord:
        ledger, low = self._ledger, self._checkpoints.low
        values = [(i, v) for i, slot in ledger.slots.items() if i >= ledger.next for v in slot.values.values()]
        return CheckpointRecord(
            self._rejoin.incarnation,
            self._views.view,
            ledger.base,
            ledger.base_bytes,
            low,
            self._checkpoints.own(),
            ledger.votes(low),
            tuple(values),
            packed,
            self._views.known_from,
        )

    def _settle(self) -> None:
        if self._checkpoints.settle():
            self._ledger.truncate(self._checkpoints.low)

    # -- inputs

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> list[Decision]:
        if sender not in self._members.others or not self._proper.allows(message):
            return []
        match message:
            case Propose():
                return self._on_propose(sender, message, out)
            case Write():
                self._votes.on_write(sender, message, out)
            case Accept():
                self._votes.on_accept(sender, message, out)
            case Status():
                self._on_status(sender, message, out)
            case AskValues():
                if self._may_ask(sender, message):
                    self._catch_up.on_ask_values(sender, message, out)
            case Values():
                self._catch_up.on_values(sender, message, self.ticks, out)
            case AskValue():
                if self._catch_up.has_value(message) and self._may_ask(sender, message, message.instance):
                    self._catch_up.send_value(sender, message, out)
            case Value():
                self._ledger.hold(message.instance, message.value)
                return self._begin_if_leader(out) + self._advance(out)
            case AskState():
                if self._catch_up.has_state(message) and self._may_ask(sender, message):
                    self._catch_up.send_state(sender, out)
            case HandedState():
                return self._catch_up.on_state(message)
            case ViewChange():
                return self._on_view_change(sender, message, out)
            case NewView():
                return self._on_new_view(message, out)
            case AskRejoin():
                if self._may_ask(sender, message):
                    return self._on_ask_rejoin(sender, message, out)
            case Outrun():
                self._rejoin.on_outrun(sender, message)
            case AskRead():
                self._reads.on_ask(sender, message, out)
            case ReadUpTo():
                self._reads.on_answer(sender, message)
            case _:
                return []
        return self._advance(out)

    def _may_ask(self, sender: ProcessId, message: Wire, number: int = 0) -> bool:
        return self._questions.may_ask(sender, type(message), number, self.ticks)

    def on_timer(self, key: TimerKey, out: Outbox) -> list[Decision]:
        if key == self._proposals.timer_key:
            return self._on_propose_timer(out)
        if key == self._votes.timer_key:
            return self._votes.on_timer()
        if key == self._votes.hope_key:
            self._votes.on_hope_timer(out)
            return self._advance(out)
        if key == self._advance_key:
            return self._advance(out)
        if key == self._tick_key:
            out.set_timer(self._tick_key, self._config.tick_us)
            self.ticks += 1
            return self._on_tick(out)
        return []

    def _advance(self, out: Outbox) -> list[Decision]:
        before = self._ledger.next
        decisions = self._ledger.advance()
        if self._ledger.next > before:
            self._views.fails = 0
            if self.is_leader:
                self._proposals.hurry(out)
        if self._rejoin.may_return() and not self._ledger.at_checkpoint:
            decisions.append(SnapshotDue())
        return decisions

    def _on_tick(self, out: Outbox) -> list[Decision]:
        views, ticks = self._views, self.ticks
        decisions: list[Decision] = []
        if ticks % _STATUS_TICKS == 0:
            self._send_status(out)
        self._catch_up.on_tick(ticks, out)
        self._reads.on_tick(out)
        if not self._rejoin.is_member:
            if ticks % self._config.retransmit_ticks == 0:
                self._rejoin.ask(out)
        elif not views.installed:
            begun = self._begin_if_leader(out)
            if not begun and views.on_tick(ticks, out):
                begun = self._leave_for(views.view + 1, out)
            decisions += begun
        elif self._reads.is_overdue(ticks) or self._votes.is_overdue(ticks) or views.must_follow(ticks):
            decisions += self.suspect(out)
        else:
            self._votes.retransmit(self.is_leader, ticks, out)
            self._proposals.hurry(out)
        return decisions + self._advance(out)

    def _send_status(self, out: Outbox) -> None:
        views = self._views
        checkpoints = self._checkpoints.latest() if self._rejoin.is_member else ()
        status = Status(self.group, views.view, views.installed, self._ledger.next, checkpoints)
        out.send_all(self._members.others, status)

    def _on_status(self, sender: ProcessId, message: Status, out: Outbox) -> None:
        self._checkpoints.on_said(sender, message.checkpoints)
        self._settle()
        self._views.tell_new_view(sender, message.view, message.installed, self.ticks, out)
        self._reads.on_next(sender, message.next)
        self._catch_up.on_next(sender, message.next)
        self._catch_up.repair_if_astray()

    # -- proposals

    def _on_propose_timer(self, out: Outbox) -> list[Decision]:
        self._proposals.on_timer()
        while self.is_leader and (value := self._proposals.take()) is not None:
            self._propose_value(self._proposals.next_free, value, out)
        return self._advance(out)

    def _propose_value(self, instance: int, value: bytes, out: Outbox) -> None:
        self._proposals.next_free = max(self._proposals.next_free, instance + 1)
        view, slot, others = self._views.view, self._ledger.slot(instance), self._members.others
        self._votes.hold(slot, view, digest_of(value), value, self.ticks)
        if out.persists_at_once:
            self._votes.record(instance, slot, out)
            out.send_all(others, Propose(self.group, view, instance, value, is_written=True))
        else:  # the others' disks need not wait for this one's
            out.send_all(others, Propose(self.group, view, instance, value))
            self._votes.record(instance, slot, out)
            out.send_all(others, Write(self.group, view, instance, slot.digest))
        self._votes.prepare(instance, slot, out)

    def _on_propose(self, sender: ProcessId, message: Propose, out: Outbox) -> list[Decision]:
        views, ledger, votes, instance = self._views, self._ledger, self._votes, message.instance
        if not votes.may_vote(message.view) or sender != views.leader or not ledger.takes(instance):
            return []
        if len(message.value) > self._proper.value_bytes:
            return self.suspect(out)
        slot, digest = ledger.slot(instance), digest_of(message.value)
        if message.is_written:
            ledger.take_vote(slot.writes, sender, message.view, digest)
        if slot.view == message.view:
            if slot.digest != digest:
                return self.suspect(out)
            if slot.approved:
                votes.tell(instance, slot, (sender,), out)
            return []
        if any(at == message.view and wrote != digest for wrote, at in slot.written.items()):
            return self.suspect(out)  # it proposed something else, before this member was restarted
        wanted = slot.decided
        if instance < views.choice.end:
            if instance not in views.choice.proposals:
                return []  # it was decided before this view: nobody may propose anything for it
            wanted = views.choice.proposals[instance]
        if wanted not in (NO_DIGEST, digest):
            return self.suspect(out)
        votes.hold(slot, message.view, digest, message.value, self.ticks)
        if wanted == digest or digest in slot.written or message.value == NOTHING:
            votes.write(instance, slot, out)
        elif message.value[:1] == COMMAND:
            votes.write_readd(instance, slot, out)
        else:
            votes.judge_later(instance, slot, out)
        return self._advance(out)

    def _on_ask_rejoin(self, sender: ProcessId, message: AskRejoin, out: Outbox) -> list[Decision]:
        value = self._rejoin.on_ask(sender, message, out)
        if sender == self.leader:
            return self.suspect(out)  # it can't take itself back, and nobody else may notice while nothing is ordered
        if value is None:
            return []
        if self.is_leader:
            self._propose_command(value, out)
        elif value != NOTHING:
            for instance in self._ledger.unfinished():
                self._votes.write_readd(instance, self._ledger.slots[instance], out)
        return []

    def _propose_command(self, value: bytes, out: Outbox) -> None:
        """The log's own: once at a time, and nothing at all only if nothing else is in flight."""
        proposals = self._proposals
        is_idle = proposals.next_free == self._ledger.next
        if (is_idle if value == NOTHING else not proposals.is_in_flight(value)) and proposals.has_room():
            self._propose_value(proposals.next_free, value, out)

    # -- view changes

    def _leave_for(self, view: View, out: Outbox) -> list[Decision]:
        self._proposals.clear()
        self._views.leave_for(view, self._rejoin.incarnation, self.ticks, out)
        return self._begin_if_leader(out)

    def _on_view_change(self, sender: ProcessId, change: ViewChange, out: Outbox) -> list[Decision]:
        views = self._views
        if change.view < views.view or (change.view == views.view and views.installed):
            views.tell_new_view(sender, change.view, False, self.ticks, out)
            return []
        if not views.on_change(sender, change, out) or not self._rejoin.is_member:
            return []
        joined = views.joined()
        if joined is not None:
            return self._leave_for(joined, out)
        return self._begin_if_leader(out)

    def _begin_if_leader(self, out: Outbox) -> list[Decision]:
        if self._views.installed or not self._rejoin.is_member:
            return []
        message = self._views.gather(out)
        if message is None:
            return []
        out.send_all(self._members.others, message)
        return self._on_new_view(message, out)

    def _on_new_view(self, message: NewView, out: Outbox) -> list[Decision]:
        views, ledger = self._views, self._ledger
        if message.view < views.view or (message.view == views.view and views.installed):
            return []
        choice = views.check(message, out)
        if choice is None:
            return []
        if message.view > views.view and self._rejoin.is_member:
            out.persist(ViewRecord(message.view))
        views.install(message, choice)
        self._proposals.clear()
        for instance, digest in choice.decided.items():
            ledger.decide(instance, digest)
        self._proposals.next_free = max(choice.end, ledger.next)
        self._reads.give_time(self.ticks)
        decisions: list[Decision] = []
        if self.is_leader:
            decisions.append(Elected())
            for instance, digest in choice.proposals.items():
                self._propose_value(instance, ledger.slot(instance).values[digest], out)
        return decisions + self._advance(out)
