"""The clients that are connected to a node, and where the replies to each of them go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...core import MessageId, ProcessId
from ...protocols import Reply
from ..config import Limits
from ..wire.control import Result
from ._accounts import Account
from ._admission import Admission

_UNCLAIMED_CLIENTS = 1_000
_UNCLAIMED_EACH = 64


class ClientChannel(Protocol):
    """The connection that speaks for a client, and for others perhaps."""

    account: Account
    region: str  # where the client says it is

    def reply(self, reply: Reply) -> bool: ...
    def results(self, ids: Sequence[MessageId], results: Sequence[Result]) -> bool: ...
    def send_replies(self) -> None: ...
    def send_frame(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class Clients:
    def __init__(self, limits: Limits) -> None:
        self.channels: dict[ProcessId, ClientChannel] = {}
        self.admission = Admission(limits)
        self._max = limits.clients
        self._unclaimed: dict[ProcessId, list[bytes]] = {}  # frames for clients that are not connected

    def problem_with_one_more(self, account: Account) -> str | None:
        if len(self.channels) >= self._max:
            return "too many clients are connected: try another process"
        if account.sessions >= account.limits.sessions:
            return f"this client has {account.sessions} sessions here, as many as it may: try another process"
        return None

    def attach(self, client: ProcessId, channel: ClientChannel) -> None:
        """A client has one connection: if it comes on another one, the older is closed."""
        old = self.channels.get(client)
        if old is not channel:
            if old is not None:
                self.detach(client, old)
                old.close()
            self.channels[client] = channel
            channel.account.sessions += 1
            self.admission.enter(client, channel.account)
        for data in self._unclaimed.pop(client, ()):
            channel.send_frame(data)

    def detach(self, client: ProcessId, channel: ClientChannel) -> None:
        """Does nothing if the client has moved to another connection already."""
        if self.channels.get(client) is channel:
            del self.channels[client]
            channel.account.sessions -= 1
            self.admission.leave(client)

    def send(self, client: ProcessId, framed: bytes) -> None:
        channel = self.channels.get(client)
        if channel is None:
            self.keep(client, framed)
        else:
            channel.send_frame(framed)

    def keep(self, client: ProcessId, framed: bytes) -> None:
        """For a client that is still connecting, since its message entered at another group.

        A reply that does not fit is lost: the client then sends its message again, and is told again.
        """
        frames = self._unclaimed.setdefault(client, [])
        if len(frames) < _UNCLAIMED_EACH:
            frames.append(framed)
        if len(self._unclaimed) > _UNCLAIMED_CLIENTS:
            del self._unclaimed[next(iter(self._unclaimed))]
