"""The outside of a node: listens, finds out who connects, checks what comes in, and keeps the links to the peers."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from ..core import AppMessage, BadFrameError, GroupId, MessageId, ProcessId, UsageError, Wire
from ..core.codec import FRAME_LIMIT
from ..core.ids import SEQ_BITS
from ..protocols import Start
from .access import Access, Rights, Tickets
from .application import Host, StateMachine
from .config import CLIENT_IDS_EACH, CLIENT_IDS_FROM, ClusterConfig, load_config
from .control import (
    CLIENT_FRAME_LIMIT,
    HELLO_LIMIT,
    VERSION,
    AppState,
    AppStateQuery,
    Busy,
    Delivered,
    Follow,
    Gone,
    Hello,
    Layout,
    Refused,
    Request,
    Status,
    StatusQuery,
    Unfollow,
    Welcome,
    hello_decoder,
)
from .driver import Channel, dial
from .framing import Frame, FrameProtocol, frame
from .identity import Kind
from .journal import DeliveryLog, PositionGoneError
from .links import Delay, Link, RefusedError, Sender
from .metrics import serve_metrics
from .node import Node, app_messages
from .security import Security
from .storage import CorruptLogError, RecordLog
from .tls import PeerError, expect
from .tracing import TraceWriter

_HELLO_TIMEOUT_S = 5.0
_FOLLOW_CHUNK = 256 << 10
_KNOWN_DST_MAX = 10_000
_CATCH_UP_S = 0.2
_STATE_TIMEOUT_S = 60.0
_SNAPSHOT_EVERY = 100_000  # messages between an application's snapshots

logger = logging.getLogger("amcast.node")


class Connection(FrameProtocol):
    """One that was accepted. Who is behind it follows from HELLO, and from the certificate where there is one."""

    def __init__(self, server: NodeServer) -> None:
        super().__init__(HELLO_LIMIT)
        self._server = server
        self._node = server.node
        self._on_frame = self._on_hello
        self._timeout: asyncio.TimerHandle | None = None
        self.identity = "a stranger"
        self.peer: ProcessId | None = None
        self.boot = 0
        self.client: ProcessId | None = None
        self.open: dict[MessageId, int] = {}
        self.sender = Sender(server.config.limits.client_bytes * 2, None)
        self._rights = Rights.everything()
        self._known_dst: set[tuple[GroupId, ...]] = set()
        self.following: int | None = None  # the next position that this client wants
        self._is_reading = True

    # -- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timeout = self._server.loop.call_later(_HELLO_TIMEOUT_S, self._refuse, "no HELLO came")
        self._server.connections.add(self)
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=self._server.config.limits.client_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._on_frame = self._ignore
        self._server.forget(self)
        self.sender.attach(None)

    def _refuse(self, reason: str) -> None:
        logger.warning("closing the connection of %s: %s", self.identity, reason)
        self._server.refused += 1
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(msgspec.msgpack.encode(Refused(reason))))
        super()._refuse(reason)

    def close(self) -> None:
        """In good order: nobody did anything wrong."""
        self._on_frame = self._ignore
        if self._transport is not None:
            self._transport.close()

    # Too much waits to be written to this client: it is not read from until it has read some of it.

    def pause_writing(self) -> None:
        if self._transport is not None and self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
        self._server.wake_followers()

    # -- hello

    def _on_hello(self, data: Frame) -> None:
        try:
            hello = hello_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._refuse("the first frame is no HELLO")
            return
        if hello.version != VERSION:
            self._refuse(f"version {hello.version} of the protocol is not spoken here, {VERSION} is")
        elif hello.kind == "process":
            self._welcome_peer(hello)
        elif hello.kind == "client":
            self._welcome_client(hello)
        elif hello.kind == "reader":
            self._welcome_reader(hello)
        else:
            self._refuse("HELLO is from neither a process nor a client")

    def _certified(self, kind: Kind, name: str) -> bool:
        """With TLS, the name in HELLO must be the one in the certificate."""
        assert self._transport is not None
        if self._server.security.server is None:
            return True
        try:
            expect(self._transport.get_extra_info("ssl_object"), kind, name)
        except PeerError:
            return False
        return True

    def _welcome_peer(self, hello: Hello) -> None:
        ids = self._server.ids
        if hello.cluster != self._server.config.cluster:
            self._refuse(f"this is cluster '{self._server.config.cluster}', not '{hello.cluster[:100]}'")
        elif hello.name not in ids or hello.name == self._node.name:
            self._refuse(f"no other process of this cluster is called '{hello.name[:100]}'")
        elif not self._certified("process", hello.name):
            self._refuse(f"the certificate is not that of process {hello.name}")
        elif (problem := self._server.replace_peer(ids[hello.name], hello.boot)) is not None:
            self._refuse(problem)
        else:
            self.identity, self.peer, self.boot = hello.name, ids[hello.name], hello.boot
            self._limit = FRAME_LIMIT
            self._on_frame = self._on_peer_frame
            self._server.peers[self.peer] = self
            self._accept(Welcome(self._node.name, 0, b"", b""))

    def _welcome_client(self, hello: Hello) -> None:
        server = self._server
        rights = server.access.check(hello.token)
        if hello.cluster and hello.cluster != server.config.cluster:
            self._refuse(f"this is cluster '{server.config.cluster}', not '{hello.cluster[:100]}'")
        elif not self._certified("client", hello.name):
            self._refuse("the certificate is not that of this client")
        elif rights is None:
            self._refuse("this token is not known here: ask for one (`amcast token`)")
        elif hello.client and not server.tickets.is_valid(hello.client, hello.name, hello.ticket):
            self._refuse("the ticket does not prove this client id")
        elif len(server.node.clients) >= server.config.limits.clients:
            self._refuse("too many clients are connected: try another process")
        elif (client := hello.client or server.client_ids.next()) is None:
            self._refuse(f"{self._node.name} can't give out client ids now: try another process")
        else:
            self._rights = rights
            self.client = client
            self.identity = f"client {self.client}"
            self._limit = CLIENT_FRAME_LIMIT
            self._on_frame = self._on_client_frame
            old = server.node.clients.get(self.client)
            server.node.clients[self.client] = self
            if isinstance(old, Connection):
                old.close()
            server.node.clients[self.client] = self
            ticket = server.tickets.issue(self.client, hello.name)
            delay = server.delay_to_region(hello.region)
            self.sender = Sender(server.config.limits.client_bytes * 2, delay)
            self._accept(Welcome(self._node.name, self.client, ticket, server.layout))
            for data in self._node.claim_replies(self.client):
                self.send_reply(data)

    def _welcome_reader(self, hello: Hello) -> None:
        if hello.name not in self._server.ids or not self._certified("process", hello.name):
            self._refuse(f"'{hello.name[:100]}' is no process of this cluster, or can't prove it")
        else:
            self.identity = f"{hello.name}, reading"
            self._limit = HELLO_LIMIT
            self._on_frame = self._on_reader_frame
            self._accept(Welcome(self._node.name, 0, b"", b""))

    def _on_reader_frame(self, data: Frame) -> None:
        host = self._server.host
        if host is None:
            self._refuse(f"{self._node.name} runs no application")
        else:
            self._say(host.dump())

    def _accept(self, welcome: Welcome) -> None:
        assert self._timeout is not None
        assert self._transport is not None
        self._timeout.cancel()
        self._transport.write(frame(msgspec.msgpack.encode(welcome)))
        self.sender.attach(self._transport)

    # -- peers

    def _on_peer_frame(self, data: Frame) -> None:
        assert self.peer is not None
        try:
            self._node.receive(self.peer, data)
        except BadFrameError as error:
            self._refuse(str(error))
        except Exception as error:
            self._server.fail(error)

    # -- clients

    def send_reply(self, data: bytes) -> None:
        self._node.touch_sender(self.sender, data)

    def _say(self, message: msgspec.Struct) -> None:
        self.send_reply(frame(msgspec.msgpack.encode(message)))

    def _on_client_frame(self, data: Frame) -> None:
        try:
            message = self._server.requests.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._refuse(f"not a request: {error}")
            return
        match message:
            case Start():
                self._on_start(message)
            case Follow():
                self._on_follow(message)
            case Unfollow():
                self.following = None
            case StatusQuery():
                self._say(self._server.status())
            case Wire():
                self._on_entry(message)

    def _on_start(self, message: Start) -> None:
        client, known_dst, limit = self.client, self._known_dst, self._server.config.limits.message_bytes
        size = 0
        for each in message.messages:
            if each.id >> SEQ_BITS != client or each.dst not in known_dst or len(each.payload) > limit:
                problem = self._problem_with(each)
                if problem is not None:
                    self._refuse(problem)
                    return
            size += len(each.payload)
        try:
            taken = self._admit(message, size)
            if taken.messages:
                assert client is not None
                self._node.take(client, taken)
        except Exception as error:
            self._server.fail(error)

    def _on_entry(self, message: Wire) -> None:
        """Where messages do not enter by a START: what a client says must be about messages of its own."""
        problem = None
        if any(id_ >> SEQ_BITS != self.client for id_ in message.about()):
            problem = "a message carries another sender's id"
        for each in app_messages(message):
            problem = problem or self._problem_with(each)
        if problem is not None:
            self._refuse(problem)
            return
        try:
            assert self.client is not None
            self._node.take(self.client, message)
        except Exception as error:
            self._server.fail(error)

    def _problem_with(self, message: AppMessage) -> str | None:
        limit = self._server.config.limits.message_bytes
        if message.id >> SEQ_BITS != self.client:
            return "a message carries another sender's id"
        if len(message.payload) > limit:
            return f"a payload of {len(message.payload)} bytes is over the limit of {limit}"
        if not message.dst or tuple(sorted(set(message.dst))) != message.dst:
            return "the destinations of a message are not a sorted list without repetition"
        for group in message.dst:
            if not self._node.topology.has_group(group):
                return f"there is no group g{group} to send to"
        if not self._rights.may_send(message.dst):
            return "this client has no right to send to " + ", ".join(f"g{group}" for group in message.dst)
        if len(self._known_dst) < _KNOWN_DST_MAX:
            self._known_dst.add(message.dst)
        return None

    def _admit(self, message: Start, size: int) -> Start:
        """Only a leader keeps count: what others get, they pass on and forget."""
        node, limits = self._node, self._server.config.limits
        if not node.process.is_leader:
            return message
        room = limits.open_messages - node.open_messages
        if len(message.messages) > room or node.open_bytes + size > limits.open_bytes:
            return self._admit_some(message)
        for each in message.messages:
            if each.id not in self.open:
                self._open_one(each)
        return message

    def _admit_some(self, message: Start) -> Start:
        turned_away = [each.id for each in message.messages if not self._is_admitted(each)]
        if turned_away:
            self._server.busy += len(turned_away)
            self._say(Busy(self._node.group, tuple(turned_away)))
        return Start(tuple(each for each in message.messages if each.id in self.open))

    def _is_admitted(self, message: AppMessage) -> bool:
        node, limits = self._node, self._server.config.limits
        if message.id in self.open:
            return True
        has_room = node.open_messages < limits.open_messages
        if has_room and node.open_bytes + len(message.payload) <= limits.open_bytes:
            self._open_one(message)
            return True
        return False

    def _open_one(self, message: AppMessage) -> None:
        size = len(message.payload)
        self.open[message.id] = size
        self._node.open_messages += 1
        self._node.open_bytes += size

    def _on_follow(self, message: Follow) -> None:
        if message.group != self._node.group:
            self._refuse(f"{self._node.name} is no member of g{message.group}: follow a group at one of its members")
        elif not self._rights.may_follow(message.group):
            self._refuse(f"this client has no right to follow g{message.group}")
        elif message.position < 0:
            self._refuse("positions start at 0")
        else:
            self.following = message.position
            self._server.wake_followers()

    def serve_follower(self) -> bool:
        """Sends the next chunk, if there is one and the client keeps up. Whether there may be more."""
        journal = self._node.journal
        if self.following is None or not self._is_reading or self.following >= journal.next:
            return False
        try:
            messages = journal.read(self.following, _FOLLOW_CHUNK)
        except PositionGoneError:
            self._say(Gone(journal.first))
            self.following = None
            return False
        except CorruptLogError as error:
            logger.error("%s", error)
            self._refuse(f"{self._node.name} can't read its log: follow another member")
            return False
        self._say(Delivered(self.following, tuple(messages)))
        self.following += len(messages)
        return bool(messages)


class ClientIds:
    """Ids for clients, each given out once in the life of the process's data folder."""

    _RESERVE = 1_000

    def __init__(self, folder: Path, process: ProcessId) -> None:
        self._path = folder / "client-ids"
        self._base = CLIENT_IDS_FROM + process * CLIENT_IDS_EACH
        self._next = _read_number(self._path)
        self._reserved = self._next

    def next(self) -> ProcessId | None:
        """None if there are none left, or the disk is full."""
        if self._next >= CLIENT_IDS_EACH:
            return None
        if self._next == self._reserved:
            try:
                _write_number(self._path, self._reserved + self._RESERVE)
            except OSError as error:
                logger.warning("no client ids: %s", error)
                return None
            self._reserved += self._RESERVE
        self._next += 1
        return self._base + self._next - 1


class NodeServer:
    def __init__(self, config: ClusterConfig, name: str, machine: StateMachine | None = None) -> None:
        config.check()
        self.config = config
        self.ids = config.ids()
        self.entry = config.entry(name)
        self.loop = asyncio.get_running_loop()
        entry = config.spec().entry_messages
        requests: Any = Request if entry is None else Request | entry
        self.requests: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(requests)
        self.security = Security.of_process(config, name, logger.warning)
        self.access = Access.load(config.path(config.tokens)) if config.tokens else Access.open()
        self.tickets = Tickets(self.security.secret)
        self.connections: set[Connection] = set()
        self.peers: dict[ProcessId, Connection] = {}
        self.refused = 0
        self.busy = 0
        self.failure: asyncio.Future[None] = self.loop.create_future()
        self._started = time.monotonic()
        folder = config.data_folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder_lock = _lock_folder(folder, name)
        self.client_ids = ClientIds(folder, self.ids[name])
        boot = _count_boot(folder)
        self.node = self._make_node(folder, name, boot)
        self.host = None if machine is None else Host(machine, self.node.journal, folder, _SNAPSHOT_EVERY)
        self.node.application = self.host
        self.node.on_turn_end.append(self._serve_followers)
        self.layout = msgspec.msgpack.encode(_layout(config))
        self._links = [self._make_link(peer) for peer in self.ids if peer != name]
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._metrics: asyncio.Server | None = None
        self._follow_again = False
        self._is_closing = False

    # -- making

    def _make_node(self, folder: Path, name: str, boot: int) -> Node:
        config = self.config
        journal = DeliveryLog.open(folder / "deliveries", config.durability, config.keep_messages)
        log = RecordLog.open(
            folder / "log",
            config.durability,
            self._on_durable,
            self._on_disk_failure,
            before_snapshot=lambda: self._before_snapshot(journal),
        )
        if log.note is not None:
            logger.warning("%s", log.note)
        trace = None
        process = self.ids[name]
        group = config.topology().group_of(process)
        assert group is not None
        if config.trace:
            trace = TraceWriter(config.path(config.data) / "trace", process, group, boot, config.trace_wire)
        return Node(config, name, log, journal, trace, Random(f"{config.cluster} {name} {boot}"), boot)

    def _make_link(self, peer: str) -> Link:
        process = self.ids[peer]
        topology, latency = self.node.topology, self.config.latency()
        delay = None
        if latency is not None:
            mean = latency.mean_us(topology.region(self.node.id), topology.region(process))
            delay = Delay(mean, latency.sigma, Random(f"{self.node.name} {peer}"))
        sender = Sender(self.config.limits.link_bytes, delay)
        self.node.links[process] = sender
        hello = Hello(VERSION, self.config.cluster, "process", self.node.name, self.node.boot)

        address = self.config.addresses()[process]
        return Link(peer, address, hello, self.security.client, sender, logger.info)

    def delay_to_region(self, region: str) -> Delay | None:
        latency = self.config.latency()
        if latency is None:
            return None
        mean = latency.mean_us(self.node.topology.region(self.node.id), region)
        return Delay(mean, latency.sigma, Random(f"{self.node.name} {region}"))

    # -- life

    async def start(self) -> None:
        host, port = self.config.addresses()[self.node.id]
        try:
            self._server = await self.loop.create_server(
                lambda: Connection(self),
                host,
                port,
                ssl=self.security.server,
                ssl_handshake_timeout=_HELLO_TIMEOUT_S if self.security.server else None,
                backlog=1_024,
            )
            if self.entry.metrics:
                self._metrics = await serve_metrics(host, self.entry.metrics, self.metrics)
        except OSError as error:
            self.node.log.close()
            raise UsageError(f"{self.node.name} can't listen on {host}:{port}: {error.strerror}") from error
        self._tasks = [asyncio.create_task(link.run()) for link in self._links]
        if self.host is not None:
            self._tasks.append(asyncio.create_task(self._keep_application_up(self.host)))
        self.node.start()
        logger.info("%s listens on %s:%s (start %s)", self.node.name, host, port, self.node.boot)

    async def stop(self) -> None:
        self.node.stop()
        for task in self._tasks:
            task.cancel()
        for server in (self._server, self._metrics):
            if server is not None:
                server.close()
        for connection in list(self.connections):
            connection.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._is_closing = True
        self.node.close()
        os.close(self._folder_lock)

    async def _keep_application_up(self, host: Host) -> None:
        """An application that needs messages which are not kept any more gets another replica's state instead."""
        others = [p for p in self.node.topology.members(self.node.group) if p != self.node.id]
        while True:
            await asyncio.sleep(_CATCH_UP_S)
            for peer in others if host.is_behind else ():
                try:
                    host.take_over(await self._ask_for_state(peer))
                except (OSError, TimeoutError, RefusedError) as error:
                    logger.info("no application state from %s: %s", self.node.topology.name(peer), error)
                if not host.is_behind:
                    break

    async def _ask_for_state(self, peer: ProcessId) -> AppState:
        answer: asyncio.Future[AppState] = self.loop.create_future()

        def on_message(channel: Channel, message: Any) -> None:
            if isinstance(message, AppState) and not answer.done():
                answer.set_result(message)

        hello = Hello(VERSION, self.config.cluster, "reader", self.node.name, self.node.boot)
        address = self.config.addresses()[peer]
        name = self.node.topology.name(peer)
        channel = await dial(hello, address, peer, on_message, self.security.client, name)
        try:
            channel.say(AppStateQuery())
            async with asyncio.timeout(_STATE_TIMEOUT_S):
                return await answer
        finally:
            channel.transport.abort()

    def reload_clock(self) -> None:
        if self.config.file is not None:
            self.node.clock_offset_us = load_config(self.config.file).entry(self.node.name).clock_offset_us

    def on_loop_problem(self, context: dict[str, Any]) -> None:
        """What no handler caught. A connection that breaks is no such thing; everything else is a bug."""
        error = context.get("exception")
        if isinstance(error, OSError) or error is None:
            logger.warning("%s", context.get("message"))
        else:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """A process that contradicts itself must not go on."""
        logger.critical("%s stops: %s", self.node.name, error, exc_info=error)
        self.node.stop()
        if not self.failure.done():
            self.failure.set_exception(error)

    def _on_durable(self, number: int) -> None:
        """From the disk's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self.loop.call_soon_threadsafe(self.node.on_durable)

    def _before_snapshot(self, journal: DeliveryLog) -> None:
        """From the disk's thread. With a snapshot go the records that could deliver messages again.

        So what was held back until those records were durable must happen first, and be on the disk by itself.
        """
        happened = threading.Event()

        def let_happen() -> None:
            self.node.on_durable()
            journal.flush()
            happened.set()

        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(let_happen)
            # A loop that is closing waits for this thread: then nothing held back will ever happen.
            while not happened.wait(0.05) and not self._is_closing:
                pass
        journal.sync()

    def _on_disk_failure(self, error: OSError) -> None:
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.fail, error)

    # -- connections

    def replace_peer(self, peer: ProcessId, boot: int) -> str | None:
        """A process that was started again takes the place of its former self; a copy of it is turned away."""
        old = self.peers.get(peer)
        if old is None:
            return None
        if boot < old.boot:
            return f"a newer start of {old.identity} is connected already: is it running twice?"
        old.close()
        return None

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if connection.peer is not None and self.peers.get(connection.peer) is connection:
            del self.peers[connection.peer]
        client = connection.client
        if client is not None and self.node.clients.get(client) is connection:
            del self.node.clients[client]
        self.node.open_messages -= len(connection.open)
        self.node.open_bytes -= sum(connection.open.values())
        connection.open = {}

    def wake_followers(self) -> None:
        self.loop.call_soon(self._serve_followers)

    def _serve_followers(self) -> None:
        more = False
        for connection in self.node.clients.values():
            if isinstance(connection, Connection) and connection.following is not None:
                more = connection.serve_follower() or more
        if more and not self._follow_again:
            self._follow_again = True
            self.loop.call_soon(self._continue_following)

    def _continue_following(self) -> None:
        self._follow_again = False
        self._serve_followers()

    # -- what people ask

    def status(self) -> Status:
        node = self.node
        leader = node.process.leader
        peers = {name: node.links[id_].is_connected for name, id_ in self.ids.items() if id_ != node.id}
        return Status(
            name=node.name,
            group=f"g{node.group}",
            protocol=self.config.protocol,
            boot=node.boot,
            is_leader=node.process.is_leader,
            leader=None if leader is None else node.topology.name(leader),
            delivered=node.journal.next,
            open_messages=node.open_messages,
            clients=len(node.clients),
            peers=peers,
            messages_in=node.messages_in,
            messages_out=node.messages_out,
            dropped=sum(link.dropped for link in node.links.values()),
            durability=str(self.config.durability),
            undurable=node.undurable,
            uptime_s=round(time.monotonic() - self._started, 3),
            rss_mb=round(_rss_mb(), 1),
            problem=node.problem,
        )

    def metrics(self) -> dict[str, tuple[str, str, float]]:
        """name -> (kind, help, value)"""
        status = self.status()
        return {
            "amcast_delivered_total": ("counter", "Messages delivered, by position.", status.delivered),
            "amcast_messages_in_total": ("counter", "Messages received from peers and clients.", status.messages_in),
            "amcast_messages_out_total": ("counter", "Messages sent to peers and clients.", status.messages_out),
            "amcast_dropped_total": ("counter", "Messages to peers that were away or slow.", status.dropped),
            "amcast_busy_total": ("counter", "Client messages turned away because too much was open.", self.busy),
            "amcast_refused_total": ("counter", "Connections closed with a reason.", self.refused),
            "amcast_open_messages": ("gauge", "Accepted from clients, not delivered yet.", status.open_messages),
            "amcast_clients": ("gauge", "Clients connected.", status.clients),
            "amcast_is_leader": ("gauge", "1 if this process leads its group.", float(status.is_leader)),
            "amcast_peers_connected": ("gauge", "Links that are up.", sum(status.peers.values())),
            "amcast_undurable_records": ("gauge", "Records on their way to the disk.", status.undurable),
            "amcast_resident_megabytes": ("gauge", "Peak resident memory.", status.rss_mb),
        }


def _rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _layout(config: ClusterConfig) -> Layout:
    topology = config.topology()
    return Layout(
        config.cluster,
        config.protocol,
        {group: topology.members(group) for group in topology.groups},
        {id_: name for name, id_ in config.ids().items()},
        config.addresses(),
        {process: topology.region(process) for process in topology.processes},
        config.network,
        config.options,
        config.epoch_s,
        config.limits.message_bytes,
    )


def _lock_folder(folder: Path, name: str) -> int:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise UsageError(f"{name} is running already: another process holds {folder}") from error
    return lock


def _count_boot(folder: Path) -> int:
    """How often this process was started, this time included."""
    path = folder / "boot"
    boot = _read_number(path) + 1
    _write_number(path, boot)
    return boot


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text()) if path.exists() else 0
    except ValueError as error:
        raise UsageError(f"{path} does not hold a number: restore it, or remove the process's whole folder") from error


def _write_number(path: Path, number: int) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(str(number))
    scratch.replace(path)
