"""A peer's valid but false frame stops no real node of a Byzantine group: whatever a liar says, with its own key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from amcast.core import encode
from amcast.net.client.async_client import connect
from amcast.net.layout import layout_of
from amcast.net.node._reader_service import ReaderService
from amcast.net.node._refusals import Cause
from amcast.net.security.seal import Seal
from amcast.net.security.signing import Signer, load_signer
from amcast.net.wire.control import (
    MARK,
    MARK_BYTES,
    VERSION,
    AppDigestsQuery,
    AppStateQuery,
    DeliveriesQuery,
    Hello,
    Life,
    Member,
    Tell,
    Told,
)
from amcast.net.wire.dialer import Channel, dial
from amcast.net.wire.framing import frame
from tests.nonsense import FAR_NUMBERS, Falsehoods, Nonsense

from .clusters import Cluster, eventually, run, running
from .test_net_calls import registers

LIARS = ("g1.p3", "g2.p3")
FRAMES = 400
QUESTIONS = (DeliveriesQuery, AppStateQuery, AppDigestsQuery)


class Liar:
    """Speaks for a member that is down, with its key: to every other member of its cluster."""

    def __init__(self, cluster: Cluster, name: str, rng: Random) -> None:
        self.name, self.id = name, cluster.config.process_id(name)
        self.signer: Signer = load_signer(cluster.config, name)
        self._seal = Seal.of_process(cluster.config, name, self.signer)
        self._cluster, self._rng = cluster, rng
        self._boot = 99
        self._channels: dict[tuple[str, str], Channel] = {}

    async def channel_to(self, member: str, kind: str) -> Channel:
        channel = self._channels.get((member, kind))
        if channel is None or channel.transport is None:
            config = self._cluster.config
            self._boot += 1
            about = Member(config.id, layout_of(config), Life(0, self._boot, 1, 0)) if kind == "process" else None
            hello = Hello(VERSION, config.cluster, kind, self.name, about)
            address = config.addresses()[config.process_id(member)]
            channel = await dial(address, hello, None, member, lambda channel, message: None, self._seal)
            self._channels[member, kind] = channel
        return channel

    async def say(self, member: str, data: bytes, kind: str = "process") -> None:
        transport = (await self.channel_to(member, kind)).transport
        if transport is not None:
            transport.write(frame(data))

    async def until_refused(self, member: str, kind: str) -> None:
        await self._channels[member, kind].is_lost.wait()

    async def close(self) -> None:
        for channel in self._channels.values():
            channel.abort()
            await channel.is_lost.wait()


def word(rng: Random) -> bytes:
    """What processes say besides their protocol's messages: marks, and what applications tell each other."""
    nonsense = Nonsense(rng, [0, 1, 2], [b""])
    if rng.random() < 0.3:
        return bytes((MARK,)) + rng.randbytes(rng.choice((0, 1, MARK_BYTES - 1, 40)))
    return bytes((MARK, 1)) + msgspec.msgpack.encode(nonsense.draw(rng.choice((Told, Tell))))


def question(rng: Random) -> bytes:
    return msgspec.msgpack.encode(Nonsense(rng, FAR_NUMBERS, [b""]).draw(rng.choice(QUESTIONS)))


async def orders(cluster: Cluster) -> None:
    async with connect(cluster.config) as client:
        for groups in ("g1", "g2", ["g1", "g2"]):
            await client.multicast(groups, b"true", timeout=60)


@pytest.mark.parametrize("name", ["byzcast", "bft"])
@pytest.mark.parametrize("seed", range(2))
def test_false_frames_stop_no_node(name: str, seed: int, tmp_path: Path) -> None:
    rng = Random(f"{name} {seed}")

    async def test() -> None:
        async with running(tmp_path / "c", name, 2, machines=registers(2, 4)) as cluster:
            await orders(cluster)
            await cluster.stop(*LIARS)
            liars = [Liar(cluster, each, rng) for each in LIARS]
            topology: Any = cluster.servers["g1.p0"].node.topology
            falsehoods = Falsehoods(rng, cluster.config.spec(), topology, lying_client=1 << 24)
            for _ in range(FRAMES):
                liar, member = rng.choice(liars), rng.choice(list(cluster.servers))
                node = cluster.servers[member].node
                match rng.randrange(10):
                    case 0:
                        await liar.say(member, word(rng))
                    case 1 if member[:2] == liar.name[:2]:
                        await liar.say(member, question(rng), "reader")
                    case _:
                        said = falsehoods.draw(liar.id, node.id, node.process, liar.signer.sign)
                        await liar.say(member, encode(said))
                await asyncio.sleep(0)
            heard = {each: server.node.messages_in for each, server in cluster.servers.items()}
            assert min(heard.values()) > FRAMES // 20, "it was heard"
            await orders(cluster)
            for each in liars:
                await each.close()
            await eventually(lambda: agree(cluster), "all members have delivered the same")
            assert [each for each, server in cluster.servers.items() if server.failure.done()] == []

    run(test)


def test_a_question_that_nobody_foresaw_stops_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a bug")

    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster:
            await cluster.stop("g1.p3")
            liar = Liar(cluster, "g1.p3", Random(1))
            monkeypatch.setattr(ReaderService, "_deliveries", fail)
            await liar.say("g1.p0", msgspec.msgpack.encode(DeliveriesQuery(0)), "reader")
            await liar.until_refused("g1.p0", "reader")
            server = cluster.servers["g1.p0"]
            assert server.refusals.counts[Cause.FAILURE] == 1
            assert not server.failure.done()

    run(test)


def agree(cluster: Cluster) -> bool:
    groups: dict[int, set[int]] = {}
    for server in cluster.servers.values():
        groups.setdefault(server.node.group, set()).add(server.node.process.delivered)
    return all(len(delivered) == 1 for delivered in groups.values())
