"""When clients came and left, as nodes saw it, and which clients were gone for good with messages unanswered.

A client that was killed, or gave up and left, does not send its messages again. Nobody promised that a message is
delivered then, unless the client had an answer to it. So its end is a row of the run: a crash, which says below which
sequence number all its messages were answered.

A node writes that a client came when the first message arrives from it, and that it left when its connection is lost or
the client says good-bye. A client is gone if no node that ended in good order has it. One that only lost a connection
is not: it connects again, and sends again what is unanswered, there or elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec

from ...core import AppMessage, ProcessId
from ...core.ids import SEQ_BITS, SEQ_LIMIT
from ...trace.schema import CRASH, Fault
from ..system import system

if TYPE_CHECKING:
    from ._multicasts import Ids
    from .writer import TraceWriter

LOCAL = "local"  # the region of whoever names none
CAME, LEFT = "client came", "client left"  # rows of the raw table `faults` that do not go into the run as they are


class ClientWord(msgspec.Struct, frozen=True):
    """The detail of such a row: all messages of the client below `settled` had been answered."""

    client: Annotated[ProcessId, msgspec.Meta(ge=0, lt=1 << 63 - SEQ_BITS)]
    settled: Annotated[int, msgspec.Meta(ge=0, le=SEQ_LIMIT)]
    region: str = LOCAL  # of a client that came: where it says it is


class Channel(Protocol):
    region: str


class ClientTrace:
    """The node's side: what it says of the clients that send to it."""

    def __init__(self, trace: TraceWriter) -> None:
        self._trace = trace
        self._settled: dict[ProcessId, int] = {}  # of the clients that came

    def heard(self, messages: Sequence[AppMessage], channels: Mapping[ProcessId, Channel]) -> None:
        """Messages came. Those of clients that left before may arrive after their good-bye: they are ignored."""
        for message in messages:
            client = message.id >> SEQ_BITS
            if client not in channels:
                continue
            known = self._settled.get(client)
            if known is None:
                self._write(CAME, client, message.settled, channels[client].region)
            if known is None or known < message.settled:
                self._settled[client] = message.settled

    def left(self, client: ProcessId, settled: int) -> None:
        """`settled` is the client's own word, 0 if it left without one."""
        settled = max(settled, self._settled.get(client, 0))
        if settled or client in self._settled:
            self._settled.pop(client, None)
            self._write(LEFT, client, settled)

    def _write(self, what: str, client: ProcessId, settled: int, region: str = LOCAL) -> None:
        settled = min(max(settled, 0), SEQ_LIMIT)  # clients may say anything
        detail = msgspec.json.encode(ClientWord(client, settled, region)).decode()
        self._trace.fault(what, detail, system().wall_us())


class _Client:
    def __init__(self) -> None:
        self.settled = 0
        self.last_us = 0
        self.region = LOCAL
        self.is_with: dict[ProcessId, int] = {}  # nodes that it came to and did not leave, and in which boot


class ClientEnds:
    """The collector's side: the words of all nodes."""

    def __init__(self) -> None:
        self._clients: dict[ProcessId, _Client] = {}

    def take(self, node: ProcessId, boot: int, t_us: int, what: str, word: ClientWord) -> None:
        """Words of one node are taken in its order."""
        client = self._clients.setdefault(word.client, _Client())
        client.settled = max(client.settled, word.settled)
        client.last_us = max(client.last_us, t_us)
        if what == CAME:
            client.is_with[node] = boot
            client.region = word.region
        else:
            client.is_with.pop(node, None)

    def regions(self) -> dict[ProcessId, str]:
        return {id_: client.region for id_, client in sorted(self._clients.items()) if client.region != LOCAL}

    def crashes(self, last_boots: dict[ProcessId, int], sent: Ids) -> list[Fault]:
        """`last_boots` are those of nodes that ended in good order: other nodes can't say who is still with them."""
        faults = []
        for id_, client in sorted(self._clients.items()):
            is_here = any(last_boots.get(node) == boot for node, boot in client.is_with.items())
            if not is_here and sent.has_between((id_ << SEQ_BITS) + client.settled, (id_ + 1) << SEQ_BITS):
                detail = msgspec.json.encode({"settled": client.settled}).decode()
                faults.append(Fault(id_, client.last_us, CRASH, detail))
        return faults
