"""What a node does for a program that observes: it tells how it is, and sends what its group delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..security.access import Rights
from ..wire.control import (
    DECODE_ERRORS,
    Follow,
    Observation,
    PlacementQuery,
    Query,
    StatusQuery,
    Unfollow,
    observation_decoder,
)
from ..wire.framing import Frame, frame
from ._accounts import Account
from ._placement import placement_answer
from ._refusals import Cause

if TYPE_CHECKING:
    from .connection import Connection
    from .server import NodeServer


class ObserverService:
    def __init__(self, server: NodeServer, connection: Connection, rights: Rights, account: Account) -> None:
        self._server = server
        self._connection = connection
        self._rights = rights
        self._account = account

    def on_frame(self, data: Frame) -> None:
        try:
            request = observation_decoder.decode(data)
        except DECODE_ERRORS as error:
            self._connection.refuse(f"not a request of an observer: {error}")
            return
        self.take(request)

    def take(self, message: Observation) -> None:
        match message:
            case Follow():
                self._on_follow(message)
            case Unfollow():
                self._server.followers.discard(self._connection)
            case Query():
                self._server.queries.take(self._connection, self._account, self._rights, message)
            case PlacementQuery():
                self._on_placement(message)
            case StatusQuery():
                self._connection.send_frame(self._server.status_frame(), is_owed=True)

    def _on_placement(self, message: PlacementQuery) -> None:
        """Names of objects and reasons are what operations say, so that whoever may follow the group may read them."""
        node = self._server.node
        if not self._rights.may_follow(node.group):
            self._connection.refuse(f"this client has no right to follow g{node.group}")
        else:
            answer = placement_answer(self._server, message)
            self._connection.send_frame(frame(msgspec.msgpack.encode(answer)), is_owed=True)

    def _on_follow(self, message: Follow) -> None:
        group, node, refuse = message.group, self._server.node, self._connection.refuse
        if group != node.group:
            refuse(f"{node.name} is no member of g{group}: follow a group at one of its members")
        elif not self._rights.may_follow(group):
            refuse(f"this client has no right to follow g{group}")
        elif message.position < 0:
            refuse("positions start at 0")
        elif not self._server.followers.add(self._connection, self._account, message.position):
            refuse("too many follow already: try another process", elsewhere=True, cause=Cause.BUDGET)
