"""Drives the process object of one client over TCP: it is a session on a trunk, and has timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ...core import AppMessage, GroupId, MessageId, Outbox, ProcessId, TimerKey, Topology, UsageError, Wire, encode
from ...core.ids import SEQ_LIMIT
from ...protocols import Client, Reply, Start
from ..system import system
from ..wire.control import Layout, Result
from ..wire.framing import frame
from ._deadlines import Deadlines
from .trunk import Trunk

_READY_MAX = 10_000
_ASK_AGAIN_S = 1.0  # for an id, if no process gave one; then after twice as long
_ASK_AGAIN_MAX_S = 60.0

MakeProcess = Callable[[ProcessId, Topology, Layout], Client]
OnResults = Callable[[ProcessId, GroupId, Sequence[MessageId], Sequence[Result], str], None]


class ClientDriver(Outbox):
    process: Client  # once it is open

    def __init__(self, trunk: Trunk, make_process: MakeProcess) -> None:
        self.trunk = trunk
        self._make_process = make_process
        self._ids: list[ProcessId] = []  # a client goes on under another one when the numbers of one are used up
        self._seeds: Sequence[tuple[str, int]] = ()
        self._renewal: asyncio.Task[None] | None = None
        self._timers: dict[TimerKey, asyncio.TimerHandle] = {}
        self._zero_timers: dict[TimerKey, None] = {}
        self._ready_dst: set[tuple[GroupId, ...]] = set()  # destinations to which the trunk connects already
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines()  # of whoever waits for messages of this client
        self.on_busy: Callable[[Sequence[MessageId]], None] = lambda ids: None
        self.on_results: OnResults = lambda *_: None

    # -- life

    async def open(self, seeds: Sequence[tuple[str, int]]) -> None:
        self._seeds = seeds
        id_ = await self._enter()
        self.process = self._make_process(id_, self.trunk.topology, self.trunk.layout)
        self.process.ask_for_id = self._ask_for_id
        self.process.give_up_id = self._give_up_id

    async def close(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        self.deadlines.close()
        for handle in self._timers.values():
            handle.cancel()
        self._timers = {}
        if self._ids:
            process = getattr(self, "process", None)  # there is none if it could not be made
            settled = {id_: 0 if process is None else process.settled_of(id_) for id_ in self._ids}
            await self.trunk.leave(self, settled)

    # -- ids

    async def _enter(self) -> ProcessId:
        id_ = await self.trunk.enter(self._seeds)
        self._ids.append(id_)
        self.trunk.share(id_, self)
        return id_

    def _ask_for_id(self) -> None:
        if self._renewal is None or self._renewal.done():
            self._renewal = self.loop.create_task(self._renew())

    async def _renew(self) -> None:
        wait_s = _ASK_AGAIN_S
        while True:
            try:
                self.process.take_id(await self._enter())
                return
            except UsageError as error:
                self.process.no_id = str(error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _ASK_AGAIN_MAX_S)

    def _give_up_id(self, id_: ProcessId) -> None:
        """All its messages are answered."""
        self._ids.remove(id_)
        self.trunk.give_up(id_, SEQ_LIMIT)

    # -- what the trunk calls

    def on_reply(self, sender: ProcessId, reply: Reply) -> None:
        self.process.on_message(sender, reply, self)
        if self.process.was_turned_away:
            self.process.send_turned_away(sender, len(reply.ids), self)

    def on_turned_away(self, group: GroupId, ids: Sequence[MessageId]) -> None:
        self.process.on_turned_away(group, ids)
        self.on_busy(ids)

    def on_reconnected(self, process: ProcessId) -> None:
        self.process.on_reconnected(process, self)

    def end_turn(self) -> None:
        timers, self._zero_timers = self._zero_timers, {}
        for key in timers:
            self.process.on_timer(key, self)

    # -- the outbox of the client's process

    @property
    def now_us(self) -> int:
        return system().wall_us() - self.trunk.layout.epoch_s * 1_000_000

    def send(self, to: ProcessId, message: Wire) -> None:
        if isinstance(message, Start):
            self.trunk.start(to, message)
        else:
            self.trunk.send(to, frame(encode(message)))

    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None:
        if self.trunk.fears_liars:
            for process in to:
                self.send(process, message)
            return
        framed = frame(encode(message))
        for process in to:
            self.trunk.send(process, framed)

    def sign(self, data: bytes, sender: ProcessId | None = None) -> bytes:
        """The trunk puts proofs into messages when they leave: one signature for all that leave in a turn."""
        return b""

    def set_timer(self, key: TimerKey, after_us: int) -> None:
        if key in self._timers:
            self.cancel_timer(key)
        if after_us <= 0:
            self._zero_timers[key] = None
            self.trunk.wake(self)
        else:
            self._zero_timers.pop(key, None)
            self._timers[key] = self.loop.call_later(after_us / 1e6, self._fire, key)

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
