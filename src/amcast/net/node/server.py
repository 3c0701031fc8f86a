"""The outside of a node: makes it from its configuration and its data folder, listens, and keeps links to its peers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from ...core import ProcessId, UsageError
from ..config import ClusterConfig, load_config, split_name
from ..disk.deliveries import DeliveryLog
from ..disk.files import is_full
from ..disk.records import ClosingError, RecordLog
from ..security.access import Access
from ..security.credentials import ProcessCredentials
from ..security.tls import PeerError
from ..system import system
from ..trace.writer import TraceWriter
from ..wire.control import VERSION, AppState, AppStateQuery, Hello, Layout, Request
from ..wire.dialer import RefusedError, ask, dial
from ..wire.send_buffer import Delay, SendBuffer
from ._client_ids import ClientIds
from ._folder import count_boot, lock_folder
from ._followers import Followers
from ._status import metrics_of
from .application import Host, StateMachine
from .connection import HELLO_TIMEOUT_S, Connection
from .links import Link
from .metrics import serve_metrics
from .node import Node

_CATCH_UP_S = 0.2
_STATE_TIMEOUT_S = 60.0
_LOOK_S = 0.005  # between looks at a disk that a stop waits for
_SPACE_S = 5.0  # how long a stop waits for space on a full disk
_SNAPSHOT_EVERY = 100_000  # messages between an application's snapshots

logger = logging.getLogger("amcast.node")


class NodeServer:
    def __init__(self, config: ClusterConfig, name: str, machine: StateMachine | None = None) -> None:
        config.check()
        self.config = config
        self.ids = config.ids()
        self.process_config = config.process_named(name)
        self.loop = asyncio.get_running_loop()
        entering = config.spec().ingress_messages
        requests: Any = Request if entering is None else Request | entering
        self.requests: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(requests)
        self.security = ProcessCredentials.load(config, name, logger.warning)
        self.access = Access.load(config.path(config.tokens)) if config.tokens else Access.unrestricted()
        self.tickets = self.security.tickets
        self.connections: set[Connection] = set()
        self.observers: set[Connection] = set()
        self.peers: dict[ProcessId, Connection] = {}
        self.refused = 0  # connections that were closed with a reason
        self.failure: asyncio.Future[None] = self.loop.create_future()
        self.started_s = system().monotonic_s()
        folder = config.data_folder(name)
        system().mkdir(folder)
        self._folder_lock = lock_folder(folder, name)
        self.client_ids = ClientIds(folder, config.client_ids(self.ids[name]))
        boot = count_boot(folder)
        self.node = self._make_node(folder, name, boot)
        self.node.on_intake = self._regulate
        self.host = None if machine is None else Host(machine, self.node.deliveries, folder, _SNAPSHOT_EVERY)
        self.node.application = self.host
        self.followers = Followers(self.node)
        self.layout = msgspec.msgpack.encode(_layout(config))
        self._links = [self._make_link(peer) for peer in self.ids if peer != name]
        self._link_tasks: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._metrics: asyncio.Server | None = None
        self._is_closing = False

    # -- making

    def _make_node(self, folder: Path, name: str, boot: int) -> Node:
        config = self.config
        deliveries = DeliveryLog.open(
            folder / "deliveries", config.durability, config.keep_messages, has_batches=config.spec().takes_batches
        )
        records = RecordLog.open(
            folder / "log",
            config.durability,
            self._on_durable,
            self._on_disk_failure,
            before_snapshot=lambda: self._before_snapshot(deliveries),
        )
        if records.note is not None:
            logger.warning("%s", records.note)
        trace = None
        if config.trace:
            group, _ = split_name(name)
            folder = config.path(config.data) / "trace"
            trace = TraceWriter(folder, self.ids[name], group, boot, config.trace_wire)
        return Node(config, name, records, deliveries, trace, Random(f"{config.cluster} {name} {boot}"), boot)

    def _make_link(self, peer: str) -> Link:
        process = self.ids[peer]
        buffer = SendBuffer(self.config.limits.link_bytes, self.delay_to(self.node.topology.region(process), peer))
        self.node.links[process] = buffer
        hello = Hello(VERSION, self.config.cluster, "process", self.node.name, self.node.boot)
        return Link(peer, self.config.addresses()[process], hello, self.security.client, buffer, logger.info)

    def delay_to(self, region: str, seed: str) -> Delay | None:
        """Emulates the distance to a region, where the configuration asks for it."""
        latency = self.config.latency()
        if latency is None:
            return None
        mean = latency.mean_us(self.node.topology.region(self.node.id), region)
        return Delay(mean, latency.sigma, Random(f"{self.node.name} {seed}"))

    # -- life

    async def start(self) -> None:
        host, port = self.config.addresses()[self.node.id]
        try:
            self._server = await self.loop.create_server(
                lambda: Connection(self),
                host,
                port,
                ssl=self.security.server,
                ssl_handshake_timeout=HELLO_TIMEOUT_S if self.security.server else None,
                backlog=1_024,
            )
            if self.process_config.metrics:
                self._metrics = await serve_metrics(host, self.process_config.metrics, lambda: metrics_of(self))
        except OSError as error:
            self.node.records.close()
            raise UsageError(f"{self.node.name} can't listen on {host}:{port}: {error.strerror}") from error
        self._link_tasks = [asyncio.create_task(link.run()) for link in self._links]
        if self.host is not None:
            self._tasks.append(asyncio.create_task(self._keep_application_up(self.host)))
        self.node.start()
        logger.info("%s listens on %s:%s (start %s)", self.node.name, host, port, self.node.boot)

    async def stop(self) -> None:
        """Takes no more input, lets the disk catch up, delivers and sends what waited for it, and closes everything.

        A kill at any moment of it loses nothing: what is not done yet, the records bring again at the next start.
        """
        self.node.stop()
        for server in (self._server, self._metrics):
            if server is not None:
                server.close()
        await _cancel(self._tasks)
        if not self.failure.done():
            await self._settle()
        await _cancel(self._link_tasks)
        for connection in list(self.connections):
            connection.close()
        self._is_closing = True
        try:
            self.node.close()
        finally:
            system().close(self._folder_lock)

    async def _settle(self) -> None:
        """Waits for the disk, with the loop alive: before a snapshot is written, the disk's thread waits for the loop.

        What a full disk does not take in some seconds is left undone.
        """
        self.node.records.commit()
        deadline_s = self.loop.time() + _SPACE_S
        while not self.node.is_settled and not self.failure.done():
            if not self.node.records.waits_for_space:
                deadline_s = self.loop.time() + _SPACE_S
            elif self.loop.time() >= deadline_s:
                logger.warning("%s stops though the disk is full: what is not written is undone", self.node.name)
                return
            await asyncio.sleep(_LOOK_S)

    async def _keep_application_up(self, host: Host) -> None:
        """An application that needs messages which this node no longer has gets the state of another replica."""
        node = self.node
        hello = Hello(VERSION, self.config.cluster, "reader", node.name, node.boot)
        while True:
            await asyncio.sleep(_CATCH_UP_S)
            for peer in node.topology.members(node.group):
                if peer == node.id or not host.is_behind:
                    continue
                name, address = node.topology.name(peer), self.config.addresses()[peer]
                dial_peer = partial(dial, address, hello, self.security.client, name)
                try:
                    host.take_over(await ask(dial_peer, AppStateQuery(), AppState, _STATE_TIMEOUT_S))
                except (OSError, TimeoutError, RefusedError, PeerError) as error:
                    logger.info("no application state from %s: %s", name, error)

    def _regulate(self) -> None:
        """The node takes no input any more, or takes it again."""
        for connection in self.connections:
            connection.hold(not self.node.takes_input)

    def reload_clock(self) -> None:
        if self.config.file is not None:
            self.node.clock_offset_us = load_config(self.config.file).process_named(self.node.name).clock_offset_us

    def on_loop_problem(self, context: dict[str, Any]) -> None:
        """An exception that no handler caught. Connections may break at any time; everything else is a bug.

        What a handler of ours raises is never taken for a broken connection: an OSError may come from the disk, or from
        the application. Handlers that the loop calls for a connection catch their errors themselves.
        """
        error = context.get("exception")
        is_transport = "transport" in context or "socket" in context
        if error is None or (isinstance(error, OSError) and is_transport):
            logger.warning("%s", context.get("message"))
        else:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """A process whose state may be wrong must not go on: it stops as if it had crashed."""
        logger.critical("%s stops: %s", self.node.name, error, exc_info=error)
        self.node.halt()
        if not self.failure.done():
            self.failure.set_exception(error)

    def _on_durable(self, number: int) -> None:
        """From the disk's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self.loop.call_soon_threadsafe(self.node.on_durable)

    def _before_snapshot(self, deliveries: DeliveryLog) -> None:
        """From the disk's thread, after the records before a snapshot were written.

        The snapshot replaces those records, and they alone could deliver their messages again. So the deliveries that
        wait for them are performed first, and the delivery log is synced.
        """
        done = system().event()

        def deliver() -> None:
            if self.node.before_snapshot():
                done.set()

        try:
            self.loop.call_soon_threadsafe(deliver)
        except RuntimeError as error:
            raise ClosingError from error  # the loop is closed
        while not done.wait(0.05):
            if self._is_closing:  # it waits for this thread, and performs nothing any more
                raise ClosingError
        deliveries.sync()

    def _on_disk_failure(self, error: OSError) -> None:
        """From the disk's thread."""
        if self._is_closing and is_full(error):
            return  # the stop has given it up already
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.fail, error)

    # -- connections

    def replace_peer(self, peer: ProcessId, boot: int) -> str | None:
        """A peer that was started again replaces its older connection. An older start than the known one is refused."""
        old = self.peers.get(peer)
        if old is None:
            return None
        if boot < old.boot:
            return f"a newer start of {old.identity} is connected already: is it running twice?"
        old.close()
        return None

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.observers.discard(connection)
        self.followers.discard(connection)
        if connection.peer is not None and self.peers.get(connection.peer) is connection:
            del self.peers[connection.peer]


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


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
