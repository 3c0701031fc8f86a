"""Messages that a process holds because they are on their way: they arrived from clients, and no log has them yet.

A client may send what can never be ordered: only to processes that do not order it, or behind a gap in its sequence
numbers. So what is held is bounded, of each sender and of all together. What does not fit is not held: its sender, if
it is honest, sends it again.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, ValuesView
from typing import Generic, TypeVar

from ..core import AppMessage, MessageId, ProcessId
from ..core.ids import SEQ_BITS

Item = TypeVar("Item")

SENDER_MESSAGES = 8_192
SENDER_BYTES = 8 << 20
ALL_BYTES = 64 << 20


class InFlight(Generic[Item]):
    def __init__(self) -> None:
        self._items: dict[MessageId, Item] = {}
        self._sizes: dict[MessageId, int] = {}
        self._of_sender: dict[ProcessId, tuple[int, int]] = {}  # messages, and bytes of them
        self._bytes = 0

    def __contains__(self, id_: MessageId) -> bool:
        return id_ in self._items

    def __getitem__(self, id_: MessageId) -> Item:
        return self._items[id_]

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> ItemsView[MessageId, Item]:
        return self._items.items()

    def values(self) -> ValuesView[Item]:
        return self._items.values()

    def add(self, message: AppMessage, item: Item) -> bool:
        """Holds what arrived of a message. False if it is not held: its sender, or all senders, have too much here."""
        sender, size = message.id >> SEQ_BITS, len(message.payload)
        count, held = self._of_sender.get(sender, (0, 0))
        if count >= SENDER_MESSAGES or (count and held + size > SENDER_BYTES) or self._bytes + size > ALL_BYTES:
            return False
        self._items[message.id] = item
        self._sizes[message.id] = size
        self._of_sender[sender] = (count + 1, held + size)
        self._bytes += size
        return True

    def pop(self, id_: MessageId) -> Item | None:
        item = self._items.pop(id_, None)
        if item is not None:
            size = self._sizes.pop(id_)
            self._bytes -= size
            count, held = self._of_sender[id_ >> SEQ_BITS]
            if count == 1:
                del self._of_sender[id_ >> SEQ_BITS]
            else:
                self._of_sender[id_ >> SEQ_BITS] = (count - 1, held - size)
        return item

    def drop(self, is_done: Callable[[MessageId, Item], bool]) -> None:
        for id_ in [id_ for id_, item in self._items.items() if is_done(id_, item)]:
            self.pop(id_)
