"""Drives a client's process object over TCP: connections to the groups that it talks to, timers, one write a turn."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from ..core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    ProcessId,
    Record,
    TimerKey,
    Timestamp,
    Topology,
    UsageError,
    Wire,
    encode,
    latency_preset,
)
from ..protocols import Client, Reply
from .control import (
    VERSION,
    Busy,
    Hello,
    Layout,
    Refused,
    Welcome,
    layout_decoder,
    to_client_decoder,
    welcome_decoder,
)
from .framing import Frame, FrameProtocol, frame
from .links import Delay, RefusedError, Sender
from .tls import expect

_FRAME_LIMIT = 64 << 20
_LINK_BYTES = 64 << 20
_CONNECT_TIMEOUT_S = 5.0
_LOOK_S = 0.005
_READY_MAX = 10_000
RETRY_S = 0.2

OnMessage = Callable[["Channel", Any], None]
MakeProcess = Callable[[ProcessId, Topology, Layout], Client]


class Credentials(msgspec.Struct, frozen=True):
    """Who a client says it is."""

    name: str = "client"
    token: str = ""
    tls: Any = None  # ssl.SSLContext
    region: str = "local"

    def __repr__(self) -> str:
        return f"Credentials({self.name!r})"


class Channel(FrameProtocol):
    """One connection to one process: HELLO first, then whatever it is for."""

    def __init__(self, hello: Hello, process: ProcessId, on_message: OnMessage) -> None:
        super().__init__(_FRAME_LIMIT)
        self.process = process
        self.is_lost = asyncio.Event()
        self.welcomed: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._hello = hello
        self._handle = on_message
        self._on_frame = self._on_welcome

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected yet"
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.say(self._hello)

    def _on_welcome(self, data: Frame) -> None:
        try:
            answer = welcome_decoder.decode(data)
        except msgspec.DecodeError as error:
            self._fail(ConnectionError(f"this is no node of an amcast cluster: {error}"))
            return
        if isinstance(answer, Refused):
            self._fail(RefusedError(answer.reason))
        elif not self.welcomed.done():
            self._on_frame = self._on_answer
            self.welcomed.set_result(answer)

    def _on_answer(self, data: Frame) -> None:
        try:
            message = to_client_decoder.decode(data)
        except msgspec.DecodeError:
            self._refuse("not an answer")
            return
        self._handle(self, message)

    def _fail(self, error: Exception) -> None:
        if not self.welcomed.done():
            self.welcomed.set_exception(error)
        self._refuse(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set()
        if not self.welcomed.done():
            self.welcomed.set_exception(exc or ConnectionError("closed without a word"))

    def say(self, message: msgspec.Struct) -> None:
        if not self.transport.is_closing():
            self.transport.write(frame(msgspec.msgpack.encode(message)))


async def dial(
    hello: Hello,
    address: tuple[str, int],
    process: ProcessId,
    on_message: OnMessage,
    tls: ssl.SSLContext | None,
    name: str | None,
) -> Channel:
    """A welcomed connection, or an exception and none. With TLS, the process must prove its name if that is known."""
    host, port = address
    async with asyncio.timeout(_CONNECT_TIMEOUT_S):
        transport, channel = await asyncio.get_running_loop().create_connection(
            lambda: Channel(hello, process, on_message), host, port, ssl=tls, server_hostname="" if tls else None
        )
        try:
            if tls is not None:
                expect(transport.get_extra_info("ssl_object"), "process", name)
            await channel.welcomed
        except BaseException:
            transport.abort()
            raise
    return channel


class ClientDriver(Outbox):
    def __init__(self, credentials: Credentials, make_process: MakeProcess) -> None:
        self._credentials = credentials
        self._make_process = make_process
        self._welcome: Welcome | None = None
        self._layout: Layout | None = None
        self._process: Client | None = None
        self._senders: dict[ProcessId, Sender] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._timers: dict[TimerKey, asyncio.TimerHandle] = {}
        self._zero_timers: dict[TimerKey, None] = {}
        self._dirty: list[Sender] = []
        self._ready_dst: set[tuple[GroupId, ...]] = set()  # there are connections to all of these
        self._is_turn_ending = False
        self._loop = asyncio.get_running_loop()
        self._away: dict[ProcessId, str] = {}  # who can't be reached, and why
        self._refusals: dict[ProcessId, str] = {}  # who turned a request down, and has answered none since
        self.on_busy: Callable[[tuple[MessageId, ...]], None] = lambda ids: None

    # -- life

    async def open(self, seeds: Sequence[tuple[str, int]]) -> None:
        """Asks any process for an id and for the layout of the cluster."""
        problems: list[str] = []
        for host, port in seeds:
            try:
                channel = await self.dial(host, port, -1, lambda channel, message: None)
                welcome = channel.welcomed.result()
                channel.transport.abort()
                self._layout = layout_decoder.decode(welcome.layout)
                self._welcome = welcome
                break
            except RefusedError as error:
                raise UsageError(f"{host}:{port} refuses this client: {error}") from error
            except (OSError, TimeoutError, msgspec.DecodeError) as error:
                problems.append(f"{host}:{port}: {str(error) or 'no answer in time'}")
        else:
            raise UsageError("no process of the cluster answers: " + "; ".join(problems[:3]))
        self.topology = Topology(self._layout.groups, (), self._layout.regions)
        self._process = self._make_process(welcome.client, self.topology, self._layout)

    async def connect(self, timeout: float) -> None:
        """Connects to every process that can be reached in this time, not only when there is something to say to it."""
        for group in self.topology.groups:
            self._sender(self.topology.members(group)[0])
        deadline = self._loop.time() + timeout
        while not all(sender.is_connected for sender in self._senders.values()) and self._loop.time() < deadline:
            await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        for handle in self._timers.values():
            handle.cancel()
        self._timers = {}
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def layout(self) -> Layout:
        assert self._layout is not None, "not connected yet"
        return self._layout

    @property
    def process(self) -> Client:
        assert self._process is not None, "not connected yet"
        return self._process

    # -- connections

    def _hello(self, keeps_id: bool) -> Hello:
        who = self._credentials
        cluster = self._layout.cluster if self._layout is not None else ""
        client, ticket = 0, b""
        if keeps_id and self._welcome is not None:
            client, ticket = self._welcome.client, self._welcome.ticket
        return Hello(VERSION, cluster, "client", who.name, 0, who.token, client, ticket, who.region)

    async def dial(
        self, host: str, port: int, process: ProcessId, on_message: OnMessage, keeps_id: bool = True
    ) -> Channel:
        """A welcomed connection, or an exception and none. Without its id it is just a reader's."""
        name = None if self._layout is None else self._layout.names[process]
        return await dial(self._hello(keeps_id), (host, port), process, on_message, self._credentials.tls, name)

    async def _keep_up(self, process: ProcessId) -> None:
        """Keeps the connection to one process up, for as long as this client lives."""
        name = self.layout.names[process]
        host, port = self.layout.addresses[process]
        while True:
            try:
                channel = await self.dial(host, port, process, self._on_answer)
                self._away.pop(process, None)
                try:
                    self._senders[process].attach(channel.transport)
                    await channel.is_lost.wait()
                finally:
                    self._senders[process].attach(None)
                    channel.transport.abort()
            except RefusedError as error:
                self._away[process] = f"{name} refuses this client: {error}"
            except (OSError, TimeoutError, ssl.SSLError, UsageError) as error:
                self._away[process] = f"{name}: {str(error) or 'no answer'}"
            await asyncio.sleep(RETRY_S)

    def _sender(self, process: ProcessId) -> Sender:
        sender = self._senders.get(process)
        if sender is None:
            group = self.topology.group_of(process)
            assert group is not None
            # The whole group at once: when its leader goes, the next one is at hand.
            for member in self.topology.members(group):
                self._senders[member] = Sender(_LINK_BYTES, self._delay_to(member), is_patient=True)
                self._tasks.append(self._loop.create_task(self._keep_up(member)))
            sender = self._senders[process]
        return sender

    def _delay_to(self, process: ProcessId) -> Delay | None:
        if self.layout.network == "none":
            return None
        latency = latency_preset(self.layout.network)
        mean = latency.mean_us(self._credentials.region, self.layout.regions[process])
        return Delay(mean, latency.sigma, Random(f"{self._credentials.name} {process}"))

    def _on_answer(self, channel: Channel, message: Any) -> None:
        match message:
            case Reply():
                assert self._process is not None
                if self._refusals:
                    self._refusals.pop(channel.process, None)
                self._process.on_message(channel.process, message, self)
            case Busy():
                self.on_busy(message.ids)
            case Refused():
                name = self.layout.names[channel.process]
                self._refusals[channel.process] = f"{name} refuses this client: {message.reason}"

    @property
    def problems(self) -> list[str]:
        """Why there may be no answer."""
        return [*self._refusals.values(), *self._away.values()]

    # -- the outbox of the client's process

    @property
    def now_us(self) -> int:
        return time.time_ns() // 1_000 - self.layout.epoch_s * 1_000_000

    def send(self, to: ProcessId, message: Wire) -> None:
        self._add(to, frame(encode(message)))

    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None:
        framed = frame(encode(message))
        for process in to:
            self._add(process, framed)

    def _add(self, to: ProcessId, framed: bytes) -> None:
        sender = self._senders.get(to) or self._sender(to)
        if sender.add(framed):
            self._dirty.append(sender)
        if not self._is_turn_ending:
            self._touch()

    def set_timer(self, key: TimerKey, after_us: int) -> None:
        if key in self._timers:
            self.cancel_timer(key)
        if after_us <= 0:
            self._zero_timers[key] = None
            self._touch()
        else:
            self._zero_timers.pop(key, None)
            self._timers[key] = self._loop.call_later(after_us / 1e6, self._fire, key)

    def cancel_timer(self, key: TimerKey) -> None:
        self._zero_timers.pop(key, None)
        running = self._timers.pop(key, None)
        if running is not None:
            running.cancel()

    def _fire(self, key: TimerKey) -> None:
        self._timers.pop(key, None)
        self.process.on_timer(key, self)

    def _touch(self) -> None:
        if not self._is_turn_ending:
            self._is_turn_ending = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        timers, self._zero_timers = self._zero_timers, {}
        for key in timers:
            self.process.on_timer(key, self)
        self._is_turn_ending = False
        dirty, self._dirty = self._dirty, []
        for sender in dirty:
            sender.flush()
        if self._zero_timers:
            self._touch()

    def multicast(self, message: AppMessage) -> None:
        """Answers come from all destinations, wherever the message enters."""
        self.multicast_all((message,))

    def multicast_all(self, messages: Sequence[AppMessage]) -> None:
        ready = self._ready_dst
        for message in messages:
            if message.dst not in ready:
                self._make_ready(message.dst)

    def _make_ready(self, dst: tuple[GroupId, ...]) -> None:
        for group in dst:
            self._sender(self.topology.members(group)[0])
        if len(self._ready_dst) < _READY_MAX:
            self._ready_dst.add(dst)

    def deliver(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None:
        raise AssertionError("a client delivers nothing")

    def opt_deliver(self, position: int, message: AppMessage) -> None:
        raise AssertionError("a client delivers nothing")

    def persist(self, record: Record) -> None:
        raise AssertionError("a client keeps nothing")

    def snapshot(self, record: Record) -> None:
        raise AssertionError("a client keeps nothing")

    def restored(self, position: int) -> None:
        raise AssertionError("a client delivers nothing")
