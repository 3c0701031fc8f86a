"""What clients and groups say to each other in every protocol."""

from __future__ import annotations

from ..core import AppMessage, GroupId, MessageId, Wire


class IngressMessage(Wire, frozen=True):
    """Base of the wire messages that clients send to groups."""

    def handed_over(self) -> tuple[AppMessage, ...]:
        """The messages to multicast that it carries. None: it only speaks of some."""
        return ()


class Start(IngressMessage, frozen=True, tag="START"):
    """Please multicast these: from a client, or from a group that doubts whether another one has them."""

    messages: tuple[AppMessage, ...]

    def about(self) -> tuple[MessageId, ...]:
        return tuple([message.id for message in self.messages])

    def handed_over(self) -> tuple[AppMessage, ...]:
        return self.messages


class Reply(Wire, frozen=True, tag="REPLY"):
    """These messages are delivered in these groups."""

    groups: tuple[GroupId, ...]
    ids: tuple[MessageId, ...]

    def about(self) -> tuple[MessageId, ...]:
        return self.ids


ClientMessage = Start | Reply
