"""Drives the process object of one client over TCP: it is a session on a trunk, and has timers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ...core import AppMessage, GroupId, MessageId, Outbox, ProcessId, TimerKey, Topology, Wire, encode
from ...protocols import Client, Reply, Start
from ..wire.control import Layout
from ..wire.framing import frame
from .trunk import Trunk

_READY_MAX = 10_000

MakeProcess = Callable[[ProcessId, Topology, Layout], Client]


class ClientDriver(Outbox):
    process: Client  # once it is open

    def __init__(self, trunk: Trunk, make_process: MakeProcess) -> None:
        self.trunk = trunk
        self._make_process = make_process
        self._id: ProcessId | None = None
        self._timers: dict[TimerKey, asyncio.TimerHandle] = {}
        self._zero_timers: dict[TimerKey, None] = {}
        self._ready_dst: set[tuple[GroupId, ...]] = set()  # destinations to which the trunk connects already
        self._loop = asyncio.get_running_loop()
        self.on_busy: Callable[[Sequence[MessageId]], None] = lambda ids: None

    # -- life

    async def open(self, seeds: Sequence[tuple[str, int]]) -> None:
        self._id = await self.trunk.enter(seeds)
        self.process = self._make_process(self._id, self.trunk.topology, self.trunk.layout)
        self.trunk.share(self._id, self)

    async def close(self) -> None:
        for handle in self._timers.values():
            handle.cancel()
        self._timers = {}
        if self._id is not None:
            settled = self.process.settled if hasattr(self, "process") else 0  # there is none if it could not be made
            await self.trunk.leave(self._id, settled)

    # -- what the trunk calls

    def on_reply(self, sender: ProcessId, reply: Reply) -> None:
        self.process.on_message(sender, reply, self)

    def end_turn(self) -> None:
        timers, self._zero_timers = self._zero_timers, {}
        for key in timers:
            self.process.on_timer(key, self)

    # -- the outbox of the client's process

    @property
    def now_us(self) -> int:
        return time.time_ns() // 1_000 - self.trunk.layout.epoch_s * 1_000_000

    def send(self, to: ProcessId, message: Wire) -> None:
        if isinstance(message, Start):
            self.trunk.start(to, message)
        else:
            self.trunk.send(to, frame(encode(message)))

    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None:
        framed = frame(encode(message))
        for process in to:
            self.trunk.send(process, framed)

    def set_timer(self, key: TimerKey, after_us: int) -> None:
        if key in self._timers:
            self.cancel_timer(key)
        if after_us <= 0:
            self._zero_timers[key] = None
            self.trunk.wake(self)
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

    def announce(self, message: AppMessage) -> None:
        """Connects to all destinations, wherever the message enters: each of them replies."""
        self.announce_all((message,))

    def announce_all(self, messages: Sequence[AppMessage]) -> None:
        if self.trunk.reaches_all:
            return
        ready = self._ready_dst
        for message in messages:
            if message.dst not in ready:
                self._make_ready(message.dst)

    def _make_ready(self, dst: tuple[GroupId, ...]) -> None:
        for group in dst:
            self.trunk.make_ready(group)
        if len(self._ready_dst) < _READY_MAX:
            self._ready_dst.add(dst)

    def _refuse(self, *args: Any, **named: Any) -> NoReturn:
        raise AssertionError("a client delivers nothing, and keeps nothing on a disk")

    deliver = opt_deliver = persist = snapshot = restored = _refuse
