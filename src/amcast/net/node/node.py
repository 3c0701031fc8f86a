"""A node: runs one process object of a protocol on real sockets, a real disk and a real clock.

It is the simulated machine's counterpart and an `Outbox` like it. All inputs of a turn of the event loop are handled
first; then the turn ends: zero timers fire, records go to the disk in one batch, the trace is written, every link gets
one write, and the delivery log is written; when there is hardly any input, what others wait for leaves at once. What
was issued after a record waits until the disk has it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from ...core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    ProcessId,
    Record,
    StampedMessage,
    TimerKey,
    Timestamp,
    Wire,
    encode,
    unpack_deliveries,
)
from ...protocols import Reply
from ..config import ClusterConfig
from ..disk.deliveries import DeliveryLog
from ..disk.records import Durability, RecordLog
from ..trace.writer import TraceWriter
from ..wire.framing import Frame, frame
from ..wire.send_buffer import SendBuffer

_OPTIMISTIC = 1
_QUIET_INPUTS = 2
_UNCLAIMED_CLIENTS = 1_000
_UNCLAIMED_EACH = 64


def app_messages(message: Wire) -> Sequence[AppMessage]:
    """Those that a client hands over with it."""
    several: Sequence[AppMessage] | None = getattr(message, "messages", None)
    if several is not None:
        return several
    one = getattr(message, "message", None)
    return (one,) if isinstance(one, AppMessage) else ()


class Application(Protocol):
    """What the node delivers to: see `StateMachine`."""

    def deliver(self, position: int, message: AppMessage) -> None: ...
    def opt_deliver(self, position: int, message: AppMessage) -> None: ...


class ClientChannel(Protocol):
    """Where replies to a client go."""

    open: dict[MessageId, tuple[int, int]]  # what it sent and was not told delivered yet: messages and bytes of each

    def reply(self, reply: Reply) -> bool: ...
    def send_replies(self) -> None: ...
    def send_frame(self, data: bytes) -> None: ...


class Node(Outbox):
    """`links` are filled in by the server before `start`."""

    def __init__(
        self,
        config: ClusterConfig,
        name: str,
        log: RecordLog,
        deliveries: DeliveryLog,
        trace: TraceWriter | None,
        rng: Random,
        boot: int,
    ) -> None:
        self.config = config
        self.name = name
        self.id = config.process_id(name)
        self.topology = config.topology()
        group = self.topology.group_of(self.id)
        assert group is not None
        self.group: GroupId = group
        self.boot = boot
        self.records = log
        self.deliveries = deliveries
        self._trace = trace
        spec = config.spec()
        self._codec = spec.codec()
        self.has_batches = spec.takes_batches
        self.process = spec.build(self.id, self.topology, config.replica_config(), rng)
        self.links: dict[ProcessId, SendBuffer] = {}
        self.clients: dict[ProcessId, ClientChannel] = {}
        self.application: Application | None = None
        self.on_turn_end: list[Callable[[], None]] = []  # followers of the log are served then
        self.messages_in = 0
        self.messages_out = 0
        self.open_messages = 0
        self.open_bytes = 0
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
        self._is_quiet = False  # the last turn had hardly any
        self._waits_for_disk = config.durability is not Durability.MEMORY
        self._is_gated = False  # whether effects must wait for the disk now
        self._barrier = 0  # the number of the last record that was persisted
        self._held: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_stopped = False
        self._leads = False
        self._unclaimed: dict[ProcessId, list[bytes]] = {}  # replies to clients that are not connected

    # -- life

    def start(self) -> None:
        records = self.records.recovered
        if not self.records.is_new:
            self.process.recover([self._codec.decode_record(data) for data in records])
        self.records.forget_recovered()
        self.process.on_boot(self)
        self._touch()

    def stop(self) -> None:
        """No input is taken any more; what was said stays said."""
        self._is_stopped = True
        for handle in self._timers.values():
            handle.cancel()
        self._timers = {}

    def close(self) -> None:
        """Writes what is left to write."""
        self.records.close()  # a last snapshot may still ask for the deliveries
        self.deliveries.close()
        if self._trace is not None:
            self._trace.close()

    # -- inputs

    def receive(self, sender: ProcessId, data: Frame | bytes) -> None:
        """A frame from a peer. Raises BadFrameError for what is no message of this protocol."""
        if self._is_stopped:
            return
        message = self._codec.decode_message(data)
        self.messages_in += 1
        self._inputs += 1
        if self._trace is not None and self._trace.records_wire:
            self._trace_wire(sender, message, len(data))
        self.process.on_message(sender, message, self)
        if self._is_quiet and self._replying:  # clients need not wait for the end of the turn
            self._let_go()
        if not self._is_turn_ending:
            self._touch()

    def take(self, sender: ProcessId, message: Wire) -> None:
        """A message from a client, checked by its connection."""
        if self._is_stopped:
            return
        self.messages_in += 1
        self._inputs += 1
        if self._trace is not None:
            self._trace_start(sender, message)
        self.process.on_message(sender, message, self)
        if not self._is_turn_ending:
            self._touch()

    def _fire(self, key: TimerKey) -> None:
        self._timers.pop(key, None)
        if not self._is_stopped:
            self.process.on_timer(key, self)
            self._touch()

    def _touch(self) -> None:
        """Something happened: the turn ends when all that is ready now has been handled."""
        if not self._is_turn_ending:
            self._is_turn_ending = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        while self._zero_timers or self._to_self:
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
            self._note_leadership()
        self.records.commit()
        self._let_go()
        self.deliveries.flush()  # nobody waits for it: what was delivered can be had from the records again
        for callback in self.on_turn_end:
            callback()

    def _let_go(self) -> None:
        """All that was said leaves, in one write to each receiver."""
        if self._trace is not None:
            self._trace.flush()  # what led to it is told first
        replying, self._replying = self._replying, []
        for channel in replying:
            channel.send_replies()
        dirty, self._dirty = self._dirty, []
        for sender in dirty:
            sender.flush()

    def _note_leadership(self) -> None:
        """Whoever leads next answers the clients: what they sent here is not open here any more."""
        self._leads = self.process.is_leader
        if not self._leads:
            for channel in self.clients.values():
                channel.open.clear()
            self.open_messages = self.open_bytes = 0

    # -- effects

    @property
    def now_us(self) -> int:
        return time.time_ns() // 1_000 - self._epoch_us + self.clock_offset_us

    @property
    def persists_at_once(self) -> bool:
        return not self._waits_for_disk

    def send(self, to: ProcessId, message: Wire) -> None:
        if not isinstance(message, Reply):
            self.send_all((to,), message)
        elif self._is_gated:
            self._held.append((self._barrier, self._reply, (to, message)))
        else:
            self._reply(to, message)

    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None:
        if self._is_gated:
            self._held.append((self._barrier, self._transmit, (tuple(to), message, encode(message))))
        else:
            self._transmit(to, message, encode(message))

    def _transmit(self, to: Sequence[ProcessId], message: Wire, data: bytes) -> None:
        framed = frame(data)
        for receiver in to:
            self.messages_out += 1
            link = self.links.get(receiver)
            if link is not None:
                if link.add(framed):
                    if self._is_quiet and receiver == to[0]:
                        # Nothing else will join it, and what this process does next can wait. So can the others: one
                        # vote is often enough, and processes that wake up together get into each other's way.
                        if self._trace is not None:
                            self._trace.flush()
                        link.flush()
                    else:
                        self._dirty.append(link)
            elif receiver == self.id:
                self._to_self.append(data)
            else:
                self._send_to_client(receiver, framed)
        if not self._is_turn_ending:
            self._touch()

    def _send_to_client(self, client: ProcessId, framed: bytes) -> None:
        channel = self.clients.get(client)
        if channel is None:
            self._keep_reply(client, framed)
        else:
            channel.send_frame(framed)

    def _reply(self, client: ProcessId, reply: Reply) -> None:
        """What goes to the same connection in this turn leaves as one."""
        self.messages_out += 1
        channel = self.clients.get(client)
        if channel is None:
            self._keep_reply(client, frame(encode(reply)))
            return
        for id_ in reply.ids:
            self.close_one(channel, id_)
        if channel.reply(reply):
            self._replying.append(channel)
        if not self._is_turn_ending:
            self._touch()

    def close_one(self, channel: ClientChannel, id_: MessageId) -> None:
        """It does not count as under way any more."""
        opened = channel.open.pop(id_, None)
        if opened is not None:
            self.open_messages -= opened[0]
            self.open_bytes -= opened[1]

    def _keep_reply(self, client: ProcessId, framed: bytes) -> None:
        """For a client that is on its way: its message may have entered at another group. It would ask again, later."""
        replies = self._unclaimed.setdefault(client, [])
        if len(replies) < _UNCLAIMED_EACH:
            replies.append(framed)
        if len(self._unclaimed) > _UNCLAIMED_CLIENTS:
            del self._unclaimed[next(iter(self._unclaimed))]

    def claim_replies(self, client: ProcessId) -> list[bytes]:
        return self._unclaimed.pop(client, [])

    def touch_sender(self, sender: SendBuffer, framed: bytes) -> None:
        """For what the server itself has to say on a connection."""
        if sender.add(framed):
            self._dirty.append(sender)
        if not self._is_turn_ending:
            self._touch()

    def announce(self, message: AppMessage) -> None:
        if self._trace is not None:
            self._trace.multicast_all((message,), time.time_ns() // 1_000)

    def deliver(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None:
        if self._is_gated:
            self._held.append((self._barrier, self._deliver_now, (position, message, final_ts)))
        else:
            self._deliver_now(position, message, final_ts)

    def _deliver_now(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None:
        self._trace_deliveries(position, ((message, final_ts),))
        if self.deliveries.append(position, message, final_ts) and self.application is not None:
            self._apply(position, ((message, final_ts),))

    def deliver_all(self, first: int, batch: Sequence[tuple[AppMessage, Timestamp]]) -> None:
        if self._is_gated:
            self._held.append((self._barrier, self._deliver_all_now, (first, batch)))
        else:
            self._deliver_all_now(first, batch)

    def _deliver_all_now(self, first: int, batch: Sequence[tuple[AppMessage, Timestamp]]) -> None:
        if first != self.deliveries.next:  # after a restart: some of it is known
            for message, ts in batch:
                self._deliver_now(first, message, ts)
                first += message.count
            return
        self._trace_deliveries(first, batch)
        self.deliveries.extend(batch)
        if self.application is not None:
            self._apply(first, batch)

    def _apply(self, first: int, batch: Sequence[StampedMessage]) -> None:
        assert self.application is not None
        for position, message, _ in unpack_deliveries(first, batch, self.has_batches):
            self.application.deliver(position, message)

    def opt_deliver(self, position: int, message: AppMessage) -> None:
        if self._is_gated:
            self._held.append((self._barrier, self._opt_deliver_now, (position, message)))
        else:
            self._opt_deliver_now(position, message)

    def _opt_deliver_now(self, position: int, message: AppMessage) -> None:
        if self._trace is not None:
            self._trace.delivery(position, message.id, _OPTIMISTIC, None, time.time_ns() // 1_000)
        if self.application is not None:
            self.application.opt_deliver(position, message)

    def restored(self, position: int) -> None:
        if self._is_gated:
            self._held.append((self._barrier, self._restored_now, (position,)))
        else:
            self._restored_now(position)

    def _restored_now(self, position: int) -> None:
        if position > self.deliveries.next:
            self.deliveries.skip_to(position)
        if self._trace is not None:
            self._trace.restored(position, time.time_ns() // 1_000)

    def set_timer(self, key: TimerKey, after_us: int) -> None:
        if after_us <= 0:
            self._zero_timers[key] = None
            self._touch()
            return
        running = self._timers.get(key)
        if running is not None:
            running.cancel()
        self._timers[key] = self._loop.call_later(after_us / 1e6, self._fire, key)

    def cancel_timer(self, key: TimerKey) -> None:
        self._zero_timers.pop(key, None)
        running = self._timers.pop(key, None)
        if running is not None:
            running.cancel()

    # -- the disk as a barrier

    def persist(self, record: Record) -> None:
        if self._waits_for_disk:
            self._barrier = self.records.append(encode(record))
            self._is_gated = True
            self._touch()
        else:
            self._barrier = self.records.append(b"")  # it is only counted

    def snapshot(self, record: Record) -> None:
        if self._waits_for_disk:
            self._barrier = self.records.append_snapshot(encode(record))
            self._is_gated = True
            self._touch()
        else:
            self._barrier = self.records.append_snapshot(b"")

    def on_durable(self) -> None:
        """The disk has caught up: what waited for it happens now, in order."""
        durable, held = self.records.durable, self._held
        while held and held[0][0] <= durable:
            _, action, args = held.popleft()
            action(*args)
        self._is_gated = bool(held) or self._barrier > durable
        self._touch()

    @property
    def problem(self) -> str | None:
        """What people should know of."""
        if self.records.waits_for_space:
            return "the disk is full: nothing is acknowledged until there is space"
        return None if self._trace is None else self._trace.failed

    @property
    def undurable(self) -> int:
        return max(0, self._barrier - self.records.durable)

    # -- trace

    def _trace_start(self, sender: ProcessId, message: Wire) -> None:
        assert self._trace is not None
        now = time.time_ns() // 1_000
        self._trace.multicast_all(app_messages(message), now)

    def _trace_deliveries(self, first: int, batch: Sequence[tuple[AppMessage, Timestamp | None]]) -> None:
        if self._trace is not None:
            self._trace.deliver_all(first, batch, self.has_batches, time.time_ns() // 1_000)

    def _trace_wire(self, sender: ProcessId, message: Wire, size: int) -> None:
        assert self._trace is not None
        now = time.time_ns() // 1_000
        kind = str(message.__struct_config__.tag)
        for about in message.about() or (None,):
            self._trace.wire(sender, self.id, kind, about, size, now, now)
