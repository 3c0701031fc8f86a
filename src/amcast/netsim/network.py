"""Connections in memory between simulated programs: bytes take time, arrive in pieces, and may not arrive at all.

A connection is two pipes, one for each direction. A pipe holds so many bytes on their way, as the buffers of two
kernels do; the rest waits in the transport of the sender, which then hears `pause_writing`.

- When a program ends, its kernel closes its connections, and the other ends hear of it.
- When a machine loses its power, nobody hears anything: what is sent to it vanishes, and the other end gives the
  connection up after a while.
- While a link is cut off, bytes on it wait. Once it works again they arrive, or the connection breaks.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .machine import Machine, Program, World

Address = tuple[str, int]

_KEEPALIVE_US = 1_500_000  # a connection to a machine that is gone breaks after so long
_SEND_AGAIN_US = 200_000
_UNREACHABLE_US = 300_000  # so long it takes to find out that a machine is off


class Network:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("network")
        self._listeners: dict[Address, Listener] = {}
        self._transports: dict[SimulatedTransport, None] = {}  # one end of each open connection
        self._cut: dict[tuple[str, str], int] = {}  # links on which nothing arrives, and how many faults cut them
        self.latency_us = 100
        self.window_bytes = 256 << 10  # on their way in one direction of a connection
        self.splits = 0.1  # how often a reader gets a part of what has arrived

    # -- links

    def is_cut(self, sender: Machine, receiver: Machine) -> bool:
        return bool(self._cut) and (sender.name, receiver.name) in self._cut

    def cut(self, links: list[tuple[str, str]]) -> None:
        for link in links:
            self._cut[link] = self._cut.get(link, 0) + 1

    def mend(self, links: list[tuple[str, str]], breaks: bool) -> None:
        """The links work again. `breaks`: some of their connections were given up meanwhile."""
        for link in links:
            self._cut[link] -= 1
            if not self._cut[link]:
                del self._cut[link]
        for transport in list(self._transports):
            if breaks and self._rng.random() < 0.5 and _link_of(transport) in links:
                transport.reset()
            else:
                transport.catch_up()

    def break_connections(self, machine: str, odds: float) -> None:
        """Some connections of a machine break, in the middle of whatever they carry."""
        for transport in list(self._transports):
            if machine in _link_of(transport) and self._rng.random() < odds:
                transport.reset()

    def delay(self) -> int:
        return int(self.latency_us * (0.5 + self._rng.random()))

    # -- connections

    def listen(self, program: Program, address: Address) -> Listener:
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[address] = Listener(self, program, address)
        program.on_end.append(lambda _: listener.close())
        return listener

    def stop_listening(self, listener: Listener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def connect(self, program: Program, factory: Callable[[], Any], address: Address) -> SimulatedTransport:
        loop = program.loop
        answer: asyncio.Future[SimulatedTransport] = loop.create_future()
        self._world.scheduler.after(self.delay(), self._knock, program, factory, address, answer)
        return await answer

    def _knock(
        self, program: Program, factory: Callable[[], Any], address: Address, answer: asyncio.Future[Any]
    ) -> None:
        """The first packet of a connection arrives, or is sent again later."""
        if not program.is_alive or answer.done():
            return
        machine = self._world.machines.get(address[0])
        if machine is None:
            self._fail_later(program, answer, _UNREACHABLE_US, OSError(errno.EHOSTUNREACH, "no route to host"))
            return
        if self.is_cut(program.machine, machine) or self.is_cut(machine, program.machine):
            again = 200_000 + int(self._rng.random() * 300_000)
            self._world.scheduler.after(again, self._knock, program, factory, address, answer)
            return
        if not machine.is_on:
            self._fail_later(program, answer, _UNREACHABLE_US, OSError(errno.EHOSTUNREACH, "no route to host"))
            return
        listener = self._listeners.get(address)
        if listener is None:
            self._fail_later(program, answer, self.delay(), ConnectionRefusedError(errno.ECONNREFUSED, "refused"))
            return
        here = SimulatedTransport(self, program)
        there = SimulatedTransport(self, listener.program)
        here.peer, there.peer = there, here
        self._transports[here] = self._transports[there] = None
        listener.arrive(there)
        self._world.scheduler.after(self.delay(), self._connected, program, factory, here, answer)

    def _connected(
        self, program: Program, factory: Callable[[], Any], here: SimulatedTransport, answer: asyncio.Future[Any]
    ) -> None:
        program.loop.call_soon(here.begin, factory, answer)

    def _fail_later(self, program: Program, answer: asyncio.Future[Any], delay: int, error: OSError) -> None:
        self._world.scheduler.after(delay, self._failed, program, answer, error)

    def _failed(self, program: Program, answer: asyncio.Future[Any], error: OSError) -> None:
        program.loop.call_soon(_fail, answer, error)

    def forget(self, transport: SimulatedTransport) -> None:
        self._transports.pop(transport, None)


def _link_of(transport: SimulatedTransport) -> tuple[str, str]:
    return transport.program.machine.name, transport.peer.program.machine.name


def _fail(answer: asyncio.Future[Any], error: OSError) -> None:
    if not answer.done():
        answer.set_exception(error)


class Listener:
    """A listening socket. What it accepts are ends of connections, for which no protocol was made yet."""

    def __init__(self, network: Network, program: Program, address: Address) -> None:
        self._network = network
        self.program = program
        self.address = address
        self.on_ready: Callable[[], object] | None = None  # called when there is something to accept
        self._arrived: deque[SimulatedTransport] = deque()

    def arrive(self, end: SimulatedTransport) -> None:
        self._arrived.append(end)
        if self.on_ready is not None:
            self.program.loop.call_soon(self.on_ready)

    def watch(self, on_ready: Callable[[], object] | None) -> None:
        self.on_ready = on_ready
        if on_ready is not None and self._arrived:
            self.program.loop.call_soon(on_ready)

    def accept(self) -> tuple[SimulatedTransport, Address]:
        if not self._arrived:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        end = self._arrived.popleft()
        return end, (end.peer.program.machine.name, 0)

    def close(self) -> None:
        self._network.stop_listening(self)
        while self._arrived:
            self._arrived.popleft().abort()


class SimulatedTransport(asyncio.Transport):
    """One end of a connection. It sends through a pipe that the network keeps between both ends."""

    peer: SimulatedTransport

    def __init__(self, network: Network, program: Program) -> None:
        super().__init__()
        self._network = network
        self.program = program
        self._scheduler = program.world.scheduler
        self._loop = program.loop
        self._protocol: Any = None
        self._rng = network._rng
        # What this end sends: waiting here, and on its way.
        self._waiting = bytearray()
        self._on_way = 0
        self._arrives_at = 0
        self._high, self._low = 64 << 10, 16 << 10
        self._is_writing_paused = False
        self._ends = False  # no more will be written: the end is sent when nothing waits
        self._has_sent_end = False
        # What this end has received.
        self._received = bytearray()
        self._late = bytearray()  # on its way when the link was cut
        self._has_received_end = False
        self._is_reading_paused = False
        self._is_read_due = False
        self._is_closing = False
        self._is_lost = False  # `connection_lost` was called, or will be in the next turn
        program.on_end.append(self._on_program_end)

    def begin(self, factory: Callable[[], Any], answer: asyncio.Future[Any] | None) -> None:
        """The first turn of this end: the protocol is made, and hears of its transport."""
        if answer is not None and answer.done():  # whoever dialed has given up
            self.abort()
            return
        self._protocol = factory()
        self._protocol.connection_made(self)
        if self._is_lost:  # while it waited to be accepted
            self._loop.call_soon(self._protocol.connection_lost, None)
        if answer is not None:
            answer.set_result(self)
        self._read_later()

    # -- sending

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_lost or self._ends or not self.program.is_alive or not data:
            return
        self._waiting += data
        self.pump()
        if len(self._waiting) > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def pump(self) -> None:
        """Puts on its way what there is room for."""
        if self._is_lost or self.peer._is_gone():
            return
        if self._waiting:
            if self._network.is_cut(self.program.machine, self.peer.program.machine):
                return
            room = self._network.window_bytes - self._on_way
            if room <= 0:
                return
            data = bytes(self._waiting[:room])
            del self._waiting[:room]
            self._on_way += len(data)
            self._send(self.peer._arrive, data)
            self._check_low()
        if self._ends and not self._waiting and not self._has_sent_end:
            if self._network.is_cut(self.program.machine, self.peer.program.machine):
                return
            self._has_sent_end = True
            self._send(self.peer._arrive_end)

    def _send(self, action: Callable[..., None], *args: Any) -> None:
        self._arrives_at = max(self._arrives_at, self._scheduler.now + self._network.delay())
        self._scheduler.at(self._arrives_at, action, *args)

    def _check_low(self) -> None:
        if self._is_writing_paused and len(self._waiting) <= self._low:
            self._is_writing_paused = False
            self._loop.call_soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self._is_lost:
            self._protocol.resume_writing()

    def _is_gone(self) -> bool:
        """Whether this end's machine is off, or has forgotten the connection without a word."""
        return self not in self._network._transports

    # -- receiving

    def _arrive(self, data: bytes) -> None:
        if self._is_gone():
            return
        if self._late or self._network.is_cut(self.peer.program.machine, self.program.machine):
            self._late += data
            return
        self._received += data
        self._read_later()

    def catch_up(self) -> None:
        """A link works again: what was on its way arrives now, and more can be sent."""
        if self._late and not self._network.is_cut(self.peer.program.machine, self.program.machine):
            self._received += self._late
            self._late.clear()
            self._read_later()
        self.pump()

    def _arrive_end(self) -> None:
        if self._late or self._network.is_cut(self.peer.program.machine, self.program.machine):
            self._scheduler.after(_SEND_AGAIN_US, self._arrive_end)
            return
        self._has_received_end = True
        self._read_later()

    def _read_later(self) -> None:
        if not self._is_read_due and not self._is_reading_paused and self._protocol is not None:
            self._is_read_due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_read_due = False
        if self._is_reading_paused or self._is_lost or self._is_closing:
            return
        if self._received:
            buffer = self._protocol.get_buffer(-1)
            size = min(len(buffer), len(self._received))
            if self._rng.random() < self._network.splits:
                size = self._rng.randint(1, size)
            buffer[:size] = self._received[:size]
            del self._received[:size]
            self.peer._on_way -= size
            self._protocol.buffer_updated(size)
            self.peer.pump()
            if self._received or self._has_received_end:
                self._read_later()
        elif self._has_received_end:
            eof = getattr(self._protocol, "eof_received", None)
            if eof is None or not eof():
                self.close()

    # -- the end

    def reset(self) -> None:
        """The connection breaks: both ends hear of it."""
        for end in (self, self.peer):
            end._lose(ConnectionResetError(errno.ECONNRESET, "the connection was reset"))

    def close(self) -> None:
        if not self._is_closing and not self._is_lost and self.program.is_alive:
            self._is_closing = self._ends = True
            self.pump()
            if not self._waiting:
                self._lose(None)
            else:
                self._scheduler.after(_KEEPALIVE_US, self._lose, None)  # asyncio waits; it must not be for ever

    def abort(self) -> None:
        if self.program.is_alive and not self._is_lost:
            self._waiting.clear()
            self._is_closing = self._ends = True
            self.pump()
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._network.forget(self)
        self._waiting.clear()
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error)
        if error is None and not self._has_sent_end:
            self._send(self.peer._arrive_end)

    def _on_program_end(self, is_silent: bool) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._network.forget(self)
        if is_silent:
            self._scheduler.after(_KEEPALIVE_US, self.peer._hear_of_end)
        else:
            self._send(self.peer._hear_of_end)

    def _hear_of_end(self) -> None:
        if self._network.is_cut(self.peer.program.machine, self.program.machine):
            self._scheduler.after(_KEEPALIVE_US, self._hear_of_end)
        else:
            self._lose(ConnectionResetError(errno.ECONNRESET, "the connection was reset"))

    # -- what sockets and asyncio's transports have

    def setblocking(self, is_blocking: bool) -> None:
        assert not is_blocking

    def shutdown(self, how: int) -> None:
        self.abort()

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.peer.program.machine.name if name == "peername" else default

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._read_later()

    def is_reading(self) -> bool:
        return not self._is_reading_paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._waiting)
