"""A node: runs one process object of a protocol on real sockets, a real disk and a real clock.

It is the counterpart of the simulator's machine, and an `Outbox` like it. All inputs of a turn of the event loop are
handled first. Then the turn ends: timers of zero fire, records go to the disk in one batch, the trace is written, each
link gets one write, and the delivery log is written. A node with hardly any input has nothing to gather: it sends right
away what others wait for. What the process issued after a record waits until the disk has it, see `_barrier.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from operator import gt
from random import Random
from typing import NoReturn

from ...core import (
    AppMessage,
    Outbox,
    ProcessId,
    Record,
    StampedMessage,
    TimerKey,
    Timestamp,
    Wire,
    encode,
)
from ...core.ids import SEQ_BITS
from ...protocols import IngressMessage, Reply
from ..config import ClusterConfig, split_name
from ..disk.deliveries import DeliveryLog
from ..disk.files import is_full
from ..disk.records import RecordLog
from ..security.signing import OWNER_BYTES, Signer, Verifier
from ..system import system
from ..trace.clients import ClientTrace
from ..trace.writer import TraceWriter
from ..wire.control import Result
from ..wire.framing import Frame, frame
from ..wire.send_buffer import SendBuffer
from ._barrier import DiskBarrier
from ._clients import ClientChannel, Clients
from .application import Host

_OPTIMISTIC = 1
_QUIET_INPUTS = 2
_LOOK_S = 0.1  # between looks at a disk that is behind


class Node(Outbox):
    """`links`, `trace`, `signer` and `verifier` are filled in by the server before `start`."""

    def __init__(
        self,
        config: ClusterConfig,
        name: str,
        records: RecordLog,
        deliveries: DeliveryLog,
        rng: Random,
    ) -> None:
        self.config = config
        self.name = name
        self.id = config.process_id(name)
        self.topology = config.topology()
        self.group, _ = split_name(name)
        self.deliveries = deliveries
        self.trace: TraceWriter | None = None
        self._client_trace: ClientTrace | None = None
        spec = config.spec().configured(config.replica_config())
        self.spec = spec
        self.checks_entries = spec.numbers_by_entry and len(self.topology.groups) > 1
        self._codec = spec.codec()
        self.has_batches = spec.takes_batches
        self._objects_of = spec.objects_of
        self.client_messages = spec.client_messages
        self.process = spec.build(self.id, self.topology, config.replica_config(), rng)
        self.signer: Signer | None = None  # where the protocol survives liars
        self.verifier: Verifier | None = None
        self._all_speak = spec.survives_liars
        self.links: dict[ProcessId, SendBuffer] = {}
        self.clients = Clients(config.limits)
        self.admission = self.clients.admission
        self.use_records(records)
        self.application: Host | None = None
        # The delivery log can't go on, so that deliveries are held back though the disk has their records.
        self.is_log_full = False
        self.takes_input = True  # not while too much of what it took waits for the disk
        # Called when that changes, and every so often while it does not.
        self.on_intake: Callable[[], None] = lambda: None
        self.on_failure: Callable[[BaseException], None] = _raise
        self._look: asyncio.TimerHandle | None = None
        self._undurable_max = config.limits.undurable_bytes
        self._on_turn_end: tuple[Callable[[], None], ...] = ()
        self.on_gap: Callable[[], None] = lambda: None  # in the delivery log
        self.on_readable: Callable[[int, int], None] = lambda read, position: None
        self._read = system().random_bits(48)  # the latest read: no two lives of a process use the same numbers
        self._wants_read = False
        # When this process is known to have been up to date, in monotonic seconds. Its freshness when it was last seen
        # to rise, and when that was.
        self.fresh_s: float | None = None
        self._freshness_seen: tuple[tuple[int, ...] | None, float] = (None, 0.0)
        self.messages_in = 0
        self.messages_out = 0
        self._epoch_us = config.epoch_s * 1_000_000
        self.clock_offset_us = config.process_named(name).clock_offset_us
        self._loop = asyncio.get_running_loop()
        self._timers: dict[TimerKey, asyncio.TimerHandle] = {}
        self._zero_timers: dict[TimerKey, None] = {}
        self._to_self: list[bytes] = []
        self._dirty: list[SendBuffer] = []
        self._replying: list[ClientChannel] = []
        self._is_turn_ending = False
        self._inputs = 0  # of this turn
        self._is_quiet = False  # the last turn had hardly any inputs
        self.is_running = False  # no input is taken before `start`, nor after `stop`
        self._is_halted = False
        self._leads = False

    # -- life

    def use_records(self, records: RecordLog) -> None:
        """Before `start`: the log in which the process finds what it persisted."""
        self.records = records
        self.barrier = DiskBarrier(records)

    def start(self, is_new: bool) -> None:
        """A process that is not new and has no records has lost them: it knows that from `recover`."""
        records = self.records.recovered
        if records or not is_new:
            self.process.recover([self._codec.decode_record(data) for data in records])
        self.records.forget_recovered()
        self.is_running = True
        self.process.on_boot(self)
        self._touch()

    def use_trace(self, trace: TraceWriter) -> None:
        self.trace = trace
        self._client_trace = ClientTrace(trace)

    def stop(self) -> None:
        """No input is taken any more. What the process issued before is still written, delivered and sent."""
        self.is_running = False
        for handle in self._timers.values():
            handle.cancel()
        self._timers = {}

    def halt(self) -> None:
        """Ends it as a crash would: of what it issued, nothing more is written, delivered or sent."""
        self.stop()
        self._is_halted = True
        self.barrier.clear()
        self.records.drop_pending()
        self._replying, self._dirty = [], []

    def close(self) -> None:
        """Closes the logs and the trace, all of them even if one fails. Nothing is delivered from now on."""
        self.halt()
        with ExitStack() as stack:  # the last one is closed first: the records' thread syncs the delivery log
            if self.trace is not None:
                stack.callback(self.trace.close)
            stack.callback(self.deliveries.close)
            stack.callback(self.records.close)

    # -- inputs

    def receive(self, sender: ProcessId, data: Frame | bytes) -> None:
        """A frame from a peer. Raises BadFrameError if it is no message of this protocol."""
        if not self.is_running:
            return
        message = self._codec.decode_message(data)
        self.messages_in += 1
        self._inputs += 1
        if self.trace is not None and self.trace.records_wire:
            self._trace_wire(sender, message, len(data))
        self.process.on_message(sender, message, self)
        if self._is_quiet and self._replying:  # clients need not wait for the end of the turn
            self._flush()
        if not self._is_turn_ending:
            self._touch()

    def take(self, sender: ProcessId, message: IngressMessage) -> None:
        """A wire message from a client, checked by its connection.

        From here on the state of the process is at stake: what goes wrong is no matter of the connection any more.
        """
        if not self.is_running:
            return
        try:
            self.messages_in += 1
            self._inputs += 1
            if self.trace is not None:
                self._trace_handed_over(message.handed_over())
            self.process.on_message(sender, message, self)
        except Exception as error:
            self.on_failure(error)
        if not self._is_turn_ending:
            self._touch()

    def begin_read(self) -> int:
        """A read that begins when this turn ends, for all who ask in it. `on_readable` is told of its number."""
        if not self._wants_read:
            self._wants_read = True
            self._read += 1
            self._inputs += 1
            if not self._is_turn_ending:
                self._touch()
        return self._read

    def _look_at_freshness(self) -> None:
        """With every timer, a few milliseconds apart. What rose since the last look rose after it, at least."""
        freshness, (before, since_s) = self.process.freshness, self._freshness_seen
        now_s = system().monotonic_s()
        if freshness is None or before is None or len(freshness) != len(before):
            self._freshness_seen = (freshness, now_s)
        elif all(map(gt, freshness, before)):
            self.fresh_s = since_s
            self._freshness_seen = (freshness, now_s)

    def forget_client(self, client: ProcessId, channel: ClientChannel, settled: int = 0) -> None:
        """The client left this connection; all its messages below `settled` were answered, it says."""
        self.clients.detach(client, channel)
        # A node that stops closes the connections itself. A client that is on another one by now has not left.
        if self._client_trace is not None and self.is_running and client not in self.clients.channels:
            self._client_trace.left(client, settled)

    def _fire(self, key: TimerKey) -> None:
        if not self.takes_input:
            self._timers[key] = self._loop.call_later(_LOOK_S, self._fire, key)
            return
        self._timers.pop(key, None)
        if self.is_running:
            self.process.on_timer(key, self)
            self._look_at_freshness()
            self._touch()

    def _touch(self) -> None:
        """Something happened: the turn ends once all inputs that are ready now have been handled."""
        if not self._is_turn_ending:
            self._is_turn_ending = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if self._is_halted:
            return
        if self._wants_read and self.is_running:
            self._wants_read = False
            self.process.on_read(self._read, self)
        while (self._zero_timers or self._to_self) and self.is_running:
            timers, self._zero_timers = self._zero_timers, {}
            inbox, self._to_self = self._to_self, []
            for data in inbox:
                self.process.on_message(self.id, self._codec.decode_message(data), self)
            for key in timers:
                self.process.on_timer(key, self)
        self._is_turn_ending = False
        self._is_quiet = self._inputs <= _QUIET_INPUTS
        self._inputs = 0
        if self._leads != self.process.is_leader:
            self._leads = self.process.is_leader
            if not self._leads:
                self.admission.clear()
        writes = self.barrier.writes
        if writes:
            self.records.commit()
        self._flush()
        self.deliveries.flush()  # last, since nobody waits for it: the records could deliver the messages again
        if writes:
            waiting = self.barrier.waiting_bytes + self.deliveries.unflushed_bytes
            if waiting > self._undurable_max or not self.takes_input:
                self._regulate(waiting)
        for callback in self._on_turn_end:
            callback()

    def watch_turns(self, callback: Callable[[], None], is_wanted: bool) -> None:
        """Has the callback called at the end of each turn, or not any more. Nobody should watch without a need."""
        others = tuple(each for each in self._on_turn_end if each != callback)
        self._on_turn_end = (*others, callback) if is_wanted else others

    def _regulate(self, waiting_bytes: int) -> None:
        """Back-pressure of the disk: with a full or slow one, a node stays bounded in memory and lets others wait.

        Its timers wait too: a process without news would otherwise stand for election again and again, and write that.
        """
        self.takes_input = waiting_bytes <= (self._undurable_max if self.takes_input else self._undurable_max // 2)
        self.on_intake()
        if not self.takes_input and self._look is None:
            self._look = self._loop.call_later(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        """Tries the delivery log once more: nothing else would end a turn now."""
        self._look = None
        self._touch()

    def _flush(self) -> None:
        """All that was sent in this turn leaves, in one write to each receiver."""
        if self.trace is not None:
            self.trace.flush()  # first: if the node is killed, its trace explains whatever others received from it
        if self._replying:
            replying, self._replying = self._replying, []
            for channel in replying:
                channel.send_replies()
        if self._dirty:
            dirty, self._dirty = self._dirty, []
            for buffer in dirty:
                buffer.flush()

    # -- effects

    @property
    def now_us(self) -> int:
        return system().wall_us() - self._epoch_us + self.clock_offset_us

    @property
    def persists_at_once(self) -> bool:
        return not self.barrier.writes

    def send(self, to: ProcessId, message: Wire) -> None:
        if message.hands_over_state:
            self._send_state(to, encode(message))
        elif not isinstance(message, Reply):
            self.send_all((to,), message)
        elif self.barrier.is_up:
            self.barrier.hold(0, self._reply, to, message)
        else:
            self._reply(to, message)

    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None:
        if self.barrier.is_up:
            data = encode(message)
            self.barrier.hold(len(data), self._transmit, tuple(to), data)
        else:
            self._transmit(to, encode(message))

    def _send_state(self, to: ProcessId, data: bytes) -> None:
        if self.barrier.is_up:
            self.barrier.hold(len(data), self._transmit_state, to, data)
        else:
            self._transmit_state(to, data)

    def _transmit_state(self, to: ProcessId, data: bytes) -> None:
        """First the deliveries before the state become durable here: whoever takes over the state never has them.

        Otherwise, if the power fails in the whole group, nobody has them: the receiver, whose disk has the state, hands
        it to those who have lost them. On a full disk nothing is sent: the receiver will ask again.
        """
        try:
            self.deliveries.sync()
        except OSError as error:
            if not is_full(error):
                raise
        else:
            self._transmit((to,), data)

    def _transmit(self, to: Sequence[ProcessId], data: bytes) -> None:
        framed, links = frame(data), self.links
        self.messages_out += len(to)
        for receiver in to:
            link = links.get(receiver)
            if link is not None:
                if link.add(framed):
                    if self._is_quiet and receiver == to[0]:
                        # Hardly anything else would join this frame in the turn, so the first receiver gets it now.
                        # The others get it at the end of the turn: one more vote is often enough, and processes of
                        # one machine that wake up together get into each other's way.
                        if self.trace is not None:
                            self.trace.flush()
                        link.flush()
                    else:
                        self._dirty.append(link)
            elif receiver == self.id:
                self._to_self.append(data)
            else:
                self.clients.send(receiver, framed)
        if not self._is_turn_ending:
            self._touch()

    def _reply(self, client: ProcessId, reply: Reply) -> None:
        """The replies of a turn that go to the same connection leave as one."""
        self.messages_out += 1
        channel = self.clients.channels.get(client)
        if channel is None:
            self.clients.keep(client, frame(encode(reply)))
            return
        self.admission.close(client, reply.ids)
        if channel.reply(reply):
            self._replying.append(channel)
        if not self._is_turn_ending:
            self._touch()

    @property
    def speaks(self) -> bool:
        """Whether it tells clients and other groups what its application says. Whoever is told nothing asks any member.

        It is the group's leader. Where the leader is in another group, which orders for all, it is the first member.
        Where members may lie, nobody is believed alone, and all speak.
        """
        if self._all_speak:
            return True
        leader, members = self.process.leader, self.topology.members(self.group)
        return self._leads if leader is None or leader in members else self.id == members[0]

    def tell(self, to: Sequence[ProcessId], data: bytes) -> None:
        """Sends what applications tell each other: it follows from deliveries, so it need not wait for the disk."""
        framed = frame(data)
        for receiver in to:
            self.messages_out += 1
            link = self.links[receiver]
            if link.add(framed):
                self._dirty.append(link)
        if not self._is_turn_ending:
            self._touch()

    def on_results(self, messages: Sequence[AppMessage], results: Sequence[Result]) -> None:
        """What the application answered, for the client that called: the messages have one sender."""
        if self.speaks:
            channel = self.clients.channels.get(messages[0].id >> SEQ_BITS)
            if channel is not None and channel.results([message.id for message in messages], results):
                self._replying.append(channel)
                if not self._is_turn_ending:
                    self._touch()

    def write(self, buffer: SendBuffer, framed: bytes, is_owed: bool = False) -> None:
        """Sends what the server says on a client's connection, such as BUSY or a chunk of deliveries."""
        if buffer.add(framed, is_owed):
            self._dirty.append(buffer)
        if not self._is_turn_ending:
            self._touch()

    def hurry(self) -> None:
        """What was written leaves now, if hardly anything else would join it in this turn."""
        if self._is_quiet:
            self._flush()

    def sign(self, data: bytes, sender: ProcessId | None = None) -> bytes:
        assert self.signer is not None, "only protocols that survive liars ask for signatures"
        return self.signer.sign(data)

    def verify(self, process: ProcessId, data: bytes, proof: bytes) -> bool:
        assert self.verifier is not None
        return self.verifier.verify(process, data, proof)

    def key_of(self, proof: bytes) -> bytes:
        return proof[:OWNER_BYTES]

    def announce(self, message: AppMessage) -> None:
        if self.trace is not None:
            self._trace_objects((message,))
            self.trace.multicast_all((message,), system().wall_us())

    def deliver(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None:
        if self.barrier.is_up:
            self.barrier.hold(len(message.payload), self._deliver_now, position, message, final_ts)
        else:
            self._deliver_now(position, message, final_ts)

    def _deliver_now(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None:
        self.admission.on_delivered(((message, final_ts),))
        self._trace_deliveries(position, ((message, final_ts),))
        if self.deliveries.append(position, message, final_ts) and self.application is not None:
            self._apply(position, ((message, final_ts),))

    def deliver_all(self, first: int, batch: Sequence[tuple[AppMessage, Timestamp]]) -> None:
        if self.barrier.is_up:
            self.barrier.hold(0, self._deliver_all_now, first, batch)
        else:
            self._deliver_all_now(first, batch)

    def _deliver_all_now(self, first: int, batch: Sequence[tuple[AppMessage, Timestamp]]) -> None:
        if first != self.deliveries.next:  # after a restart: some of it is known
            for message, ts in batch:
                self._deliver_now(first, message, ts)
                first += message.count
            return
        self.admission.on_delivered(batch)
        if self.trace is not None:
            self._trace_deliveries(first, batch)
        self.deliveries.extend(batch)
        if self.application is not None:
            self._apply(first, batch)

    def _apply(self, first: int, batch: Sequence[StampedMessage]) -> None:
        assert self.application is not None
        for message, _ in batch:
            self.application.deliver_batch(first, message)
            first += message.count

    def opt_deliver(self, position: int, message: AppMessage) -> None:
        if self.barrier.is_up:
            self.barrier.hold(0, self._opt_deliver_now, position, message)
        else:
            self._opt_deliver_now(position, message)

    def _opt_deliver_now(self, position: int, message: AppMessage) -> None:
        if self.trace is not None:
            self.trace.delivery(position, message.id, _OPTIMISTIC, None, system().wall_us())
        if self.application is not None:
            self.application.opt_deliver(position, message)

    def restored(self, position: int) -> None:
        if self.barrier.is_up or not self._restored_now(position):
            self.barrier.hold(0, self._restored_now, position)

    def _restored_now(self, position: int) -> bool:
        """False if the disk is full. What follows waits then: the delivery log can't go on before it is told where."""
        try:
            self.deliveries.skip_to(position)
        except OSError as error:
            if not is_full(error):
                raise
            self.is_log_full = True
            self._loop.call_later(_LOOK_S, self.on_durable)
            return False
        self.is_log_full = False
        if self.trace is not None:
            self.trace.restored(position, system().wall_us())
        self.on_gap()
        return True

    def readable(self, read: int, position: int) -> None:
        """It needs no disk: what waits for it is at positions that the application has not reached."""
        self.on_readable(read, position)

    def set_timer(self, key: TimerKey, after_us: int) -> None:
        running = self._timers.pop(key, None)
        if running is not None:
            running.cancel()
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

    def persist(self, record: Record) -> None:
        self.barrier.append(record)

    def snapshot(self, record: Record) -> None:
        self.barrier.append_snapshot(record)

    def on_durable(self) -> None:
        """The disk has caught up, with some or all of the records."""
        if not self._is_halted:
            self.barrier.release()
            self._touch()

    def before_snapshot(self) -> bool:
        """Performs the deliveries that the disk allows, and hands them to the kernel. False if they are not performed.

        A snapshot will replace the records that could bring them again, for the delivery log and for the trace.
        """
        if self._is_halted:
            return False
        self.on_durable()
        self.deliveries.flush()
        if self.trace is not None:
            self.trace.flush()
        return True

    @property
    def waits_for_space(self) -> bool:
        """Whether nothing goes on until there is space on the disk."""
        return self.records.waits_for_space or self.is_log_full

    @property
    def is_settled(self) -> bool:
        """Whether all that the process issued is durable, and performed."""
        return self.records.is_settled and not self.barrier.is_up and not self._is_turn_ending

    # -- trace

    def _trace_handed_over(self, messages: Sequence[AppMessage]) -> None:
        assert self.trace is not None and self._client_trace is not None
        self._trace_objects(messages)
        self.trace.multicast_all(messages, system().wall_us())
        self._client_trace.heard(messages, self.clients.channels)

    def _trace_objects(self, messages: Sequence[AppMessage]) -> None:
        """Where messages are operations on objects."""
        objects_of = self._objects_of
        if objects_of is not None:
            assert self.trace is not None
            for message in messages:
                self.trace.touches(message.id, objects_of(message), system().wall_us())

    def _trace_deliveries(self, first: int, batch: Sequence[tuple[AppMessage, Timestamp | None]]) -> None:
        if self.trace is not None:
            self.trace.deliver_all(first, batch, self.has_batches, system().wall_us())

    def _trace_wire(self, sender: ProcessId, message: Wire, size: int) -> None:
        assert self.trace is not None
        now = system().wall_us()
        kind = str(message.__struct_config__.tag)
        for about in message.about() or (None,):
            self.trace.wire(sender, self.id, kind, about, size, now, now)


def _raise(error: BaseException) -> NoReturn:
    raise error
