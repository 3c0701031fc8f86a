"""The choice: what a new leader has to propose, from what n-f members or more say that they voted for.

The law: **a value that was decided in any earlier view is chosen.** Why, for instance i and digest d decided in view v:

- n-f members accepted d in v, so n-2f of those who tell the truth had prepared it, which is f+1 or more. Each reports
  d as prepared, in v or later, for as long as i is not below a checkpoint that n-f members have on disk.
- Something else than d, or nothing, is chosen only if n-f members report nothing for i that is against it. One member
  at least is among these n-f and among those f+1: a contradiction. So with too few reports nothing is chosen at all,
  and the leader waits for more: with those of all who tell the truth there is a choice.
- Liars can't invent a prepared value, for f+1 members must have written it: one of them tells the truth.

Members report digests, without a proof of what others told them: votes need no signatures. The idea is that of PBFT's
view change without public-key signatures (Castro and Liskov 2002), whose prepared and pre-prepared sets these are.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .members import Members
from .messages import NO_DIGEST, NOTHING, Checkpoint, Digest, View, ViewChange, Voted, digest_of

NOTHING_DIGEST = digest_of(NOTHING)


class Choice(msgspec.Struct, frozen=True):
    start: int  # a checkpoint that f+1 members have: all below is decided
    end: int  # nothing was chosen for instances from here on
    proposals: dict[int, Digest]  # to be proposed again
    decided: dict[int, Digest]  # f+1 members say so


def choose(changes: Sequence[ViewChange], members: Members) -> Choice | None:
    """None: more members must be heard."""
    start = _start(changes, members)
    if start is None:
        return None
    reports = [(change.low, {voted.instance: voted for voted in change.votes}) for change in changes]
    proposals: dict[int, Digest] = {}
    decided: dict[int, Digest] = {}
    # Only of what somebody reports: a liar may report an instance that is years away.
    for instance in sorted({instance for _, votes in reports for instance in votes if instance >= start}):
        votes = [report.get(instance) for low, report in reports if low <= instance]
        known = _decided(votes, members)
        if known is not None:
            decided[instance] = known
            continue
        chosen = _prepared(votes, members)
        if chosen is None:
            return None
        if chosen != NOTHING_DIGEST:
            proposals[instance] = chosen
    end = max([start - 1, *proposals, *decided]) + 1
    nothing = [instance for instance in range(start, end) if instance not in proposals and instance not in decided]
    return Choice(start, end, {**proposals, **dict.fromkeys(nothing, NOTHING_DIGEST)}, decided)


def _start(changes: Sequence[ViewChange], members: Members) -> int | None:
    """The highest checkpoint that f+1 members have, such that n-f members report on all instances from there on."""
    claims: dict[Checkpoint, int] = {}
    for change in changes:
        for checkpoint in dict.fromkeys((*change.checkpoints, *_beginning(change))):
            claims[checkpoint] = claims.get(checkpoint, 0) + 1
    known = [checkpoint.next for checkpoint, count in claims.items() if count >= members.some]
    return max(
        [at for at in known if sum([change.low <= at for change in changes]) >= members.quorum],
        default=None,
    )


def _beginning(change: ViewChange) -> tuple[Checkpoint, ...]:
    """Before the first checkpoint there is the beginning, which all know."""
    return (Checkpoint(0, NO_DIGEST),) if change.low == 0 else ()


def _decided(votes: Sequence[Voted | None], members: Members) -> Digest | None:
    counts: dict[Digest, int] = {}
    for voted in votes:
        if voted is not None and voted.decided != NO_DIGEST:
            counts[voted.decided] = counts.get(voted.decided, 0) + 1
    return next((digest for digest, count in counts.items() if count >= members.some), None)


def _prepared(votes: Sequence[Voted | None], members: Members) -> Digest | None:
    """The digest to propose, or that of nothing; None if too few members were heard."""
    claims = {(v.prepared_view, v.prepared) for v in votes if v is not None and v.prepared_view >= 0}
    for view, digest in sorted(claims, reverse=True):
        unopposed = sum([_allows(voted, view, digest) for voted in votes])
        backed = sum([voted is not None and _backs(voted, view, digest) for voted in votes])
        if unopposed >= members.quorum and backed >= members.some:
            return digest
    silent = sum([voted is None or (voted.prepared_view < 0 and not voted.decided) for voted in votes])
    return NOTHING_DIGEST if silent >= members.quorum else None


def _allows(voted: Voted | None, view: View, digest: Digest) -> bool:
    """Whether the member knows nothing that outdoes this. One that lost its disk may have forgotten that it prepared
    what was decided; then it has learned the decision again, and says so."""
    if voted is None:
        return True
    if voted.decided:
        return voted.decided == digest
    return voted.prepared_view < view or (voted.prepared_view == view and voted.prepared == digest)


def _backs(voted: Voted, view: View, digest: Digest) -> bool:
    return voted.decided == digest or any(at >= view and wrote == digest for at, wrote in voted.written)
