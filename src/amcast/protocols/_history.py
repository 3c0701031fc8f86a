"""Histories: what a group knows of who delivered what in which order.

A history is a graph of messages. Its edges come in chains: every group numbers its deliveries, and the item "group g
delivered m as its k-th" stands for the edge from g's delivery before it. Items are also kept in the order in which they
were added: a group tells another one only those that were added since it last told it something.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter, itemgetter

import msgspec

from ..core import GroupId, MessageId
from ..core.ids import GROUP_ID_LIMIT

# What groups call a message among themselves. The id is its client's choice, and a client may choose one twice.
Name = int


def name_of(lca: GroupId, number: int) -> Name:
    """The message that its lca delivered as its delivery `number`."""
    return number * GROUP_ID_LIMIT + lca


def place_of(name: Name) -> tuple[GroupId, int]:
    return name % GROUP_ID_LIMIT, name // GROUP_ID_LIMIT


class HistoryItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`group` delivered the message of this name, addressed to `dst`, as its delivery `number`."""

    group: GroupId
    number: int
    name: Name
    dst: tuple[GroupId, ...]


def flush_id(number: int) -> MessageId:
    """Flush messages are no client's: their ids are negative, and are their names too."""
    return -number


def is_flush(id_: MessageId | Name) -> bool:
    return id_ < 0


def flush_number(id_: MessageId) -> int:
    return -id_


class HistoryState(msgspec.Struct, array_like=True):
    added: list[tuple[int, HistoryItem]]
    position: int
    floor: dict[GroupId, int]
    mentioned: list[GroupId]


_number_of: Callable[[HistoryItem], int] = attrgetter("number")


class History:
    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._chains: dict[GroupId, list[HistoryItem]] = {}  # by number
        self._items: dict[Name, list[HistoryItem]] = {}
        # How many messages in the history are addressed to a group, not counting flushes; 0: there were, all forgotten.
        self._mentions: dict[GroupId, int] = {}
        self._added: list[tuple[int, HistoryItem]] = []  # all items, each with its position
        self._floor: dict[GroupId, int] = {}  # items of a group below this number were forgotten
        self.position = 0  # how many items were ever added

    def __len__(self) -> int:
        return len(self._added)

    def __contains__(self, name: Name) -> bool:
        return name in self._items

    def add(self, item: HistoryItem) -> bool:
        """Whether the item is new here, and not one that was forgotten."""
        if item.number < self._floor.get(item.group, 0):
            return False
        chain = self._chains.setdefault(item.group, [])
        at = bisect_left(chain, item.number, key=_number_of)
        if at < len(chain) and chain[at].number == item.number:
            return False
        chain.insert(at, item)
        self._added.append((self.position, item))
        self.position += 1
        known = self._items.setdefault(item.name, [])
        known.append(item)
        if len(known) == 1:
            self._mention(item, 1)
        return True

    def _mention(self, item: HistoryItem, by: int) -> None:
        if not is_flush(item.name):
            for group in item.dst:
                self._mentions[group] = self._mentions.get(group, 0) + by

    def since(self, position: int) -> tuple[HistoryItem, ...]:
        """The items that were added from this position on, without those that were forgotten."""
        start = bisect_left(self._added, position, key=itemgetter(0))
        return tuple([item for _, item in self._added[start:]])

    def directly_before(self, name: Name) -> list[Name]:
        """What each group that is known to have delivered this message delivered just before."""
        found = []
        for item in self._items.get(name, ()):
            chain = self._chains[item.group]
            at = bisect_left(chain, item.number, key=_number_of)
            if at > 0:
                found.append(chain[at - 1].name)
        return found

    def dst(self, name: Name) -> tuple[GroupId, ...]:
        return self._items[name][0].dst

    def mentions(self, group: GroupId) -> bool:
        """Whether a message, other than a flush, is addressed to this group."""
        return self._mentions.get(group, 0) > 0

    def has_mentioned(self, group: GroupId) -> bool:
        """Whether such a message was ever here, forgotten or not."""
        return group in self._mentions

    def is_delivered_before(self, one: Name, other: Name) -> bool:
        """Whether some group is known to have delivered both, in this order."""
        numbers = {item.group: item.number for item in self._items.get(one, ())}
        others = self._items.get(other, ())
        return any(item.group in numbers and numbers[item.group] < item.number for item in others)

    def forget_before(self, name: Name) -> None:
        """Forgets all messages that come before this one: the beginning of every chain."""
        gone = self._all_before(name)
        for group, chain in self._chains.items():
            kept = [item for item in chain if item.name not in gone]
            if len(kept) < len(chain):
                self._floor[group] = chain[len(chain) - len(kept) - 1].number + 1
                self._chains[group] = kept
        self._added = [(at, item) for at, item in self._added if item.name not in gone]
        for message in gone:
            self._mention(self._items.pop(message)[0], -1)

    def _all_before(self, name: Name) -> dict[Name, None]:
        found: dict[Name, None] = {}
        stack = [name]
        while stack:
            for before in self.directly_before(stack.pop()):
                if before not in found:
                    found[before] = None
                    stack.append(before)
        assert name not in found, "a history is acyclic"
        return found

    def dump(self) -> HistoryState:
        return HistoryState(self._added, self.position, self._floor, list(self._mentions))

    def load(self, state: HistoryState) -> None:
        self._clear()
        self._mentions = dict.fromkeys(state.mentioned, 0)
        for position, item in state.added:
            self.position = position
            self.add(item)
        self.position = state.position
        self._floor = state.floor
