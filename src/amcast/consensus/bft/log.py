"""A log for a group of 3f+1 processes of which f may lie: PBFT's three phases, as Mod-SMaRt has them.

Guarantees: all members that tell the truth are handed the same values in the same order, each approved by one of them
at least; what was decided stays decided, through any number of crashes and restarts with the disk intact. A member that
lost its disk counts as a liar until the log has taken it back. Progress when n-f members that tell the truth are up and
messages arrive in bounded time. Three message delays from the leader to all members.

    leader       members
       |--PROPOSE-->|          `Proposed` goes up; the layer above approves of values, or has the leader replaced
       |<--WRITE----|--WRITE-->|   the value is on this member's disk
       |<--ACCEPT---|--ACCEPT->|   and that it is prepared

Why two members never decide differently. In one view: n-f members wrote the decided digest, and each that tells the
truth writes one digest an instance and view, also after a restart, since its disk has it. Two quorums share such a
member. In a later view: see `choice.py`. A member that lost its disk may have forgotten votes for instances up to
`ahead` beyond what it had been handed. It is taken back by an entry of the log, and votes again when all of these
instances are decided; what it said about views under an earlier incarnation counts for nobody (`Views._is_current`).

Other parts, each in a file that opens with its law: the ledger, checkpoints, views. Reads need no entry: see `_end`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from ...core import GroupId, Outbox, ProcessId, Record, TimerKey, Topology, Wire, encode
from ..base import Decision, Elected, Log, Proposed, SnapshotDue, StateReceived
from ..multipaxos.config import PaxosConfig
from ..multipaxos.messages import NONCE_BITS, incarnation_of, nonce_of, number_of
from ..multipaxos.messages import ReadAt as ReadAnswer
from ..multipaxos.reads import Reads
from ..values import cut_into_values
from .checkpoints import Checkpoints
from .ledger import Ledger, Slot
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
    Incarnation,
    NewView,
    Outrun,
    PreparedRecord,
    Propose,
    Readd,
    ReadUpTo,
    Status,
    Value,
    Values,
    View,
    ViewChange,
    ViewRecord,
    Write,
    WrittenRecord,
    decode_readd,
    digest_of,
    encode_readd,
)
from .views import Views

_STATUS_TICKS = 2
_WAIT_FACTOR_MAX = 8  # the longest wait before votes are sent again, in `retransmit_ticks`
_VALUE_SLACK = 4 << 20  # a single entry may be larger than `value_bytes`: a leader's value by so much at the most

_state_decoder = msgspec.msgpack.Decoder(CheckpointState)


class Bft(Log):
    def __init__(
        self, group: GroupId, process: ProcessId, topology: Topology, config: PaxosConfig, rng: Random
    ) -> None:
        self.group = group
        self._process = process
        self._config = config
        self._rng = rng
        self._members = Members(group, process, topology)
        self._ledger = ledger = Ledger(self._members, config)
        self._checkpoints = Checkpoints(self._members)
        self._views = Views(self._members, config, ledger, self._checkpoints)
        self.ticks = 0
        self._is_first_start = True
        self._is_member = True  # false while it waits to be taken back
        self._incarnation: Incarnation = 0
        self._resigned: View = (
            -1
        )  # the view in which it led, perhaps, before it restarted: it may have proposed anything
        self._recovered: list[Decision] = []
        self._batch: list[Any] = []
        self._values: deque[bytes] = deque()
        self._timer_set = False
        self._next_free = 0
        self._peers: dict[ProcessId, Status] = {}
        self._asked: dict[ProcessId, Incarnation] = {}  # members that ask to be taken back
        self._asked_at: dict[tuple[ProcessId, type], int] = {}  # the tick in which a member last asked for something
        self._outrun: dict[ProcessId, int] = {}  # numbers of incarnations that others say the log knows of this one
        self._last_next = 0
        self._new_view_told: dict[ProcessId, int] = {}  # the tick
        self._repairing: int | None = None  # a checkpoint at which this member is astray
        self._reads = Reads()
        self._read_ends: dict[int, dict[ProcessId, int]] = {}
        self._read_since = 0  # the tick since which no read was done
        self._read_done = -1
        self._fresh: set[ProcessId] = set()
        self._freshness = 0
        self._tick_key = f"log.{group}.tick"
        self._propose_key = f"log.{group}.propose"
        self._advance_key = f"log.{group}.advance"

    # -- what the layer above sees

    @property
    def is_leader(self) -> bool:
        views = self._views
        return views.installed and views.leader == self._process and self._is_member and views.view != self._resigned

    @property
    def leader(self) -> ProcessId | None:
        return self._views.leader

    @property
    def is_silent(self) -> bool:
        return not self._is_member

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

    def recover(self, records: Sequence[Record]) -> None:
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
                    self._views.view = max(self._views.view, record.view)
                case PreparedRecord():
                    slot = self._ledger.slot(record.instance)
                    slot.prepared_view, slot.prepared = record.view, record.digest
                case ViewRecord():
                    self._views.view = max(self._views.view, record.view)
                case BftMemberRecord():
                    self._incarnation = record.incarnation
        self._views.installed = self._views.view == 0
        if not records:
            self._is_member = False
            self._incarnation = incarnation_of(1, self._rng.getrandbits(NONCE_BITS))
        elif self._views.leader == self._process:
            self._resigned = self._views.view

    def _recover_checkpoint(self, record: CheckpointRecord) -> None:
        self._incarnation = record.incarnation
        self._views.view = record.view
        state = _state_decoder.decode(record.state)
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
        out.set_timer(self._tick_key, self._config.tick_us)
        if self._is_first_start:
            out.persist(BftMemberRecord(self._incarnation))
            return [Elected()] if self.is_leader else []
        decisions, self._recovered = self._recovered, []
        if self._is_member:
            self._send_status(out)
            if self._resigned == self._views.view:
                decisions += self._leave_for(self._views.view + 1, out)
            elif not self._views.installed:
                decisions += self._leave_for(self._views.view, out)  # others may need to hear it again
        return decisions

    def propose(self, entry: Any, out: Outbox, lazy: bool = False) -> None:
        if self.is_leader:
            self._batch.append(entry)
            self._hurry(out)

    def approve(self, view: View, instance: int, out: Outbox) -> list[Decision]:
        """The layer above stands behind the proposal of this view for this instance."""
        slot = self._ledger.slots.get(instance)
        if slot is None or slot.view != view or slot.approved or not self._may_vote(view):
            return []
        self._write(instance, slot, out)
        return self._advance(out)

    def suspect(self, out: Outbox) -> list[Decision]:
        """The leader was caught, or lets work wait for too long."""
        if not self._views.installed or not self._is_member:
            return []
        return self._leave_for(self._views.view + 1, out)

    def compact(self, state: bytes, out: Outbox) -> None:
        ledger, checkpoints = self._ledger, self._checkpoints
        packed = encode(CheckpointState(ledger.next, ledger.incarnations, state))
        if ledger.at_checkpoint:
            checkpoints.take(ledger.next, packed)
            ledger.pass_checkpoint()
        if not self._is_member and self._may_return():
            self._is_member = True
            self._views.known_from = ledger.floor
            self._asked.pop(self._process, None)
        if self._is_member:
            out.snapshot(self._checkpoint_record(packed))
            self._send_status(out)
            self._settle()
        if ledger.has_more:
            out.set_timer(self._advance_key, 0)

    def _checkpoint_record(self, packed: bytes) -> CheckpointRecord:
        ledger, low = self._ledger, self._checkpoints.low
        values = [(i, v) for i, slot in ledger.slots.items() if i >= ledger.next for v in slot.values.values()]
        return CheckpointRecord(
            self._incarnation,
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

    def send_state(self, peer: ProcessId, state: bytes, out: Outbox) -> None:
        raise AssertionError("this log hands over states of checkpoints by itself")

    # -- inputs

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> list[Decision]:
        if sender not in self._members.others:
            return []
        match message:
            case Propose():
                return self._on_propose(sender, message, out)
            case Write():
                self._on_write(sender, message, out)
            case Accept():
                self._on_accept(sender, message, out)
            case Status():
                return self._on_status(sender, message, out)
            case AskValues():
                if self._may_ask(sender, message):
                    self._on_ask_values(sender, message, out)
            case Values():
                self._on_values(sender, message, out)
            case AskValue():
                self._on_ask_value(sender, message, out)
            case Value():
                self._ledger.hold(message.instance, message.value)
                return self._begin_if_leader(out) + self._advance(out)
            case AskState():
                is_here = message.next == self._checkpoints.state_next and message.next > 0
                if is_here and self._may_ask(sender, message):
                    state = HandedState(self.group, message.next, self._checkpoints.state)
                    out.send(sender, state)
            case HandedState():
                return self._on_state(message, out)
            case ViewChange():
                return self._on_view_change(sender, message, out)
            case NewView():
                return self._on_new_view(message, out)
            case AskRejoin():
                return self._on_ask_rejoin(sender, message, out) if self._may_ask(sender, message) else []
            case Outrun():
                self._on_outrun(sender, message)
            case AskRead():
                if self._is_member and self._views.installed:
                    out.send(sender, ReadUpTo(self.group, message.read, self._end()))
            case ReadUpTo():
                self._on_read_up_to(sender, message)
            case _:
                return []
        return self._advance(out)

    def on_timer(self, key: TimerKey, out: Outbox) -> list[Decision]:
        if key == self._propose_key:
            return self._on_propose_timer(out)
        if key == self._advance_key:
            return self._advance(out)
        if key == self._tick_key:
            out.set_timer(self._tick_key, self._config.tick_us)
            self.ticks += 1
            return self._on_tick(out)
        return []

    def _may_ask(self, sender: ProcessId, message: Wire) -> bool:
        """Whether a member is answered, since an answer costs more than the question: once a tick to each question."""
        key = (sender, type(message))
        is_first = self._asked_at.get(key) != self.ticks
        self._asked_at[key] = self.ticks
        return is_first

    def _advance(self, out: Outbox) -> list[Decision]:
        before = self._ledger.next
        decisions = self._ledger.advance()
        if self._ledger.next > before:
            self._views.fails = 0
            if self.is_leader and (self._batch or self._values):
                self._hurry(out)
        if not self._is_member and self._may_return() and not self._ledger.at_checkpoint:
            decisions.append(SnapshotDue())
        return decisions

    # -- proposals

    def _hurry(self, out: Outbox) -> None:
        if not self._timer_set:
            self._timer_set = True
            out.set_timer(self._propose_key, 0)

    def _on_propose_timer(self, out: Outbox) -> list[Decision]:
        self._timer_set = False
        while self.is_leader and (self._values or self._batch) and self._has_room():
            if not self._values:
                self._values.extend(cut_into_values(self._batch, self._config.value_bytes))
                self._batch = []
            self._propose_value(self._next_free, self._values.popleft(), out)
        return self._advance(out)

    def _has_room(self) -> bool:
        """Few instances in flight, few bytes, and not too far beyond the last stable checkpoint."""
        ledger, config = self._ledger, self._config
        self._next_free = max(self._next_free, ledger.next)
        flying = range(ledger.next, self._next_free)
        if len(flying) >= config.window or self._next_free >= self._high():
            return False
        return sum([len(v) for i in flying for v in ledger.slot(i).values.values()]) < config.window_bytes

    def _high(self) -> int:
        return self._checkpoints.low + 4 * (self._config.snapshot_every + self._config.window)

    def _propose_value(self, instance: int, value: bytes, out: Outbox) -> None:
        self._next_free = max(self._next_free, instance + 1)
        view, slot = self._views.view, self._ledger.slot(instance)
        self._hold(slot, view, value)
        out.send_all(self._members.others, Propose(self.group, view, instance, value))
        self._write(instance, slot, out)

    def _hold(self, slot: Slot, view: View, value: bytes) -> None:
        slot.view, slot.digest = view, digest_of(value)
        slot.approved = False
        slot.since = slot.told = self.ticks
        slot.wait = self._config.retransmit_ticks
        needed = {slot.decided, *slot.written, *slot.said.values()}
        slot.values = {digest: kept for digest, kept in slot.values.items() if digest in needed}
        slot.values[slot.digest] = value

    def _on_propose(self, sender: ProcessId, message: Propose, out: Outbox) -> list[Decision]:
        views, ledger, instance = self._views, self._ledger, message.instance
        if not self._may_vote(message.view) or sender != views.leader or not ledger.takes(instance):
            return []
        if len(message.value) > self._config.value_bytes + _VALUE_SLACK:
            return self.suspect(out)
        slot, digest = ledger.slot(instance), digest_of(message.value)
        if slot.view == message.view:
            if slot.digest != digest:
                return self.suspect(out)
            if slot.approved:
                self._tell_votes(instance, slot, (sender,), out)
            return []
        wanted = slot.decided
        if instance < views.choice.end:
            if instance not in views.choice.proposals:
                return []  # it was decided before this view: nobody may propose anything for it
            wanted = views.choice.proposals[instance]
        if wanted not in (NO_DIGEST, digest):
            return self.suspect(out)
        self._hold(slot, message.view, message.value)
        if wanted == digest or digest in slot.written or message.value == NOTHING:
            self._write(instance, slot, out)
            return self._advance(out)
        if message.value[:1] == COMMAND:
            self._write_readd(instance, slot, out)
            return self._advance(out)
        return [Proposed(message.view, instance, message.value)]

    # -- votes

    def _may_vote(self, view: View) -> bool:
        return self._is_member and self._views.installed and view == self._views.view

    def _write(self, instance: int, slot: Slot, out: Outbox) -> None:
        view, digest = slot.view, slot.digest
        slot.approved = True
        assert all(at < view or wrote == digest for wrote, at in slot.written.items()), "two values in one view"
        if slot.written.get(digest) != view:
            out.persist(WrittenRecord(view, instance, slot.values[digest]))
            slot.written[digest] = view
        self._ledger.take_vote(slot.writes, self._process, view, digest)
        out.send_all(self._members.others, Write(self.group, view, instance, digest))
        self._prepare(instance, slot, out)

    def _prepare(self, instance: int, slot: Slot, out: Outbox) -> None:
        """Once n-f members wrote what this one did, in this view."""
        view, digest, ledger = slot.view, slot.digest, self._ledger
        if not slot.approved or not self._may_vote(view):
            return
        if ledger.count(slot.writes, view, digest) < self._members.quorum:
            return
        if slot.prepared_view != view:
            out.persist(PreparedRecord(view, instance, digest))
            slot.prepared_view, slot.prepared = view, digest
        if ledger.take_vote(slot.accepts, self._process, view, digest):  # for the first time, or since a restart
            out.send_all(self._members.others, Accept(self.group, view, instance, digest))
            self._decide(instance, slot, view, digest)

    def _decide(self, instance: int, slot: Slot, view: View, digest: bytes) -> None:
        if not slot.decided and self._ledger.count(slot.accepts, view, digest) >= self._members.quorum:
            self._ledger.decide(instance, digest)

    def _on_write(self, sender: ProcessId, message: Write, out: Outbox) -> None:
        if not self._ledger.takes(message.instance):
            return
        slot = self._ledger.slot(message.instance)
        self._ledger.take_vote(slot.writes, sender, message.view, message.digest)
        self._prepare(message.instance, slot, out)
        self._answer_again(sender, message, slot, out)

    def _on_accept(self, sender: ProcessId, message: Accept, out: Outbox) -> None:
        if not self._ledger.takes(message.instance):
            return
        slot = self._ledger.slot(message.instance)
        self._ledger.take_vote(slot.accepts, sender, message.view, message.digest)
        self._decide(message.instance, slot, message.view, message.digest)
        self._answer_again(sender, message, slot, out)

    def _answer_again(self, sender: ProcessId, message: Write | Accept, slot: Slot, out: Outbox) -> None:
        """The sender still waits: it hears this member's votes again, if they are of that view."""
        if message.again and slot.view == message.view and slot.decided:
            self._tell_votes(message.instance, slot, (sender,), out, again=False)

    def _tell_votes(self, instance: int, slot: Slot, to: Sequence[ProcessId], out: Outbox, again: bool = True) -> None:
        view, digest = slot.view, slot.digest
        if slot.written.get(digest) == view:
            out.send_all(to, Write(self.group, view, instance, digest, again))
        if slot.prepared_view == view and slot.prepared == digest:
            out.send_all(to, Accept(self.group, view, instance, digest, again))

    # -- with every tick

    def _on_tick(self, out: Outbox) -> list[Decision]:
        decisions: list[Decision] = []
        if self.ticks % _STATUS_TICKS == 0:
            self._send_status(out)
        self._catch_up(out)
        self._read_again(out)
        if not self._is_member:
            if self.ticks % self._config.retransmit_ticks == 0:
                out.send_all(self._members.others, AskRejoin(self.group, self._incarnation))
        elif not self._views.installed:
            begun = self._begin_if_leader(out)
            if not begun and self._views.on_tick(self.ticks, out):
                begun = self._leave_for(self._views.view + 1, out)
            decisions += begun
        elif self._is_overdue() or self._views.must_follow(self.ticks):
            decisions += self.suspect(out)
        else:
            self._retransmit(out)
            if self._batch or self._values:
                self._hurry(out)
        return decisions + self._advance(out)

    def _is_overdue(self) -> bool:
        """Whether a read, or a proposal of this view, has waited for too long, whatever for."""
        if self._reads.is_waiting and self.ticks - self._read_since > self._views.patience:
            return True
        slot = self._ledger.slots.get(self._ledger.next)
        if slot is None or slot.is_known:
            return False
        in_view = [self._ledger.slots[i] for i in self._ledger.unfinished()]
        return any(s.view == self._views.view and self.ticks - s.since > self._views.patience for s in in_view)

    def _retransmit(self, out: Outbox) -> None:
        wait_max = _WAIT_FACTOR_MAX * self._config.retransmit_ticks
        for instance in self._ledger.unfinished():
            slot = self._ledger.slots[instance]
            if slot.view != self._views.view or self.ticks - slot.told < slot.wait:
                continue
            slot.told, slot.wait = self.ticks, min(2 * slot.wait, wait_max)
            if self.is_leader:
                value = slot.values[slot.digest]
                out.send_all(self._members.others, Propose(self.group, slot.view, instance, value))
            self._tell_votes(instance, slot, self._members.others, out)

    # -- how far others are

    def _send_status(self, out: Outbox) -> None:
        views = self._views
        checkpoints = self._checkpoints.latest() if self._is_member else ()
        status = Status(self.group, views.view, views.installed, self._ledger.next, checkpoints)
        out.send_all(self._members.others, status)

    def _on_status(self, sender: ProcessId, message: Status, out: Outbox) -> list[Decision]:
        self._peers[sender] = message
        self._checkpoints.on_said(sender, message.checkpoints)
        self._settle()
        self._tell_new_view(sender, message, out)
        if message.next <= self._ledger.next:
            self._fresh.add(sender)
            if len(self._fresh) + 1 >= self._members.quorum:
                self._fresh = set()
                self._freshness += 1
        strayed = self._checkpoints.strayed()
        if strayed is not None:
            self._checkpoints.repair(strayed.next)
            self._repairing = strayed.next
        return self._advance(out)

    def _settle(self) -> None:
        if self._checkpoints.settle():
            self._ledger.truncate(self._checkpoints.low)

    def _tell_new_view(self, sender: ProcessId, status: Status, out: Outbox) -> None:
        """A member that missed how the view began."""
        views = self._views
        is_behind = status.view < views.view or (status.view == views.view and not status.installed)
        if not views.installed or views.new_view is None or not is_behind:
            return
        if self.ticks - self._new_view_told.get(sender, -self._config.retransmit_ticks) < self._config.retransmit_ticks:
            return
        self._new_view_told[sender] = self.ticks
        out.send(sender, views.new_view)

    def _catch_up(self, out: Outbox) -> None:
        """Asks for what others have and this member lacks, if nothing came since the last tick."""
        ledger = self._ledger
        ahead = [p for p, status in self._peers.items() if status.next > ledger.next]
        is_stuck, self._last_next = ledger.next == self._last_next, ledger.next
        if self._repairing is not None:
            self._ask_for_state(out)
        elif ahead and is_stuck and not ledger.at_checkpoint:
            giver = ahead[self.ticks % len(ahead)]
            out.send_all(self._members.others, AskValues(self.group, ledger.next, giver))
        for instance in ledger.unfinished()[:8]:
            slot = ledger.slots[instance]
            if slot.decided and self.ticks - slot.told >= self._config.retransmit_ticks:
                slot.told = self.ticks
                out.send_all(self._members.others, AskValue(self.group, instance, slot.decided))

    def _on_ask_values(self, sender: ProcessId, message: AskValues, out: Outbox) -> None:
        ledger, config, first = self._ledger, self._config, message.first
        digests: list[bytes] = []
        values: list[bytes] = []
        size = 0
        for instance in range(first, min(ledger.next, first + min(config.learn_chunk, ledger.ahead))):
            slot = ledger.slots.get(instance)
            if slot is None or not slot.is_known or size >= config.learn_bytes:
                break
            digests.append(slot.decided)
            if message.giver == self._process:
                values.append(slot.values[slot.decided])
                size += len(values[-1])
        if digests or (first < ledger.next and message.giver == self._process):
            out.send(sender, Values(self.group, first, tuple(digests), tuple(values)))

    def _on_values(self, sender: ProcessId, message: Values, out: Outbox) -> None:
        ledger = self._ledger
        if not message.digests:
            self._ask_for_state(out)
        before = ledger.next
        for instance, digest in enumerate(message.digests[: ledger.ahead], message.first):
            if ledger.next <= instance < ledger.next + ledger.ahead:
                ledger.say(sender, instance, digest)
        for instance, value in enumerate(message.values[: ledger.ahead], message.first):
            if instance >= ledger.next:
                ledger.hold(instance, value)
        slot = ledger.slots.get(before)
        if slot is not None and slot.is_known:
            self._last_next = -1  # there is more where this came from: no need to wait for two ticks

    def _on_ask_value(self, sender: ProcessId, message: AskValue, out: Outbox) -> None:
        slot = self._ledger.slots.get(message.instance)
        if slot is not None and message.digest in slot.values:
            out.send(sender, Value(self.group, message.instance, slot.values[message.digest]))

    # -- states

    def _ask_for_state(self, out: Outbox) -> None:
        wanted = self._checkpoints.vouched()
        if wanted is None or (wanted.next <= self._ledger.next and self._repairing is None):
            return
        givers = self._checkpoints.givers(wanted.next)
        out.send(givers[self.ticks % len(givers)], AskState(self.group, wanted.next))

    def _on_state(self, message: HandedState, out: Outbox) -> list[Decision]:
        ledger = self._ledger
        is_wanted = message.next > ledger.next if self._repairing is None else message.next >= self._repairing
        vouched = self._checkpoints.vouched_at(message.next)
        if not is_wanted or vouched == NO_DIGEST or digest_of(message.state) != vouched:
            return []
        state = _state_decoder.decode(message.state)
        self._repairing = None
        ledger.begin_at(message.next, message.next, 0, state.incarnations)
        ledger.at_checkpoint = True  # the state is written down as this member's own
        if not self._is_member:
            ledger.floor = max(ledger.floor, message.next)
        return [StateReceived(state.state, message.next), SnapshotDue()]

    # -- view changes

    def _leave_for(self, view: View, out: Outbox) -> list[Decision]:
        self._batch = []
        self._values.clear()
        self._views.leave_for(view, self._incarnation, self.ticks, out)
        return self._begin_if_leader(out)

    def _on_view_change(self, sender: ProcessId, change: ViewChange, out: Outbox) -> list[Decision]:
        views = self._views
        if change.view < views.view or (change.view == views.view and views.installed):
            status = Status(self.group, change.view, False, 0, ())
            self._tell_new_view(sender, status, out)
            return []
        if not views.on_change(sender, change, out) or not self._is_member:
            return []
        joined = views.joined()
        if joined is not None:
            return self._leave_for(joined, out)
        return self._begin_if_leader(out)

    def _begin_if_leader(self, out: Outbox) -> list[Decision]:
        if self._views.installed or not self._is_member:
            return []
        message = self._views.gather(out)
        if message is None:
            return []
        out.send_all(self._members.others, message)
        return self._on_new_view(message, out)

    def _on_new_view(self, message: NewView, out: Outbox) -> list[Decision]:
        views = self._views
        if message.view < views.view or (message.view == views.view and views.installed):
            return []
        choice = views.check(message, out)
        if choice is None:
            return []
        if message.view > views.view and self._is_member:
            out.persist(ViewRecord(message.view))
        views.install(message, choice)
        self._batch = []
        self._values.clear()
        for instance, digest in choice.decided.items():
            self._ledger.decide(instance, digest)
        self._next_free = max(choice.end, self._ledger.next)
        self._read_since = self.ticks
        decisions: list[Decision] = []
        if self.is_leader:
            decisions.append(Elected())
            for instance, digest in choice.proposals.items():
                self._propose_value(instance, self._ledger.slot(instance).values[digest], out)
        return decisions + self._advance(out)

    # -- members that come back without a disk

    def _on_ask_rejoin(self, sender: ProcessId, message: AskRejoin, out: Outbox) -> list[Decision]:
        known = self._ledger.incarnations.get(sender, 0)
        self._asked[sender] = message.incarnation
        if message.incarnation == known:
            if self.is_leader and self._next_free == self._ledger.next and self._has_room():
                self._propose_value(self._next_free, NOTHING, out)  # it waits for more instances to be decided
        elif number_of(message.incarnation) <= number_of(known):
            out.send(sender, Outrun(self.group, known))
        elif self.is_leader:
            self._take_back(sender, message.incarnation, out)
        else:
            for instance in self._ledger.unfinished():
                self._write_readd(instance, self._ledger.slots[instance], out)
        return self._advance(out)

    def _take_back(self, process: ProcessId, incarnation: Incarnation, out: Outbox) -> None:
        value = encode_readd(Readd(process, incarnation))
        flying = [self._ledger.slots[i] for i in self._ledger.unfinished()]
        if self._has_room() and not any(value in slot.values.values() for slot in flying):
            self._propose_value(self._next_free, value, out)

    def _write_readd(self, instance: int, slot: Slot, out: Outbox) -> None:
        """A member is taken back if it asked this one as well."""
        if slot.approved or not self._may_vote(slot.view):
            return
        value = slot.values.get(slot.digest, b"")
        try:
            readd = decode_readd(value)
        except msgspec.DecodeError:
            return
        if readd is not None and self._asked.get(readd.process) == readd.incarnation:
            self._write(instance, slot, out)

    def _on_outrun(self, sender: ProcessId, message: Outrun) -> None:
        """f+1 members say that a number was used: then one was, that is as high as the lowest of these."""
        if self._is_member:
            return
        self._outrun[sender] = number_of(message.known)
        numbers = sorted(self._outrun.values(), reverse=True)
        if len(numbers) >= self._members.some:
            number = numbers[self._members.some - 1]
            if number >= number_of(self._incarnation):
                self._incarnation = incarnation_of(number + 1, nonce_of(self._incarnation))

    def _may_return(self) -> bool:
        """Whether it was taken back, and all that its earlier life may have voted for is decided."""
        ledger = self._ledger
        if ledger.incarnations.get(self._process, 0) != self._incarnation:
            return False
        return ledger.next >= ledger.readded_at[self._process] + ledger.ahead

    # -- reads

    def begin_read(self, read: int, out: Outbox) -> None:
        if not self._reads.is_waiting:
            self._read_since = self.ticks
        if self._reads.begin(read):
            self._ask_for_read(read, out)

    def reads_done(self, out: Outbox) -> int:
        read = self._reads.advance(self._ledger.next)
        if read is not None:
            self._ask_for_read(read, out)
        done = self._reads.done
        if done > self._read_done:
            self._read_done, self._read_since = done, self.ticks
        self._read_ends = {each: ends for each, ends in self._read_ends.items() if each > done}
        return done

    def _ask_for_read(self, read: int, out: Outbox) -> None:
        self._read_ends.setdefault(read, {})
        out.send_all(self._members.others, AskRead(self.group, read))
        if self._is_member and self._views.installed:
            self._on_read_up_to(self._process, ReadUpTo(self.group, read, self._end()))

    def _end(self) -> int:
        """All that was decided and that this member took part in is below: what it was handed, what its view began
        with, and what it prepared in it. Or knows to be decided: that may wait behind an instance that is not."""
        return max(self._ledger.next, self._views.choice.end, self._ledger.end_of_votes(self._views.view))

    def _on_read_up_to(self, sender: ProcessId, message: ReadUpTo) -> None:
        """What n-f members put as the end is no lower than the end of what was decided: f+1 members that tell the truth
        prepared whatever was, and one of these is among any n-f. Liars may put it too high; then a later answer of
        another member lowers it."""
        ends = self._read_ends.get(message.read)
        if ends is None:
            return
        ends[sender] = message.next
        if len(ends) >= self._members.quorum:
            end = sorted(ends.values())[self._members.quorum - 1]
            self._reads.take(ReadAnswer(self.group, message.read, end))

    def _read_again(self, out: Outbox) -> None:
        read = self._reads.overdue()
        if read is not None:
            self._ask_for_read(read, out)

    @property
    def freshness(self) -> int | None:
        return None if len(self._members.all) == 1 else self._freshness
