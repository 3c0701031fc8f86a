"""Clients that follow what this process delivers: each gets the delivery log from a position on, chunk by chunk."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..disk.deliveries import PositionGoneError
from ..disk.records import CorruptLogError
from ..wire.control import Delivered, Gone
from .node import Node

if TYPE_CHECKING:
    from .connection import Connection

_CHUNK_BYTES = 256 << 10

logger = logging.getLogger("amcast.node")


class Followers:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._next: dict[Connection, int] = {}  # the position that each wants next
        self._is_woken = False
        self.problem: str | None = None  # why not all that is in the log can be read
        node.on_turn_end.append(self._serve)

    def add(self, connection: Connection, position: int) -> None:
        self._next[connection] = position
        self.wake()

    def discard(self, connection: Connection) -> None:
        self._next.pop(connection, None)

    def wake(self) -> None:
        """A follower can take more: it is new, or has read what waited to be written to it."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """One chunk to each. The next ones follow in another turn, so that a long log does not keep the node busy."""
        self._is_woken = False
        if not self._next:
            return
        more = [self._serve_one(connection, position) for connection, position in list(self._next.items())]
        if any(more):
            self.wake()

    def _serve_one(self, connection: Connection, position: int) -> bool:
        """Whether there may be more to send. A client gets nothing while it does not read what it was sent."""
        deliveries = self._node.deliveries
        if not connection.takes_output or position >= deliveries.next:
            return False
        try:
            messages = deliveries.read(position, _CHUNK_BYTES)
        except PositionGoneError as error:
            self.discard(connection)
            connection.say(Gone(error.first))
            return False
        except CorruptLogError as error:
            logger.error("%s", error)
            self.problem = str(error)
            self.discard(connection)
            has_others = len(self._node.topology.members(self._node.group)) > 1
            connection.refuse(f"{self._node.name} can't read its log", elsewhere=has_others)
            return False
        connection.say(Delivered(position, tuple(messages)))
        self._next[connection] = position + len(messages)
        return bool(messages)
