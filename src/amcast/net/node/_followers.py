"""Clients that follow what this process delivers: each gets the delivery log from a position on, chunk by chunk.

A position counts as sent when its chunk waits to be written, where nothing is dropped; a follower that does not read
gets no more chunks, and is cut off after a while. It goes on where it was, at any member.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ...core import StampedMessage, encode
from ..config import Limits
from ..disk.deliveries import PositionGoneError, size_of
from ..disk.records import CorruptLogError
from ..wire.control import Delivered, Gone
from ..wire.framing import frame
from ._accounts import Account
from .node import Node

if TYPE_CHECKING:
    from .connection import Connection

_CHUNK_BYTES = 256 << 10
_TURN_BYTES = 1 << 20  # of chunks in one turn of the event loop, to all followers together
_WAITING_BYTES = 256 << 10  # for one follower: above, it gets nothing
_LOOK_S = 0.005

logger = logging.getLogger("amcast.node")


class Followers:
    def __init__(self, node: Node, limits: Limits) -> None:
        self._node = node
        self._max = limits.followers
        self._waiting_max = min(limits.client_bytes, _WAITING_BYTES)
        self._loop = asyncio.get_running_loop()
        self._next: dict[Connection, int] = {}  # the position that each wants next; who was served last comes last
        self._accounts: dict[Connection, Account] = {}
        self._read: list[StampedMessage] = []  # what was read last, from this position on
        self._read_first = 0
        self._is_woken = False
        self.problem: str | None = None  # why not all that is in the log can be read

    def __len__(self) -> int:
        return len(self._next)

    def add(self, connection: Connection, account: Account, position: int) -> bool:
        """False if there are too many, in all or of this client."""
        if connection not in self._next:
            if len(self._next) >= self._max or account.followers >= account.limits.followers:
                return False
            account.followers += 1
            if not self._next:
                self._node.watch_turns(self._serve, True)
            self._accounts[connection] = account
            connection.keep_waiting_below(self._waiting_max)
        self._next[connection] = position
        self.wake()
        return True

    def discard(self, connection: Connection) -> None:
        if self._next.pop(connection, None) is not None:
            self._accounts.pop(connection).followers -= 1
            if not self._next:
                self._node.watch_turns(self._serve, False)
                self._read = []

    def wake(self) -> None:
        """A follower can take more: it is new, or has read what waited to be written to it."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """One chunk to each that has read what it was sent, as far as a turn allows: a node has more to do."""
        self._is_woken = False
        left, is_more, is_late = _TURN_BYTES, False, False
        for connection, position in list(self._next.items()):
            if left <= 0:
                is_more = True
                break
            if not connection.takes_output or position >= self._node.deliveries.next:
                continue
            if connection.waiting_bytes > self._waiting_max:  # nobody says when this has left
                is_late = True
                continue
            left -= self._serve_one(connection, position)
            is_more = True
        if is_more:
            self.wake()
        elif is_late and not self._is_woken:
            self._is_woken = True
            self._loop.call_later(_LOOK_S, self._serve)

    def _serve_one(self, connection: Connection, position: int) -> int:
        """How many bytes it was sent."""
        try:
            messages = self._chunk(position)
        except PositionGoneError as error:
            self.discard(connection)
            connection.say(Gone(error.first))
            return 0
        except CorruptLogError as error:
            logger.error("%s", error)
            self.problem = str(error)
            self.discard(connection)
            has_others = len(self._node.topology.members(self._node.group)) > 1
            connection.refuse(f"{self._node.name} can't read its log", elsewhere=has_others)
            return 0
        framed = frame(encode(Delivered(position, tuple(messages))))
        connection.send_frame(framed, is_owed=True)
        del self._next[connection]
        self._next[connection] = position + len(messages)
        return len(framed)

    def _chunk(self, position: int) -> list[StampedMessage]:
        """At least one message. A batch is read and unpacked once, however many chunks and followers it is for."""
        first = position - self._read_first
        if not 0 <= first < len(self._read):
            self._read = self._node.deliveries.read(position, _CHUNK_BYTES)
            self._read_first, first = position, 0
        size, end = 0, first
        while end < len(self._read):
            size += size_of(self._read[end])
            if size > _CHUNK_BYTES and end > first:
                break
            end += 1
        return self._read[first:end]
