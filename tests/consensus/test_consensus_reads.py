"""Reads: whom a leader asks whether it still leads, and what it does when they are silent."""

from __future__ import annotations

from amcast.consensus.multipaxos.messages import Confirm, Confirmed
from tests.consensus.paxos_harness import GROUP, Box, Cluster, running


def begin(cluster: Cluster, read: int) -> list[int]:
    """The leader begins a read. Returns whom it asks: the questions stay on the wire."""
    cluster.call(0, lambda box: cluster.log(0).begin_read(read, box))
    box = cluster.call(0, cluster.log(0).on_timer, f"log.{GROUP}.confirm")
    return asked(box)


def asked(box: Box) -> list[int]:
    return [each.to for each in box.effects if isinstance(getattr(each, "message", None), Confirm)]


def answer(cluster: Cluster, *members: int) -> None:
    """Their answers arrive, in this order. What else is on the wire is lost."""
    for packet in cluster.take(Confirm):
        cluster.deliver(packet)
    for member in members:
        for packet in cluster.take(Confirmed, src=member):
            cluster.deliver(packet)
    cluster.wire = []


def done(cluster: Cluster) -> int:
    found: int = cluster.log(0).reads_done(Box())
    return found


def ordered(size: int) -> Cluster:
    cluster = running(size)
    cluster.order(0, "a")
    return cluster


def test_those_who_confirm_first_are_asked_alone_until_the_next_tick() -> None:
    cluster = ordered(5)
    assert begin(cluster, 1) == [1, 2, 3, 4]
    answer(cluster, 3)
    assert done(cluster) == -1, "one more is needed"
    assert begin(cluster, 2) == [1, 2, 3, 4], "it is not known yet who answers first"
    answer(cluster, 3, 2, 1)
    assert done(cluster) == 2
    assert begin(cluster, 3) == [3, 2]
    answer(cluster, 2, 3)
    assert done(cluster) == 3
    cluster.tick(0)
    cluster.wire = []
    assert begin(cluster, 4) == [1, 2, 3, 4]
    answer(cluster, 4, 1)
    assert begin(cluster, 5) == [4, 1]


def test_whoever_is_asked_alone_and_silent_is_not_waited_for() -> None:
    cluster = ordered(3)
    begin(cluster, 1)
    answer(cluster, 1, 2)
    assert begin(cluster, 2) == [1]
    answer(cluster)
    assert done(cluster) == 1
    assert asked(cluster.tick(0)) == [1, 2], "with the next tick"
    answer(cluster, 2)
    assert done(cluster) == 2
    assert begin(cluster, 3) == [1, 2], "nobody has confirmed a round since"


def test_an_answer_to_an_earlier_round_says_nothing_about_who_is_fast() -> None:
    cluster = ordered(3)
    begin(cluster, 1)
    answer(cluster, 1)
    assert begin(cluster, 2) == [1]
    cluster.round()
    late = cluster.take(Confirmed)
    cluster.tick(0)
    cluster.wire = []
    for packet in late:
        cluster.deliver(packet)
    assert done(cluster) == 2
    assert begin(cluster, 3) == [1, 2]


def test_a_group_of_one_asks_nobody() -> None:
    cluster = ordered(1)
    assert begin(cluster, 1) == []
    assert done(cluster) == 1
