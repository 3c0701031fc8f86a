"""What attackers share: what they know of the cluster, and connections that need not keep to any rule."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TextIO

import msgspec

from amcast.core import AppMessage, ProcessId, Topology, encode
from amcast.core.ids import SEQ_BITS
from amcast.net.config import ClusterConfig, load_config
from amcast.net.wire.control import VERSION, Hello, Refused, Welcome
from amcast.net.wire.framing import frame
from amcast.protocols import Start

# What happens to a connection whose other side closes it: attackers go on with another one.
BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError)

_AT_LEAST, _SHARE = 4, 50  # of the connections that are ordered, so many at a time

_answers: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Welcome | Refused)


class Order(msgspec.Struct, frozen=True):
    """What an attacker is told to do."""

    config: str  # path
    attacks: list[str]
    part: int  # its number among the attackers
    seconds: float
    connections: int
    token: str
    leaders: list[str]
    ids: str  # the file in which it notes the ids under which it sent


class RefusedByNodeError(ConnectionError):
    """REFUSED was the answer to HELLO."""


class Field:
    """An attacker, with what it may use and what it has done."""

    def __init__(self, order: Order, attack: str, ids: TextIO) -> None:
        self.order = order
        self.config: ClusterConfig = load_config(Path(order.config))
        self.topology: Topology = self.config.topology()
        self.rng = Random(f"{attack} {order.part}")
        self.done: Counter[str] = Counter()
        self.tls = _context(self.config)
        self._ids = ids
        self._ends = time.monotonic() + order.seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends - time.monotonic())

    def source(self) -> str:
        """An address to come from."""
        return f"127.0.66.{1 + self.rng.randrange(16)}"

    def address(self, name: str) -> tuple[str, int]:
        return self.config.addresses()[self.config.process_id(name)]

    @property
    def names(self) -> list[str]:
        return [entry.id for entry in self.config.process]

    @property
    def followers(self) -> list[str]:
        """The processes that do not lead."""
        return [name for name in self.names if name not in self.order.leaders] or self.names

    def leader_of(self, group: int) -> str:
        for name in self.order.leaders:
            if name.startswith(f"g{group}."):
                return name
        return f"g{group}.p0"

    def note(self, id_: ProcessId) -> None:
        """Something is sent under this id: whoever judges must not take it for a correct client's."""
        self._ids.write(f"{id_}\n")
        self._ids.flush()

    # -- connections

    @asynccontextmanager
    async def encrypted(self, name: str, timeout: float = 10.0) -> AsyncIterator[Link]:
        """After the TLS handshake, before HELLO."""
        host, port = self.address(name)
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=self.tls, server_hostname="", local_addr=(self.source(), 0)
            )
        self.done["connections"] += 1
        try:
            yield Link(reader, writer)
        finally:
            writer.transport.abort()

    @asynccontextmanager
    async def entered(self, name: str, kind: str = "client") -> AsyncIterator[Link]:
        """After WELCOME."""
        async with self.encrypted(name) as link:
            await link.hello(self, kind)
            yield link

    async def again_and_again(self, once: Callable[[], Awaitable[None]], pause_s: float = 0.0) -> None:
        """Calls it until the time is over, whatever the node does about it."""
        while not self.is_over:
            try:
                async with asyncio.timeout(self.left_s + 0.1):
                    await once()
            except BROKEN:
                self.done["broken off"] += 1
                await asyncio.sleep(0.05)
            if pause_s:
                await asyncio.sleep(pause_s)

    async def together(self, count: int, once: Callable[[], Awaitable[None]], pause_s: float = 0.0) -> None:
        """So many at a time, or fewer where few connections are ordered."""
        count = min(count, max(_AT_LEAST, self.order.connections // _SHARE))
        await asyncio.gather(*(self.again_and_again(once, pause_s) for _ in range(count)))


class Link:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client: ProcessId = 0
        self.ticket = b""
        self._next_seq = 0

    async def hello(self, field: Field, kind: str, client: ProcessId = 0, ticket: bytes = b"") -> None:
        self.write(hello_of(field.config, kind, field.order.token, client, ticket))
        async with asyncio.timeout(10.0):
            answer = _answers.decode(await self.read())
        if isinstance(answer, Refused):
            field.done["refused"] += 1
            raise RefusedByNodeError(answer.reason)
        self.client, self.ticket = answer.client, answer.ticket

    def message(self, dst: tuple[int, ...], payload: bytes = b"x", settled: int = 0) -> AppMessage:
        """The next one under this connection's id."""
        self._next_seq += 1
        return AppMessage(self.client << SEQ_BITS | self._next_seq - 1, dst, payload, settled)

    def start(self, *messages: AppMessage) -> None:
        self.write(encode(Start(messages)))

    def say(self, message: msgspec.Struct) -> None:
        self.write(msgspec.msgpack.encode(message))

    def write(self, data: bytes) -> None:
        self.writer.write(frame(data))

    async def flush(self) -> None:
        await self.writer.drain()

    async def read(self) -> bytes:
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(length)

    async def until_closed(self) -> None:
        """Reads, and throws away what it reads."""
        while await self.reader.read(1 << 16):
            pass

    def stop_reading(self) -> None:
        with contextlib.suppress(RuntimeError):  # closed
            self.writer.transport.pause_reading()  # type: ignore[attr-defined]


def hello_of(config: ClusterConfig, kind: str, token: str, client: ProcessId = 0, ticket: bytes = b"") -> bytes:
    hello = Hello(VERSION, config.cluster, kind, "client", token=token, client=client, ticket=ticket)
    return msgspec.msgpack.encode(hello)


def _context(config: ClusterConfig) -> ssl.SSLContext:
    """The attacker's own: it has got hold of a client's certificate."""
    assert config.tls is not None
    folder = config.path(config.tls.folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(folder / "ca.crt")
    context.load_cert_chain(folder / "client.crt", folder / "client.key")
    return context
