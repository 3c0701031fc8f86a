"""Links to peers: one connection for what this process sends to another, made again whenever it breaks.

A link is FIFO while it lasts. It drops what it can't send because the peer is away or reads too slowly: protocols
repeat what matters, and a queue without a bound would help nobody. A link itself never sends anything twice.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from ..security.tls import PeerError
from ..wire.control import Hello
from ..wire.dialer import RefusedError, dial
from ..wire.send_buffer import SendBuffer

_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 2.0


class Link:
    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        hello: Hello,
        tls: ssl.SSLContext | None,
        buffer: SendBuffer,
        report: Callable[[str], None],
    ) -> None:
        self.name = name
        self.buffer = buffer
        self._address = address
        self._hello = hello
        self._tls = tls
        self._report = report
        self._last_news = ""

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
                self._tell(f"no connection to {self.name}: {str(error) or 'no answer in time'}")
            await asyncio.sleep(wait)
            wait = min(2 * wait, _RETRY_MAX_S)

    async def _connect_once(self) -> None:
        """Returns when the connection is lost."""
        channel = await dial(self._address, self._hello, self._tls, self.name)
        self._tell(f"connected to {self.name}")
        self.buffer.attach(channel.transport)
        try:
            await channel.is_lost.wait()
        finally:
            self.buffer.attach(None)
            channel.transport.abort()

    def _tell(self, news: str) -> None:
        """Reports news once, not at every attempt."""
        if news != self._last_news:
            self._last_news = news
            self._report(news)
