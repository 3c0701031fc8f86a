"""Group automata: a protocol between groups, written once as if a group were one process that never fails.

The adapter (`_adapter.py`) replicates an automaton over any log. An automaton is deterministic: everything that it
does follows from the inputs that its group has ordered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from ..core import AppMessage, GroupId, MessageId, Timestamp


class GroupOutbox:
    """What an automaton did: messages to other groups, reliable and in order; deliveries in its own."""

    def __init__(self) -> None:
        self.sends: list[tuple[GroupId, msgspec.Struct]] = []
        self.deliveries: list[tuple[AppMessage, Timestamp | None]] = []

    def send(self, group: GroupId, body: msgspec.Struct) -> None:
        self.sends.append((group, body))

    def deliver(self, message: AppMessage, ts: Timestamp | None) -> None:
        self.deliveries.append((message, ts))


class GroupAutomaton(ABC):
    def is_ingress(self, message: AppMessage, group: GroupId) -> bool:
        """Whether clients hand this message to this group: to every destination, unless the protocol has a route."""
        return group in message.dst

    @abstractmethod
    def is_known(self, message: MessageId) -> bool:
        """Whether the group has ordered this message already."""

    @abstractmethod
    def is_pending(self, message: MessageId) -> bool:
        """Whether it is known and not delivered yet."""

    @abstractmethod
    def on_submit(self, message: AppMessage, out: GroupOutbox) -> None: ...

    @abstractmethod
    def on_group_message(self, source: GroupId, body: Any, out: GroupOutbox) -> None: ...

    @abstractmethod
    def dump(self) -> msgspec.Struct: ...

    @abstractmethod
    def load(self, state: Any) -> None: ...
