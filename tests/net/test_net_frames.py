"""Whatever comes over a socket: it is refused with a reason, and the node goes on as before."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import msgspec
import pytest

from amcast.consensus.multipaxos.messages import Accept, Accepted, CatchUp, Heartbeat, Learn, Promise, State
from amcast.core import AppMessage, BadFrameError, encode, message_id, pack
from amcast.net.client.async_client import connect
from amcast.net.layout import layout_of
from amcast.net.node._client_service import ClientService
from amcast.net.node._observer_service import ObserverService
from amcast.net.node._refusals import Cause
from amcast.net.security.keyring import Keyring
from amcast.net.wire.control import (
    VERSION,
    AppStateQuery,
    Attach,
    DeliveriesQuery,
    Detach,
    Follow,
    Hello,
    Life,
    Member,
    Refused,
    Start,
    StatusQuery,
    Unfollow,
    Welcome,
)
from amcast.net.wire.framing import FrameProtocol, frame
from amcast.protocols import Reply, protocol

from .clusters import Cluster, run, running

_answers: msgspec.msgpack.Decoder[Welcome | Refused] = msgspec.msgpack.Decoder(Welcome | Refused)


class Caller:
    """Somebody who says what he wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def dial(cls, cluster: Cluster, name: str = "g1.p0", tls: bool = False) -> AsyncIterator[Caller]:
        """With TLS it shows the certificate of the client that is called client."""
        host, port = cluster.config.addresses()[cluster.config.process_id(name)]
        context = Keyring(cluster.config.path("certs"), "client").client if tls else None
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    def end(self) -> None:
        self._writer.write_eof()

    async def hear(self) -> bytes:
        """One frame; empty when the other side has closed."""
        try:
            head = await self._reader.readexactly(4)
            return await self._reader.readexactly(int.from_bytes(head, "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def reason(self) -> str:
        """Why it was closed: the last thing that was said."""
        last = b""
        while data := await self.hear():
            last = data
        refused = _answers.decode(last)
        assert isinstance(refused, Refused)
        return refused.reason


def client_hello(**changes: object) -> Hello:
    return msgspec.structs.replace(Hello(VERSION, "", "client", "x"), **changes)


def peer_hello(cluster: Cluster, boot: int) -> Hello:
    """Of g1.p1, at its boot of this number."""
    member = Member(cluster.config.id, layout_of(cluster.config), Life(0, boot, 1, 0))
    return Hello(VERSION, cluster.config.cluster, "process", "g1.p1", member)


def framed(message: msgspec.Struct) -> bytes:
    return frame(msgspec.msgpack.encode(message))


async def welcome(caller: Caller, hello: Hello) -> Welcome:
    caller.say(framed(hello))
    answer = _answers.decode(await caller.hear())
    assert isinstance(answer, Welcome), answer
    return answer


# -- frames


class Collecting(FrameProtocol):
    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.frames: list[bytes] = []
        self.refused: list[str] = []
        self._on_frame = lambda view: self.frames.append(bytes(view))

    def refuse(self, reason: str) -> None:
        self.refused.append(reason)

    def feed(self, data: bytes) -> None:
        while data:
            room = self.get_buffer(-1)
            assert len(room) > 0
            part, data = data[: len(room)], data[len(room) :]
            room[: len(part)] = part
            self.buffer_updated(len(part))


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_as_they_went_in_however_they_are_cut(seed: int) -> None:
    rng = Random(seed)
    sizes = [rng.choice([0, 1, 3, 200, 70_000, 262_140, 262_144, 900_000]) for _ in range(30)]
    frames = [rng.randbytes(size) for size in sizes]
    stream = b"".join(frame(each) for each in frames)
    reader = Collecting(1 << 20)
    while stream:
        cut = rng.choice([1, 2, 5, 1_000, 65_536, 1 << 20])
        reader.feed(stream[:cut])
        stream = stream[cut:]
    assert reader.frames == frames
    assert not reader.refused


@pytest.mark.parametrize("seed", range(20))
def test_frames_wait_and_come_out_later_as_they_went_in(seed: int) -> None:
    rng = Random(seed)
    frames = [rng.randbytes(rng.choice([0, 10, 70_000])) for _ in range(rng.randint(1, 30))]
    data = b"".join(map(frame, frames))
    protocol = Collecting(1 << 20)

    def take(view: memoryview) -> None:
        protocol.frames.append(bytes(view))
        protocol._is_waiting = rng.random() < 0.5

    protocol._on_frame = take
    while data:
        size = rng.randint(1, 100_000)
        protocol.feed(data[:size])
        data = data[size:]
        if rng.random() < 0.3:
            protocol._go_on()
    for _ in frames:
        protocol._go_on()
    assert protocol.frames == frames


def test_a_frame_over_the_limit_is_refused_at_its_length() -> None:
    reader = Collecting(1_000)
    reader.feed(frame(bytes(1_000)) + (1_001).to_bytes(4, "big"))
    assert len(reader.frames) == 1
    assert reader.refused == ["a frame of 1001 bytes is over the limit of 1000"]


# -- strangers


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "over the limit of 61440"),
        (frame(b"\xc1"), "the first frame is no HELLO"),
        (framed(StatusQuery()), "the first frame is no HELLO"),
        (framed(client_hello(version=7)), "version 7 of the protocol is not spoken here"),
        (framed(client_hello(kind="ghost")), "neither a process nor a client"),
        (framed(client_hello(cluster="other")), "not 'other'"),
        (framed(client_hello(client=5, ticket=b"forged")), "the ticket does not prove this client id"),
        (framed(Hello(VERSION, "c", "process", "g7.p7")), "no other process of this cluster is called 'g7.p7'"),
        (framed(Hello(VERSION, "c", "process", "g1.p0")), "no other process of this cluster is called 'g1.p0'"),
    ],
)
def test_a_stranger_is_told_why(first: bytes, reason: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster, Caller.dial(cluster) as caller:
            caller.say(first)
            assert reason in await caller.reason()

    run(test)


@pytest.mark.parametrize(
    ("protocol_name", "count", "reason"),
    [
        ("fastcast", 2, "not a batch of messages"),
        ("fastcast", 0, "a batch of 0 messages"),
        ("sequencer", 2, "no client sends START in sequencer"),
    ],
)
def test_what_is_no_batch_is_refused(protocol_name: str, count: int, reason: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", protocol_name, groups=1) as cluster, Caller.dial(cluster) as caller:
            me = (await welcome(caller, client_hello())).client
            caller.say(framed(Start((AppMessage(message_id(me, 0), (1,), b"", 0, count),))))
            assert reason in await caller.reason()

    run(test)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (b"\x00\x00\x00\x02hi", "not a request"),
        (framed(Reply((1,), (1,))), "not a request"),
        (b"\xff\xff\xff\xff", "over the limit of"),
        (framed(Start((AppMessage(message_id(1, 0), (1,), b""),))), "another sender's id"),
        (framed(Follow(2, 0)), "is no member of g2"),
        (framed(Follow(1, -1)), "positions start at 0"),
    ],
)
def test_a_client_that_breaks_the_rules_is_told_which(request_: bytes, reason: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster, Caller.dial(cluster) as caller:
            await welcome(caller, client_hello())
            caller.say(request_)
            assert reason in await caller.reason()

    run(test)


@pytest.mark.parametrize(
    ("dst", "size", "reason"),
    [
        ((), 0, "not a sorted list"),
        ((2, 1), 0, "not a sorted list"),
        ((1, 1), 0, "not a sorted list"),
        ((3,), 0, "there is no group g3"),
        ((1,), (1 << 20) + 1, "over the limit of 1048576"),
    ],
)
def test_messages_that_nobody_may_send(dst: tuple[int, ...], size: int, reason: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c") as cluster, Caller.dial(cluster) as caller:
            me = (await welcome(caller, client_hello())).client
            caller.say(framed(Start((AppMessage(message_id(me, 0), dst, bytes(size)),))))
            assert reason in await caller.reason()
            assert cluster.servers["g1.p0"].node.admission.open_messages == 0

    run(test)


def test_a_second_copy_of_a_process_is_turned_away_and_a_restarted_one_is_not(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1) as cluster,
            Caller.dial(cluster) as newer,
            Caller.dial(cluster) as older,
            Caller.dial(cluster) as newest,
        ):
            await welcome(newer, peer_hello(cluster, 99))
            older.say(framed(peer_hello(cluster, 98)))
            assert "a newer start of g1.p1 is connected already" in await older.reason()
            await welcome(newest, peer_hello(cluster, 100))
            assert await newer.hear() == b""  # closed in its favour

    run(test)


# -- frames that nobody expects


def with_nested(data: bytes, depth: int) -> bytes:
    """A message with one more element: an array in an array in an array... Decoders that skip it go as deep."""
    assert 0x90 <= data[0] < 0x9F, "an array of a few elements"
    return bytes((data[0] + 1,)) + data[1:] + b"\x91" * depth + b"\xc0"


def hello_of(role: str, cluster: Cluster) -> Hello:
    match role:
        case "process":
            return peer_hello(cluster, 99)
        case "reader":
            return Hello(VERSION, cluster.config.cluster, "reader", "g1.p1")
    return client_hello(kind=role)


@pytest.mark.parametrize("depth", [1_100, 50_000])
@pytest.mark.parametrize("role", ["client", "observer", "reader", "process"])
def test_a_nested_frame_ends_its_connection_and_nothing_else(role: str, depth: int, tmp_path: Path) -> None:
    requests = {
        "client": Attach(1, b""),
        "observer": Follow(1, 0),
        "reader": DeliveriesQuery(0),
        "process": Heartbeat(1, 0, 5, 2),
    }

    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            await cluster.stop("g1.p1")  # somebody else speaks in its name
            hello = hello_of(role, cluster)
            async with Caller.dial(cluster) as caller:
                caller.say(frame(with_nested(msgspec.msgpack.encode(hello), depth)))
                assert "the first frame is no HELLO" in await caller.reason()
            async with Caller.dial(cluster) as caller:
                await welcome(caller, hello)
                caller.say(frame(with_nested(encode(requests[role]), depth)))
                assert "not a" in await caller.reason()
            assert not any(server.failure.done() for server in cluster.servers.values())

    run(test)


def test_what_nobody_foresaw_ends_a_clients_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(ClientService, "_on_attach", fail)
    monkeypatch.setattr(ObserverService, "take", fail)

    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            for role, request_ in (("client", Attach(1, b"")), ("observer", StatusQuery())):
                for _ in range(50):
                    async with Caller.dial(cluster) as caller:
                        await welcome(caller, hello_of(role, cluster))
                        caller.say(framed(request_))
                        assert await caller.reason() == "this frame can't be handled: ValueError"
            server = cluster.servers["g1.p0"]
            assert server.refusals.counts[Cause.FAILURE] == 100
            assert not server.failure.done()

    run(test)
    lines = [record for record in caplog.records if "can't be handled" in record.getMessage()]
    assert 1 <= len(lines) < 100, "the log does not grow with each of them"


# -- fuzz


def mutate(rng: Random, data: bytes) -> bytes:
    data_ = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not data_:
            break
        where = rng.randrange(len(data_))
        match rng.randrange(4):
            case 0:
                data_[where] = rng.randrange(256)
            case 1:
                del data_[where:]
            case 2:
                data_[where:where] = rng.randbytes(rng.randint(1, 8))
            case 3:
                data_[where:] = data_[where:] * 2
    return bytes(data_)


def samples(me: int) -> list[bytes]:
    """Real frames of clients and peers, to be spoilt."""
    message = AppMessage(message_id(me, 3), (1, 2), b"payload")
    start = Start((message, pack([message, AppMessage(message_id(me, 5), (1, 2), b"more")])))
    wires = [
        start,
        Accept(1, 0, 5, encode([start])),
        Accepted(1, 0, 5),
        Heartbeat(1, 0, 5, 2),
        Learn(1, 0, (b"\x90",)),
        CatchUp(1, 0),
        Promise(1, 0, 0, 0, ()),
        State(1, 0, {}, b""),
    ]
    requests = (
        Follow(1, 0),
        Unfollow(),
        StatusQuery(),
        Attach(me, bytes(32)),
        Detach(me),
        DeliveriesQuery(0),
        AppStateQuery(0),
        client_hello(),
        Hello(VERSION, "c", "reader", "g1.p1"),
    )
    return [*(encode(wire) for wire in wires), *(msgspec.msgpack.encode(request) for request in requests)]


def spoilt(rng: Random, pool: list[bytes]) -> bytes:
    if rng.random() < 0.1:
        data = rng.choice(pool)
        return with_nested(data, rng.choice((3, 1_100, 9_000))) if 0x90 <= data[0] < 0x9F else data
    return mutate(rng, rng.choice(pool)) if rng.random() < 0.7 else rng.randbytes(rng.randint(0, 64))


def spoilt_for_good(rng: Random, pool: list[bytes]) -> bytes:
    """What a process says that can be understood is believed, since it showed who it is: no lies here, only noise."""
    codec = protocol("fastcast").codec()
    while True:
        data = spoilt(rng, pool)
        try:
            codec.decode_message(data)
        except BadFrameError:
            return data


async def bombard(cluster: Cluster, seed: int, frames: int) -> int:
    """Random and mutated frames of a stranger, and of all who may connect. How many connections were closed on it."""
    rng = Random(seed)
    closed = 0
    sent = 0
    while sent < frames:
        async with Caller.dial(cluster) as caller:
            role = rng.choice(("stranger", "client", "observer", "reader", "process"))
            me = 0
            if role == "process":
                await welcome(caller, peer_hello(cluster, 10_000 * (seed + 1) + sent))
            elif role != "stranger":
                me = (await welcome(caller, hello_of(role, cluster))).client
            batch = rng.randint(1, 40)
            pool = samples(me)
            spoil = spoilt_for_good if role == "process" else spoilt
            data = b"".join(frame(spoil(rng, pool)) for _ in range(batch))
            caller.say(mutate(rng, data) if role != "process" and rng.random() < 0.2 else data)
            sent += batch
            caller.end()
            async with asyncio.timeout(30):
                while data := await caller.hear():
                    closed += b"refused" in data
    return closed


@pytest.mark.parametrize("seed", range(2))
def test_a_node_survives_frames_at_random(seed: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c") as cluster:
            async with connect(cluster.config) as client:
                await client.multicast(["g1", "g2"], b"before")
                await cluster.stop("g1.p1")  # somebody else speaks in its name
                await bombard(cluster, seed, 500)
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                assert await bombard(cluster, seed + 100, 4_000) > 0
                assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 64 * 1024
                await client.multicast(["g1", "g2"], b"after", timeout=60)
            assert all(not server.failure.done() for server in cluster.servers.values())

    run(test)
