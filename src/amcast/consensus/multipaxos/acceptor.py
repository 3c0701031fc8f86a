"""The acceptor's durable word: what it promised, how it voted, and in which incarnation of its disk.

A member that lost its disk may have promised or voted anything before. It keeps silent under a new incarnation until
the group's log holds a decision to take it back, made without it. Why that is safe, for a member p taken back by the
leader of ballot b in instance k:

- p votes and promises again only after it has learned all of the log up to k, and only at ballot b or higher, so what
  it forgot about instances up to k no longer matters, and no ballot below b can use it any more.
- A candidate of a higher ballot that still holds a promise of p's earlier incarnation needs other members for its
  majority, and one of these voted for taking p back (a majority without p, and a majority with p less p itself, always
  share a member). So the candidate sees the decision among the votes reported to it, and drops the stale promise.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core import Outbox, ProcessId, Record
from .messages import (
    Ballot,
    MemberRecord,
    PromiseRecord,
    SnapshotRecord,
    Vote,
    VoteRecord,
)


class Acceptor:
    def __init__(self, promised: Ballot) -> None:
        self.promised = promised
        self.incarnation = 0
        self.is_member = True  # false while this process waits to be taken back

    def format(self, out: Outbox) -> None:
        """The first start of this process ever."""
        out.persist(MemberRecord(self.incarnation))

    def recover(self, records: Sequence[Record]) -> tuple[SnapshotRecord | None, list[Vote]]:
        """The last snapshot and the votes since. Without any record, membership has to be asked for anew."""
        self.is_member = bool(records)
        snapshot: SnapshotRecord | None = None
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
                    snapshot = record
                    votes = list(record.votes)
                    self.incarnation = record.incarnation
                    self.promised = max(self.promised, record.promised)
        return snapshot, votes

    def promise(self, ballot: Ballot, out: Outbox) -> None:
        assert self.is_member and ballot > self.promised, "a promise only ever rises"
        self.promised = ballot
        out.persist(PromiseRecord(ballot))

    def vote(self, vote: Vote, out: Outbox) -> None:
        assert self.is_member and vote.ballot >= self.promised, "no vote below a promise"
        self.promised = vote.ballot  # the vote's record holds the promise as well
        out.persist(VoteRecord(vote))

    def snapshot(
        self,
        next_: int,
        incarnations: dict[ProcessId, int],
        state: bytes,
        votes: tuple[Vote, ...],
        out: Outbox,
    ) -> None:
        out.snapshot(SnapshotRecord(self.incarnation, self.promised, next_, incarnations, state, votes))
