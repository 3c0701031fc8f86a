"""The outside of a node: makes it, listens, keeps the links to the peers, and tells people how it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from ...core import ProcessId, UsageError
from ..config import ClusterConfig, load_config
from ..disk.deliveries import DeliveryLog
from ..disk.records import RecordLog
from ..security.access import Access
from ..security.credentials import ProcessCredentials
from ..trace.writer import TraceWriter
from ..wire.control import (
    VERSION,
    AppState,
    AppStateQuery,
    Hello,
    Layout,
    Request,
    Status,
)
from ..wire.dialer import Channel, RefusedError, dial
from ..wire.send_buffer import Delay, SendBuffer
from ._folder import ClientIds, count_boot, lock_folder
from .application import Host, StateMachine
from .connection import HELLO_TIMEOUT_S, Connection
from .links import Link
from .metrics import serve_metrics
from .node import Node

_CATCH_UP_S = 0.2
_STATE_TIMEOUT_S = 60.0
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
        self.peers: dict[ProcessId, Connection] = {}
        self.followers: set[Connection] = set()
        self.refused = 0
        self.busy = 0
        self.failure: asyncio.Future[None] = self.loop.create_future()
        self._started = time.monotonic()
        folder = config.data_folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder_lock = lock_folder(folder, name)
        self.client_ids = ClientIds(folder, self.ids[name])
        boot = count_boot(folder)
        self.node = self._make_node(folder, name, boot)
        self.host = None if machine is None else Host(machine, self.node.deliveries, folder, _SNAPSHOT_EVERY)
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
        deliveries = DeliveryLog.open(
            folder / "deliveries", config.durability, config.keep_messages, has_batches=config.spec().takes_batches
        )
        log = RecordLog.open(
            folder / "log",
            config.durability,
            self._on_durable,
            self._on_disk_failure,
            before_snapshot=lambda: self._before_snapshot(deliveries),
        )
        if log.note is not None:
            logger.warning("%s", log.note)
        trace = None
        process = self.ids[name]
        group = config.topology().group_of(process)
        assert group is not None
        if config.trace:
            trace = TraceWriter(config.path(config.data) / "trace", process, group, boot, config.trace_wire)
        return Node(config, name, log, deliveries, trace, Random(f"{config.cluster} {name} {boot}"), boot)

    def _make_link(self, peer: str) -> Link:
        process = self.ids[peer]
        topology, latency = self.node.topology, self.config.latency()
        delay = None
        if latency is not None:
            mean = latency.mean_us(topology.region(self.node.id), topology.region(process))
            delay = Delay(mean, latency.sigma, Random(f"{self.node.name} {peer}"))
        sender = SendBuffer(self.config.limits.link_bytes, delay)
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
                ssl_handshake_timeout=HELLO_TIMEOUT_S if self.security.server else None,
                backlog=1_024,
            )
            if self.process_config.metrics:
                self._metrics = await serve_metrics(host, self.process_config.metrics, self.metrics)
        except OSError as error:
            self.node.records.close()
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
        channel = await dial(address, hello, self.security.client, name, on_message)
        try:
            channel.say(AppStateQuery())
            async with asyncio.timeout(_STATE_TIMEOUT_S):
                return await answer
        finally:
            channel.transport.abort()

    def reload_clock(self) -> None:
        if self.config.file is not None:
            self.node.clock_offset_us = load_config(self.config.file).process_named(self.node.name).clock_offset_us

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

    def _before_snapshot(self, deliveries: DeliveryLog) -> None:
        """From the disk's thread. With a snapshot go the records that could deliver messages again.

        So what was held back until those records were durable must happen first, and be on the disk by itself.
        """
        happened = threading.Event()

        def let_happen() -> None:
            self.node.on_durable()
            deliveries.flush()
            happened.set()

        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(let_happen)
            # A loop that is closing waits for this thread: then nothing held back will ever happen.
            while not happened.wait(0.05) and not self._is_closing:
                pass
        deliveries.sync()

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
        self.followers.discard(connection)
        if connection.peer is not None and self.peers.get(connection.peer) is connection:
            del self.peers[connection.peer]
        for client in connection.sessions:
            if self.node.clients.get(client) is connection:
                del self.node.clients[client]
        for count, size in connection.open.values():
            self.node.open_messages -= count
            self.node.open_bytes -= size
        connection.open = {}

    def wake_followers(self) -> None:
        self.loop.call_soon(self._serve_followers)

    def _serve_followers(self) -> None:
        if not self.followers:
            return
        more = False
        for connection in list(self.followers):
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
            delivered=node.deliveries.next,
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
