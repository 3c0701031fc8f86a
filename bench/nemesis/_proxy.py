"""A link between two processes that can be cut."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Proxy:
    """Forwards the connections from one process to another, so that their link can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.is_cut = False

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            if not self.is_cut:
                other_reader, other = await asyncio.open_connection(*self._target)
                self._writers.add(other)
                ways = [asyncio.create_task(w) for w in (_pump(reader, other), _pump(other_reader, writer))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
        except (OSError, asyncio.CancelledError):
            pass  # the target is down, or the benchmark ends: this connection is closed
        finally:
            for each in (writer, other):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    def cut(self) -> None:
        self.is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        self.is_cut = False

    def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
