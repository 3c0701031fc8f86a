"""Links to peers: one connection for what this process sends to another, made again whenever it breaks.

A link is FIFO while it lasts. What it can't send, because the peer is away or reads too slowly, it drops: every
protocol says again what matters, and a queue without bound helps nobody. Nothing is ever sent twice by a link.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from random import Random

import msgspec

from .control import HELLO_LIMIT, Hello, Refused, Welcome, welcome_decoder
from .framing import Frame, FrameProtocol, frame
from .tls import PeerError, expect

_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 2.0
_SMALL = 16 << 10  # bytes of a frame


class Delay:
    """Emulates distance: everything arrives later by a time around the mean, in order."""

    def __init__(self, mean_us: int, sigma: float, rng: Random) -> None:
        self._mean_s = mean_us / 1e6
        self._sigma = sigma
        self._rng = rng
        self._last = 0.0

    def send(self, loop: asyncio.AbstractEventLoop, write: Callable[[bytes], None], data: bytes) -> None:
        factor = max(0.25, self._rng.gauss(1.0, self._sigma)) if self._sigma else 1.0
        self._last = max(self._last, loop.time() + self._mean_s * factor)
        loop.call_at(self._last, write, data)


class Sender:
    """Gathers frames, and writes them in one go at the end of a turn of the event loop.

    A patient one keeps what it is given while there is no connection, up to the limit.
    """

    def __init__(self, limit: int, delay: Delay | None, is_patient: bool = False) -> None:
        self._limit = limit
        self._delay = delay
        self._is_patient = is_patient
        self._frames: list[bytes] = []
        self._size = 0
        self._transport: asyncio.Transport | None = None
        self.dropped = 0
        self.sent = 0

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    def attach(self, transport: asyncio.Transport | None) -> None:
        self._transport = transport
        if not self._is_patient:
            self._frames = []
            self._size = 0
        elif transport is not None:
            self.flush()

    def add(self, data: bytes) -> bool:
        """Whether it is the first of this turn: the caller then sees to it that `flush` is called."""
        if self._has_room(len(data)):
            self._frames.append(data)
            self._size += len(data)
            return len(self._frames) == 1
        self.dropped += 1
        return False

    def _has_room(self, size: int) -> bool:
        transport, waiting = self._transport, self._size
        if transport is not None:
            waiting += transport.get_write_buffer_size()
        elif not self._is_patient:
            return False
        # A frame that is large by itself must leave some time: when nothing else waits, the limit does not count. And
        # what is large must not keep votes and heartbeats out.
        return not waiting or waiting + size <= (self._limit if size > _SMALL else 2 * self._limit)

    def flush(self) -> None:
        transport = self._transport
        if transport is None or not self._frames:
            return
        frames = self._frames
        self._frames, self._size = [], 0
        # One that is closing may not be told yet that it is lost; uvloop raises an error when it is written to.
        if transport.is_closing():
            self.dropped += len(frames)
            return
        self.sent += len(frames)
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        if self._delay is None:
            transport.write(data)
        else:
            self._delay.send(asyncio.get_running_loop(), self._write_late, data)

    def _write_late(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


class _Dialog(FrameProtocol):
    """The connection of a link: says hello, waits for the welcome, then only writes."""

    def __init__(self, hello: Hello, welcomed: asyncio.Future[Welcome], lost: asyncio.Event) -> None:
        super().__init__(HELLO_LIMIT)
        self._hello = hello
        self._welcomed = welcomed
        self._lost = lost
        self._on_frame = self._on_answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._transport is not None
        self._transport.write(frame(msgspec.msgpack.encode(self._hello)))

    def _on_answer(self, data: Frame) -> None:
        if self._welcomed.done():
            return
        try:
            answer = welcome_decoder.decode(data)
        except msgspec.DecodeError as error:
            self._welcomed.set_exception(ConnectionError(f"no answer of this protocol: {error}"))
            return
        if isinstance(answer, Refused):
            self._welcomed.set_exception(RefusedError(answer.reason))
        else:
            self._welcomed.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        if not self._welcomed.done():
            self._welcomed.set_exception(exc or ConnectionError("closed before it was welcome"))


class RefusedError(Exception):
    """The other side knows who this is, and does not want it."""


class Link:
    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        hello: Hello,
        tls: ssl.SSLContext | None,
        sender: Sender,
        report: Callable[[str], None],
    ) -> None:
        self.name = name
        self.sender = sender
        self._address = address
        self._hello = hello
        self._tls = tls
        self._report = report
        self._last_problem = ""

    async def run(self) -> None:
        """Keeps the connection up for as long as the task lives."""
        wait = _RETRY_FIRST_S
        while True:
            try:
                await self._connect_once()
                wait = _RETRY_FIRST_S
            except RefusedError as error:
                self._tell(f"{self.name} refuses this process: {error}")
            except (OSError, TimeoutError, PeerError) as error:
                self._tell(f"no connection to {self.name}: {error}")
            await asyncio.sleep(wait)
            wait = min(2 * wait, _RETRY_MAX_S)

    async def _connect_once(self) -> None:
        loop = asyncio.get_running_loop()
        welcomed: asyncio.Future[Welcome] = loop.create_future()
        lost = asyncio.Event()
        host, port = self._address
        async with asyncio.timeout(5):
            transport, _ = await loop.create_connection(
                lambda: _Dialog(self._hello, welcomed, lost),
                host,
                port,
                ssl=self._tls,
                server_hostname="" if self._tls else None,
            )
        try:
            if self._tls is not None:
                expect(transport.get_extra_info("ssl_object"), "process", self.name)
            async with asyncio.timeout(5):
                await welcomed
            self._tell(f"connected to {self.name}")
            self.sender.attach(transport)
            await lost.wait()
        finally:
            self.sender.attach(None)
            transport.abort()

    def _tell(self, what: str) -> None:
        """Each piece of news once, not at every attempt."""
        if what != self._last_problem:
            self._last_problem = what
            self._report(what)
