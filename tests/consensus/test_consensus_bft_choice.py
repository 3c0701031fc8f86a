"""What a new leader has to propose: whatever was decided, whatever liars report."""

from __future__ import annotations

from random import Random

import pytest

from amcast.consensus.bft.choice import NOTHING_DIGEST, Choice, choose
from amcast.consensus.bft.members import Members
from amcast.consensus.bft.messages import Checkpoint, ViewChange, Voted
from amcast.core import Topology

FAR = 1 << 40


def members(size: int) -> Members:
    return Members(1, 0, Topology({1: range(size)}))


def change(process: int, *votes: Voted, low: int = 0, checkpoints: tuple[Checkpoint, ...] = ()) -> ViewChange:
    return ViewChange(1, 9, process, 0, low, checkpoints, votes)


def prepared(instance: int, view: int, digest: bytes, decided: bytes = b"") -> Voted:
    return Voted(instance, view, digest, ((view, digest),), decided)


def wrote(instance: int, view: int, digest: bytes) -> Voted:
    return Voted(instance, -1, b"", ((view, digest),))


def nothing(instance: int) -> Voted:
    return Voted(instance, -1, b"", ())


def test_without_votes_nothing_is_proposed() -> None:
    assert choose([change(p) for p in range(3)], members(4)) == Choice(0, 0, {}, {})


def test_a_value_that_one_member_prepared_is_proposed_again_if_another_wrote_it() -> None:
    changes = [change(0, prepared(0, 2, b"a")), change(1, wrote(0, 2, b"a")), change(2)]
    assert choose(changes, members(4)) == Choice(0, 1, {0: b"a"}, {})


def test_a_value_that_nobody_else_wrote_waits_for_more_members() -> None:
    changes = [change(0, prepared(0, 2, b"a")), change(1), change(2)]
    assert choose(changes, members(4)) is None
    assert choose([*changes, change(3)], members(4)) == Choice(0, 0, {}, {}), "the first was a liar"
    assert choose([*changes, change(3, wrote(0, 2, b"a"))], members(4)) == Choice(0, 1, {0: b"a"}, {})


def test_the_later_view_counts() -> None:
    older, newer = prepared(0, 1, b"a"), prepared(0, 2, b"b")
    changes = [change(0, older), change(1, newer), change(2, wrote(0, 2, b"b"))]
    assert choose(changes, members(4)) == Choice(0, 1, {0: b"b"}, {})


def test_what_lies_between_is_nothing() -> None:
    both = [change(p, prepared(2, 1, b"c")) for p in range(3)]
    assert choose(both, members(4)) == Choice(0, 3, {0: NOTHING_DIGEST, 1: NOTHING_DIGEST, 2: b"c"}, {})


def test_what_f_plus_one_know_to_be_decided_is_not_proposed() -> None:
    changes = [change(p, prepared(0, 1, b"a", b"a")) for p in (0, 1)]
    assert choose([*changes, change(2)], members(4)) == Choice(0, 1, {}, {0: b"a"})


def test_one_that_learned_a_decision_opposes_nothing_in_its_place() -> None:
    """It lost its disk and with it that it had prepared the value."""
    learned = Voted(0, -1, b"", (), b"a")
    assert choose([change(0, learned), change(1), change(2)], members(4)) is None
    changes = [change(0, learned), change(1), change(2, prepared(0, 1, b"a"))]
    assert choose(changes, members(4)) == Choice(0, 1, {0: b"a"}, {})


def test_a_liar_that_reports_instances_years_away_costs_nothing() -> None:
    far = change(0, prepared(FAR, 1, b"x"), prepared(0, 1, b"a"))
    others = [change(p, prepared(0, 1, b"a")) for p in (1, 2, 3)]
    assert choose([far, *others], members(4)) == Choice(0, 1, {0: b"a"}, {})


def test_a_checkpoint_of_f_plus_one_is_where_it_begins() -> None:
    five = (Checkpoint(5, b"s"),)
    changes = [change(p, prepared(5, 1, b"a"), low=low, checkpoints=five) for p, low in ((0, 5), (1, 0))]
    assert choose([*changes, change(2, low=0)], members(4)) == Choice(5, 6, {5: b"a"}, {})
    alone = change(0, prepared(5, 1, b"a"), low=5, checkpoints=five)
    assert choose([alone, change(1), change(2)], members(4)) is None, "one member alone may have invented it"


@pytest.mark.parametrize("size", [4, 7])
def test_what_was_decided_is_chosen_whatever_liars_report(size: int) -> None:
    """A random history of one instance, in which members vote as they must and one value is decided or none; then any
    n-f members report, liars among them anything."""
    group, chosen, by_writes = members(size), 0, 0
    liars_max = size - group.quorum
    for seed in range(2_000):
        rng = Random(seed)
        liars = set(rng.sample(range(size), liars_max))
        honest = [p for p in range(size) if p not in liars]
        told: dict[int, Voted] = {p: nothing(0) for p in honest}
        decided = None
        for view in range(rng.randint(1, 3)):
            digest = decided or rng.choice((b"a", b"b"))
            writers = rng.sample(honest, rng.choice((rng.randint(0, len(honest)), len(honest))))
            for p in writers:
                written = {d: v for v, d in told[p].written} | {digest: view}
                told[p] = Voted(0, told[p].prepared_view, told[p].prepared, tuple((v, d) for d, v in written.items()))
            if len(writers) == len(honest) and rng.random() < 0.5:  # and liars wrote too
                decided = digest
                by_writes += 1
            if len(writers) + len(liars) < group.quorum:
                continue
            acceptors = rng.sample(writers, rng.randint(0, len(writers)))
            for p in acceptors:
                told[p] = Voted(0, view, digest, told[p].written)
            if len(acceptors) + len(liars) >= group.quorum:
                decided = digest
        lies = [prepared(0, rng.randrange(5), rng.choice((b"a", b"b", b"z"))), nothing(0), wrote(0, 3, b"b")]
        reports = [change(p, told[p]) for p in honest] + [change(p, rng.choice(lies)) for p in sorted(liars)]
        heard = rng.sample(reports, rng.randint(group.quorum, size))
        choice = choose(heard, group)
        if choice is not None and decided is not None:
            chosen += 1
            assert choice.proposals.get(0) == decided
    assert chosen > 200
    assert by_writes > 200
