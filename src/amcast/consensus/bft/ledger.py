"""The ledger: what a member knows of each instance, and what it hands up.

An instance is decided here when n-f members accepted one digest in one view, or all wrote it, when f+1 members say
that it is decided (one of them tells the truth), or when a NEW-VIEW proves it. Then only its value may lack, and
anybody may send it: its digest tells whether it is the right one.

Checkpoints come after the same instances at all members, so that their digests can be compared: at a checkpoint the
ledger hands up nothing more until the layer above has given its state (`at_checkpoint`).
"""

from __future__ import annotations

from bisect import bisect_left

from ...core import ProcessId
from ..base import Decided, Decision, SnapshotDue
from ..multipaxos.config import PaxosConfig
from .members import Members
from .messages import (
    COMMAND,
    NO_DIGEST,
    Digest,
    Incarnation,
    View,
    Voted,
    decode_readd,
    digest_of,
)


class Slot:
    """One instance."""

    __slots__ = (
        "accepts",
        "approved",
        "before",
        "decided",
        "digest",
        "prepared",
        "prepared_view",
        "said",
        "since",
        "told",
        "values",
        "view",
        "wait",
        "wanted",
        "writes",
        "written",
    )

    def __init__(self) -> None:
        self.view: View = -1  # of the proposal that is held
        self.digest = NO_DIGEST  # of that proposal
        self.approved = False
        self.values: dict[Digest, bytes] = {}
        self.written: dict[Digest, View] = {}  # what this member wrote, and the last view in which it did
        self.prepared_view: View = -1
        self.prepared = NO_DIGEST
        self.writes: dict[ProcessId, tuple[View, Digest]] = {}  # the latest of each member
        self.accepts: dict[ProcessId, tuple[View, Digest]] = {}
        self.said: dict[ProcessId, Digest] = {}  # what others say was decided
        self.decided = NO_DIGEST
        self.wanted = NO_DIGEST  # its value is asked for, since a new leader has to propose it
        self.before = 0  # bytes of all values that were handed up before this one
        self.since = 0  # the tick of the proposal
        self.told = 0  # the tick in which this member last sent its votes
        self.wait = 0  # ticks until it sends them again

    @property
    def is_known(self) -> bool:
        """Decided, and the value is here."""
        return self.decided != NO_DIGEST and self.decided in self.values

    @property
    def lacks_value(self) -> bool:
        """Others are asked for one."""
        values = self.values
        return (self.decided != NO_DIGEST and self.decided not in values) or (
            self.wanted != NO_DIGEST and self.wanted not in values
        )

    def voted(self, instance: int) -> Voted:
        written = tuple([(view, digest) for digest, view in self.written.items()])
        return Voted(instance, self.prepared_view, self.prepared, written, self.decided)

    def recover(self, voted: Voted) -> None:
        self.prepared_view, self.prepared = voted.prepared_view, voted.prepared
        self.written = {digest: view for view, digest in voted.written}


class Ledger:
    def __init__(self, members: Members, config: PaxosConfig) -> None:
        self._members = members
        self._config = config
        self.slots: dict[int, Slot] = {}
        self.next = 0  # the first instance that was not handed up yet
        self.floor = 0  # slots below are forgotten
        self.incarnations: dict[ProcessId, Incarnation] = {}  # members taken back after they lost their disk
        self.readded_at: dict[ProcessId, int] = {}  # the instance that did it, or the end of the state that holds it
        self.base = 0  # the last checkpoint
        self.base_bytes = 0  # of values handed up since
        self.at_checkpoint = False
        self._handed_bytes = 0
        self._top = 0  # no slot is at or above
        self.ahead = max(64, 4 * config.window)  # votes are taken for so many instances beyond `next`

    def slot(self, instance: int) -> Slot:
        slot = self.slots.get(instance)
        if slot is None:
            slot = self.slots[instance] = Slot()
            self._top = max(self._top, instance + 1)
        return slot

    def takes(self, instance: int) -> bool:
        """Whether it keeps votes for this instance: of the past what it remembers, of the future not too much."""
        return self.floor <= instance < self.next + self.ahead

    # -- votes

    def count(self, votes: dict[ProcessId, tuple[View, Digest]], view: View, digest: Digest) -> int:
        wanted = (view, digest)
        return sum([vote == wanted for vote in votes.values()])

    @staticmethod
    def take_vote(votes: dict[ProcessId, tuple[View, Digest]], sender: ProcessId, view: View, digest: Digest) -> bool:
        """One vote of a member in a view: whoever sends two has sent the first."""
        known = votes.get(sender)
        if known is not None and known[0] >= view:
            return False
        votes[sender] = (view, digest)
        return True

    def say(self, sender: ProcessId, instance: int, digest: Digest) -> None:
        """A member says that an instance is decided."""
        slot = self.slot(instance)
        slot.said[sender] = digest
        if sum([said == digest for said in slot.said.values()]) >= self._members.some:
            self.decide(instance, digest)

    def decide(self, instance: int, digest: Digest) -> None:
        if instance < self.next:
            return
        slot = self.slot(instance)
        assert slot.decided in (NO_DIGEST, digest), "two values are decided for one instance"
        slot.decided = digest

    def hold(self, instance: int, value: bytes) -> None:
        """Takes a value that lacks, whoever sends it."""
        slot = self.slots.get(instance)
        if slot is not None and slot.lacks_value:
            digest = digest_of(value)
            if digest in (slot.decided, slot.wanted):
                slot.values[digest] = value

    # -- what is handed up

    def advance(self) -> list[Decision]:
        """Hands up what is decided, as far as there is no gap, and up to the next checkpoint."""
        decisions: list[Decision] = []
        while not self.at_checkpoint and (slot := self.slots.get(self.next)) is not None and slot.is_known:
            value = slot.values[slot.decided]
            slot.values = {slot.decided: value}
            slot.before = self._handed_bytes
            self._hand_up(value, decisions)
            self._handed_bytes += len(value)
            self.base_bytes += len(value)
            self.next += 1
            if self.next - self.base >= self._config.snapshot_every or self.base_bytes >= self._config.snapshot_bytes:
                self.at_checkpoint = True
                decisions.append(SnapshotDue())
        return decisions

    def _hand_up(self, value: bytes, decisions: list[Decision]) -> None:
        readd = decode_readd(value) if value[:1] == COMMAND else None
        if readd is not None:
            readd.apply_to(self.incarnations)
            self.readded_at[readd.process] = self.next
        elif value:
            decisions.append(Decided(self.next, value))

    @property
    def has_more(self) -> bool:
        slot = self.slots.get(self.next)
        return not self.at_checkpoint and slot is not None and slot.is_known

    def pass_checkpoint(self) -> None:
        self.at_checkpoint = False
        self.base = self.next
        self.base_bytes = 0

    def begin_at(self, next_: int, base: int, base_bytes: int, incarnations: dict[ProcessId, Incarnation]) -> None:
        """Goes on from a state that covers all below `next_`."""
        self.next = next_
        self.base, self.base_bytes = base, base_bytes
        self.at_checkpoint = False
        for process, incarnation in incarnations.items():
            if self.incarnations.get(process) != incarnation:
                self.readded_at[process] = next_
        self.incarnations = dict(incarnations)

    def votes(self, low: int) -> tuple[Voted, ...]:
        instances = [i for i in sorted(self.slots) if i >= low]
        return tuple([self.slots[i].voted(i) for i in instances])

    def unfinished(self) -> list[int]:
        """The instances that are not decided, or whose value lacks."""
        slots = self.slots
        return [i for i in range(self.next, self._top) if i in slots and not slots[i].is_known]

    def end_of_votes(self, view: View) -> int:
        """What this member wrote in this view, or knows to be decided, is below."""
        for instance in range(self._top - 1, self.next - 1, -1):
            slot = self.slots.get(instance)
            if slot is not None and (slot.decided or view in slot.written.values()):
                return instance + 1
        return self.next

    def truncate(self, low: int) -> None:
        """Forgets what is below `low`, unless it is kept for members that lag."""
        self.forget(min(low, max(self._lag_floor(), self.floor)))

    def forget(self, floor: int) -> None:
        """Whatever is below."""
        for instance in range(self.floor, floor):
            self.slots.pop(instance, None)
        self.floor = max(self.floor, floor)

    def _lag_floor(self) -> int:
        floor = self.next - self._config.lag_max
        too_many = self._handed_bytes - self._config.lag_bytes
        if too_many > 0:
            kept = range(self.floor, self.next)
            dropped = bisect_left(kept, too_many, key=self._before)
            floor = max(floor, self.floor + dropped) if dropped else floor
        return floor

    def _before(self, instance: int) -> int:
        slot = self.slots.get(instance)
        return 0 if slot is None else slot.before
