"""The codec: what goes in comes out, and what is no message of the protocol is refused with one exception."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amcast.core import AppMessage, BadFrameError, Codec, Record, Wire, encode, message_id
from amcast.core.codec import FRAME_LIMIT


class Hello(Wire, frozen=True, tag="hello"):
    number: int
    messages: tuple[AppMessage, ...] = ()


class Bye(Wire, frozen=True, tag="bye"):
    counts: dict[int, int]


class Stranger(Wire, frozen=True, tag="stranger"):
    number: int


class Kept(Record, frozen=True, tag="kept"):
    number: int


CODEC = Codec(Hello | Bye, Kept)

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
APP_MESSAGES = st.builds(
    AppMessage,
    st.builds(message_id, st.integers(0, 1 << 20), st.integers(0, 1 << 20)),
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    st.binary(max_size=20),
    st.integers(0, 9),
)
MESSAGES = st.one_of(
    st.builds(Hello, NUMBERS, st.lists(APP_MESSAGES, max_size=3).map(tuple)),
    st.builds(Bye, st.dictionaries(NUMBERS, NUMBERS, max_size=3)),
)


def _tag(message: Wire) -> str:
    return str(message.__struct_config__.tag)


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message: Wire) -> None:
    decoded = CODEC.decode_message(encode(message))
    assert decoded == message
    assert type(decoded) is type(message)


@settings(max_examples=300, derandomize=True)
@given(st.binary(max_size=60))
def test_garbage_is_refused_or_is_a_message(data: bytes) -> None:
    for decode in (CODEC.decode_message, CODEC.decode_record):
        try:
            decoded = decode(data)
        except BadFrameError:
            continue
        assert isinstance(decoded, Hello | Bye | Kept)


@settings(max_examples=300, derandomize=True)
@given(MESSAGES, st.data())
def test_a_damaged_frame_is_refused_or_is_a_message(message: Wire, data: st.DataObject) -> None:
    frame = bytearray(encode(message))
    at = data.draw(st.integers(2 + len(_tag(message)), len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    try:
        decoded = CODEC.decode_message(bytes(frame))
    except BadFrameError:
        return
    assert isinstance(decoded, Hello | Bye)


@given(MESSAGES, st.data())
def test_a_frame_that_was_cut_off_is_refused(message: Wire, data: st.DataObject) -> None:
    frame = encode(message)
    with pytest.raises(BadFrameError):
        CODEC.decode_message(frame[: data.draw(st.integers(0, len(frame) - 1))])


def test_a_message_of_another_protocol_is_refused() -> None:
    with pytest.raises(BadFrameError, match="not a message of this protocol"):
        CODEC.decode_message(encode(Stranger(1)))


def test_messages_and_records_are_told_apart() -> None:
    assert CODEC.decode_record(encode(Kept(1))) == Kept(1)
    with pytest.raises(BadFrameError, match="not a record of this protocol"):
        CODEC.decode_record(encode(Hello(1)))
    with pytest.raises(BadFrameError, match="not a message of this protocol"):
        CODEC.decode_message(encode(Kept(1)))


def test_a_frame_over_the_limit_is_refused_before_it_is_decoded() -> None:
    fits = bytes(FRAME_LIMIT)
    with pytest.raises(BadFrameError, match="not a message"):
        CODEC.decode_message(fits)
    with pytest.raises(BadFrameError, match=f"over the limit of {FRAME_LIMIT}"):
        CODEC.decode_message(fits + b"x")


def test_a_deeply_nested_frame_is_refused() -> None:
    with pytest.raises(BadFrameError):
        CODEC.decode_message(b"\x91" * 200_000)
