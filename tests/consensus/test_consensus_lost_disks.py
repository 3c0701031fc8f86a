"""Members that lost their disk, and what a disk may hold: each test moves the messages by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from amcast.consensus.multipaxos.acceptor import Acceptor
from amcast.consensus.multipaxos.learner import DECIDED_BALLOT
from amcast.consensus.multipaxos.messages import (
    Accept,
    Learn,
    Outdated,
    Prepare,
    Promise,
    Readd,
    Readmission,
    Rejoin,
    SnapshotRecord,
    Vote,
    VoteRecord,
    ballot_of,
    encode_readd,
    number_of,
)
from amcast.core import encode
from tests.consensus.paxos_harness import CONFIG, GROUP, Cluster, running

# -- a disk that was lost


def test_a_member_without_its_disk_neither_votes_nor_promises() -> None:
    cluster = running()
    cluster.order(0, "a")
    cluster.restart(2, with_disk=False)
    cluster.wire.clear()
    for _ in range(3 * CONFIG.election_ticks):
        box = cluster.tick(2)
        assert {type(e.message) for e in box.effects if hasattr(e, "message")} == {Rejoin}
    cluster.wire.clear()
    assert not cluster.hand(1, 2, Prepare(GROUP, ballot_of(9, 1), 0)).effects
    assert not cluster.hand(0, 2, Accept(GROUP, ballot_of(0, 0), 1, encode(["b"]))).effects
    assert not cluster[2].disk


def test_a_member_without_its_disk_is_taken_back_and_then_votes() -> None:
    cluster = running()
    cluster.order(0, "a")
    cluster.restart(2, with_disk=False)
    cluster.wire.clear()
    cluster.tick(2)
    cluster.drain()  # the group decides to take it back
    assert not cluster[2].disk
    assert cluster.log(2).is_silent
    cluster.tick(2)
    cluster.drain()  # it is told so, and catches up
    assert cluster[2].values == ["a"]
    assert isinstance(cluster[2].disk[0], SnapshotRecord)
    assert cluster[2].disk[0].incarnation != 0
    assert not any(cluster.log(process).is_silent for process in range(3))
    cluster.crash(1)  # from here on nothing is decided without it
    cluster.order(0, "b")
    assert cluster[0].values == ["a", "b"]
    assert cluster[2].values == ["a", "b"]


def test_a_member_that_was_taken_back_keeps_its_new_incarnation() -> None:
    cluster = running()
    cluster.restart(2, with_disk=False)
    for _ in range(2):
        cluster.tick(2)
        cluster.drain()
    incarnation = cluster[2].disk[0].incarnation
    cluster.restart(2)
    cluster.tick(2, CONFIG.election_ticks)
    (promise,) = cluster.hand(1, 2, Prepare(GROUP, ballot_of(4, 1), 0)).sent(Promise)
    assert promise.incarnation == incarnation


def test_a_readmission_of_another_incarnation_is_ignored() -> None:
    cluster = running()
    cluster.restart(2, with_disk=False)
    cluster.hand(0, 2, Readmission(GROUP, 12345, ballot_of(0, 0), 0))
    assert not cluster[2].disk


@pytest.mark.parametrize("loses_disk", [False, True])
def test_a_candidate_drops_the_promise_of_a_lost_disk(loses_disk: bool) -> None:
    """ "A candidate of a higher ballot that still holds a promise of p's earlier incarnation needs other members for
    its majority, and one of these voted for taking p back. So the candidate [...] drops the stale promise." """
    cluster = running(5)
    cluster.tick(2, CONFIG.election_ticks)
    while not cluster.take(Prepare, src=1):
        cluster.tick(1)
    prepare = Prepare(GROUP, cluster.log(1)._election.ballot, 0)
    (old,) = cluster.hand(1, 2, prepare).sent(Promise)
    cluster.wire.clear()
    if loses_disk:
        cluster.restart(2, with_disk=False)
        for _ in range(2):
            cluster.tick(2)
            for packet in cluster.take(Rejoin, dst=0):
                cluster.deliver(packet)
            cluster.wire = [p for p in cluster.wire if 1 not in (p.src, p.dst)]  # 1 hears of nothing
            cluster.drain()
        assert cluster[2].disk  # taken back by 0, 3 and 4 in ballot 0
    cluster.tick(3, CONFIG.election_ticks)
    (promise,) = cluster.hand(1, 3, prepare).sent(Promise)
    cluster.hand(2, 1, old)
    cluster.hand(3, 1, promise)
    assert cluster.log(1).is_leader != loses_disk
    if loses_disk:
        cluster.tick(2, CONFIG.election_ticks)
        (new,) = cluster.hand(1, 2, prepare).sent(Promise)
        assert new.incarnation != old.incarnation
        cluster.hand(2, 1, new)
        assert cluster.log(1).is_leader


def lose_twice(cluster: Cluster) -> Rejoin:
    """Member 2 loses its disk, and again as soon as it was taken back. Returns what its first life asked for."""
    cluster.restart(2, with_disk=False)
    rejoin = cluster.tick(2).sent(Rejoin)[0]
    for _ in range(2):
        cluster.drain()
        cluster.tick(2)
    cluster.drain()
    assert cluster[2].disk
    cluster.restart(2, with_disk=False)
    for _ in range(3):
        cluster.tick(2)
        cluster.drain()
    assert cluster[2].disk
    return rejoin


def promise_of_2_counts(cluster: Cluster) -> bool:
    """Whether member 1 can lead with nothing but its own promise and that of member 2."""
    cluster.crash(0)
    cluster.tick(2, CONFIG.election_ticks)
    while not cluster.take(Prepare, src=1):
        cluster.tick(1)
    prepare = Prepare(GROUP, cluster.log(1)._election.ballot, cluster.log(1)._learner.next)
    (promise,) = cluster.hand(1, 2, prepare).sent(Promise)
    cluster.hand(2, 1, promise)
    return bool(cluster.log(1).is_leader)


def test_a_late_request_of_an_earlier_life_is_not_taken() -> None:
    cluster = running()
    late = lose_twice(cluster)
    (outdated,) = cluster.hand(2, 0, late).sent(Outdated)
    assert outdated.known == cluster[2].disk[0].incarnation
    assert not cluster.take(Accept)
    assert not cluster.hand(0, 2, outdated).effects
    assert promise_of_2_counts(cluster)


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_request_of_an_earlier_life_that_is_decided_late_is_ignored(
    monkeypatch: pytest.MonkeyPatch, is_ordered: bool
) -> None:
    """A leader that has not learned the newest decision proposes the older one after it. Without an order, the member
    is then one whose promises count for nobody."""
    if not is_ordered:
        monkeypatch.setattr(Readd, "apply_to", lambda readd, known: known.update({readd.process: readd.incarnation}))
    cluster = running()
    late = lose_twice(cluster)
    readd = encode_readd(Readd(2, late.incarnation))
    cluster.call(0, lambda box: cluster.log(0)._leadership._propose_value(cluster.log(0)._learner.next, readd, box))
    cluster.drain()
    assert promise_of_2_counts(cluster) == is_ordered


def test_a_second_life_that_asks_before_the_first_is_decided_gets_a_higher_number() -> None:
    cluster = running()
    for _ in range(2):
        cluster.restart(2, with_disk=False)
        cluster.tick(2)
    requests = cluster.take(Rejoin, dst=0)
    assert [number_of(packet.message.incarnation) for packet in requests] == [1, 1]
    for packet in requests:
        cluster.deliver(packet)
    cluster.drain()
    for _ in range(3):
        cluster.tick(2)
        cluster.drain()
    assert number_of(cluster[2].disk[0].incarnation) == 2
    assert promise_of_2_counts(cluster)


def test_a_member_whose_disk_was_replaced_asks_to_be_taken_back() -> None:
    """Its disk is an older copy: the log has taken back a later one."""
    cluster = running()
    old = list(cluster[2].disk)
    lose_twice(cluster)
    cluster.crash(2)
    cluster[2].disk = old
    cluster.start(2)
    for _ in range(8):
        cluster.tick(0)
        cluster.tick(2)
        cluster.drain()
    assert number_of(cluster[2].disk[0].incarnation) == 3
    assert promise_of_2_counts(cluster)


# -- votes


def test_there_is_one_value_for_a_ballot_and_an_instance() -> None:
    cluster = running()
    cluster.hand(0, 1, Accept(GROUP, ballot_of(0, 0), 0, encode(["a"])))
    cluster.hand(0, 1, Accept(GROUP, ballot_of(0, 0), 0, encode(["a"])))
    with pytest.raises(AssertionError, match="two values"):
        cluster.hand(0, 1, Accept(GROUP, ballot_of(0, 0), 0, encode(["b"])))


def test_a_disk_with_two_values_for_a_ballot_and_an_instance_is_refused() -> None:
    cluster = running()
    cluster.crash(1)
    cluster[1].disk += [VoteRecord(Vote(0, 0, encode([value]))) for value in "ab"]
    with pytest.raises(AssertionError, match="two values"):
        cluster.start(1)


def test_what_was_learned_out_of_turn_before_a_snapshot_is_decided_after_a_restart() -> None:
    cluster = running(config=replace(CONFIG, snapshot_every=1))
    cluster.hand(0, 1, Learn(GROUP, 2, (encode(["c"]),)))
    cluster.order(0, "a")
    (snapshot,) = cluster[1].disk
    assert [(vote.instance, vote.ballot) for vote in snapshot.votes] == [(2, DECIDED_BALLOT)]
    assert snapshot.promised < DECIDED_BALLOT
    cluster.restart(1)
    cluster.hand(0, 1, Learn(GROUP, 1, (encode(["b"]),)))
    assert cluster[1].values == ["a", "b", "c"]
    acceptor: Acceptor = cluster.log(1)._acceptor
    assert acceptor.promised < DECIDED_BALLOT
