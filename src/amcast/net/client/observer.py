"""Reads from a running cluster: follows what groups deliver, and asks processes how they are.

    async with amcast.observe("cluster.toml") as observer:
        async for delivery in observer.deliveries("g1"):
            ...

An observer multicasts nothing, so it needs no sender id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ...core import AppMessage, GroupId, ProcessId, Timestamp, UsageError
from ..config import ClusterConfig, load_config, split_address
from ..security.keyring import Keyring
from ..security.seal import Seal
from ..wire.control import (
    Delivered,
    Follow,
    Gone,
    Layout,
    Placement,
    PlacementQuery,
    Refused,
    Status,
    StatusQuery,
    cluster_layout,
)
from ..wire.dialer import Channel, RefusedError, ask
from ..wire.envelope import as_given
from .trunk import RETRY_S, Credentials, NotWelcomeError, Trunk

_CHUNKS_AHEAD = 16  # chunks of deliveries kept for an application that is slower than its group

Where = str | Path | ClusterConfig | Sequence[str]


class GoneError(Exception):
    """No member of the group keeps this position any more."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the group no longer keeps messages that far back: the first position is {first}")
        self.first = first


class Delivery(msgspec.Struct, frozen=True):
    """One message at its place in the order of a group."""

    position: int  # in the group: 0, 1, 2, ... without a gap, the same at all its replicas
    message: AppMessage  # its `id`, its destinations `dst`, and its payload
    ts: Timestamp | None  # the protocol's final timestamp, if it has one: it orders all messages of the cluster

    @property
    def payload(self) -> bytes:
        """What was multicast."""
        return as_given(self.message.payload)


class Observer:
    """Follows what groups deliver, and asks processes how they are. Made by `observe`, and opened by `async with`.

    It belongs to the event loop in which it was opened.
    """

    def __init__(self, seeds: Sequence[tuple[str, int]], credentials: Credentials) -> None:
        self._seeds = seeds
        self._credentials = credentials
        self._opened: Trunk | None = None
        self.wait_s = 0.0  # for a cluster that is still starting

    async def __aenter__(self) -> Self:
        trunk = Trunk(self._credentials)
        await self._patiently(partial(trunk.observe, self._seeds))
        self._opened = trunk
        return self

    async def _patiently(self, enter: Callable[[], Awaitable[None]]) -> None:
        """Tries again until some process answers, or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.wait_s
        while True:
            try:
                return await enter()
            except NotWelcomeError:
                raise
            except UsageError:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(RETRY_S)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened = None

    @property
    def layout(self) -> Layout:
        """The cluster as its processes describe it: protocol, groups with their members, addresses."""
        return self._trunk.layout

    @property
    def groups(self) -> list[str]:
        """The names of all groups, as g1."""
        return list(self._trunk.group_names)

    @property
    def _trunk(self) -> Trunk:
        if self._opened is None:
            raise UsageError("this client is not open: use `async with amcast.connect(...) as client`")
        return self._opened

    def _group(self, name: str) -> GroupId:
        try:
            return (self._opened or self._trunk).group_names[name]
        except (KeyError, TypeError):  # also if it is no name at all
            raise UsageError(f"there is no group '{name}': this cluster has {', '.join(self.groups)}") from None

    # -- following

    async def deliveries(self, group: str, position: int = 0) -> AsyncGenerator[Delivery, None]:
        """What a group delivered from a position on, and then what it delivers from now on, without an end.

        When a member fails, the stream goes on at another one, without a gap or a repetition. `GoneError` is raised if
        the group keeps no messages that far back; its `first` is the first position that can be had.
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
                if not error.elsewhere:
                    raise UsageError(f"can't follow {group}: {error}") from error
                problems[process] = error
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
                        channel.pause_reading()
                case Gone():
                    chunks.put_nowait(GoneError(message.first))
                case Refused():
                    chunks.put_nowait(RefusedError(message))

        channel = await self._trunk.dial(process, on_message)
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
                if chunks.empty():
                    channel.resume_reading()
        finally:
            lost.cancel()
            channel.abort()

    # -- status

    async def end_of(self, group: str, timeout: float = 5.0) -> int:
        """The position that the group fills next, as far as its members answer: what comes from now on begins there."""
        members = self.layout.groups[self._group(group)]
        answers = await asyncio.gather(*(self.status(each, timeout) for each in members), return_exceptions=True)
        ends = [answer.delivered for answer in answers if isinstance(answer, Status)]
        if not ends:
            raise UsageError(f"no member of {group} says how far it has got: {answers[0]}")
        return max(ends)

    async def status(self, process: ProcessId, timeout: float = 5.0) -> Status:
        """How a process is, by its number: those of a group are in `layout.groups`."""
        return await ask(partial(self._trunk.dial, process), StatusQuery(), Status, timeout)

    async def placement(self, process: ProcessId, object: str = "", moves: int = 0, timeout: float = 5.0) -> Placement:
        """What a process knows of the site of an object; without one, how placement goes there."""
        return await ask(partial(self._trunk.dial, process), PlacementQuery(object, moves), Placement, timeout)


def observe(
    where: Where,
    *,
    name: str = "client",
    token: str = "",
    token_file: str | Path | None = None,
    certs: str | Path | None = None,
    region: str = "local",
    wait: float = 0.0,
) -> Observer:
    """Like `connect`, for programs that only follow and ask. It multicasts nothing, and is no sender.

        async with amcast.observe("cluster.toml") as observer:
            async for delivery in observer.deliveries("g1", await observer.end_of("g1")):
                ...

    All arguments are those of `connect`.
    """
    observer = Observer(*seeds_and_credentials(where, name, token, token_file, certs, region))
    observer.wait_s = wait
    return observer


def seeds_and_credentials(
    where: Where,
    name: str = "client",
    token: str = "",
    token_file: str | Path | None = None,
    certs: str | Path | None = None,
    region: str = "local",
) -> tuple[list[tuple[str, int]], Credentials]:
    """A token never leaves without TLS: whoever listens could use it."""
    seeds, folder, config = seeds_of(where)
    if certs is not None:
        folder = Path(certs)
    tls = None if folder is None else Keyring(folder, name)
    if tls is None and (token or token_file is not None):
        raise UsageError("a token is not sent without TLS: name a folder of certificates, or leave the token out")
    name = name if tls is None else tls.identity.name
    file = None if token_file is None else Path(token_file)
    if config is None:
        return seeds, Credentials(name, token, tls, None, region, file)
    seal = None if tls is not None else Seal.of_client(config, name)
    return seeds, Credentials(name, token, tls, seal, region, file, cluster_layout(config))


def seeds_of(where: Where) -> tuple[list[tuple[str, int]], Path | None, ClusterConfig | None]:
    """Addresses to try, the folder of certificates where the configuration names one, and where any process might lie
    about the cluster, the configuration itself."""
    if isinstance(where, str) and not where.endswith(".toml"):
        where = where.split(",")
    if isinstance(where, str | Path):
        where = load_config(Path(where))
    if isinstance(where, ClusterConfig):
        folder = None if where.tls is None else where.path(where.tls.folder)
        return list(where.addresses().values()), folder, where if where.survives_liars else None
    return [split_address(address) for address in where], None, None
