"""Views: who leads, and how a leader that is silent, slow or a liar is replaced.

    members                          leader of view v+1
       |--VIEW-CHANGE v+1---------------->|   to all: what I voted for. From now on I vote in no view below v+1
       |<--NEW-VIEW v+1-------------------|   these n-f members left for v+1, so this must be proposed first
       |<--PROPOSE...---------------------|

A member leaves when work waits for too long, or when the leader is caught. It also leaves when f+1 others have left:
one of them tells the truth. A member that left alone waits for the others; it does not run ahead of them, since it goes
on to the next view only when n-f members were seen in this one and it did not begin in time. Each time it waits twice
as long. The others follow one that left alone after a long time: it may tell the truth, and have seen what they have
not. If it does so again and again, they take twice as long each time. Members that missed a NEW-VIEW get it from any
other: it is signed, and so is all that it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import structs

from ...core import Outbox, ProcessId
from ..multipaxos.config import PaxosConfig
from ..multipaxos.messages import number_of
from .checkpoints import Checkpoints
from .choice import NOTHING_DIGEST, Choice, choose
from .ledger import Ledger
from .members import Members
from .messages import NOTHING, AskValue, Incarnation, NewView, View, ViewChange, ViewRecord, decode_readd

Signed = TypeVar("Signed", ViewChange, NewView)

_FAILS_MAX = 5
_PATIENCE = 4  # in `election_ticks`
_FOLLOW = 2  # in `patience`


class Views:
    def __init__(self, members: Members, config: PaxosConfig, ledger: Ledger, checkpoints: Checkpoints) -> None:
        self._members = members
        self._config = config
        self._ledger = ledger
        self._checkpoints = checkpoints
        self.view: View = 0
        self.installed = True  # whether it is known how the view begins; view 0 begins with nothing
        self.new_view: NewView | None = None  # how it began
        self.choice = Choice(0, 0, {}, {})
        self.changes: dict[ProcessId, ViewChange] = {}  # the latest of each member
        self.known_from = 0  # a member that lost its disk knows nothing of what was before this instance
        self.fails = 0  # view changes since something was decided
        self._alone: dict[ProcessId, tuple[View, int]] = {}  # members that left, and since when this one knows
        self._followed: dict[ProcessId, int] = {}  # how often it followed one that had left alone
        self._reached: int | None = None  # the tick in which n-f members were seen in this view
        self._sent_tick = 0
        self._told: dict[ProcessId, int] = {}  # the tick in which a member was last sent the NEW-VIEW

    @property
    def leader(self) -> ProcessId:
        return self._members.leader(self.view)

    @property
    def patience(self) -> int:
        """For how many ticks work may wait."""
        return _PATIENCE * self._config.election_ticks << min(self.fails, _FAILS_MAX)

    # -- leaving

    def leave_for(self, view: View, incarnation: Incarnation, ticks: int, out: Outbox) -> None:
        assert view > self.view or not self.installed, "a view is left for a later one"
        self.view = view
        self.installed = False
        self.new_view = None
        self.fails += 1
        self._reached = None
        out.persist(ViewRecord(view))
        low = max(self._checkpoints.low, self.known_from)
        checkpoints = tuple([c for c in self._checkpoints.own() if c.next >= low])
        process = self._members.process
        change = ViewChange(self._members.group, view, process, incarnation, low, checkpoints, self._ledger.votes(low))
        self.changes[process] = _signed(change, out)
        self.tell(ticks, out)

    def tell(self, ticks: int, out: Outbox) -> None:
        self._sent_tick = ticks
        change = self.changes.get(self._members.process)
        if change is not None and change.view == self.view:
            out.send_all(self._members.others, change)

    def on_tick(self, ticks: int, out: Outbox) -> bool:
        """While the view has not begun. Whether it is time to leave for the next one."""
        if ticks - self._sent_tick >= self._config.retransmit_ticks:
            self.tell(ticks, out)
        if sum([change.view >= self.view for change in self.changes.values()]) < self._members.quorum:
            return False
        if self._reached is None:
            self._reached = ticks
        return ticks - self._reached >= self.patience

    def _gathered(self) -> list[ViewChange]:
        return [change for change in self.changes.values() if change.view == self.view]

    # -- what others say

    def on_change(self, sender: ProcessId, change: ViewChange, out: Outbox) -> bool:
        """Whether it is news."""
        known = self.changes.get(sender)
        if change.process != sender or (known is not None and known.view >= change.view):
            return False
        if not out.verify(sender, change.signed(), change.proof):
            return False
        self.changes[sender] = change
        return True

    def joined(self) -> View | None:
        """The view to leave for: f+1 others have left, or the leader itself, as it does when it was restarted."""
        process = self._members.process
        views = [each.view for member, each in self.changes.items() if member != process and each.view > self.view]
        views.sort(reverse=True)
        if len(views) >= self._members.some:
            return views[self._members.some - 1]
        of_leader = self.changes.get(self.leader)
        has_resigned = self.installed and of_leader is not None and of_leader.view > self.view
        return self.view + 1 if has_resigned else None

    def must_follow(self, ticks: int) -> bool:
        """With every tick of a view: whether a member that left alone has waited for long enough."""
        for process, change in self.changes.items():
            if change.view <= self.view or process == self._members.process:
                continue
            view, since = self._alone.get(process, (-1, 0))
            if view != self.view:
                self._alone[process] = (self.view, ticks)
            elif ticks - since > _FOLLOW * self.patience << min(self._followed.get(process, 0), _FAILS_MAX):
                self._followed[process] = self._followed.get(process, 0) + 1
                return True
        return False

    # -- the new leader

    def gather(self, out: Outbox) -> NewView | None:
        """What begins the view, if enough members were heard, and all values are here that must be proposed."""
        changes = [change for change in self._gathered() if self._is_current(change)]
        if self.installed or self.leader != self._members.process or len(changes) < self._members.quorum:
            return None
        choice = choose(changes, self._members)
        if choice is None or not self._has_values(choice, out):
            return None
        return _signed(NewView(self._members.group, self.view, tuple(changes)), out)

    def _is_current(self, change: ViewChange) -> bool:
        """Not the word of a member that has lost its disk since."""
        known = dict(self._ledger.incarnations)
        for instance in self._ledger.unfinished():
            slot = self._ledger.slots[instance]
            readd = decode_readd(slot.values.get(slot.prepared, b""))
            if readd is not None:
                readd.apply_to(known)
        return number_of(change.incarnation) >= number_of(known.get(change.process, 0))

    def _has_values(self, choice: Choice, out: Outbox) -> bool:
        has_all = True
        for instance, digest in choice.proposals.items():
            slot = self._ledger.slot(instance)
            if digest == NOTHING_DIGEST:
                slot.values[digest] = NOTHING
            elif digest not in slot.values:
                slot.wanted = digest  # the value is taken when it comes
                out.send_all(self._members.others, AskValue(self._members.group, instance, digest))
                has_all = False
        return has_all

    # -- beginning

    def check(self, message: NewView, out: Outbox) -> Choice | None:
        """How the view begins, if the message proves it."""
        group, changes = self._members.group, message.changes
        leader = self._members.leader(message.view)
        senders = {change.process for change in changes}
        if len(senders) != len(changes) or not senders <= set(self._members.all):
            return None
        if any(change.view != message.view or change.group != group for change in changes):
            return None
        if len(changes) < self._members.quorum or not all(map(self._is_current, changes)):
            return None
        if not out.verify(leader, message.signed(), message.proof) or not self._are_signed(changes, out):
            return None
        return choose(changes, self._members)

    def _are_signed(self, changes: Sequence[ViewChange], out: Outbox) -> bool:
        for change in changes:
            if change == self.changes.get(change.process):
                continue  # it was looked at when it came
            if not out.verify(change.process, change.signed(), change.proof):
                return False
        return True

    def install(self, message: NewView, choice: Choice) -> None:
        self.view = message.view
        self.installed = True
        self.new_view = message
        self.choice = choice
        self.changes = {p: change for p, change in self.changes.items() if change.view > message.view}

    def tell_new_view(self, process: ProcessId, view: View, installed: bool, ticks: int, out: Outbox) -> None:
        """A member that is in an earlier view, or missed how this one began, is sent the NEW-VIEW."""
        is_behind = view < self.view or (view == self.view and not installed)
        if not self.installed or self.new_view is None or not is_behind:
            return
        wait = self._config.retransmit_ticks
        if ticks - self._told.get(process, -wait) >= wait:
            self._told[process] = ticks
            out.send(process, self.new_view)


def _signed(message: Signed, out: Outbox) -> Signed:
    return structs.replace(message, proof=out.sign(message.signed()))
