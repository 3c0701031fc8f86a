"""Where members may lie and there is no TLS: both ends of a connection prove who they are, and whose its bytes are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from amcast.net.client.async_client import connect
from amcast.net.layout import layout_of
from amcast.net.node._refusals import Cause
from amcast.net.security.seal import AcceptedHandshake, DialledHandshake, Opening, Seal, Tagger
from amcast.net.security.signing import ClientKey, Signer
from amcast.net.security.tls import PeerError
from amcast.net.wire.control import VERSION, Hello, Life, Member
from amcast.net.wire.dialer import Channel, RefusedError, dial
from amcast.net.wire.framing import FrameProtocol, frame
from amcast.net.wire.sealed import SealedProtocol

from .clusters import Cluster, eventually, run, running
from .test_net_frames import Caller, framed

NAMES = ("g1.p0", "g1.p1", "g1.p2", "g2.p0")
PRIVATE = {name: Ed25519PrivateKey.generate() for name in NAMES}
KEYS = {name: key.public_key().public_bytes_raw() for name, key in PRIVATE.items()}
LARGE = 100_000  # bytes: several records


def seal_of(name: str, cluster_id: str = "c1", key: Ed25519PrivateKey | None = None) -> Seal:
    return Seal("c", cluster_id, "process", name, KEYS, Signer(cluster_id, key or PRIVATE[name]))


def client_seal(name: str = "alice") -> Seal:
    return Seal("c", "c1", "client", name, KEYS, None)


def encoded(message: msgspec.Struct | None) -> memoryview:
    assert message is not None
    return memoryview(msgspec.msgpack.encode(message))


def shake(dialled: DialledHandshake, accepted: AcceptedHandshake) -> None:
    accepted.take(encoded(dialled.take(encoded(accepted.take(encoded(dialled.begin()))))))


# -- the handshake


def test_both_sides_know_who_the_other_one_is() -> None:
    dialled, accepted = seal_of("g1.p0").dial("g1.p1"), seal_of("g1.p1").accept()
    shake(dialled, accepted)
    assert dialled.session is not None
    assert accepted.session is not None
    assert (str(dialled.session.peer), str(accepted.session.peer)) == ("process g1.p1", "process g1.p0")
    assert dialled.session.number == accepted.session.number
    said = memoryview(b"said")
    assert accepted.session.hears.is_next(dialled.session.sends.tag(said), said)
    assert dialled.session.hears.is_next(accepted.session.sends.tag(said), said)


def test_no_two_connections_are_alike() -> None:
    first, second = seal_of("g1.p0").dial(None), seal_of("g1.p0").dial(None)
    shake(first, seal_of("g1.p1").accept())
    shake(second, seal_of("g1.p1").accept())
    assert first.session is not None
    assert second.session is not None
    assert first.session.number != second.session.number
    assert first.session.sends.tag(b"x") != second.session.sends.tag(b"x")


def test_a_client_says_its_name_and_learns_whom_it_has_reached() -> None:
    dialled, accepted = client_seal().dial(None), seal_of("g1.p1").accept()
    shake(dialled, accepted)
    assert dialled.session is not None
    assert accepted.session is not None
    assert (str(dialled.session.peer), str(accepted.session.peer)) == ("process g1.p1", "client alice")


STRANGER = Ed25519PrivateKey.generate()


@pytest.mark.parametrize(
    ("dialler", "answerer"),
    [
        pytest.param(seal_of("g1.p0"), seal_of("g1.p1", key=STRANGER), id="it answers without the key"),
        pytest.param(seal_of("g1.p0", key=STRANGER), seal_of("g1.p1"), id="it dials without the key"),
        pytest.param(seal_of("g1.p0"), seal_of("g1.p2"), id="another process answers"),
        pytest.param(seal_of("g1.p0"), seal_of("g1.p1", "c2"), id="another cluster"),
        pytest.param(seal_of("g1.p1"), seal_of("g1.p1"), id="its own handshake comes back"),
        pytest.param(
            Seal("c", "c1", "process", "g9.p9", KEYS, Signer("c1", STRANGER)), seal_of("g1.p1"), id="nobody knows it"
        ),
        pytest.param(Seal("c", "c1", "process", "g1.p0", KEYS, None), seal_of("g1.p1"), id="a client as a process"),
    ],
)
def test_whoever_is_somebody_else_is_refused(dialler: Seal, answerer: Seal) -> None:
    dialled, accepted = dialler.dial("g1.p1"), answerer.accept()
    with pytest.raises(PeerError):
        shake(dialled, accepted)
    assert accepted.session is None


def test_a_handshake_that_was_overheard_opens_no_other_connection() -> None:
    dialled, accepted, later = seal_of("g1.p0").dial("g1.p1"), seal_of("g1.p1").accept(), seal_of("g1.p1").accept()
    opening = encoded(dialled.begin())
    closing = encoded(dialled.take(encoded(accepted.take(opening))))
    later.take(opening)
    with pytest.raises(PeerError, match=r"does not prove that it is g1\.p0"):
        later.take(closing)
    again = seal_of("g1.p0").dial("g1.p1")
    with pytest.raises(PeerError, match=r"does not prove that it is g1\.p1"):
        again.take(encoded(seal_of("g1.p1").answer(dialled.begin(), bytes(range(32)))))


def test_nobody_between_can_put_in_keys_of_his_own() -> None:
    """He would know both secrets."""
    his = encoded(seal_of("g1.p0", key=STRANGER).dial(None).begin())
    dialled, accepted = seal_of("g1.p0").dial("g1.p1"), seal_of("g1.p1").accept()
    with pytest.raises(PeerError):
        dialled.take(encoded(accepted.take(his)))


def test_the_proof_of_who_answers_does_not_serve_whoever_dials() -> None:
    """Two processes dial each other: what one says as it answers is no use for whoever poses as it and dials."""
    accepted = seal_of("g1.p1").accept()
    opening = Opening("process", "g1.p0", seal_of("g1.p0").dial(None).begin().once)
    answer = accepted.take(encoded(opening))
    assert answer is not None
    as_answer = seal_of("g1.p0").answer(opening, answer.once)
    with pytest.raises(PeerError):
        accepted.take(memoryview(msgspec.msgpack.encode(("sealed", as_answer.proof))))


@pytest.mark.parametrize("once", [bytes(32), b"\1" + bytes(31), b"", bytes(31), bytes(33)])
def test_a_one_time_key_that_is_none_is_refused(once: bytes) -> None:
    with pytest.raises(PeerError, match="one-time key"):
        seal_of("g1.p1").accept().take(encoded(Opening("client", "x", once)))


def test_a_tag_is_good_in_one_place_for_one_content() -> None:
    sends = Tagger(bytes(32))
    first, second = sends.tag(b"said"), sends.tag(b"said")
    assert first != second
    assert Tagger(bytes(32)).is_next(first, memoryview(b"said"))
    assert not Tagger(bytes(32)).is_next(second, memoryview(b"said"))
    for altered in (b"", b"sai", b"said\0", b"saie"):
        assert not Tagger(bytes(32)).is_next(first, memoryview(altered))
    for tag in (b"", first[:12], bytes(16), first + b"\0"):
        assert not Tagger(bytes(32)).is_next(tag, memoryview(b"said"))


def test_secrets_are_not_shown() -> None:
    dialled = seal_of("g1.p0").dial(None)
    shake(dialled, seal_of("g1.p1").accept())
    assert repr(dialled.session) == "Session(process g1.p1)"
    assert repr(seal_of("g1.p0")) == "Seal(process g1.p0)"


# -- records, with somebody in between

Tamper = Callable[[list[bytes], list[bytes]], list[bytes]]  # of frames, and those of the other direction


class Line(asyncio.Transport):
    """Keeps what is written as frames, until somebody carries it to the other side."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def take(self) -> list[bytes]:
        frames, data = [], self.written
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            frames.append(data[:size])
            data = data[size:]
        self.written = b""
        return frames


class End(FrameProtocol):
    """One end: what it hears, and why it ended."""

    def __init__(self, handshake: Any) -> None:
        super().__init__(10 * LARGE)
        self.heard: list[bytes] = []
        self.problems: list[str] = []
        self.line = Line()
        self.below = SealedProtocol(self, handshake, lambda session: None, self._on_problem)
        self.below.connection_made(self.line)
        self._on_frame = lambda data: self.heard.append(bytes(data))

    def _on_problem(self, error: PeerError, data: bytes) -> None:
        self.problems.append(str(error))
        self.line.close()

    def say(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame(data))

    def feed(self, frames: list[bytes], rng: Random) -> None:
        """In pieces of any size, as a socket has them."""
        data = b"".join(frames)
        while data and not self.line.is_closed:
            room = self.below.get_buffer(-1)
            size = min(len(data), len(room), rng.choice((1, 7, 1_000, LARGE)))
            room[:size] = data[:size]
            self.below.buffer_updated(size)
            data = data[size:]


def sealed_pair(rng: Random) -> tuple[End, End]:
    dialling, answering = End(seal_of("g1.p0").dial("g1.p1")), End(seal_of("g1.p1").accept())
    for there, back in ((dialling, answering), (answering, dialling), (dialling, answering)):
        back.feed(there.line.take(), rng)
    return dialling, answering


def flip(frames: list[bytes], place: int, bit: int) -> list[bytes]:
    data = bytearray(b"".join(frames))
    data[place % len(data)] ^= 1 << bit
    return [bytes(data)]


TAMPERS: dict[str, Tamper] = {
    "flips a bit of a tag": lambda frames, _: [*flip(frames[:1], 5, 0), *frames[1:]],
    "flips a bit of data": lambda frames, _: [*flip(frames[:1], -1, 3), *frames[1:]],
    "makes a record longer": lambda frames, _: [*flip(frames[:1], 3, 0), *frames[1:]],
    "makes a record very long": lambda frames, _: [*flip(frames[:1], 0, 7), *frames[1:]],
    "makes a record shorter": lambda frames, _: [frame(frames[0][4:-1]), *frames[1:]],
    "repeats": lambda frames, _: [frames[0], *frames],
    "leaves out": lambda frames, _: frames[1:],
    "swaps": lambda frames, _: [frames[1], frames[0], *frames[2:]],
    "repeats later": lambda frames, _: [*frames[:-1], frames[0], frames[-1]],
    "adds plain text": lambda frames, _: [frame(b"mine"), *frames],
    "adds a record": lambda frames, _: [frame(bytes(16) + frame(b"mine")), *frames],
    "adds nothing": lambda frames, _: [frame(b""), *frames],
    "sends back": lambda frames, others: [others[0], *frames],
}


@pytest.mark.parametrize("name", TAMPERS)
@pytest.mark.parametrize("dials", [True, False], ids=["to who answers", "to who dials"])
def test_what_is_tampered_with_on_its_way_is_not_heard(name: str, dials: bool) -> None:
    rng = Random(name)
    dialling, answering = sealed_pair(rng)
    sender, receiver = (dialling, answering) if dials else (answering, dialling)
    said = [b"said %d" % number for number in range(5)]
    for each in said:
        sender.say(each)
        receiver.say(b"said back")
    receiver.feed(TAMPERS[name](sender.line.take(), receiver.line.take()), rng)
    assert receiver.heard == said[: len(receiver.heard)]
    assert len(receiver.heard) < len(said)
    assert receiver.problems == ["what comes from there was altered, repeated, left out or added on its way"]


def test_what_nobody_tampers_with_is_heard() -> None:
    rng = Random(1)
    dialling, answering = sealed_pair(rng)
    for size in (0, 1, 100, 32 << 10, (32 << 10) + 1, LARGE, 3):
        for sender, receiver in ((dialling, answering), (answering, dialling)):
            sender.say(rng.randbytes(size) or b"-")
            before = len(receiver.heard)
            frames = sender.line.take()
            receiver.feed(frames, rng)
            assert len(receiver.heard) == before + 1
            assert len(receiver.heard[-1]) == (size or 1)
            assert len(frames) == -(-(4 + (size or 1)) // (32 << 10))
    assert not dialling.problems
    assert not answering.problems


@pytest.mark.parametrize("seed", range(300))
def test_whatever_is_done_to_bytes_what_is_heard_was_said_in_this_order(seed: int) -> None:
    rng = Random(seed)
    dialling, answering = sealed_pair(rng)
    said = [rng.randbytes(rng.choice((1, 20, 1_000, LARGE))) for _ in range(6)]
    for each in said:
        dialling.say(each)
    frames = dialling.line.take()
    data = bytearray(b"".join(frames))
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[place] ^= rng.randrange(1, 256)
            case 1:
                del data[place : place + rng.choice((1, 20, 40))]
            case 2:
                data[place:place] = rng.randbytes(rng.choice((1, 20, 40)))
            case _:
                part = rng.choice(frames)
                data[place:place] = part
    answering.feed([bytes(data)], rng)
    assert answering.heard == said[: len(answering.heard)]
    assert len(answering.heard) < len(said)


# -- on a cluster


def refusals(cluster: Cluster, name: str) -> int:
    return cluster.servers[name].refusals.counts[Cause.HANDSHAKE]


def process_hello(cluster: Cluster, name: str) -> Hello:
    member = Member(cluster.config.id, layout_of(cluster.config), Life(0, 99, 1, 0))
    return Hello(VERSION, cluster.config.cluster, "process", name, member)


def test_a_hello_without_a_proof_is_not_acted_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster:
            server = cluster.servers["g1.p0"]
            peers = dict(server.peers)
            for hello in (
                process_hello(cluster, "g1.p1"),
                Hello(VERSION, cluster.config.cluster, "reader", "g1.p1"),
                Hello(VERSION, cluster.config.cluster, "observer", "x"),
            ):
                async with Caller.dial(cluster) as caller:
                    caller.say(framed(hello))
                    assert "prove who they are" in await caller.reason()
            assert server.peers == peers
            known = server.witnesses.known("g1.p1")
            assert known is not None
            assert known.boot < 99

    run(test)


def test_whoever_proves_nothing_can_not_say_that_he_is_a_process(tmp_path: Path) -> None:
    """A client needs no key for the handshake. It is then a client for the whole connection."""

    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster:
            address = cluster.config.addresses()[0]
            seal = Seal.of_client(cluster.config, "mallory")
            for hello in (
                process_hello(cluster, "g1.p1"),
                Hello(VERSION, cluster.config.cluster, "reader", "g1.p1"),
                Hello(VERSION, cluster.config.cluster, "observer", "alice"),
            ):
                with pytest.raises(RefusedError, match="this connection is one of client mallory"):
                    await dial(address, hello, None, "g1.p0", seal=seal)
            known = cluster.servers["g1.p0"].witnesses.known("g1.p1")
            assert known is not None
            assert known.boot < 99

    run(test)


def test_a_client_notices_that_another_process_answers(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster:
            seal, hello = Seal.of_client(cluster.config, "x"), Hello(VERSION, cluster.config.cluster, "observer", "x")
            (await dial(cluster.config.addresses()[0], hello, None, "g1.p0", seal=seal)).abort()
            with pytest.raises(PeerError, match=r"it says that it is g1\.p1, and not g1\.p0"):
                await dial(cluster.config.addresses()[1], hello, None, "g1.p0", seal=seal)

    run(test)


def test_a_ticket_that_was_overheard_is_of_no_use(tmp_path: Path) -> None:
    """It proves the id on one connection. Nothing is hidden on it, so that anybody may have read the ticket."""

    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster:
            key, cluster_name = ClientKey(cluster.config.id), cluster.config.cluster
            id_ = key.new_id()
            overheard: list[bytes] = []

            def hello(session: bytes) -> Hello:
                overheard.append(key.ticket(id_, "g1.p0", "alice", session))
                return Hello(VERSION, cluster_name, "client", "alice", None, "", id_, overheard[0])

            async def call() -> Channel:
                seal = Seal.of_client(cluster.config, "alice")
                return await dial(cluster.config.addresses()[0], hello, None, "g1.p0", seal=seal)

            alice = await call()
            with pytest.raises(RefusedError, match="the ticket does not prove this client id"):
                await call()
            assert alice.transport is not None
            alice.abort()

    run(test)


@asynccontextmanager
async def altering(target: tuple[str, int]) -> AsyncIterator[tuple[int, list[int]]]:
    """Somebody between a client and a process: flips a bit of all that comes after the first hundred bytes or so."""
    altered: list[int] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, clean: int) -> None:
        with suppress(OSError):
            while data := bytearray(await reader.read(1 << 16)):
                if clean < len(data):
                    data[-1] ^= 1
                    altered.append(len(data))
                clean -= len(data)
                writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*target)
        ways = [asyncio.create_task(pump(reader, back, 1 << 30)), asyncio.create_task(pump(there, writer, 250))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, back):
            each.transport.abort()
        await asyncio.gather(*ways)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], altered
    finally:
        server.close()


def test_answers_that_were_altered_on_their_way_are_not_believed(tmp_path: Path) -> None:
    """One member is reached through somebody who alters what it says: the others suffice, as if it were silent."""

    async def test() -> None:
        async with (
            running(tmp_path / "c", "byzcast", 1) as cluster,
            altering(cluster.config.addresses()[0]) as (port, altered),
        ):
            first = msgspec.structs.replace(cluster.config.process[0], address=f"127.0.0.1:{port}")
            config = msgspec.structs.replace(cluster.config, process=[first, *cluster.config.process[1:]])
            async with connect(config) as client:
                for number in range(20):
                    await client.multicast("g1", b"%d" % number, timeout=60)
                await eventually(lambda: bool(altered), "it was altered")
                assert 0 not in client._trunk._channels or client._trunk._channels[0].transport is None

    run(test)


def test_a_process_with_another_key_is_left_alone_by_all(tmp_path: Path) -> None:
    """Somebody runs a process under the name of one that is down, without its key."""

    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster:
            await cluster.stop("g1.p3")
            server = cluster.servers["g1.p0"]
            await eventually(lambda: 3 not in server.peers, "it has left")
            seal = Seal.of_process(cluster.config, "g1.p3", Signer(cluster.config.id, STRANGER))
            with pytest.raises(RefusedError, match=r"does not prove that it is g1\.p3"):
                await dial(cluster.config.addresses()[0], process_hello(cluster, "g1.p3"), None, "g1.p0", seal=seal)
            assert 3 not in server.peers
            assert refusals(cluster, "g1.p0") > 0

    run(test)


def test_with_tls_there_is_no_seal(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1, tls=True) as cluster:
            assert all(server.security.seal is None for server in cluster.servers.values())
            async with connect(cluster.config) as client:
                await client.multicast("g1", b"x")
                assert client._trunk._channels[0].session == b""

    run(test)


def test_protocols_that_believe_members_have_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "fastcast", 1) as cluster:
            assert all(server.security.seal is None for server in cluster.servers.values())

    run(test)
