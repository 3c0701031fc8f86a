"""Back-pressure on clients: how many of their messages a leader takes before it answers BUSY.

A message is open from the moment when the leader takes it from its client until the leader replies to that client. Only
leaders count: other members pass a message on to their leader, which replies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core import AppMessage, MessageId, ProcessId
from ...core.batch import count_messages
from ...core.ids import SEQ_BITS
from ..config import Limits


class Admission:
    """The only place where open messages are counted. A batch counts as the messages in it."""

    def __init__(self, limits: Limits) -> None:
        self.open_messages = 0
        self.open_bytes = 0
        self.turned_away = 0  # how often a client heard BUSY for a message or a batch
        self._limits = limits
        self._open: dict[ProcessId, dict[MessageId, tuple[int, int]]] = {}  # connected clients: messages, bytes of each

    def enter(self, client: ProcessId) -> None:
        self._open[client] = {}

    def leave(self, client: ProcessId) -> None:
        """No reply will reach the client, so nothing would ever close what it has open."""
        for count, size in self._open.pop(client).values():
            self.open_messages -= count
            self.open_bytes -= size

    def admit(self, messages: Sequence[AppMessage], size: int) -> list[MessageId]:
        """Opens the messages, whose payloads have this size together. Returns the ids of those that must wait: BUSY."""
        has_room = self.open_messages + count_messages(messages) <= self._limits.open_messages
        if has_room and self.open_bytes + size <= self._limits.open_bytes:
            self._open_all(messages)
            return []
        busy = [message.id for message in messages if not self._is_admitted(message)]
        self.turned_away += len(busy)
        return busy

    def _is_admitted(self, message: AppMessage) -> bool:
        if message.id in self._open.get(message.id >> SEQ_BITS, ()):
            return True  # the client sends it again
        # One message or batch may exceed a limit: otherwise one that is larger than the limit would never be admitted.
        has_room = self.open_messages < self._limits.open_messages
        fits = not self.open_messages or self.open_bytes + len(message.payload) <= self._limits.open_bytes
        if has_room and fits:
            self._open_all((message,))
            return True
        return False

    def _open_all(self, messages: Sequence[AppMessage]) -> None:
        for message in messages:
            opened = self._open.get(message.id >> SEQ_BITS)
            # A client that has left is not counted: it gets no reply, which would close the message.
            if opened is not None and message.id not in opened:
                count, size = message.count, len(message.payload)
                opened[message.id] = (count, size)
                self.open_messages += count
                self.open_bytes += size

    def close(self, client: ProcessId, ids: Sequence[MessageId]) -> None:
        """The client is told that these are delivered."""
        opened = self._open[client]
        for id_ in ids:
            found = opened.pop(id_, None)
            if found is not None:
                self.open_messages -= found[0]
                self.open_bytes -= found[1]

    def clear(self) -> None:
        """This process no longer leads: the next leader counts the messages, and replies."""
        for opened in self._open.values():
            opened.clear()
        self.open_messages = self.open_bytes = 0
