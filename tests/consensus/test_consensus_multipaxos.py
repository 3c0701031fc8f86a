"""Multi-Paxos, step by step: each test moves the messages by hand."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from amcast.consensus import Decided, RemoteLearner, SnapshotDue, StateReceived
from amcast.consensus.multipaxos.messages import (
    NOTHING,
    Accept,
    Accepted,
    CatchUp,
    Heartbeat,
    Learn,
    LearnedRecord,
    LearnerRecord,
    MemberRecord,
    Nack,
    Prepare,
    Promise,
    PromiseRecord,
    SnapshotRecord,
    State,
    VoteRecord,
    ballot_of,
    owner_of,
    round_of,
)
from amcast.core import Record, Topology, encode
from tests.consensus.paxos_harness import CONFIG, GROUP, Box, Cluster, elect, running

# -- a stable leader


@pytest.mark.parametrize("size", [3, 5])
def test_a_stable_leader_decides_in_two_delays(size: int) -> None:
    """ "Two delays from the leader to every learner." """
    cluster = running(size)
    cluster.propose(0, "a")
    cluster.turn(0)
    cluster.round()
    assert not cluster[0].values
    cluster.round()
    assert [member.values for member in cluster.members] == [["a"]] * size


@pytest.mark.parametrize(("size", "votes"), [(3, 2), (5, 16)])
def test_without_a_disk_to_wait_for_the_leaders_vote_goes_with_its_proposal(size: int, votes: int) -> None:
    cluster = running(size)
    cluster.at_once = True
    cluster.propose(0, "a")
    box = cluster.turn(0)
    assert box.index(VoteRecord) < box.index(Accept)
    assert not box.sent(Accepted)
    cluster.round()
    said = [packet for packet in cluster.wire if isinstance(packet.message, Accepted)]
    assert len(said) == votes  # in a group of three to the leader alone
    assert [bool(member.values) for member in cluster.members[1:]] == [size == 3] * (size - 1)
    cluster.round()
    assert [member.values for member in cluster.members] == [["a"]] * size


def test_a_leader_that_crashes_with_its_vote_on_the_way_loses_nothing_that_was_handed_up() -> None:
    cluster = running(3)
    cluster.at_once = True
    cluster.propose(0, "a")
    cluster.turn(0)
    for packet in cluster.take(Accept, dst=1):
        cluster.deliver(packet)
    assert cluster[1].values == ["a"]  # by the leader's vote and its own
    cluster.wire.clear()
    cluster.crash(0)
    elect(cluster, 2)
    cluster.drain()
    assert cluster[2].values == ["a"]


def test_a_stable_leader_runs_phase_1_never() -> None:
    cluster = running()
    for number in range(5):
        cluster.propose(0, number)
        cluster.turn(0)
        assert not cluster.take(Prepare)
        cluster.drain()
    assert cluster[2].values == [0, 1, 2, 3, 4]


def test_a_majority_is_enough() -> None:
    cluster = running(5)
    cluster.crash(3)
    cluster.crash(4)
    cluster.order(0, "a")
    assert [cluster[p].values for p in range(3)] == [["a"]] * 3
    cluster.crash(2)
    cluster.order(0, "b")
    assert [cluster[p].values for p in range(2)] == [["a"]] * 2


def test_everything_pending_goes_into_one_instance() -> None:
    cluster = running()
    cluster.propose(0, "a", "b", "c")
    accepts = cluster.turn(0).sent(Accept)
    assert {(a.instance, a.value) for a in accepts} == {(0, encode(["a", "b", "c"]))}


def test_a_lazy_entry_waits_for_company() -> None:
    cluster = running()
    cluster.propose(0, "lazy", lazy=True)
    assert not cluster[0].proposing
    cluster.order(0, "urgent")
    assert cluster[0].values == ["lazy", "urgent"]


def test_a_lazy_entry_without_company_leaves_with_a_tick() -> None:
    cluster = running()
    cluster.propose(0, "lazy", lazy=True)
    cluster.tick(0)
    cluster.turn(0)
    cluster.drain()
    assert cluster[1].values == ["lazy"]


def test_instances_are_pipelined_up_to_the_window() -> None:
    cluster = running()
    sent = []
    for entry in "abcd":
        cluster.propose(0, entry)
        sent += sorted({a.instance for a in cluster.turn(0).sent(Accept)})
    assert sent == [0, 1]  # the window is 2
    cluster.drain()
    # What was proposed meanwhile made the next batch.
    assert cluster[0].applied == {0: encode(["a"]), 1: encode(["b"]), 2: encode(["c", "d"])}
    assert cluster[2].values == list("abcd")


def test_a_large_batch_makes_several_instances() -> None:
    """As few as the limit allows; an entry that is over it makes one by itself."""
    cluster = running(config=replace(CONFIG, window=16, value_bytes=40))
    entries = ["a" * 15, "b" * 15, "c" * 15, "d" * 100, "e" * 15]
    cluster.order(0, *entries)
    parts = [entries[:2], entries[2:3], entries[3:4], entries[4:]]
    assert cluster[0].applied == {instance: encode(part) for instance, part in enumerate(parts)}
    assert cluster[2].values == entries


def test_the_window_has_room_for_so_many_bytes() -> None:
    cluster = running(config=replace(CONFIG, window=16, value_bytes=1, window_bytes=40))
    entries = [letter * 15 for letter in "abcdef"]
    cluster.propose(0, *entries)
    assert {a.instance for a in cluster.turn(0).sent(Accept)} == {0, 1, 2}  # of 17 bytes each
    cluster.drain()
    assert cluster[0].applied == {instance: encode([entry]) for instance, entry in enumerate(entries)}
    assert cluster[2].values == entries


def test_a_new_leader_proposes_nothing_that_waited_when_it_led_before() -> None:
    cluster = running(config=replace(CONFIG, value_bytes=1, window_bytes=1))
    cluster.propose(0, "decided", "waits")
    cluster.turn(0)
    elect(cluster, 1)
    cluster.drain()
    elect(cluster, 0)
    cluster.order(0, "new")
    assert cluster[2].values == ["decided", "new"]


def test_values_are_handed_up_in_order_however_they_arrive() -> None:
    cluster = running()
    for entry in "ab":
        cluster.propose(0, entry)
        cluster.turn(0)
    packets = cluster.take(Accept, dst=1) + cluster.take(Accepted, dst=1)
    for packet in reversed(packets):
        cluster.deliver(packet)
    assert cluster[1].values == ["a", "b"]


def test_a_follower_drops_what_it_is_asked_to_order() -> None:
    cluster = running()
    cluster.order(1, "a")
    assert not cluster.truth


def test_lost_proposals_are_sent_again() -> None:
    cluster = running()
    cluster.propose(0, "a")
    cluster.turn(0)
    cluster.wire.clear()
    assert not cluster.tick(0).sent(Accept)
    assert {a.instance for a in cluster.tick(0).sent(Accept)} == {0}
    cluster.drain()
    assert cluster[2].values == ["a"]


def test_lost_votes_are_sent_again() -> None:
    cluster = running()
    cluster.propose(0, "a")
    cluster.turn(0)
    cluster.round()
    cluster.wire.clear()  # the followers' votes
    cluster.tick(0, CONFIG.retransmit_ticks)
    accepts = cluster.take(Accept, dst=1)
    box = cluster.deliver(accepts[0])
    assert box.sent(Accepted)
    assert not box.persisted(VoteRecord)  # it voted before, and its disk has that
    cluster.drain()
    assert cluster[0].values == ["a"]


def test_what_was_decided_is_not_sent_again() -> None:
    cluster = running()
    cluster.order(0, "a")
    for _ in range(5):
        assert not cluster.tick(0).sent(Accept)


def test_a_duplicated_vote_counts_once() -> None:
    cluster = running(5)
    cluster.propose(0, "a")
    cluster.turn(0)
    (accept,) = cluster.take(Accept, dst=1)
    (vote,) = set(cluster.deliver(accept).sent(Accepted))
    for _ in range(3):
        cluster.hand(1, 0, vote)
    cluster.hand(77, 0, vote)  # nobody's
    assert not cluster[0].values
    cluster.hand(2, 0, vote)
    assert cluster[0].values == ["a"]


# -- the disk comes first


def test_a_vote_leaves_after_its_record() -> None:
    cluster = running()
    cluster.propose(0, "a")
    leader = cluster.turn(0)
    assert leader.index(VoteRecord) < leader.index(Accepted)
    assert leader.index(Accept) < leader.index(VoteRecord)  # a 2a is no vote: the disks work in parallel
    (accept,) = cluster.take(Accept, dst=1)
    follower = cluster.deliver(accept)
    assert follower.index(VoteRecord) < follower.index(Accepted)


def test_a_promise_leaves_after_its_record() -> None:
    cluster = running()
    cluster.tick(2, CONFIG.election_ticks)
    box = cluster.hand(1, 2, Prepare(GROUP, ballot_of(1, 1), 0))
    assert box.index(PromiseRecord) < box.index(Promise)


def test_a_candidate_keeps_its_own_promise_first() -> None:
    cluster = running()
    box = cluster.tick(1)
    while not box.sent(Prepare):
        box = cluster.tick(1)
    assert box.index(PromiseRecord) < box.index(Prepare)


def test_the_first_start_formats_the_disk() -> None:
    cluster = Cluster(3, CONFIG)
    assert all(isinstance(member.disk[0], MemberRecord) for member in cluster.members)


# -- elections


def test_silence_brings_an_election_with_a_higher_ballot() -> None:
    cluster = running()
    cluster.crash(0)
    box = cluster.tick(1, CONFIG.election_ticks)
    assert not box.sent(Prepare)  # patience is at least the election time ...
    for _ in range(CONFIG.election_ticks + 1):  # ... and at most twice that
        box = cluster.tick(1)
        if box.sent(Prepare):
            break
    (prepare,) = set(box.sent(Prepare))
    assert (round_of(prepare.ballot), owner_of(prepare.ballot)) == (1, 1)
    cluster.tick(2, CONFIG.election_ticks)
    cluster.drain()
    assert cluster.log(1).is_leader
    assert cluster[1].elected == 1
    assert cluster.log(2).leader == 1
    cluster.order(1, "a")
    assert cluster[2].values == ["a"]


def test_a_member_that_hears_a_leader_answers_no_candidate() -> None:
    """ "A member that was cut off can't depose a leader that serves the others." """
    cluster = running()
    cluster.tick(1)
    box = cluster.hand(2, 1, Prepare(GROUP, ballot_of(7, 2), 0))
    assert not box.effects


def test_a_new_leader_proposes_again_what_may_have_been_decided() -> None:
    cluster = running()
    cluster.propose(0, "a")
    cluster.turn(0)
    (accept,) = cluster.take(Accept, dst=1)
    cluster.deliver(accept)  # 0 and 1 voted: decided, and nobody else knows
    cluster.wire.clear()
    cluster.crash(0)
    elect(cluster, 2)
    assert cluster[2].applied == {0: encode(["a"])}
    assert cluster[1].values == ["a"]


def test_of_two_values_the_one_with_the_higher_ballot_is_proposed_again() -> None:
    cluster = running(5)
    cluster.propose(0, "old")
    cluster.turn(0)
    (old,) = cluster.take(Accept, dst=1)
    cluster.wire.clear()
    cluster.deliver(old)
    newer = ballot_of(1, 2)
    cluster.hand(2, 3, Accept(GROUP, newer, 0, encode(["new"])))
    cluster.wire.clear()
    for process in (0, 2):
        cluster.crash(process)
    elect(cluster, 4)
    assert cluster[4].values == ["new"]
    assert cluster.log(4)._election.ballot > newer


def test_a_gap_is_closed_with_nothing() -> None:
    cluster = running()
    for entry in "ab":
        cluster.propose(0, entry)
        cluster.turn(0)
    second = [p for p in cluster.take(Accept, dst=1) if p.message.instance == 1]
    cluster.wire.clear()
    cluster.deliver(second[0])
    cluster.wire.clear()
    cluster.crash(0)
    elect(cluster, 2)
    for process in (1, 2):
        assert cluster[process].applied == {1: encode(["b"])}
    cluster.order(2, "c")
    assert cluster[1].values == ["b", "c"]


def test_a_deposed_leader_is_refused() -> None:
    cluster = running()
    elect(cluster, 1)  # 0 heard it as well: let it believe in itself again, as a leader that was cut off does
    cluster.restart(0)
    before = len(cluster[2].disk)
    box = cluster.hand(0, 2, Accept(GROUP, ballot_of(0, 0), 5, encode(["late"])))
    assert [n.promised for n in box.sent(Nack)] == [ballot_of(1, 1)]
    assert not box.sent(Accepted)
    assert len(cluster[2].disk) == before
    assert cluster.hand(0, 2, Heartbeat(GROUP, ballot_of(0, 0), 9, 0)).sent(Nack)


def test_a_leader_that_was_cut_off_learns_that_it_was_deposed() -> None:
    cluster = running()
    cluster.propose(0, "lost")
    cluster.turn(0)
    cluster.wire.clear()  # cut off
    for process in (1, 2):
        cluster.tick(process, CONFIG.election_ticks)
    while not cluster.log(1).is_leader:
        cluster.tick(1)
        for packet in cluster.take(Prepare, dst=2):
            cluster.deliver(packet)
        for packet in cluster.take(Promise, dst=1):
            cluster.deliver(packet)
    cluster.take(Heartbeat, dst=0)
    cluster.take(Prepare, dst=0)
    cluster.order(1, "a")
    assert cluster[2].values == ["a"]
    assert cluster[0].values in ([], ["a"])
    for _ in range(6):
        cluster.tick(1)
        cluster.drain()
    assert not cluster.log(0).is_leader
    assert cluster[0].values == ["a"]


def test_a_leader_whom_nobody_answers_steps_down() -> None:
    cluster = running()
    cluster.crash(1)
    cluster.crash(2)
    cluster.tick(0, 2 * CONFIG.election_ticks)
    assert cluster.log(0).is_leader
    cluster.tick(0)
    assert not cluster.log(0).is_leader


def test_a_leader_whose_members_vote_stays_though_their_acks_are_late() -> None:
    cluster = running()
    for number in range(4 * CONFIG.election_ticks):
        cluster.propose(0, f"{number}")
        cluster.turn(0)
        for packet in cluster.take(Accept, dst=1):
            cluster.deliver(packet)
        for packet in cluster.take(Accepted, src=1, dst=0):
            cluster.deliver(packet)
        cluster.wire.clear()
        cluster.tick(0)
    assert cluster.log(0).is_leader


def test_an_instance_is_sent_again_less_and_less_often() -> None:
    """Members that are slow would become slower by it."""
    cluster = running(config=replace(CONFIG, election_ticks=1_000))
    cluster.propose(0, "a")
    cluster.turn(0)
    sent_at = [tick for tick in range(1, 64) if cluster.tick(0).sent(Accept)]
    gaps = [later - earlier for earlier, later in itertools.pairwise([0, *sent_at])]
    assert gaps == [2, 4, 8, 16, 16, 16]


def test_only_a_ballots_owner_may_use_it() -> None:
    cluster = running()
    cluster.tick(1, CONFIG.election_ticks)
    assert not cluster.hand(0, 1, Prepare(GROUP, ballot_of(5, 2), 0)).effects
    assert not cluster.hand(0, 1, Accept(GROUP, ballot_of(5, 2), 0, b"x")).effects
    assert not cluster.hand(99, 1, Prepare(GROUP, ballot_of(5, 99), 0)).effects


# -- restarts


def test_a_member_comes_back_with_its_promise_and_its_votes() -> None:
    cluster = running()
    cluster.propose(0, "a")
    cluster.turn(0)
    (accept,) = cluster.take(Accept, dst=1)
    cluster.deliver(accept)
    promised = ballot_of(3, 2)
    cluster.tick(1, CONFIG.election_ticks)
    cluster.hand(2, 1, Prepare(GROUP, promised, 0))
    cluster.restart(1)
    cluster.wire.clear()
    assert cluster.hand(0, 1, accept.message).sent(Nack)[0].promised == promised
    cluster.tick(1, CONFIG.election_ticks)
    assert cluster.hand(0, 1, Prepare(GROUP, ballot_of(2, 0), 0)).sent(Nack)
    (promise,) = cluster.hand(2, 1, Prepare(GROUP, promised, 0)).sent(Promise)
    assert [(v.instance, v.ballot, v.value) for v in promise.votes] == [(0, ballot_of(0, 0), encode(["a"]))]


def test_all_members_restart_and_nothing_is_lost() -> None:
    cluster = running()
    cluster.order(0, "a")
    cluster.order(0, "b")
    for process in range(3):
        cluster.restart(process)
    cluster.wire.clear()
    assert not any(cluster.log(p).is_leader for p in range(3))  # ballot 0 was for the first start
    elect(cluster, 1)
    cluster.order(1, "c")
    assert [member.values for member in cluster.members] == [["a", "b", "c"]] * 3


def test_a_snapshot_is_where_a_restart_begins() -> None:
    cluster = running(config=replace(CONFIG, snapshot_every=2))
    for entry in "abcde":
        cluster.order(0, entry)
    kinds = [type(record) for record in cluster[1].disk]
    assert kinds[0] is SnapshotRecord
    assert kinds.count(VoteRecord) <= 2
    assert cluster[1].disk[0].next == 4
    cluster.restart(1)
    assert cluster[1].states == 1
    assert cluster[1].values == list("abcd")
    for _ in range(4):
        cluster.tick(0)
        cluster.drain()
    assert cluster[1].values == list("abcde")


# -- laggards


def lag(cluster: Cluster, laggard: int, count: int) -> None:
    """Orders entries that one member does not hear of."""
    for number in range(count):
        cluster.propose(0, number)
        cluster.turn(0)
        while cluster.wire:
            cluster.wire = [p for p in cluster.wire if laggard not in (p.src, p.dst)]
            cluster.round()
    for _ in range(3):
        cluster.tick(0)
        cluster.wire = [p for p in cluster.wire if laggard not in (p.src, p.dst)]
        cluster.drain()


def test_a_laggard_asks_for_what_it_misses() -> None:
    cluster = running(config=replace(CONFIG, learn_chunk=2))
    lag(cluster, 2, 5)
    assert not cluster[2].values
    seen: list[type] = []
    for _ in range(4):
        cluster.tick(0)
        while cluster.wire:
            seen += [type(p.message) for p in cluster.wire]
            cluster.round()
    assert cluster[2].values == [0, 1, 2, 3, 4]
    assert seen.count(Learn) == 3  # two values at a time
    assert State not in seen


def test_a_laggard_gets_large_values_one_by_one() -> None:
    cluster = running(config=replace(CONFIG, learn_bytes=1))
    lag(cluster, 2, 3)
    learned: list[Learn] = []
    for _ in range(4):
        cluster.tick(0)
        while cluster.wire:
            learned += [p.message for p in cluster.wire if isinstance(p.message, Learn)]
            cluster.round()
    assert [(learn.first, len(learn.values)) for learn in learned] == [(0, 1), (1, 1), (2, 1)]
    assert cluster[2].values == [0, 1, 2]


@pytest.mark.parametrize("limit", [{"lag_max": 2}, {"lag_bytes": 5}])
def test_a_laggard_beyond_the_log_gets_state(limit: dict[str, int]) -> None:
    cluster = running(config=replace(CONFIG, snapshot_every=2, **limit))
    lag(cluster, 2, 8)
    box = cluster.hand(2, 0, CatchUp(GROUP, 0))
    assert not box.sent(Learn)  # what is below was forgotten
    assert [s.next for s in box.sent(State)] == [8]
    cluster.drain()
    assert cluster[2].states == 1
    assert cluster[2].values == list(range(8))
    cluster.order(0, "more")
    assert cluster[2].values == [*range(8), "more"]


def test_older_state_than_ones_own_is_ignored() -> None:
    cluster = running()
    cluster.order(0, "a")
    cluster.hand(0, 1, State(GROUP, 1, {}, encode([])))
    assert cluster[1].values == ["a"]
    assert not cluster[1].states


def test_nothing_is_forgotten_that_a_member_may_still_need() -> None:
    """The log keeps what a restart of the slowest member needs, up to lag_max and lag_bytes."""
    cluster = running(config=replace(CONFIG, snapshot_every=2, lag_max=1_000, lag_bytes=16))
    lag(cluster, 2, 8)  # two bytes each
    (learn,) = cluster.hand(2, 0, CatchUp(GROUP, 0)).sent(Learn)
    assert len(learn.values) == 8


# -- remote learners


def test_a_remote_learner_learns_in_two_delays_and_says_nothing() -> None:
    cluster = running(3, remote=1)
    cluster.propose(0, "a")
    cluster.turn(0)
    cluster.round()
    cluster.round()
    assert cluster[3].values == ["a"]
    assert not cluster.take(Accepted, src=3)


def test_a_remote_learner_catches_up() -> None:
    cluster = running(3, remote=1)
    lag(cluster, 3, 4)
    for _ in range(4):
        cluster.tick(0)
        cluster.drain()
    assert cluster[3].values == [0, 1, 2, 3]


def test_a_remote_learner_recovers_from_its_snapshot_and_learns_the_rest() -> None:
    cluster = running(3, replace(CONFIG, snapshot_every=2), remote=1)
    for entry in "abc":
        cluster.order(0, entry)
    assert [type(record) for record in cluster[3].disk] == [LearnerRecord]
    cluster.restart(3)
    assert cluster[3].values == ["a", "b"]
    for _ in range(4):
        cluster.tick(0)
        cluster.drain()
    assert cluster[3].values == ["a", "b", "c"]


def test_a_remote_learner_beyond_the_log_gets_state() -> None:
    cluster = running(3, replace(CONFIG, snapshot_every=2, lag_max=2), remote=1)
    lag(cluster, 3, 8)
    for _ in range(4):
        cluster.tick(0)
        cluster.drain()
    assert cluster[3].states == 1
    assert cluster[3].values == list(range(8))


def test_nothing_is_never_handed_up() -> None:
    cluster = running()
    cluster.hand(0, 1, Learn(GROUP, 0, (NOTHING, encode(["a"]))))
    assert cluster[1].applied == {1: encode(["a"])}


def remote_learner(records: list[Record] | None = None) -> tuple[RemoteLearner, list[object]]:
    """A remote learner that holds what it learns, and what it hands up when it starts."""
    learner = RemoteLearner(GROUP, 3, Topology({GROUP: range(3), 2: (3,)}), replace(CONFIG, snapshot_every=3))
    if records is not None:
        learner.recover(records)
    return learner, learner.on_boot(Box())


def learn(learner: RemoteLearner, first: int, *values: bytes) -> Box:
    box = Box()
    learner.hold(learner.on_message(0, Learn(GROUP, first, values), box), box)
    return box


def test_a_remote_learner_comes_back_with_all_that_it_holds() -> None:
    learner, _ = remote_learner()
    records = learn(learner, 0, b"a", NOTHING).persisted(LearnedRecord)
    assert records == [LearnedRecord(0, b"a")]
    assert learner.durable_next == 2
    learner, handed = remote_learner(records)
    assert handed == [Decided(0, b"a")]
    assert (learner.next, learner.durable_next) == (1, 1)
    assert not learn(learner, 0, b"a").effects  # held already
    assert learn(learner, 1, NOTHING, b"c").persisted(LearnedRecord) == [LearnedRecord(2, b"c")]


def test_a_remote_learners_snapshot_replaces_what_it_wrote_down() -> None:
    learner, _ = remote_learner()
    box = Box()
    decisions = learner.on_message(0, Learn(GROUP, 0, (b"a", b"b", b"c")), box)
    assert decisions[-1] == SnapshotDue()
    learner.compact(b"state", box)
    learner.hold(decisions, box)
    assert box.persisted(LearnedRecord) == []
    (snapshot,) = box.persisted(LearnerRecord)
    _, handed = remote_learner([snapshot, LearnedRecord(3, b"d")])
    assert handed == [StateReceived(b"state"), Decided(3, b"d")]


def test_a_remote_learner_holds_state_at_once() -> None:
    learner, _ = remote_learner()
    assert learner.on_message(0, State(GROUP, 7, {}, b"s"), Box()) == [StateReceived(b"s", 7), SnapshotDue()]
    learner.compact(b"s", Box())
    assert learner.durable_next == 7
