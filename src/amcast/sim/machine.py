"""A simulated machine: runs one process object, and performs its effects on simulated network, disk, clock and CPU.

Messages cross as bytes through the real codec. A machine may be slow (a CPU cost a message and a byte, so that it
saturates and queues), pause, crash in the middle of what it does, and come back with its disk or without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

import msgspec

from ..core import (
    AppMessage,
    BadFrameError,
    Codec,
    MessageId,
    Outbox,
    Process,
    ProcessId,
    Record,
    StampedMessage,
    TimerKey,
    Timestamp,
    Wire,
    encode,
    unpack_deliveries,
)
from .disk import Disk
from .engine import EventLoop
from .keys import Keys
from .network import Network


class CpuCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What it costs to handle and to send a message. If all is zero, machines are infinitely fast."""

    receive_ns: int = 0
    send_ns: int = 0
    byte_ns: int = 0


class Observer(Protocol):
    """Is told of all that happens: it records the trace, and knows when a run is over."""

    def saw_multicast(self, process: ProcessId, message: AppMessage) -> None: ...
    def saw_delivery(
        self, process: ProcessId, position: int, message: AppMessage, ts: Timestamp | None, optimistic: bool
    ) -> None: ...
    def saw_restored(self, process: ProcessId, position: int) -> None: ...
    def saw_restart(self, process: ProcessId) -> None: ...
    def saw_read(self, process: ProcessId, read: int) -> None: ...
    def saw_readable(self, process: ProcessId, read: int, position: int) -> None: ...
    @property
    def record_wire(self) -> Callable[..., None]:
        """Records a wire message that is about one application message or none. For the others there is `saw_wire`."""

    def saw_wire(
        self,
        src: ProcessId,
        dst: ProcessId,
        kind: str,
        about: tuple[MessageId, ...],
        size: int,
        sent: int,
        received: int | None,
    ) -> None: ...


Packet = tuple[ProcessId, bytes, str, tuple[MessageId, ...], int]  # sender, data, kind, about, sent

_kinds: dict[type, str] = {}


def _kind(message: Wire) -> str:
    kind = _kinds.get(type(message))
    if kind is None:
        kind = _kinds[type(message)] = str(message.__struct_config__.tag)
    return kind


def _nothing() -> None:
    pass


def takes_anything(sender: ProcessId, message: Wire) -> bool:
    return True


class Machine(Outbox):
    def __init__(
        self,
        id_: ProcessId,
        loop: EventLoop,
        network: Network,
        codec: Codec,
        observer: Observer,
        build: Callable[[int], Process],
        rng: Random,
        cpu: CpuCost,
        sync_us: int,
        has_batches: bool = False,
        takes: Callable[[ProcessId, Wire], bool] = takes_anything,
        keys: Keys | None = None,
    ) -> None:
        self.id = id_
        self._keys = keys or Keys()
        self._loop = loop
        self._network = network
        self._codec = codec
        self._observer = observer
        self._record_wire = observer.record_wire
        self._build = build  # the number of the boot -> a new process object
        self._rng = rng
        self._cpu = cpu
        self._has_cpu_cost = bool(cpu.receive_ns or cpu.send_ns or cpu.byte_ns)
        self._is_slow = self._has_cpu_cost  # whether inputs may have to queue
        self._sync_us = sync_us
        self._has_batches = has_batches
        self._takes = takes  # whether it takes a message from this sender; of a client, a driver takes only some
        self.peers: dict[ProcessId, Machine] = {}
        self.liars: frozenset[ProcessId] = frozenset()
        self.process = build(0)
        self.is_up = False
        self.sent = 0  # messages, in all boots
        self._boots = 0
        self._reads = 0  # in all boots
        self._disk = Disk()
        self._lost_disk = False
        self._timers: dict[TimerKey, int] = {}
        self._timer_seq = 0
        self._free_at_ns = 0  # when the CPU has finished what it took on
        self._inbox: deque[tuple[Callable[..., None], Any, Any]] = deque()
        self._draining = False
        self._paused_until = 0
        self._clock_offset_us = 0
        self._clock_drift = 0.0
        self._fuse = -1  # crash after so many more sends
        self._fuse_kind: str | None = None
        self._fuse_crash: Callable[[], None] = _nothing
        self._syncing = False
        self._held: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()  # effects that wait for the disk
        self._held_writes = 0  # records among them: a snapshot, and what was written after it
        self._is_gated = False  # whether effects can't be performed at once: a sync, a crash, or one that is due

    # -- boots

    def start(self) -> None:
        self.is_up = True
        self._boots = 1
        self.process.on_boot(self)

    def crash(self) -> None:
        if not self.is_up:
            return
        self.is_up = False
        self._timers = {}
        self._inbox.clear()
        self._draining = False
        self._paused_until = 0
        self._held.clear()
        self._held_writes = 0
        self._syncing = False
        self._fuse = -1
        self._disk.crash(self._rng)
        self._is_gated = True  # further effects of the handler that is running are lost

    def crash_after_sends(self, sends: int, of_kind: str | None, crash: Callable[[], None]) -> None:
        """Calls `crash` in the middle of a handler, when it has sent so many more messages of that kind."""
        if self.is_up:
            self._fuse = sends
            self._fuse_kind = of_kind
            self._fuse_crash = crash
            self._is_gated = True

    def restart(self, with_disk: bool) -> None:
        if self.is_up:
            return
        if not with_disk:
            self._disk.wipe()
            self._lost_disk = True
        self.process = self._build(self._boots)
        self._boots += 1
        records = [self._codec.decode_record(data) for data in self._disk.records()]
        # A start that ended before its first record was durable did not happen: nobody heard of it.
        if records or self._lost_disk:
            self.process.recover(records)
        self.is_up = True
        self._is_gated = False
        self._free_at_ns = 0
        self._observer.saw_restart(self.id)
        self.process.on_boot(self)

    def pause(self, for_us: int) -> None:
        self._is_slow = True
        self._paused_until = max(self._paused_until, self._loop.now + for_us)

    def skew_clock(self, offset_us: int, drift: float) -> None:
        self._clock_offset_us = offset_us
        self._clock_drift = drift

    # -- inputs

    def multicast_now(self, message: AppMessage) -> None:
        if self.is_up:
            self.process.on_multicast(message, self)

    def read_now(self) -> None:
        if self.is_up and not self._is_paused:
            self._reads += 1
            self._observer.saw_read(self.id, self._reads)
            self.process.on_read(self._reads, self)

    @property
    def _is_paused(self) -> bool:
        return self._paused_until > self._loop.now

    def arrive(self, packet: Packet) -> None:
        sender, data, kind, about, sent = packet
        if not self.is_up:
            self._observer.saw_wire(sender, self.id, kind, about, len(data), sent, None)
            return
        if len(about) < 2:
            self._record_wire(sender, self.id, kind, about[0] if about else None, len(data), sent, self._loop.now)
        else:
            self._observer.saw_wire(sender, self.id, kind, about, len(data), sent, self._loop.now)
        if self._is_slow:
            self._queue(self._receive, sender, data)
        else:
            self._input(sender, data)

    def _receive(self, sender: ProcessId, data: bytes) -> None:
        self._free_at_ns += self._cpu.receive_ns + self._cpu.byte_ns * len(data)
        self._input(sender, data)

    def _input(self, sender: ProcessId, data: bytes) -> None:
        try:
            message = self._codec.decode_message(data)
        except BadFrameError:
            if sender in self.liars:
                return  # a real node would close the connection
            raise
        if self._takes(sender, message):
            self.process.on_message(sender, message, self)

    def _fire(self, key: TimerKey, number: int) -> None:
        if self._is_slow and self._timers.get(key) == number:
            self._queue(self._run_timer, key, number)
        else:
            self._run_timer(key, number)

    def _run_timer(self, key: TimerKey, number: int) -> None:
        if self._timers.get(key) == number:  # otherwise it was cancelled or set again
            del self._timers[key]
            self.process.on_timer(key, self)

    def _queue(self, handler: Callable[..., None], a: Any, b: Any) -> None:
        """Handles an input now if the CPU is free, otherwise after those that came before it."""
        ready = self._ready_at()
        if ready <= self._loop.now and not self._inbox:
            self._begin()
            handler(a, b)
            return
        self._inbox.append((handler, a, b))
        if not self._draining:
            self._draining = True
            self._loop.at(max(ready, self._loop.now), self._drain)

    def _ready_at(self) -> int:
        return max(-(-self._free_at_ns // 1000), self._paused_until)

    def _begin(self) -> None:
        self._free_at_ns = max(self._free_at_ns, self._loop.now * 1000)

    def _drain(self) -> None:
        self._draining = False
        if not self._inbox:  # a crash emptied it
            return
        ready = self._ready_at()
        if ready <= self._loop.now:
            handler, a, b = self._inbox.popleft()
            self._begin()
            handler(a, b)
            ready = self._ready_at()
        if self._inbox:
            self._draining = True
            self._loop.at(max(ready, self._loop.now), self._drain)

    @property
    def now_us(self) -> int:
        now = self._loop.now
        return now + self._clock_offset_us + int(now * self._clock_drift)

    # -- effects

    @property
    def persists_at_once(self) -> bool:
        return not self._sync_us

    def send(self, to: ProcessId, message: Wire) -> None:
        self.send_all((to,), message)

    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None:
        if not to:
            return
        kind = _kinds.get(type(message)) or _kind(message)
        if self._is_gated:
            self._effect(self._transmit, tuple(to), encode(message), kind, message.about())
        else:
            self._transmit(to, encode(message), kind, message.about())

    def _transmit(self, to: Sequence[ProcessId], data: bytes, kind: str, about: tuple[MessageId, ...]) -> None:
        if self._fuse >= 0 or self._has_cpu_cost or self._network.is_faulty():
            self._transmit_with_care(to, data, kind, about)
            return
        loop, arrival, peers, id_ = self._loop, self._network.arrival, self.peers, self.id
        self.sent += len(to)
        now = loop.now
        packet = (id_, data, kind, about, now)
        for receiver in to:
            loop.at(arrival(id_, receiver, now), peers[receiver].arrive, packet)

    def _transmit_with_care(
        self, to: Sequence[ProcessId], data: bytes, kind: str, about: tuple[MessageId, ...]
    ) -> None:
        loop = self._loop
        for receiver in to:
            if self._fuse == 0:
                self._fuse_crash()
                return
            self.sent += 1
            if self._fuse > 0 and self._fuse_kind in (None, kind):
                self._fuse -= 1
            sent = loop.now
            if self._has_cpu_cost:
                self._free_at_ns += self._cpu.send_ns + self._cpu.byte_ns * len(data)
                sent = max(sent, self._free_at_ns // 1000)
            arrivals = self._network.arrivals(self.id, receiver, sent)
            if not arrivals:
                self._observer.saw_wire(self.id, receiver, kind, about, len(data), sent, None)
            for arrival in arrivals:
                loop.at(arrival, self.peers[receiver].arrive, (self.id, data, kind, about, sent))

    def sign(self, data: bytes, sender: ProcessId | None = None) -> bytes:
        return self._keys.sign(self.id, data)

    def verify(self, process: ProcessId, data: bytes, proof: bytes) -> bool:
        return self._keys.verify(process, data, proof)

    def announce(self, message: AppMessage) -> None:
        if self.is_up:  # otherwise it crashed earlier in this very handler
            self._observer.saw_multicast(self.id, message)

    def deliver(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None:
        self.deliver_all(position, ((message, final_ts),))

    def deliver_all(self, first: int, batch: Sequence[StampedMessage]) -> None:
        if self._is_gated:
            self._effect(self._deliver_now, first, batch)
        else:
            self._deliver_now(first, batch)

    def _deliver_now(self, first: int, batch: Sequence[StampedMessage]) -> None:
        saw_delivery, id_ = self._observer.saw_delivery, self.id
        for position, message, ts in unpack_deliveries(first, batch, self._has_batches):
            saw_delivery(id_, position, message, ts, False)

    def opt_deliver(self, position: int, message: AppMessage) -> None:
        self._effect(self._observer.saw_delivery, self.id, position, message, None, True)

    def restored(self, position: int) -> None:
        self._effect(self._observer.saw_restored, self.id, position)

    def readable(self, read: int, position: int) -> None:
        self._effect(self._observer.saw_readable, self.id, read, position)

    def set_timer(self, key: TimerKey, after_us: int) -> None:
        if not self.is_up:
            return
        self._timer_seq += 1
        self._timers[key] = self._timer_seq
        wait = after_us
        if self._clock_drift and after_us:
            # At least a tick, or a process that waits for its own clock would be woken again and again at one moment.
            wait = max(1, int(after_us / (1 + self._clock_drift)))
        self._loop.at(self._loop.now + wait, self._fire, key, self._timer_seq)

    def cancel_timer(self, key: TimerKey) -> None:
        self._timers.pop(key, None)

    def persist(self, record: Record) -> None:
        self._write(record, False)

    def snapshot(self, record: Record) -> None:
        self._write(record, True)

    # -- the disk as a barrier

    def _write(self, record: Record, is_snapshot: bool) -> None:
        if not self.is_up:
            return
        if self._syncing and (is_snapshot or self._held_writes):
            # A snapshot replaces the records from which deliveries before it could be made again: these come first.
            self._held_writes += 1
            self._held.append((self._write_held, (encode(record), is_snapshot)))
        else:
            self._write_now(encode(record), is_snapshot)

    def _write_held(self, record: bytes, is_snapshot: bool) -> None:
        self._held_writes -= 1
        self._write_now(record, is_snapshot)

    def _write_now(self, record: bytes, is_snapshot: bool) -> None:
        self._disk.write(record, is_snapshot)
        if not self._sync_us:
            self._disk.sync_all()
        elif self._syncing:
            self._held.append((self._barrier, (self._disk.written,)))
        else:
            self._begin_sync()

    def _begin_sync(self) -> None:
        self._syncing = self._is_gated = True
        self._loop.at(self._loop.now + self._sync_us, self._end_sync, self._boots, self._disk.written)

    def _effect(self, action: Callable[..., None], *args: Any) -> None:
        if self._syncing:
            self._held.append((action, args))
        elif self.is_up:
            action(*args)

    def _barrier(self, written: int) -> None:
        """Stands in the queue of held effects for a record that was written while a sync was under way."""

    def _end_sync(self, boots: int, written: int) -> None:
        if boots != self._boots or not self.is_up:
            return
        self._disk.sync(written)
        self._syncing = False
        self._is_gated = self._fuse >= 0
        while self._held:
            action, args = self._held.popleft()
            if action == self._barrier and not self._disk.is_durable(args[0]):
                self._begin_sync()
                return
            action(*args)  # a crash in here empties the queue
            if self._syncing:
                return  # it wrote a record
