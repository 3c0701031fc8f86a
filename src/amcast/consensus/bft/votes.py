"""Votes: what a member writes and accepts, and when that decides.

A member writes a value that it approved of, once an instance and view. When n-f members wrote the same, the value is
prepared: it accepts it. When n-f members accepted the same, it is decided. Each vote is on disk before it is sent. A
member whose votes did not decide sends them again, at ever longer intervals, and is answered by those who know more.

When all members wrote the same, it is decided as well: `choice.py` has the reason. So a member that hears n-f writes
first hopes for those of all. It accepts if they do not come soon, or if anybody else accepts, who then has
not heard all. A member that hoped in vain accepts at once for a while, and for longer if that happens again. The log's
own commands are always accepted: members must know who may have been taken back, and look at what they prepared
(`Views._is_current`).

Two votes need not be sent. A proposal whose leader has it on disk is the leader's WRITE. An ACCEPT is a WRITE as well,
for whoever accepts has written: a member that writes last sends its ACCEPT alone.

A member need not look at a value that f+1 members wrote: one of them tells the truth. The first member that tells the
truth and writes a value has heard of f writes at the most, all by liars. So it has approved of the value itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core import Outbox, ProcessId
from ..base import Decision, Proposed
from ..multipaxos.config import PaxosConfig
from .ledger import Ledger, Slot
from .members import Members
from .messages import COMMAND, Accept, Digest, PreparedRecord, Propose, View, Write, WrittenRecord
from .rejoin import Rejoin
from .views import Views

_HOPE = 4  # it waits for the writes of all for this part of a tick, or twice as long
_REST_MIN, _REST_MAX = 8, 4_096  # instances that it accepts at once when it hoped in vain
_WAIT_FACTOR_MAX = 8  # the longest wait before votes are sent again, in `retransmit_ticks`


class Votes:
    def __init__(
        self,
        members: Members,
        config: PaxosConfig,
        ledger: Ledger,
        views: Views,
        rejoin: Rejoin,
        two_phases: bool = True,
    ) -> None:
        self._two_phases = two_phases
        self._members = members
        self._config = config
        self._ledger = ledger
        self._views = views
        self._rejoin = rejoin
        self._unjudged: list[int] = []  # instances whose proposals came in this turn
        self.timer_key = f"log.{members.group}.judge"
        # Instances that wait for the writes of all: since the timer last rang, and since before that
        self._hopes: list[int] = []
        self._waited: list[int] = []
        self._rest = _REST_MIN  # the next time that it hopes in vain; longer if it often does
        self._resting = 0  # instances that it still accepts at once
        self.hope_key = f"log.{members.group}.hope"

    def may_vote(self, view: View) -> bool:
        return self._rejoin.is_member and self._views.installed and view == self._views.view

    def may_write(self, slot: Slot) -> bool:
        """Whether it holds a proposal that it has not approved of. It does not if another value was decided."""
        return not slot.approved and self.may_vote(slot.view) and slot.digest in slot.values

    def hold(self, slot: Slot, view: View, digest: Digest, value: bytes, ticks: int) -> None:
        """A proposal that it may vote for."""
        slot.view, slot.digest = view, digest
        slot.approved = False
        slot.since = slot.told = ticks
        slot.wait = self._config.retransmit_ticks
        needed = {slot.decided, slot.wanted, *slot.written}
        slot.values = {known: kept for known, kept in slot.values.items() if known in needed}
        slot.values[digest] = value

    # -- its own

    def write(self, instance: int, slot: Slot, out: Outbox) -> None:
        self.record(instance, slot, out)
        if not self.prepare(instance, slot, out):
            out.send_all(self._members.others, Write(self._members.group, slot.view, instance, slot.digest))

    def write_with_others(self, instance: int, slot: Slot, out: Outbox) -> None:
        """Once f+1 members wrote the proposal that is held."""
        if self.may_write(slot) and self._ledger.count(slot.writes, slot.view, slot.digest) >= self._members.some:
            self.write(instance, slot, out)

    def judge_later(self, instance: int, slot: Slot, out: Outbox) -> None:
        """At the end of the turn: others' writes that come in it may spare the layer above a look at the value."""
        self.write_with_others(instance, slot, out)
        if not slot.approved:
            self._unjudged.append(instance)
            out.set_timer(self.timer_key, 0)

    def on_timer(self) -> list[Decision]:
        unjudged, self._unjudged = self._unjudged, []
        view, slots = self._views.view, self._ledger.slots
        waiting = [(i, slots[i]) for i in unjudged if i in slots and self.may_write(slots[i])]
        return [Proposed(view, instance, slot.values[slot.digest]) for instance, slot in waiting]

    def record(self, instance: int, slot: Slot, out: Outbox) -> None:
        """Its vote is on its disk before anybody hears of it."""
        view, digest = slot.view, slot.digest
        slot.approved = True
        assert all(at < view or wrote == digest for wrote, at in slot.written.items()), "two values in one view"
        if slot.written.get(digest) != view:
            out.persist(WrittenRecord(view, instance, slot.values[digest]))
            slot.written[digest] = view
        self._ledger.take_vote(slot.writes, self._members.process, view, digest)

    def write_readd(self, instance: int, slot: Slot, out: Outbox) -> None:
        """The log's own command, which it approves of by itself."""
        if self.may_write(slot) and self._rejoin.has_asked(slot.values[slot.digest]):
            self.write(instance, slot, out)

    def prepare(self, instance: int, slot: Slot, out: Outbox) -> bool:
        """Once n-f members wrote what this one did, in this view. Whether it accepts by this."""
        if not self._is_prepared(slot) or self._may_hope(instance, slot, out):
            return False
        self._accept(instance, slot, out)
        return True

    def _is_prepared(self, slot: Slot) -> bool:
        """Whether it may accept what it wrote, and has not done so yet."""
        view, own = slot.view, slot.accepts.get(self._members.process)
        if not slot.approved or (own is not None and own[0] >= view) or not self.may_vote(view):
            return False  # most writes come when it has accepted already
        return self._ledger.count(slot.writes, view, slot.digest) >= self._members.quorum

    def _may_hope(self, instance: int, slot: Slot, out: Outbox) -> bool:
        """Whether all members wrote it, or may do so soon: then it need not be accepted."""
        view, value = slot.view, slot.values.get(slot.digest)
        if (
            not self._two_phases
            or value is None
            or value[:1] == COMMAND
            or any(at == view for at, _ in slot.accepts.values())
        ):
            return False
        if self._all_wrote(slot):
            if not slot.decided:
                self._ledger.decide(instance, slot.digest)
                self._rest = max(_REST_MIN, self._rest - 1)
            return True
        if self._resting:
            return False
        if not self._hopes and not self._waited:
            out.set_timer(self.hope_key, self._config.tick_us // _HOPE)
        self._hopes.append(instance)
        return True

    def on_hope_timer(self, out: Outbox) -> None:
        vain, self._waited, self._hopes = self._undecided(self._waited), self._undecided(self._hopes), []
        if vain:
            self._resting, self._rest = self._rest, min(_REST_MAX, 2 * self._rest)
        for instance in vain:
            self._accept(instance, self._ledger.slots[instance], out)
        if self._waited:
            out.set_timer(self.hope_key, self._config.tick_us // _HOPE)

    def _undecided(self, hopes: list[int]) -> list[int]:
        slots = self._ledger.slots
        return [i for i in dict.fromkeys(hopes) if i in slots and not slots[i].decided and self._is_prepared(slots[i])]

    def _all_wrote(self, slot: Slot) -> bool:
        return self._ledger.count(slot.writes, slot.view, slot.digest) == len(self._members.all)

    def _accept(self, instance: int, slot: Slot, out: Outbox) -> None:
        view, digest, ledger = slot.view, slot.digest, self._ledger
        if slot.prepared_view != view:
            out.persist(PreparedRecord(view, instance, digest))
            slot.prepared_view, slot.prepared = view, digest
        ledger.take_vote(slot.accepts, self._members.process, view, digest)
        out.send_all(self._members.others, Accept(self._members.group, view, instance, digest))
        self._decide(instance, slot, view, digest)

    def _decide(self, instance: int, slot: Slot, view: View, digest: Digest) -> None:
        if not slot.decided and self._ledger.count(slot.accepts, view, digest) >= self._members.quorum:
            self._ledger.decide(instance, digest)
            self._resting = max(0, self._resting - 1)

    # -- those of others

    def on_write(self, sender: ProcessId, message: Write, out: Outbox) -> None:
        if not self._ledger.takes(message.instance):
            return
        slot = self._ledger.slot(message.instance)
        self._take_write(sender, message, slot, out)
        self._answer_again(sender, message, slot, out)

    def on_accept(self, sender: ProcessId, message: Accept, out: Outbox) -> None:
        if not self._ledger.takes(message.instance):
            return
        slot = self._ledger.slot(message.instance)
        self._ledger.take_vote(slot.accepts, sender, message.view, message.digest)
        if not self._take_write(sender, message, slot, out):
            self.prepare(message.instance, slot, out)  # it may have hoped until now
        self._decide(message.instance, slot, message.view, message.digest)
        self._answer_again(sender, message, slot, out)

    def _take_write(self, sender: ProcessId, message: Write | Accept, slot: Slot, out: Outbox) -> bool:
        """Whether it is news."""
        if not self._ledger.take_vote(slot.writes, sender, message.view, message.digest):
            return False
        self.write_with_others(message.instance, slot, out)
        self.prepare(message.instance, slot, out)
        return True

    def _answer_again(self, sender: ProcessId, message: Write | Accept, slot: Slot, out: Outbox) -> None:
        """The sender still waits: it hears this member's votes again, if they are of that view."""
        if message.again and slot.view == message.view and slot.decided:
            self.tell(message.instance, slot, (sender,), out, again=False)

    # -- sent again

    def tell(self, instance: int, slot: Slot, to: Sequence[ProcessId], out: Outbox, again: bool = True) -> None:
        group, view, digest = self._members.group, slot.view, slot.digest
        if slot.written.get(digest) == view:
            out.send_all(to, Write(group, view, instance, digest, again))
        if slot.prepared_view == view and slot.prepared == digest:
            out.send_all(to, Accept(group, view, instance, digest, again))

    def retransmit(self, is_leader: bool, ticks: int, out: Outbox) -> None:
        """Votes before proposals: a link has room for some bytes in a turn, and would drop whatever comes after a large
        proposal, each time again. And proposals not at once: members under load are slow to vote, and would be slower
        if they got everything twice."""
        members, wait_first = self._members, self._config.retransmit_ticks
        proposals: list[tuple[list[ProcessId], Propose]] = []
        for instance in self._ledger.unfinished():
            slot = self._ledger.slots[instance]
            if slot.view != self._views.view or ticks - slot.told < slot.wait:
                continue
            if is_leader and slot.wait > wait_first:
                proposal = Propose(members.group, slot.view, instance, slot.values[slot.digest])
                proposals.append((self._may_lack(slot), proposal))
            slot.told, slot.wait = ticks, min(2 * slot.wait, _WAIT_FACTOR_MAX * wait_first)
            self.tell(instance, slot, members.others, out)
        for lacking, proposal in proposals:
            out.send_all(lacking, proposal)

    def _may_lack(self, slot: Slot) -> list[ProcessId]:
        """The members that may need the proposal: whoever accepted has it. One that only wrote may have been restarted
        since, and can't go on without it."""
        return [member for member in self._members.others if slot.accepts.get(member, (-1, b""))[0] < slot.view]

    def is_overdue(self, ticks: int) -> bool:
        """Whether a proposal of this view has waited for too long, whatever for."""
        slot = self._ledger.slots.get(self._ledger.next)
        if slot is None or slot.is_known:
            return False
        in_view = [self._ledger.slots[i] for i in self._ledger.unfinished()]
        return any(s.view == self._views.view and ticks - s.since > self._views.patience for s in in_view)
