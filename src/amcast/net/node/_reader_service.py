"""What a node does for another member of its group that misses something: it hands out deliveries, or its application.

A state is handed out in parts, one for each question. Since the application goes on meanwhile, the state is dumped once
and kept while it is asked for; a reader that comes back asks for the rest of it. Where members may lie, it is one of
those that other members have as well: see `_shared_states.py`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from zlib import crc32

from ..disk.deliveries import PositionGoneError
from ..disk.records import CorruptLogError
from ..wire.control import (
    DECODE_ERRORS,
    AppDigestsQuery,
    AppStatePart,
    AppStateQuery,
    DeliveriesQuery,
    Gone,
    NoAppState,
    StoredDeliveries,
    reader_decoder,
)
from ..wire.framing import Frame
from .application import Host

if TYPE_CHECKING:
    from .connection import Connection
    from .server import NodeServer

_CHUNK_BYTES = 1 << 20
_KEEP_S = 60.0  # a dumped state after the last question

logger = logging.getLogger("amcast.node")


class DumpedState:
    """At most one at a time, for all readers."""

    def __init__(self, host: Host | None) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._position = -1
        self._state = b""
        self._checksum = 0
        self._expiry: asyncio.TimerHandle | None = None

    def part(self, query: AppStateQuery) -> AppStatePart | NoAppState:
        if self._position < query.at_least and not self._dump(query.at_least):
            return NoAppState()
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_later(_KEEP_S, self.forget)
        is_same = (query.position, query.checksum) == (self._position, self._checksum)
        offset = query.offset if is_same and 0 <= query.offset <= len(self._state) else 0
        data = self._state[offset : offset + _CHUNK_BYTES]
        return AppStatePart(self._position, len(self._state), self._checksum, offset, data)

    def _dump(self, at_least: int) -> bool:
        if self._host is None or self._host.position < at_least:
            return False
        self._position, self._state = self._host.dump()
        self._checksum = crc32(self._state)
        return True

    def forget(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry, self._position, self._state = None, -1, b""


class ReaderService:
    def __init__(self, server: NodeServer, connection: Connection, name: str = "") -> None:
        """`name` is the reader's."""
        self._server = server
        self._connection = connection
        self._name = name

    def on_frame(self, data: Frame) -> None:
        try:
            query = reader_decoder.decode(data)
        except DECODE_ERRORS as error:
            self._connection.refuse(f"not a question: {error}")
            return
        match query:
            case DeliveriesQuery():
                self._connection.say(self._deliveries(query.position))
            case AppStateQuery():
                self._connection.say(self._state(query))
            case AppDigestsQuery():
                shared = self._server.shared_states
                self._connection.say(NoAppState() if shared is None else shared.digests(self._name, query))

    def _state(self, query: AppStateQuery) -> AppStatePart | NoAppState:
        shared = self._server.shared_states
        return self._server.dumped_state.part(query) if shared is None else shared.part(self._name, query)

    def _deliveries(self, position: int) -> StoredDeliveries | Gone:
        log = self._server.node.deliveries
        try:
            first, found = log.read_stored(max(0, position), _CHUNK_BYTES)
        except PositionGoneError as error:
            return Gone(error.first)
        except CorruptLogError as error:
            logger.error("%s", error)
            return Gone(log.next)
        return StoredDeliveries(first, tuple(found))
