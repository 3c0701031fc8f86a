"""The choice: what a new leader has to propose, from what n-f members or more say that they voted for.

The law: **a value that was decided in any earlier view is chosen.** A value is decided in two ways: n-f members
accepted it in one view, or all n members wrote it in one view. Members that tell the truth are called honest here: n-f
or more. An honest member writes one value in a view, and for an instance that the choice of the view is about, only
the chosen one.

Candidates are pairs of a view and a digest:

- Prepared ones: a member reports that it prepared the digest in the view.
- Written ones: of m members that were heard, m-f wrote the digest in the view or later. The highest such view counts.

A candidate stands if f+1 members back it, who wrote the digest in its view or later, or know it to be decided; and if
n-f members do not oppose it, who prepared nothing else in its view or later, and know of no other decision.

Candidates are looked at from the highest view down, in one view prepared ones first. The first that stands is chosen.
A prepared one that does not stand is passed over. A written one that does not stand ends the search: the leader waits
for more reports. If the search ends with no candidate left, nothing is chosen, provided that n-f members prepared
nothing.

**What was decided is chosen.** Let d be decided in view v, and let all choices since then have been d. So honest
members wrote nothing but d after v; and if all members wrote d in v, nothing else in v either.

- A candidate (w, e) with another digest e that stands is backed by an honest member, which wrote e in w or later. So w
  is not above v, and it is below v if all members wrote d in v.
- If n-f members accepted d in v: f+1 honest ones prepared d in v or later, and say so for as long as the instance is
  not below a checkpoint that n-f members have on disk. One of them is among any n-f members. It opposes (w, e), and it
  did prepare something. So neither e nor nothing is chosen.
- If all members wrote d in v: all honest members that were heard say so, m-f at least. So d is a written candidate of
  view v or higher, and is looked at before any (w, e). Either it is chosen, or it ends the search.

**There is a choice when all honest members were heard.** Let q be the highest view in which one of them prepared
something, and x what it was. None of them prepared anything else in q: two quorums share an honest member.

- (q, x) stands, unless an honest member knows of a decision for another digest. Then all members wrote that digest in
  a view above q (n-f that accepted it would have prepared it), and its written candidate is looked at before (q, x).
- A written candidate above q is opposed by no honest member, so it stands. One in q or below is looked at after (q,
  x).
- If none of them prepared anything, and there is no written candidate, then n-f members prepared nothing.

A member that lost its disk may have forgotten what it wrote. It is heard again when it has learned all that it may
have voted for (`rejoin.py`), and reports that as decided.

Members report digests, without a proof of what others told them: votes need no signatures. The idea is that of PBFT's
view change without public-key signatures (Castro and Liskov 2002), whose prepared and pre-prepared sets these are.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .members import Members
from .messages import NO_DIGEST, NOTHING, Checkpoint, Digest, View, ViewChange, Voted, digest_of

NOTHING_DIGEST = digest_of(NOTHING)
_ANY_VIEW = 1 << 62


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
    prepared = {(v.prepared_view, True, v.prepared) for v in votes if v is not None and v.prepared_view >= 0}
    for view, is_prepared, digest in sorted({*prepared, *_written(votes, members)}, reverse=True):
        unopposed = sum([_allows(voted, view, digest) for voted in votes])
        backed = sum([voted is not None and _backs(voted, view, digest) for voted in votes])
        if unopposed >= members.quorum and backed >= members.some:
            return digest
        if not is_prepared:
            return None
    silent = sum([voted is None or (voted.prepared_view < 0 and not voted.decided) for voted in votes])
    return NOTHING_DIGEST if silent >= members.quorum else None


def _written(votes: Sequence[Voted | None], members: Members) -> list[tuple[View, bool, Digest]]:
    """What all members may have written, as far as these tell: f of them may lie."""
    views: dict[Digest, list[View]] = {}
    for voted in votes:
        for digest, view in _backed_by(voted).items() if voted is not None else ():
            views.setdefault(digest, []).append(view)
    needed = len(votes) - members.liars
    enough = {digest: sorted(each, reverse=True) for digest, each in views.items() if len(each) >= needed}
    return [(each[needed - 1], False, digest) for digest, each in enough.items()]


def _backed_by(voted: Voted) -> dict[Digest, View]:
    """What it wrote, and the last view in which it did; what it knows to be decided is above all views."""
    backed: dict[Digest, View] = {}
    for view, digest in voted.written:
        backed[digest] = max(view, backed.get(digest, view))
    if voted.decided:
        backed[voted.decided] = _ANY_VIEW
    return backed


def _allows(voted: Voted | None, view: View, digest: Digest) -> bool:
    """Whether the member knows nothing that outdoes this. One that lost its disk may have forgotten that it prepared
    what was decided; then it has learned the decision again, and says so."""
    if voted is None:
        return True
    if voted.decided:
        return voted.decided == digest
    return voted.prepared_view < view or voted.prepared == digest


def _backs(voted: Voted, view: View, digest: Digest) -> bool:
    return _backed_by(voted).get(digest, -1) >= view
