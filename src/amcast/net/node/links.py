"""Links to peers: one connection for what this process sends to another, made again whenever it breaks.

A link is FIFO while it lasts. It drops what it can't send because the peer is away or reads too slowly: protocols
repeat what matters, and a queue without a bound would help nobody. A link itself never sends anything twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ..security.keyring import Keyring
from ..security.seal import Seal
from ..security.tls import PeerError
from ..wire.control import Hello, Lost, mark
from ..wire.dialer import Channel, LostError, RefusedError, dial
from ..wire.framing import frame
from ..wire.send_buffer import Delay, SendBuffer

_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 2.0


class LinkBuffer(SendBuffer):
    """Before anything leaves, the peer is told how many records are durable now: what leaves depends on no others."""

    def __init__(self, limit: int, delay: Delay | None, synced: Callable[[], int]) -> None:
        super().__init__(limit, delay)
        self._synced = synced
        self._marked = 0

    def attach(self, transport: asyncio.Transport | None) -> None:
        super().attach(transport)
        self._marked = 0

    def flush(self) -> None:
        synced = self._synced()
        if synced != self._marked and self._frames:
            self._marked = synced
            self._frames.insert(0, frame(mark(synced)))
        super().flush()


class Listener(Protocol):
    """Whoever wants to know how the peer answered HELLO."""

    def on_welcome(self, peer: str) -> None: ...
    def on_lost(self, peer: str, answer: Lost) -> bool: ...  # false: it is not believed, so it need not be asked soon


class Link:
    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        hello: Callable[[], Hello],
        tls: Keyring | None,
        buffer: SendBuffer,
        listener: Listener,
        report: Callable[[str], None],
        seal: Seal | None = None,
    ) -> None:
        self.name = name
        self.buffer = buffer
        self._address = address
        self._hello = hello
        self._tls = tls
        self._seal = seal
        self._listener = listener
        self._report = report
        self._last_news = ""
        self._channel: Channel | None = None
        self._move: asyncio.Task[Channel] | None = None  # to a new connection, while the old one is used
        self._hellos = 0  # how often what this process says at HELLO has changed

    async def run(self) -> None:
        """Keeps the connection up for as long as the task lives."""
        wait = _RETRY_FIRST_S
        while True:
            try:
                await self._connect_once()
                wait = _RETRY_FIRST_S
            except LostError as error:
                self._tell(f"{self.name} does not believe the disk of this process: {error}")
                if self._listener.on_lost(self.name, error.answer):
                    wait = _RETRY_FIRST_S
            except RefusedError as error:
                self._tell(f"{self.name} refuses this process: {error}")
            except (OSError, TimeoutError, PeerError) as error:
                self._tell(f"no connection to {self.name}: {str(error) or 'no answer in time'}")
            await asyncio.sleep(wait)
            wait = min(2 * wait, _RETRY_MAX_S)

    def reconnect(self) -> None:
        """This process has become another incarnation: what it said at HELLO does not hold any more."""
        self._hellos += 1
        if self._channel is not None:
            self._channel.abort()

    def recheck(self) -> None:
        """Certificates were revoked, or a CA is not trusted any more: the peer's may be one of them."""
        if self._tls is None or self._channel is None or (transport := self._channel.transport) is None:
            return
        problem = self._tls.problem_with(transport.get_extra_info("ssl_object"))
        if problem is not None:
            self._tell(f"leaving {self.name}: {problem}")
            self._channel.abort()

    async def move(self) -> None:
        """To a new connection, on which both sides show their certificates of now. The peer then closes the old one."""
        if self._channel is not None:
            self._move = asyncio.create_task(self._dial())
            try:
                await self._move
            except (LostError, RefusedError, OSError, TimeoutError, PeerError):
                self._move = None  # the old one still works, or `run` sees that it does not

    async def _dial(self) -> Channel:
        hellos = self._hellos
        channel = await dial(self._address, self._hello(), self._tls, self.name, seal=self._seal)
        if hellos != self._hellos:
            channel.abort()
            raise ConnectionError("this process has become another incarnation meanwhile")
        return channel

    async def _connect_once(self) -> None:
        """Returns when the connection is lost, and none is there to follow it."""
        channel: Channel | None = await self._dial()
        self._tell(f"connected to {self.name}")
        while channel is not None:
            self.buffer.attach(channel.transport)
            self._channel = channel
            self._listener.on_welcome(self.name)
            try:
                await channel.is_lost.wait()
            finally:
                self._channel = None
                self.buffer.attach(None)
                channel.abort()
            move, self._move = self._move, None
            channel = None if move is None else await move

    def _tell(self, news: str) -> None:
        """Reports news once, not at every attempt."""
        if news != self._last_news:
            self._last_news = news
            self._report(news)
