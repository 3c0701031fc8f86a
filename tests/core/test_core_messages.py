"""Ids, timestamps, messages, seen and quorums."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amcast.core import (
    AppMessage,
    SeenMessages,
    UsageError,
    VoteCounter,
    app_message,
    clock_of,
    digest,
    majority,
    message_id,
    message_name,
    pack,
    sender_of,
    seq_of,
    timestamp,
)
from amcast.core.ids import GROUP_ID_LIMIT, PROCESS_ID_LIMIT, SEQ_LIMIT
from amcast.core.message import DESTINATIONS_LIMIT, PAYLOAD_LIMIT
from amcast.core.timestamps import group_of

CLOCKS = st.integers(0, 1 << 40)
GROUPS = st.integers(1, GROUP_ID_LIMIT - 1)


@given(CLOCKS, GROUPS, CLOCKS, GROUPS)
def test_timestamps_order_as_pairs_do(clock: int, group: int, other_clock: int, other_group: int) -> None:
    a, b = timestamp(clock, group), timestamp(other_clock, other_group)
    assert (a < b) == ((clock, group) < (other_clock, other_group))
    assert (a == b) == ((clock, group) == (other_clock, other_group))


@given(CLOCKS, GROUPS)
def test_a_timestamp_keeps_both_of_its_parts(clock: int, group: int) -> None:
    assert (clock_of(timestamp(clock, group)), group_of(timestamp(clock, group))) == (clock, group)


@given(st.integers(0, PROCESS_ID_LIMIT - 1), st.integers(0, SEQ_LIMIT - 1))
def test_a_message_id_keeps_sender_and_number(sender: int, seq: int) -> None:
    id_ = message_id(sender, seq)
    assert (sender_of(id_), seq_of(id_)) == (sender, seq)
    assert 0 <= id_ < 1 << 63  # it fits the trace's int64


def test_message_names() -> None:
    assert message_name(message_id(12, 7)) == "m12.7"
    assert message_name(7) == "m7"
    assert message_name(-7) == "m(-7)"


# -- application messages


def test_destinations_are_sorted_and_named_once() -> None:
    assert app_message(1, 0, (3, 1, 3, 2), b"").dst == (1, 2, 3)


def test_limits_are_inclusive() -> None:
    app_message(1, 0, (1,), bytes(PAYLOAD_LIMIT))
    app_message(1, SEQ_LIMIT - 1, (1,), b"")
    app_message(1, 0, range(1, DESTINATIONS_LIMIT + 1), b"")


@pytest.mark.parametrize(
    ("seq", "dst", "size", "says"),
    [
        (0, (1,), PAYLOAD_LIMIT + 1, "split it, or send a reference"),
        (0, (), 0, "at least one destination"),
        (0, tuple(range(1, DESTINATIONS_LIMIT + 2)), 0, "destinations are too many"),
        (SEQ_LIMIT, (1,), 0, "out of range"),
        (-1, (1,), 0, "out of range"),
    ],
)
def test_a_message_over_a_limit_is_refused(seq: int, dst: tuple[int, ...], size: int, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        app_message(1, seq, dst, bytes(size))


# -- seen


def message(seq: int, settled: int = 0, sender: int = 9) -> AppMessage:
    return AppMessage(message_id(sender, seq), (1,), b"", settled)


def test_a_session_knows_what_it_admitted() -> None:
    seen = SeenMessages()
    assert not seen.is_known(message(0).id)
    seen.admit(message(0))
    assert seen.is_known(message(0).id)
    assert not seen.is_known(message(1).id)
    assert not seen.is_known(message(0, sender=8).id)


def test_what_is_settled_stays_known() -> None:
    seen = SeenMessages()
    for seq in range(3):
        seen.admit(message(seq))
    seen.admit(message(5, settled=2))
    for seq in (0, 1, 2, 5):
        assert seen.is_known(message(seq).id)
    assert not seen.is_known(message(3).id)  # a gap below the newest is no duplicate


def test_settled_never_covers_the_message_that_carries_it() -> None:
    seen = SeenMessages()
    seen.admit(message(3, settled=99))
    assert seen.is_known(message(3).id)
    assert not seen.is_known(message(4).id)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-5, 25)), max_size=40))
def test_a_session_knows_what_was_ordered_and_what_is_settled(sent: list[tuple[int, int]]) -> None:
    seen = SeenMessages()
    admitted: set[int] = set()
    mark = 0
    for seq, settled in sent:
        is_new = seen.admit_new(message(seq, settled))
        assert is_new == (seq not in admitted and seq >= mark)
        if is_new:
            admitted.add(seq)
            mark = max(mark, min(settled, seq))
        copy = SeenMessages()
        copy.load(seen.dump())
        for each in range(25):
            assert seen.is_known(message(each).id) == copy.is_known(message(each).id)
            assert seen.is_known(message(each).id) == (each in admitted or each < mark)


def batch(*seqs: int, settled: int = 0) -> AppMessage:
    return pack([message(seq, settled) for seq in seqs])


def test_all_messages_of_a_batch_are_known() -> None:
    seen = SeenMessages()
    assert seen.admit_new(batch(5, 6, 8))
    assert [seq for seq in range(12) if seen.is_known(message(seq).id)] == [5, 6, 8]
    assert not seen.admit_new(batch(5, 6, 8)), "it is sent again"
    assert seen.admit_new(batch(7, 9, 10)), "gaps are no messages"


@pytest.mark.parametrize(
    ("first", "second"),
    [((5, 6, 7), (6,)), ((5, 6, 7), (7,)), ((6,), (5, 6, 7)), ((5, 6), (6, 7)), ((6, 7), (5, 6)), ((5, 8), (6, 7, 8))],
)
def test_what_overlaps_is_not_new_and_is_known_from_then_on(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    seen = SeenMessages()
    assert seen.admit_new(batch(*first))
    assert not seen.admit_new(batch(*second))
    assert seen.is_known(message(second[0]).id), "a group that refuses it says so to others"
    assert not seen.admit_new(batch(*second))


def test_a_batch_that_begins_below_the_mark_is_not_new() -> None:
    seen = SeenMessages()
    seen.admit(message(10, settled=10))
    assert not seen.admit_new(batch(9, 11))


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 20), min_size=1, max_size=5), st.integers(-5, 25)), max_size=40),
)
def test_no_message_is_new_twice_in_whatever_batches_it_comes(sent: list[tuple[set[int], int]]) -> None:
    seen = SeenMessages()
    ordered: list[int] = []
    known: set[int] = set()
    mark = 0
    for drawn, settled in sent:
        seqs = sorted(drawn)
        is_known = seqs[0] in known or seqs[0] < mark
        is_new = seen.admit_new(batch(*seqs, settled=settled))
        assert is_new == (not is_known and known.isdisjoint(seqs))
        if is_new:
            ordered += seqs
        if not is_known:
            known.update(seqs)
            mark = max(mark, min(settled, seqs[0]))
        for each in range(25):
            assert seen.is_known(message(each).id) == (each in known or each < mark)
    assert len(ordered) == len(set(ordered))


def test_a_sender_that_never_settles_costs_a_bit_a_message() -> None:
    seen = SeenMessages()
    for seq in range(20_000):
        seen.admit(message(seq))
    (state,) = seen.dump().values()
    assert len(state.bits) == 20_000 // 8


@pytest.mark.parametrize("window", [1, 7, 500])
def test_a_session_remembers_what_is_in_flight(window: int) -> None:
    seen = SeenMessages()
    for seq in range(10 * window + 1_000):
        seen.admit(message(seq, settled=max(0, seq - window)))
        (state,) = seen.dump().values()
        assert len(state.bits) <= window // 8 + 1


def test_messages_with_one_id_have_different_digests() -> None:
    one = app_message(9, 3, (1, 2), b"ab")
    others = [
        app_message(9, 3, (1, 2), b"a"),
        app_message(9, 3, (1, 3), b"ab"),
        app_message(9, 3, (1,), b"ab"),
        AppMessage(one.id, one.dst, one.payload, count=2),
    ]
    assert digest(one) not in {digest(other) for other in others}
    assert digest(one) == digest(app_message(9, 3, (1, 2), b"ab", settled=2)), "settled is no part of a message"


# -- quorums


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_any_two_quorums_share_a_member(size: int) -> None:
    counter = VoteCounter(range(10, 10 + size))
    masks = [sum(1 << i for i in chosen) for n in range(size + 1) for chosen in combinations(range(size), n)]
    quorums = [mask for mask in masks if counter.is_quorum(mask)]
    assert all(a & b for a in quorums for b in quorums)
    assert min(mask.bit_count() for mask in quorums) == majority(size)


def test_a_stranger_and_a_repeated_vote_count_for_nothing() -> None:
    counter = VoteCounter((10, 11, 12))
    mask = counter.bit(10) | counter.bit(10) | counter.bit(99)
    assert not counter.is_quorum(mask)
    assert counter.is_quorum(mask | counter.bit(12))
