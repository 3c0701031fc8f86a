"""Batches: what is packed comes out again, one by one, and what is no batch is recognised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from amcast.core import BATCH_LIMIT, AppMessage, delivery_runs, encode, message_id, pack, unpack, unpack_deliveries
from amcast.core.batch import Parts, common_size, count_messages, id_bits, problem_with_batch
from amcast.core.ids import SEQ_LIMIT, UNSETTLED_MAX

SENDER = 9
Drawn = list[tuple[int, bytes]]
PAYLOADS = st.lists(st.tuples(st.integers(0, 1_000), st.binary(max_size=20)), min_size=1, max_size=BATCH_LIMIT)


def messages_of(drawn: Drawn) -> list[AppMessage]:
    by_seq = sorted(dict(drawn).items())
    return [AppMessage(message_id(SENDER, seq), (1, 2), payload) for seq, payload in by_seq]


@given(PAYLOADS)
def test_what_is_packed_comes_out_again(drawn: Drawn) -> None:
    messages = messages_of(drawn)
    batch = pack(messages)
    assert (batch.id, batch.dst, batch.count) == (messages[0].id, (1, 2), len(messages))
    assert unpack(batch) == messages
    sizes = {len(message.payload) for message in messages}
    is_run = messages[-1].id - messages[0].id == len(messages) - 1
    assert common_size(batch) == (sizes.pop() if is_run and len(sizes) == 1 else None)
    assert count_messages([batch, messages[0]]) == len(messages) + 1
    assert id_bits(batch) == sum(1 << message.id - batch.id for message in messages)
    assert batch.count == 1 or problem_with_batch(batch, 20) is None


@given(st.lists(st.tuples(st.integers(0, 1 << 30), PAYLOADS), min_size=1, max_size=5, unique_by=lambda each: each[0]))
def test_timestamps_of_messages_rise_where_those_of_batches_do(
    drawn: list[tuple[int, Drawn]],
) -> None:
    delivered = [(pack(messages_of(some)), clock) for clock, some in sorted(drawn)]
    stamps = [ts for _, _, ts in unpack_deliveries(0, delivered, has_batches=True)]
    assert all(ts is not None for ts in stamps)
    assert stamps == sorted(set(stamps), key=lambda ts: ts or 0)


@given(st.lists(st.tuples(st.none() | st.integers(0, 1 << 30), PAYLOADS), max_size=5), st.integers(0, 1_000))
def test_the_messages_of_batches_are_delivered_one_by_one(drawn: list[tuple[int | None, Drawn]], first: int) -> None:
    delivered = [(pack(messages_of(some)), clock) for clock, some in drawn]
    expected = [
        (message, None if clock is None else clock * BATCH_LIMIT + index)
        for clock, some in drawn
        for index, message in enumerate(messages_of(some))
    ]
    unpacked = list(unpack_deliveries(first, delivered, has_batches=True))
    assert unpacked == [(position, message, ts) for position, (message, ts) in enumerate(expected, first)]
    in_runs = [
        (position + index, id_ + index, None if ts is None else ts + index)
        for position, id_, ts, count in delivery_runs(first, delivered, has_batches=True)
        for index in range(count)
    ]
    assert in_runs == [(position, message.id, ts) for position, message, ts in unpacked]


def test_a_batch_with_consecutive_ids_is_one_run() -> None:
    batch = pack(messages_of([(seq, b"x" * seq) for seq in range(5, 25)]))
    assert list(delivery_runs(3, [(batch, 7)], has_batches=True)) == [(3, batch.id, 7 * BATCH_LIMIT, 20)]


def test_without_batches_timestamps_are_the_protocol_s_own() -> None:
    message = AppMessage(message_id(SENDER, 3), (1,), b"x")
    assert list(unpack_deliveries(4, [(message, 7)], has_batches=False)) == [(4, message, 7)]
    assert list(delivery_runs(4, [(message, 7)], has_batches=False)) == [(4, message.id, 7, 1)]


def test_one_message_is_no_batch() -> None:
    message = AppMessage(message_id(SENDER, 3), (1,), b"x")
    assert pack([message]) is message
    assert unpack(message) == [message]


def batch_of(count: int, parts: object) -> AppMessage:
    return AppMessage(message_id(SENDER, 0), (1,), encode(parts), 0, count)


def numbers(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


@pytest.mark.parametrize(
    ("count", "parts", "problem"),
    [
        (0, Parts(b"", b"", b""), "a batch of 0 messages"),
        (-2, Parts(b"", b"", b""), "a batch of -2 messages"),
        (BATCH_LIMIT + 1, Parts(b"", b"", b""), f"2 to {BATCH_LIMIT} make one"),
        (2, ["no", "batch"], "not a batch of messages"),
        (2, Parts(b"", numbers(1), b"a"), "says it has 2 messages"),
        (2, Parts(numbers(0), numbers(1, 1), b"ab"), "says it has 2 messages"),
        (2, Parts(b"", numbers(1, 1)[:-1], b"ab"), "says it has 2 messages"),
        (2, Parts(numbers(1, 2), numbers(1, 1), b"ab"), "do not rise from its own"),
        (3, Parts(numbers(0, 2, 2), numbers(1, 1, 1), b"abc"), "do not rise from its own"),
        (2, Parts(b"", numbers(1, 2), b"ab"), "have 2 bytes, and say 3"),
        (2, Parts(b"", numbers(1, 11), b"a" * 12), "11 bytes is over the limit of 10"),
    ],
)
def test_what_is_no_batch_is_told_apart(count: int, parts: object, problem: str) -> None:
    assert problem in (problem_with_batch(batch_of(count, parts), 10) or "none")


@pytest.mark.parametrize("offsets", [b"", numbers(0, 1)])
def test_no_batch_reaches_into_the_ids_of_another_sender(offsets: bytes) -> None:
    parts = Parts(offsets, numbers(1, 1), b"ab")
    last = AppMessage(message_id(SENDER, SEQ_LIMIT - 2), (1,), encode(parts), SEQ_LIMIT - 2, 2)
    assert problem_with_batch(last, 10) is None
    beyond = AppMessage(message_id(SENDER, SEQ_LIMIT - 1), (1,), encode(parts), SEQ_LIMIT - 1, 2)
    assert "run into another sender's" in (problem_with_batch(beyond, 10) or "none")


def test_the_ids_of_a_batch_with_consecutive_ids_may_be_written_out() -> None:
    """A client that lies may pack in its own way."""
    assert id_bits(batch_of(3, Parts(numbers(0, 1, 2), numbers(1, 1, 1), b"abc"))) == 0b111
    bin16 = b"\x93\xc5\x00\x00" + encode(Parts(b"", numbers(1, 1, 1), b"abc"))[3:]
    assert id_bits(AppMessage(message_id(SENDER, 0), (1,), bin16, 0, 3)) == 0b111


@pytest.mark.parametrize("settled", [10, SEQ_LIMIT])
def test_the_ids_in_a_batch_are_near_to_each_other(settled: int) -> None:
    """A group remembers a bit for each number from what is settled up to the last id in a batch. A mark above the
    batch's own id counts as that id."""
    first, widest = 10, UNSETTLED_MAX - 1

    def with_last(offset: int) -> AppMessage:
        parts = Parts(numbers(0, offset), numbers(1, 1), b"ab")
        return AppMessage(message_id(SENDER, first), (1,), encode(parts), settled, 2)

    assert problem_with_batch(with_last(widest), 10) is None
    assert "reach too far" in (problem_with_batch(with_last(widest + 1), 10) or "none")
    assert "reach too far" in (problem_with_batch(replace(with_last(widest), settled=first - 1), 10) or "none")
