"""What a link or a client's connection does with more than it can send."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from amcast.net.node import links
from amcast.net.node._gate import Gate
from amcast.net.node.links import Link
from amcast.net.wire.control import VERSION, Hello, Life, Lost
from amcast.net.wire.dialer import LostError
from amcast.net.wire.send_buffer import SendBuffer


class Pipe:
    """A transport whose other end reads when it is told to."""

    def __init__(self) -> None:
        self.waiting = 0
        self.written: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.waiting += len(data)


def buffer_to(pipe: Pipe, limit: int) -> SendBuffer:
    buffer = SendBuffer(limit, None)
    buffer.attach(cast(asyncio.Transport, pipe))
    return buffer


def test_frames_of_a_turn_leave_in_one_write() -> None:
    pipe = Pipe()
    buffer = buffer_to(pipe, 100)
    assert [buffer.add(data) for data in (b"a", b"b")] == [True, False]
    buffer.flush()
    buffer.flush()
    assert pipe.written == [b"ab"]


def test_what_a_slow_peer_has_no_room_for_is_dropped() -> None:
    pipe = Pipe()
    buffer = buffer_to(pipe, 100_000)
    for data in (bytes(60_000), bytes(50_000)):
        buffer.add(data)
        buffer.flush()
    assert (pipe.written, buffer.dropped) == ([bytes(60_000)], 1)
    pipe.waiting = 0
    buffer.add(bytes(50_000))
    buffer.flush()
    assert pipe.written[1:] == [bytes(50_000)]


def test_small_frames_find_room_where_large_ones_do_not() -> None:
    """Votes and heartbeats are what brings the rest on its way."""
    pipe = Pipe()
    buffer = buffer_to(pipe, 100_000)
    pipe.waiting = 90_000
    assert [buffer.add(data) for data in (bytes(20_000), b"vote", bytes(20_000), b"heartbeat")] == [
        False,
        True,
        False,
        False,
    ]
    buffer.flush()
    assert (pipe.written, buffer.dropped) == ([b"voteheartbeat"], 2)
    pipe.waiting = 200_000
    buffer.add(b"vote")
    buffer.flush()
    assert (pipe.written[1:], buffer.dropped) == ([], 3)


def test_a_frame_over_the_limit_leaves_when_little_else_waits() -> None:
    """Else it would be said again for ever, and never heard: a heartbeat leaves before the state of a large group."""
    pipe = Pipe()
    buffer = buffer_to(pipe, 100)
    pipe.waiting = 101
    assert not buffer.add(bytes(1_000))
    assert buffer.dropped == 1
    pipe.waiting = 0
    buffer.add(b"heartbeat")
    buffer.add(bytes(1_000))
    buffer.add(bytes(1_000))
    buffer.flush()
    assert (pipe.written, buffer.dropped) == ([b"heartbeat" + bytes(1_000)], 2)


def test_without_a_connection_everything_is_dropped() -> None:
    buffer = SendBuffer(100, None)
    assert not buffer.add(b"lost")
    assert buffer.dropped == 1


def test_what_is_owed_is_never_dropped_while_there_is_a_connection() -> None:
    """A chunk of deliveries that is dropped would be a gap for its follower, since the next chunk goes on after it."""
    pipe = Pipe()
    buffer = buffer_to(pipe, 10)
    for data in (b"a" * 30, b"b" * 30):
        assert buffer.add(data, is_owed=True)
        buffer.flush()
    assert not buffer.add(b"c" * 30)
    assert pipe.written == [b"a" * 30, b"b" * 30]
    buffer.attach(None)
    assert not buffer.add(b"d" * 30, is_owed=True)
    assert buffer.dropped == 2


@pytest.mark.parametrize(
    ("lost_needed", "expected"), [(1, [0.05, 0.05, 0.05, 0.05]), (2, [0.05, 0.1, 0.2, 0.4])], ids=["one", "two"]
)
def test_a_liar_that_always_says_lost_is_not_called_all_the_time(
    lost_needed: int, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def dial(*_: object, **__: object) -> None:
        raise LostError(Lost(Life(1, 1, 1, 1), "a lie"))

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == len(expected):
            raise asyncio.CancelledError

    async def test() -> None:
        gate = Gate(["g1.p1", "g1.p2"], 1, lost_needed)
        hello = Hello(VERSION, "c", "process", "g1.p0")
        link = Link("g1.p1", ("host", 1), lambda: hello, None, SendBuffer(100, None), gate, lambda news: None)
        with pytest.raises(asyncio.CancelledError):
            await link.run()

    monkeypatch.setattr(links, "dial", dial)
    monkeypatch.setattr(links.asyncio, "sleep", sleep)
    asyncio.run(test())
    assert waits == expected
