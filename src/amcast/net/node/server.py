"""The outside of a node: makes it from its configuration and its data folder, listens, and keeps links to its peers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from ...core import GroupId, ProcessId, UsageError
from ..config import ClusterConfig, load_config, split_name
from ..disk.deliveries import DeliveryLog
from ..disk.files import is_full, lacks_space
from ..disk.records import ClosingError, Durability, RecordLog
from ..layout import layout_of
from ..security.credentials import ProcessCredentials
from ..system import system
from ..trace.writer import Bounds, TraceWriter
from ..wire.acceptor import Acceptor
from ..wire.control import VERSION, Hello, Lost, Member, Request, cluster_layout
from ..wire.framing import Frame, frame
from ..wire.send_buffer import Delay, SendBuffer
from ._accounts import Accounts
from ._audit import Audit, Rate
from ._backfill import Backfill
from ._client_ids import ClientIds
from ._connection_budget import ConnectionBudget
from ._credential_watch import CredentialWatch
from ._exchange import Exchange
from ._followers import Followers
from ._gate import Gate
from ._keeper import Keeper
from ._members import Address, Members
from ._off_loop import off_loop
from ._queries import Queries
from ._reader_service import DumpedState
from ._refusals import Cause, Refusals
from ._shared_states import SharedStates
from ._slow_readers import SlowReaders
from ._status import metrics_of, status_of
from ._witnesses import Witnesses
from .application import ExchangingMachine, Host, Machine
from .connection import Connection
from .data_folder import DataFolder, State
from .links import Link, LinkBuffer
from .metrics import MetricsPort, metrics_place
from .node import Node

_LOOK_S = 0.005  # between looks at a disk that a stop waits for
_NEW_CERTIFICATES_S = 2.0  # until the other processes have read theirs as well, probably
_SPACE_S = 5.0  # how long a stop waits for space on a full disk
_STATUS_US = 10_000  # an answer to a status query is as old as this, at most: there may be many queries

logger = logging.getLogger("amcast.node")


class NodeServer:
    def __init__(
        self, config: ClusterConfig, name: str, machine: Machine | None = None, hold_at: int | None = None
    ) -> None:
        """`hold_at`: the application executes nothing from this position on, until its group has decided to skip it."""
        config.check()
        self.config = config
        self.ids = config.ids()
        self.process_config = config.process_named(name)
        self.loop = asyncio.get_running_loop()
        entering = config.spec().ingress_messages
        requests: Any = Request if entering is None else Request | entering
        self.requests: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(requests)
        config.check_exposure(name)
        self.refusals = Refusals()
        self.audit = Audit(config.path(config.data) / "audit" / f"{name}.jsonl", name)
        self.security = ProcessCredentials(config, name, self._on_handshake_problem)
        self.credential_watch = CredentialWatch(self)
        self.budget = ConnectionBudget(config.limits, system().descriptors(), len(config.process))
        self.accounts = Accounts()
        self.connections: dict[Connection, None] = {}  # in the order in which they came
        self.peers: dict[ProcessId, Connection] = {}
        self.failure: asyncio.Future[None] = self.loop.create_future()
        self.started_s = system().monotonic_s()
        self.folder = DataFolder.open(config, name)
        path = self.folder.path
        self.client_ids = ClientIds(path, config.client_ids(self.ids[name]))
        self.witnesses = Witnesses(path)
        self.node = self._make_node(path, name)
        self.node.signer, self.node.verifier = self.security.signer, self.security.verifier
        self.node.on_intake = self._regulate
        self.node.on_failure = self.fail
        members = [each for each in self.ids if split_name(each)[0] == self.node.group]
        self.gate = Gate.of_group(name, members, list(self.ids), self._lost_needed(members))
        self.start_problem: str | None = None  # why the process never starts
        self.host = None if machine is None else self._make_host(machine, path)
        if self.host is not None:
            self.host.skips.hold_at = hold_at
        self.node.application = self.host
        self.dumped_state = DumpedState(self.host)
        needed = self._needed(self.node.group)
        self.shared_states = None if self.host is None or needed == 1 else SharedStates(self.host)
        self.backfill = Backfill(self.node.group, self.node.has_batches, self.node.deliveries, self._members(), needed)
        self.node.on_gap = self.backfill.hurry
        self.followers = Followers(self.node, config.limits)
        self.queries = Queries(self.node, config.limits)
        self._slow_readers = SlowReaders(self.connections, config.limits)
        self._status, self._status_at_us = b"", 0
        self.layout = msgspec.msgpack.encode(cluster_layout(config))
        self.data_layout = layout_of(config)
        self._links = [self._make_link(peer) for peer in self.ids if peer != name]
        self._link_tasks: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._acceptor: Acceptor | None = None
        self._metrics: MetricsPort | None = None
        self._is_closing = False
        self._broken = Rate(10, 100)  # connections whose end is logged

    # -- making

    def _make_node(self, path: Path, name: str) -> Node:
        config = self.config
        deliveries = DeliveryLog.open(
            path / "deliveries",
            config.durability,
            config.keep_messages,
            config.limits.segment_bytes,
            has_batches=config.spec().takes_batches,
        )
        records = self._open_records(deliveries)
        if self.folder.state is State.USED and not records.recovered and not self.is_alone(name):
            logger.error("%s holds none of the records that it had: they are lost", self.folder.record_folder)
            records.close()
            self.folder.begin_incarnation(None)
            records = self._open_records(deliveries)
        # Not from what is on the disk: after two losses a process would draw the same nonce twice, and its group would
        # take it for its earlier life.
        return Node(config, name, records, deliveries, Random(system().random_bits(64)))

    def _open_records(self, deliveries: DeliveryLog) -> RecordLog:
        records = RecordLog.open(
            self.folder.record_folder,
            self.config.durability,
            self._on_durable,
            self._on_disk_failure,
            before_snapshot=lambda: self._before_snapshot(deliveries),
            before_first=partial(self.folder.mark_used, self.folder.incarnation),
            segment_bytes=self.config.limits.segment_bytes,
        )
        if records.note is not None:
            logger.warning("%s", records.note)
        self._records_found = records.synced
        return records

    def _open_trace(self) -> None:
        """When it is certain which boot this is: a process that lost its disk may have counted one that was before."""
        config, node = self.config, self.node
        if config.trace:
            path = config.path(config.data) / "trace"
            folder = self.folder
            bounds = Bounds(config.limits.trace_bytes, config.limits.trace_age_s)
            wire = config.trace_wire
            node.use_trace(TraceWriter(path, node.id, node.group, folder.boot, wire, folder.idle, bounds))

    def _make_host(self, machine: Machine, folder: Path) -> Host:
        node, limits = self.node, self.config.limits
        where = None if self.config.durability is Durability.MEMORY else folder
        exchange = None
        if isinstance(machine, ExchangingMachine):
            others = {group: node.topology.members(group) for group in node.topology.groups if group != node.group}
            needed = {group: self._needed(group) for group in others}
            exchange = Exchange(others, node.tell, self._tells_groups, limits.reads_bytes, where is not None, needed)
        host = Host(
            machine,
            node.deliveries,
            where,
            limits.snapshot_messages,
            limits.results_bytes,
            exchange,
            node.group,
            self._needed(node.group),
        )
        host.on_results = node.on_results
        return host

    def _tells_groups(self) -> bool:
        """One member for all of them; where it might lie, each by itself."""
        return self.node.speaks or self._needed(self.node.group) > 1

    def _members(self) -> Members:
        """The other members of the group, to be asked for what this node misses."""
        node, addresses = self.node, self.config.addresses()
        others = [peer for peer in node.topology.members(node.group) if peer != node.id]
        members = [Address(node.topology.name(peer), addresses[peer]) for peer in others]
        return Members(members, self._reader_hello, self.security.tls, self.security.seal)

    def _reader_hello(self) -> Hello:
        return Hello(VERSION, self.config.cluster, "reader", self.node.name)

    def _make_link(self, peer: str) -> Link:
        process, node = self.ids[peer], self.node
        delay = self.delay_to(node.topology.region(process), peer)
        limit = self.config.limits.link_bytes
        is_durable = node.records.writes  # otherwise there is nothing to tell a peer
        buffer = LinkBuffer(limit, delay, lambda: node.records.synced) if is_durable else SendBuffer(limit, delay)
        node.links[process] = buffer
        address = self.config.addresses()[process]
        return Link(peer, address, self._hello, self.security.tls, buffer, self, logger.info, self.security.seal)

    def _hello(self) -> Hello:
        member = Member(self.config.id, self.data_layout, self.folder.life(self._records_found))
        return Hello(VERSION, self.config.cluster, "process", self.node.name, member)

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
        tls = None if self.security.tls is None else self.security.tls.server
        try:
            sockets = system().listen(host, port)
            self._acceptor = Acceptor(sockets, self, tls, self.config.limits.hello_ms / 1_000)
            if self.process_config.metrics:
                place = metrics_place(host, self.process_config.metrics, self.security.tls)
                self._metrics = MetricsPort(place, lambda: metrics_of(self))
        except OSError as error:
            self.node.records.close()
            raise UsageError(f"{self.node.name} can't listen on {host}:{port}: {error.strerror}") from error
        self.witnesses.start()
        self._link_tasks = [asyncio.create_task(self._guard(link.run)) for link in self._links]
        for task in (self._enter, self._find_processes, self._slow_readers.run):
            self._tasks.append(asyncio.create_task(self._guard(task)))
        if self.security.may_change:
            self._tasks.append(asyncio.create_task(self._guard(self.credential_watch.run)))
        logger.info("%s listens on %s:%s (start %s)", self.node.name, host, port, self.folder.boot)

    async def _find_processes(self) -> None:
        """Where connections of other processes may come from. A name that nobody knows now is no reason to wait."""
        for host in dict.fromkeys(host for host, _ in self.config.addresses().values()):
            self.budget.expect_processes(await off_loop(partial(system().addresses_of, host)))

    async def _enter(self) -> None:
        """Starts the process once the others have been asked what they know of it."""
        while (lost := await self.gate.answers()) is not None:
            if not self._may_lose_disk(lost):
                return
            self._become_lost(lost)
        if not self.folder.is_new and not self.node.records.recovered and not self._may_lose_disk(None):
            return
        self._open_trace()  # first: a kill in between leaves a boot without a part, not a part without a trace
        self.folder.mark_started()
        self._tasks.append(asyncio.create_task(self._guard(self.backfill.run)))
        if self.host is not None:
            self.host.recover()
            self._check_hold(self.host)
            needed = self._needed(self.node.group)
            keeper = Keeper(self.host, self.node.deliveries, self.backfill, self._members(), needed)
            self._tasks.append(asyncio.create_task(self._guard(keeper.run)))
        self.node.start(self.folder.is_new)

    def _check_hold(self, host: Host) -> None:
        if host.skips.hold_at is not None and host.position > host.skips.hold_at:
            raise UsageError(
                f"the application can't be held at position {host.skips.hold_at}: its saved state is of {host.position}"
            )

    def _lost_needed(self, members: list[str]) -> int:
        """One more than may lie of those who are asked about this process's disk: its group, or all if it is alone."""
        groups = self.node.topology.groups if len(members) == 1 else (self.node.group,)
        return sum(self._needed(group) - 1 for group in groups) + 1

    def _needed(self, group: GroupId) -> int:
        """How many members of a group must say the same before it is believed."""
        return self.config.spec().liars_max(len(self.node.topology.members(group))) + 1

    def may_read(self, name: str) -> bool:
        """Whether a process may ask for deliveries and states. Only members of this group do, unless they lie."""
        return not self.config.spec().survives_liars or split_name(name)[0] == self.node.group

    def is_alone(self, name: str) -> bool:
        """Whether a process is the only one of its group: then nobody else has what it loses."""
        group, _ = split_name(name)
        return sum(split_name(each)[0] == group for each in self.ids) == 1

    def _may_lose_disk(self, lost: Lost | None) -> bool:
        """In a group of one, the process stays silent, and its disk as it is."""
        if not self.is_alone(self.node.name):
            return True
        why = "its records are lost" if lost is None else lost.reason
        self.start_problem = f"{why}; {self.node.name} is alone in its group, so only its own disk can bring it back"
        logger.error("%s does not start: %s", self.node.name, self.start_problem)
        return False

    def _become_lost(self, lost: Lost) -> None:
        """This process does not believe its own records: it begins anew, and its group takes it back."""
        logger.error("%s lost its disk, and waits for its group to take it back: %s", self.node.name, lost.reason)
        self.node.records.close()
        self.folder.begin_incarnation(lost.known)
        self.node.use_records(self._open_records(self.node.deliveries))
        self.gate.reset()
        for link in self._links:
            link.reconnect()

    def on_welcome(self, peer: str) -> None:
        self.gate.on_welcome(peer)
        if self.node.is_running and self.host is not None and self.host.exchange is not None:
            self.host.exchange.announce()  # what was said before may be lost

    def on_exchange(self, peer: ProcessId, data: Frame) -> str | None:
        """What a process of another group tells this one's application. Returns what is wrong with it."""
        if not self.node.is_running or self.host is None or self.host.exchange is None:
            return None
        return self.host.exchange.on_frame(peer, data)

    def on_lost(self, peer: str, answer: Lost) -> bool:
        if answer.known.incarnation < self.folder.incarnation and answer.known.boot < self.folder.boot:
            # It answers what this process said before it became another incarnation, unless it lies.
            return self.gate.believes_one
        if not self.gate.on_lost(peer, answer):
            return False
        if self.node.is_running:
            self._fail_lost()
        return True

    def _fail_lost(self) -> None:
        """One who was away when this process started remembers what those who were there did not."""
        lost = self.gate.lost
        assert lost is not None
        try:
            if not self.is_alone(self.node.name):
                self.folder.begin_incarnation(lost.known)
        except OSError as error:
            logger.error("%s: %s", self.folder.path, error)  # whoever said LOST says it again at the next start
        advice = "give it the disk that it had" if self.is_alone(self.node.name) else "start it again: it is taken back"
        self.fail(UsageError(f"{lost.reason}; {advice}"))

    async def stop(self) -> None:
        """Takes no more input, lets the disk catch up, delivers and sends what waited for it, and closes everything.

        A kill at any moment of it loses nothing: what is not done yet, the records bring again at the next start.
        """
        self.node.stop()
        for listener in (self._acceptor, self._metrics):
            if listener is not None:
                await listener.close()
        await _cancel(self._tasks)
        if not self.failure.done():
            await self._settle()
        await _cancel(self._link_tasks)
        for connection in list(self.connections):
            connection.close()
        await self.witnesses.close()
        self._is_closing = True
        self.dumped_state.forget()
        if self.shared_states is not None:
            self.shared_states.forget()
        if self.host is not None and self.host.exchange is not None:
            self.host.exchange.close()
        with contextlib.ExitStack() as stack:  # all of it, even if the disk fails
            stack.callback(self.audit.close)
            stack.callback(self.folder.close)
            stack.callback(self.node.close)
            if not self.failure.done():
                self._save_application()

    def _save_application(self) -> None:
        try:
            self.node.deliveries.sync()
            if self.host is not None:
                self.host.save()
        except OSError as error:
            if not lacks_space(error):
                raise
            logger.warning(
                "%s stops though the disk is full: its application goes on from an older state", self.node.name
            )

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except Exception as error:
            self.fail(error)

    async def _settle(self) -> None:
        """Waits for the disk, with the loop alive: before a snapshot is written, the disk's thread waits for the loop.

        What a full disk does not take in some seconds is left undone.
        """
        self.node.records.commit()
        deadline_s = self.loop.time() + _SPACE_S
        while not self.node.is_settled and not self.failure.done():
            if not self.node.waits_for_space:
                deadline_s = self.loop.time() + _SPACE_S
            elif self.loop.time() >= deadline_s:
                logger.warning("%s stops though the disk is full: what is not written is undone", self.node.name)
                return
            await asyncio.sleep(_LOOK_S)

    def _regulate(self) -> None:
        """The node takes no input any more, or takes it again."""
        for connection in self.connections:
            connection.hold(not self.node.takes_input)

    def reload(self) -> None:
        """Reads the credentials again, and the offset of the clock. A file that can't be read changes nothing."""
        self.credential_watch.reload()
        if self.config.file is None:
            return
        try:
            found = load_config(self.config.file).process_named(self.node.name)
        except UsageError as error:
            logger.error("%s; what was there before stays", error)
        else:
            self.node.clock_offset_us = found.clock_offset_us

    def move_links(self) -> None:
        """This process has a new certificate: the old one, or its CA, may soon be revoked."""
        self._tasks.append(asyncio.create_task(self._guard(self._move_links)))

    async def _move_links(self) -> None:
        await asyncio.sleep(_NEW_CERTIFICATES_S)
        for link in self._links:
            await link.move()

    def recheck_links(self) -> None:
        for link in self._links:
            link.recheck()

    def on_loop_problem(self, context: dict[str, Any]) -> None:
        """An exception that no handler caught. Connections may break at any time; everything else is a bug.

        What a handler of ours raises is never taken for a broken connection: an OSError may come from the disk, or from
        the application. Handlers that the loop calls for a connection catch their errors themselves, and so do tasks. A
        future of the loop's own that nobody waits for any more is that of an attempt to connect which was given up.
        """
        error, future = context.get("exception"), context.get("future")
        is_transport = "transport" in context or "socket" in context
        is_abandoned = future is not None and not isinstance(future, asyncio.Task)
        if error is None or (isinstance(error, OSError) and (is_transport or is_abandoned)):
            if self._broken.take():  # strangers can break as many as they like
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
        if self.node.is_log_full:
            raise OSError(errno.ENOSPC, "the delivery log can't go on")  # and the snapshot waits as well
        deliveries.sync()

    def _on_disk_failure(self, error: OSError) -> None:
        """From the disk's thread."""
        if self._is_closing and is_full(error):
            return  # the stop has given it up already
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.fail, error)

    # -- connections

    def admit(self, host: str) -> Connection | None:
        cause = self.budget.problem_at_door(host)
        if cause is not None:
            self.refuse_stranger(cause, f"a stranger at {host}", f"there are too many: the limit of {cause} is reached")
            return None
        connection = Connection(self)
        if self.budget.enter(connection, host):
            self.refuse_stranger(Cause.STRANGERS, "a stranger", f"it gives way to another one, at {host}")
        return connection

    def on_exhausted(self, error: OSError) -> None:
        self.refuse_stranger(Cause.DESCRIPTORS, "strangers", f"no connection can be accepted: {error.strerror}")

    def _on_handshake_problem(self, problem: str) -> None:
        self.refuse_stranger(Cause.HANDSHAKE, "a stranger", problem)

    def refuse_stranger(self, cause: Cause, who: str, reason: str) -> None:
        """Before there is a connection that could be told why."""
        self.refusals.note(cause, who, reason)
        self.audit.note("refused", who, reason=reason)

    def now_us(self) -> int:
        """For rates: it only goes forward."""
        return int(system().monotonic_s() * 1e6)

    def status_frame(self) -> bytes:
        now_us = self.now_us()
        if not self._status or now_us - self._status_at_us > _STATUS_US:
            self._status, self._status_at_us = frame(msgspec.msgpack.encode(status_of(self))), now_us
        return self._status

    def replace_peer(self, connection: Connection) -> None:
        """A peer that connects anew, or was started again, replaces its older connection."""
        assert connection.peer is not None
        old = self.peers.get(connection.peer)
        self.peers[connection.peer] = connection
        if old is not None:
            old.close()

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self.budget.leave(connection)
        self.followers.discard(connection)
        if connection.account is not None:
            self.accounts.close(connection.account)
            connection.account = None
        if connection.peer is not None and self.peers.get(connection.peer) is connection:
            del self.peers[connection.peer]


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
