"""The acceptor's durable word: what it promised, how it voted, and in which incarnation of its disk.

A member that lost its disk may have promised or voted anything before. It keeps silent under a new incarnation until
the group's log holds a decision to take it back, made without it. Why that is safe, for a member p taken back by the
leader of ballot b in instance k:

- p votes and promises again only after it has learned all of the log up to k, and only at ballot b or higher, so what
  it forgot about instances up to k no longer matters, and no ballot below b can use it any more.
- A candidate of a higher ballot that still holds a promise of p's earlier incarnation needs other members for its
  majority, and one of these voted for taking p back (a majority without p, and a majority with p less p itself, always
  share a member). So the candidate sees the decision among the votes reported to it, and drops the stale promise.

A member may lose its disk twice, and what its first life asked for may arrive late. Incarnations are ordered, so that
this does no harm: the log ignores a decision to take p back whose number is not above the one that it knows (`Readd`).
p begins with number 1, and asks for number k + 1 when a leader tells it that the log knows k. The decision that took
back p's present life is never outdone by an earlier life: that one asked for k + 1 because the log held k, which was
before the present life began, and so the present life was taken back with k + 1 or more.

The values that it voted for are in the learner's slots, which it shares: an acceptor learns the log as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ...core import Outbox, ProcessId, Record
from .learner import DECIDED_BALLOT, Learner, Slot
from .messages import (
    NONCE_BITS,
    Ballot,
    Incarnation,
    MemberRecord,
    Outdated,
    PromiseRecord,
    Readmission,
    SnapshotRecord,
    Vote,
    VoteRecord,
    incarnation_of,
    nonce_of,
    number_of,
)


class Acceptor:
    def __init__(self, process: ProcessId, learner: Learner, rng: Random) -> None:
        self._process = process
        self._learner = learner
        self._rng = rng
        self.promised = learner.leader_ballot
        self.incarnation: Incarnation = 0
        self.is_member = True  # false while this process waits to be taken back
        self._readmission: Readmission | None = None

    def format(self, out: Outbox) -> None:
        """The first start of this process ever."""
        out.persist(MemberRecord(self.incarnation))

    def recover(self, records: Sequence[Record]) -> None:
        """From the last snapshot and the votes since. Without any record, membership has to be asked for anew."""
        votes: list[Vote] = []
        for record in records:
            match record:
                case VoteRecord():
                    votes.append(record.vote)
                    self.promised = max(self.promised, record.vote.ballot)
                case PromiseRecord():
                    self.promised = max(self.promised, record.ballot)
                case MemberRecord():
                    self.incarnation = record.incarnation
                case SnapshotRecord():
                    self._learner.recover_from(record)
                    votes = list(record.votes)
                    self.incarnation = record.incarnation
                    self.promised = max(self.promised, record.promised)
        for vote in votes:
            if vote.instance >= self._learner.next:
                self._recover_vote(vote)
        if not records:
            self._leave(number=1)

    def _recover_vote(self, vote: Vote) -> None:
        slot = self._learner.slot(vote.instance)
        self._check_vote(slot, vote.ballot, vote.value)
        if vote.ballot > slot.ballot:
            slot.ballot, slot.value = vote.ballot, vote.value
            slot.decided = vote.ballot == DECIDED_BALLOT  # learned before the snapshot, and out of turn

    def _check_vote(self, slot: Slot, ballot: Ballot, value: bytes) -> None:
        assert slot.ballot != ballot or slot.value == value, "two values for one ballot and instance"

    def promise(self, ballot: Ballot, out: Outbox) -> None:
        assert self.is_member and ballot > self.promised, "a promise only ever rises"
        self.promised = ballot
        out.persist(PromiseRecord(ballot))

    def vote(self, ballot: Ballot, instance: int, value: bytes, out: Outbox) -> Slot:
        """Votes for a value and counts the vote. A vote that was cast before is not written again."""
        slot = self._learner.slot(instance)
        if slot.ballot == ballot:
            self._check_vote(slot, ballot, value)
        if slot.ballot < ballot and not slot.decided:
            assert self.is_member and ballot >= self.promised, "no vote below a promise"
            self.promised = ballot  # the vote's record holds the promise as well
            out.persist(VoteRecord(Vote(instance, ballot, value)))
            self._learner.hold_value(slot, ballot, value)
        if not slot.decided:
            self._learner.count_vote(slot, ballot, self._process)
        return slot

    def votes_from(self, first: int) -> tuple[Vote, ...]:
        """What it voted for, and with DECIDED_BALLOT what it knows to be decided: no vote outdoes that."""
        slots = self._learner.slots
        voted = [i for i in sorted(slots) if i >= first and slots[i].ballot >= 0]
        return tuple(Vote(i, slots[i].ballot, slots[i].value) for i in voted)

    def snapshot(self, state: bytes, out: Outbox) -> None:
        """Everything that this member has said, in one record: all records before it may go."""
        learner = self._learner
        votes = self.votes_from(learner.next)
        incarnations = dict(learner.incarnations)
        out.snapshot(SnapshotRecord(self.incarnation, self.promised, learner.next, incarnations, state, votes))

    # -- the way back after the loss of a disk

    def _leave(self, number: int) -> None:
        """Keeps silent from here on, until the group takes it back under a new incarnation."""
        self.is_member = False
        self._readmission = None
        self.incarnation = incarnation_of(number, self._rng.getrandbits(NONCE_BITS))

    def leave_if_replaced(self) -> bool:
        """Whether the log holds a later incarnation of this member than its disk. Then its promises count for nobody:
        the disk is an old copy. It asks to be taken back as if it had lost it."""
        known = self._learner.incarnations.get(self._process, 0)
        is_replaced = self.is_member and number_of(known) > number_of(self.incarnation)
        if is_replaced:
            self._leave(number_of(known) + 1)
        return is_replaced

    def on_outdated(self, message: Outdated) -> None:
        """An earlier life of this process was taken back with the number that it asks for, or a higher one."""
        number = number_of(message.known)
        if message.known != self.incarnation and number >= number_of(self.incarnation):
            self.incarnation = incarnation_of(number + 1, nonce_of(self.incarnation))

    def readmit(self, message: Readmission) -> None:
        """The group has taken this process back."""
        if self._readmission is None or message.ballot > self._readmission.ballot:
            self._readmission = message

    def may_return(self) -> bool:
        """Whether it was taken back, and has learned the log up to the decision to do so."""
        return self._readmission is not None and self._learner.next >= self._readmission.decided

    def return_to_group(self) -> None:
        """From here on it votes. Its state is made durable in the same step, with the new incarnation."""
        assert self._readmission is not None
        self.promised = max(self.promised, self._readmission.ballot)
        self.is_member = True
        self._readmission = None
        # The values of 2a messages that it overheard were no votes, and must not look like votes from now on.
        slots = self._learner.slots
        for instance in [i for i, slot in slots.items() if not slot.decided]:
            del slots[instance]
