"""Cuts off clients that do not read what they asked for: what waits for them is memory of the node.

A follower that was cut off goes on, here or at another member, at the position that it had reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..config import Limits
from ._refusals import Cause

if TYPE_CHECKING:
    from .connection import Connection

_LOOKS = 4  # in the time that a slow client is given

TOO_SLOW = "it reads too slowly: go on where you were, when you read again"


class SlowReaders:
    def __init__(self, connections: Iterable[Connection], limits: Limits) -> None:
        self._connections = connections
        self._slow_s = limits.slow_ms / 1_000
        self._bytes_max = limits.clients_bytes
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._slow_s / _LOOKS)
            self.look()

    def look(self) -> None:
        readers = [each for each in self._connections if each.is_client]
        since = self._loop.time() - self._slow_s
        for connection in readers:
            if connection.paused_at is not None and connection.paused_at < since:
                _cut_off(connection)
        sizes = [(connection.waiting_bytes, connection) for connection in readers]
        total = sum(size for size, _ in sizes)
        if total > self._bytes_max:
            for size, connection in sorted(sizes, key=lambda pair: -pair[0]):
                if total <= self._bytes_max:
                    break
                _cut_off(connection)
                total -= size


def _cut_off(connection: Connection) -> None:
    connection.refuse(TOO_SLOW, elsewhere=True, cause=Cause.SLOW)
