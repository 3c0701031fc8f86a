"""Batches: what is packed comes out again, one by one, and what is no batch is recognised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amcast.core import BATCH_LIMIT, AppMessage, encode, message_id, pack, seq_of, unpack, unpack_delivery, unpack_ids
from amcast.core.batch import Parts, common_size, count_messages, problem_with_batch
from amcast.core.ids import SEQ_LIMIT

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
    assert list(unpack_ids(batch)) == [message.id for message in messages]
    sizes = {len(message.payload) for message in messages}
    is_run = messages[-1].id - messages[0].id == len(messages) - 1
    assert common_size(batch) == (sizes.pop() if is_run and len(sizes) == 1 else None)
    assert count_messages([batch, messages[0]]) == len(messages) + 1
    assert batch.count == 1 or problem_with_batch(batch, 20) is None


@given(st.lists(st.tuples(st.integers(0, 1 << 30), PAYLOADS), min_size=1, max_size=5, unique_by=lambda each: each[0]))
def test_timestamps_of_messages_rise_where_those_of_batches_do(
    drawn: list[tuple[int, Drawn]],
) -> None:
    stamps = [ts for clock, some in sorted(drawn) for _, ts in unpack_delivery(pack(messages_of(some)), clock)]
    assert all(ts is not None for ts in stamps)
    assert stamps == sorted(set(stamps), key=lambda ts: ts or 0)
    assert all(ts is None for _, ts in unpack_delivery(pack(messages_of(drawn[0][1])), None))


def test_one_message_is_no_batch() -> None:
    message = AppMessage(message_id(SENDER, 3), (1,), b"x")
    assert pack([message]) is message
    assert unpack(message) == [message]
    assert (list(unpack_ids(message)), seq_of(unpack_ids(message)[0])) == ([message.id], 3)


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
    last = AppMessage(message_id(SENDER, SEQ_LIMIT - 2), (1,), encode(parts), 0, 2)
    assert problem_with_batch(last, 10) is None
    beyond = AppMessage(message_id(SENDER, SEQ_LIMIT - 1), (1,), encode(parts), 0, 2)
    assert "run into another sender's" in (problem_with_batch(beyond, 10) or "none")
