"""Mutated frames by the million, handed to the connections of real nodes without a network in between.

A node closes a connection at the first bad frame, and a TLS connection costs a millisecond: over a network no more than
some thousand bad frames a second arrive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import uvloop

from amcast.core import AppMessage, encode
from amcast.core.ids import SEQ_BITS
from amcast.net.client.async_client import connect
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan
from amcast.net.node._refusals import Cause
from amcast.net.node.connection import Connection
from amcast.net.node.server import NodeServer
from amcast.net.wire.control import Attach, Detach, Follow, ResultsQuery, StatusQuery, Unfollow, Welcome
from amcast.net.wire.framing import frame
from amcast.protocols import PROTOCOLS, Start
from amcast.protocols.geopaxos import Operation

from ._cluster import peak_mb
from ._frames import mutated, with_nested
from ._judge import MEMORY_MAX_MB
from ._tools import hello_of

_KINDS = ("stranger", "client", "client", "observer")
_FRAMES_A_CALL = 50  # of a connection that nobody closes
_NESTED = 0.02
_DEPTHS = (3, 1_000, 1_100, 9_000)
_ANSWER_S = 60.0

_answers: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Welcome)


class Bombardment(msgspec.Struct, frozen=True):
    protocol: str
    frames: int
    closed: int  # connections, on a bad frame
    seconds: float
    memory_mb: float  # of all nodes together, and of the attacker: they are one process
    problems: list[str]

    @property
    def is_good(self) -> bool:
        return not self.problems and self.memory_mb < MEMORY_MAX_MB

    def to_json(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "good": self.is_good}


class _Transport(asyncio.Transport):
    """What a node writes is kept, and nothing is ever sent."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False
        self._port = port

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", self._port) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def bombard(folder: Path, protocol: str, frames: int, seed: int = 0) -> Bombardment:
    """A cluster of two groups, and so many frames at all its nodes, while a correct client sends."""
    logger = logging.getLogger("amcast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        return uvloop.run(_bombard(folder, protocol, frames, Random(f"bombardment {protocol} {seed}")))
    finally:
        logger.setLevel(level)


def _payload(protocol: str, text: str) -> bytes:
    """Of a correct client: where messages are operations on objects, nothing else is taken."""
    return encode(Operation((text,))) if PROTOCOLS[protocol].orders_operations else text.encode()


async def _bombard(folder: Path, protocol: str, frames: int, rng: Random) -> Bombardment:
    config = plan(folder, protocol, 2, None, durability=Durability.MEMORY)
    config = LocalCluster.create(folder, config).config
    servers = [NodeServer(config, entry.id) for entry in config.process]
    problems: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(str(context["message"])))
    begun = time.monotonic()
    attacker = _Attacker(servers, rng)
    try:
        await asyncio.gather(*(server.start() for server in servers))
        async with connect(config) as client:
            await client.multicast(["g1", "g2"], _payload(protocol, "before"), _ANSWER_S)
            while attacker.done["frames"] < frames:
                attacker.call()
                await asyncio.sleep(0)
                if attacker.done["calls"] % 1_000 == 0:
                    await client.multicast(["g1", "g2"], _payload(protocol, "meanwhile"), _ANSWER_S)
            await client.multicast(["g1", "g2"], _payload(protocol, "after"), _ANSWER_S)
    except TimeoutError as error:
        problems.append(f"a correct client waits: {error}")
    finally:
        for server in servers:
            problems += _problems_of(server)
        await asyncio.gather(*(server.stop() for server in servers))
    done = attacker.done
    return Bombardment(protocol, done["frames"], done["closed"], time.monotonic() - begun, peak_mb("self"), problems)


def _problems_of(server: NodeServer) -> list[str]:
    """A client's frame that nobody foresaw ends its connection alone, but it shows a decoder or a check that lacks."""
    found = []
    if server.failure.done() and server.failure.exception() is not None:
        found.append(f"{server.node.name} ended: {server.failure.exception()!r}")
    if unforeseen := server.refusals.counts[Cause.FAILURE]:
        found.append(f"{server.node.name} could not handle {unforeseen} frames")
    return found


class _Attacker:
    def __init__(self, servers: list[NodeServer], rng: Random) -> None:
        self._servers = servers
        self._rng = rng
        self._sessions: dict[NodeServer, Welcome] = {}  # ids are given out slowly: a session is taken up again
        self.done: Counter[str] = Counter()

    def call(self) -> None:
        """One connection to one node, until the node closes it."""
        server, rng = self._rng.choice(self._servers), self._rng
        self.done["calls"] += 1
        connection = server.admit(f"127.0.66.{1 + rng.randrange(200)}")
        if connection is None:
            return
        transport = _Transport(1_024 + self.done["calls"] % 60_000)
        connection.connection_made(transport)
        samples = self._enter(server, connection, transport, rng.choice(_KINDS))
        for _ in range(_FRAMES_A_CALL):
            if transport.is_closed:
                self.done["closed"] += 1
                break
            self._send(connection, self._bad(samples))
            self.done["frames"] += 1
        connection.connection_lost(None)

    def _enter(self, server: NodeServer, connection: Connection, transport: _Transport, kind: str) -> list[bytes]:
        """Says who it is. Returns what may be said next."""
        config = server.config
        if kind == "stranger":
            return [hello_of(config, each, "") for each in ("client", "observer", "process")]
        session = self._sessions.get(server)
        client, ticket = (0, b"") if session is None or kind != "client" else (session.client, session.ticket)
        self._send(connection, hello_of(config, kind, "", client, ticket))
        if transport.is_closed:
            self._sessions.pop(server, None)
            return []
        welcome: Welcome = _answers.decode(transport.written[4 : 4 + int.from_bytes(transport.written[:4], "big")])
        if kind == "client":
            self._sessions[server] = welcome
        return _requests(config.protocol, welcome, self._rng)

    def _bad(self, samples: list[bytes]) -> bytes:
        data = self._rng.choice(samples)
        if self._rng.random() < _NESTED:
            return with_nested(data, self._rng.choice(_DEPTHS), self._rng)
        return mutated(data, self._rng)

    def _send(self, connection: Connection, data: bytes) -> None:
        data = frame(data)
        while data:
            room = connection.get_buffer(len(data))
            part = data[: len(room)]
            room[: len(part)] = part
            connection.buffer_updated(len(part))
            data = data[len(part) :] if connection._transport is not None else b""


def _requests(protocol: str, session: Welcome, rng: Random) -> list[bytes]:
    """What clients say, and what only processes may."""
    messages = tuple(
        AppMessage(session.client << SEQ_BITS | rng.randrange(1_000), dst, b"y" * 20) for dst in ((1,), (2,), (1, 2))
    )
    others = (
        Attach(session.client, session.ticket),
        Detach(session.client),
        ResultsQuery((messages[0].id,)),
        Follow(1, 0),
        Unfollow(),
        StatusQuery(),
    )
    wires = (Start(messages), *PROTOCOLS[protocol].samples)
    return [*map(encode, wires), *map(msgspec.msgpack.encode, others)]
