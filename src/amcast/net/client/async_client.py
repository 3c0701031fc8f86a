"""The client: multicasts messages, and follows what groups deliver.

    async with amcast.connect("cluster.toml") as client:
        await client.multicast({"g1", "g2"}, b"transfer 10 from a to b")   # returns when all groups have delivered it
        async for delivery in client.deliveries("g1"):
            ...

It drives the same sans-IO client as the simulator. That client finds leaders, and sends a message again under the same
id until it is delivered; groups order each id once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from ...core import AppMessage, GroupId, MessageId, Outbox, ProcessId, Timestamp, Topology, UsageError, Wire
from ...protocols import Client, ClientConfig, Ingress, IngressGroups, Reply, protocol
from ..config import ClusterConfig, client_config, load_config, replica_config, split_address
from ..security.credentials import client_credentials
from ..wire.control import Delivered, Follow, Gone, Layout, Refused, Status, StatusQuery
from ..wire.dialer import Channel, RefusedError, ask
from .driver import ClientDriver
from .trunk import RETRY_S, Credentials, Trunk

_CHUNKS_AHEAD = 16  # chunks of deliveries kept for an application that is slower than its group

Where = str | Path | ClusterConfig | Sequence[str]


class BusyError(Exception):
    """The cluster has too many open messages. This one may still be delivered, once."""


class GoneError(Exception):
    """No member of the group keeps this position any more."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the group no longer keeps messages that far back: the first position is {first}")
        self.first = first


class Delivery(msgspec.Struct, frozen=True):
    position: int
    message: AppMessage
    ts: Timestamp | None

    @property
    def payload(self) -> bytes:
        return self.message.payload


class WaitingClient(Client):
    """Completes the future of a message when all its groups have delivered it."""

    def __init__(
        self,
        process: ProcessId,
        topology: Topology,
        entries: IngressGroups,
        config: ClientConfig,
        ingress: Ingress | None,
    ) -> None:
        super().__init__(process, topology, entries, config, ingress)
        self.waiting: dict[MessageId, asyncio.Future[None]] = {}

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Reply):
            for completed in self.on_reply(sender, message):
                future = self.waiting.pop(completed.id, None)
                if future is not None and not future.done():
                    future.set_result(None)


def _make_process(process: ProcessId, topology: Topology, layout: Layout) -> WaitingClient:
    config = replica_config(layout.protocol, layout.network, layout.options)
    spec = protocol(layout.protocol).configured(config)
    ingress = None if spec.ingress is None else spec.ingress(process, topology, config)
    return WaitingClient(process, topology, spec.ingress_groups, client_config(layout.network), ingress)


class AsyncClient:
    """Made by `connect`. It belongs to the event loop in which it was opened."""

    def __init__(self, seeds: Sequence[tuple[str, int]], credentials: Credentials, trunk: Trunk | None = None) -> None:
        self._seeds = seeds
        self._credentials = credentials
        self._trunk = trunk  # of the client whose connections this one shares
        self._driver: ClientDriver | None = None
        self._busy: set[MessageId] = set()

    async def __aenter__(self) -> AsyncClient:
        driver = ClientDriver(self._trunk or Trunk(self._credentials), _make_process)
        await driver.open(self._seeds)
        driver.on_busy = self._note_busy
        self._driver = driver
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._driver is None:
            return
        await self._driver.close()
        for future in self._process.waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the client was closed before the message was delivered"))
                future.exception()  # marks it as seen: perhaps nobody waits for it any more
        self._driver = None

    def session(self) -> AsyncClient:
        """Another client on the connections of this one: its messages have an order and retries of their own.

        For programs that act for many others, such as a gateway: a session costs far less than connections.
        """
        return AsyncClient(self._seeds, self._credentials, self._open.trunk)

    def _note_busy(self, ids: Sequence[MessageId]) -> None:
        for id_ in ids:
            self._busy.update([message.id for message in self._process.sent_with(id_)])

    @property
    def layout(self) -> Layout:
        return self._open.trunk.layout

    @property
    def groups(self) -> list[str]:
        return [f"g{group}" for group in self.layout.groups]

    @property
    def _open(self) -> ClientDriver:
        if self._driver is None:
            raise UsageError("this client is not open: use `async with amcast.connect(...) as client`")
        return self._driver

    @property
    def _process(self) -> WaitingClient:
        process = self._open.process
        assert isinstance(process, WaitingClient)
        return process

    # -- multicast

    async def multicast(self, groups: Iterable[str], payload: bytes, timeout: float | None = 30.0) -> MessageId:
        """Returns when every destination group has delivered the message.

        After a timeout the client goes on trying in the background, under the same id. The message may be delivered
        later, but never twice.
        """
        id_, future = self.submit(groups, payload)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(future)
        except TimeoutError:
            if id_ in self._busy:
                raise BusyError("the cluster was busy all the time: send less, or wait longer") from None
            problems = "; ".join(self._open.trunk.problems)
            reason = f": {problems}" if problems else ""
            raise TimeoutError(f"not delivered everywhere within {timeout:g} s{reason}") from None
        finally:
            self._busy.discard(id_)
        return id_

    def submit(self, groups: Iterable[str], payload: bytes) -> tuple[MessageId, asyncio.Future[None]]:
        """Like `multicast`, without waiting: the future is done when the message is delivered everywhere."""
        driver, process = self._open, self._process
        dst = tuple(sorted({self._group(name) for name in groups}))
        if len(payload) > self.layout.message_bytes:
            raise UsageError(
                f"a payload of {len(payload)} bytes is over the cluster's limit of {self.layout.message_bytes}: "
                "split it, or send a reference"
            )
        message = process.new_message(dst, payload)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        process.waiting[message.id] = future
        process.on_multicast(message, driver)
        return message.id, future

    def _group(self, name: str) -> GroupId:
        for group in self.layout.groups:
            if name == f"g{group}":
                return group
        raise UsageError(f"there is no group '{name}': this cluster has {', '.join(self.groups)}")

    # -- following

    async def deliveries(self, group: str, position: int = 0) -> AsyncGenerator[Delivery, None]:
        """What a group delivered from a position on, and then what it delivers from now on, without an end.

        When a member fails, the stream goes on at another one, without a gap or a repetition.
        """
        number = self._group(group)
        members = self.layout.groups[number]
        problems: dict[ProcessId, Exception] = {}
        turn = 0
        while True:
            process = members[turn % len(members)]
            turn += 1
            try:
                async for delivery in self._follow_at(process, number, position):
                    position = delivery.position + 1
                    problems = {}
                    yield delivery
            except RefusedError as error:
                raise UsageError(f"can't follow {group}: {error}") from error
            except (OSError, TimeoutError, GoneError) as error:
                problems[process] = error
            gone = [error for error in problems.values() if isinstance(error, GoneError)]
            if len(gone) == len(members):
                raise min(gone, key=lambda error: error.first)
            if turn % len(members) == 0:
                await asyncio.sleep(RETRY_S)

    async def _follow_at(self, process: ProcessId, group: GroupId, position: int) -> AsyncGenerator[Delivery, None]:
        chunks: asyncio.Queue[Delivered | Exception] = asyncio.Queue()

        def on_message(channel: Channel, message: Any) -> None:
            match message:
                case Delivered():
                    chunks.put_nowait(message)
                    if chunks.qsize() >= _CHUNKS_AHEAD:
                        channel.transport.pause_reading()
                case Gone():
                    chunks.put_nowait(GoneError(message.first))
                case Refused():
                    chunks.put_nowait(RefusedError(message.reason))

        channel = await self._open.trunk.dial(process, on_message)
        lost = asyncio.create_task(channel.is_lost.wait())
        lost.add_done_callback(lambda _: chunks.put_nowait(ConnectionError("the connection broke")))
        try:
            channel.say(Follow(group, position))
            while True:
                chunk = await chunks.get()
                if isinstance(chunk, Exception):
                    raise chunk
                for offset, (message, ts) in enumerate(chunk.messages):
                    yield Delivery(chunk.first + offset, message, ts)
                if chunks.empty() and not channel.transport.is_closing():
                    channel.transport.resume_reading()
        finally:
            lost.cancel()
            channel.transport.abort()

    # -- status

    async def status(self, process: ProcessId, timeout: float = 5.0) -> Status:
        return await ask(partial(self._open.trunk.dial, process), StatusQuery(), Status, timeout)


def connect(
    where: Where, *, name: str = "client", token: str = "", certs: str | Path | None = None, region: str = "local"
) -> AsyncClient:
    """A client of the cluster that a `cluster.toml` describes, or that listens at one of some `host:port`.

    `certs` is a folder of `amcast certs` that holds this client's certificate under its name.
    """
    seeds, folder = seeds_of(where)
    if certs is not None:
        folder = Path(certs)
    tls = None
    if folder is not None:
        tls, name = client_credentials(folder, name)
    return AsyncClient(seeds, Credentials(name, token, tls, region))


def seeds_of(where: Where) -> tuple[list[tuple[str, int]], Path | None]:
    """Addresses to try, and the folder of certificates where the configuration names one."""
    if isinstance(where, str) and not where.endswith(".toml"):
        where = where.split(",")
    if isinstance(where, str | Path):
        where = load_config(Path(where))
    if isinstance(where, ClusterConfig):
        folder = None if where.tls is None else where.path(where.tls.folder)
        return list(where.addresses().values()), folder
    return [split_address(address) for address in where], None
