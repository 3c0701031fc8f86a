"""Histories: what a group knows of who delivered what in which order.

A history is a graph of messages. Its edges come in chains: every group numbers its deliveries, and the entry "group g
delivered m as its k-th" stands for the edge from g's delivery before it. What was added since some moment is told apart
by a journal, so that groups tell each other news only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter

import msgspec

from ..core import GroupId, MessageId


class HistoryItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`group` delivered message `id`, addressed to `dst`, as its delivery `number`."""

    group: GroupId
    number: int
    id: MessageId
    dst: tuple[GroupId, ...]


def flush_id(number: int) -> MessageId:
    """Flush messages are no client's: their ids are negative."""
    return -number


def is_flush(id_: MessageId) -> bool:
    return id_ < 0


def flush_number(id_: MessageId) -> int:
    return -id_


class HistoryState(msgspec.Struct, array_like=True):
    journal: list[tuple[int, HistoryItem]]
    position: int
    floor: dict[GroupId, int]
    mentioned: list[GroupId]


_number_of: Callable[[HistoryItem], int] = attrgetter("number")


class History:
    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._chains: dict[GroupId, list[HistoryItem]] = {}  # by number
        self._entries: dict[MessageId, list[HistoryItem]] = {}
        # How many messages, flushes left out, are addressed to a group; 0: those that were are forgotten.
        self._mentions: dict[GroupId, int] = {}
        self._journal: list[tuple[int, HistoryItem]] = []  # all entries, in the order in which they were added
        self._floor: dict[GroupId, int] = {}  # entries below this number were forgotten
        self.position = 0  # how many entries were ever added

    def __len__(self) -> int:
        return len(self._journal)

    def __contains__(self, id_: MessageId) -> bool:
        return id_ in self._entries

    def add(self, entry: HistoryItem) -> bool:
        """Whether it was news."""
        if entry.number < self._floor.get(entry.group, 0):
            return False
        chain = self._chains.setdefault(entry.group, [])
        at = bisect_left(chain, entry.number, key=_number_of)
        if at < len(chain) and chain[at].number == entry.number:
            return False
        chain.insert(at, entry)
        self._journal.append((self.position, entry))
        self.position += 1
        known = self._entries.setdefault(entry.id, [])
        known.append(entry)
        if len(known) == 1:
            self._mention(entry, 1)
        return True

    def _mention(self, entry: HistoryItem, by: int) -> None:
        if not is_flush(entry.id):
            for group in entry.dst:
                self._mentions[group] = self._mentions.get(group, 0) + by

    def since(self, position: int) -> tuple[HistoryItem, ...]:
        """What was added when the history had reached this position, without what was forgotten."""
        start = bisect_left(self._journal, position, key=lambda item: item[0])
        return tuple([entry for _, entry in self._journal[start:]])

    def directly_before(self, id_: MessageId) -> list[MessageId]:
        """What each group that is known to have delivered this message delivered just before."""
        found = []
        for entry in self._entries.get(id_, ()):
            chain = self._chains[entry.group]
            at = bisect_left(chain, entry.number, key=_number_of)
            if at > 0:
                found.append(chain[at - 1].id)
        return found

    def dst(self, id_: MessageId) -> tuple[GroupId, ...]:
        return self._entries[id_][0].dst

    def mentions(self, group: GroupId) -> bool:
        """Whether a message, other than a flush, is addressed to this group."""
        return self._mentions.get(group, 0) > 0

    def has_mentioned(self, group: GroupId) -> bool:
        """Whether such a message was ever here, forgotten or not."""
        return group in self._mentions

    def is_delivered_before(self, one: MessageId, other: MessageId) -> bool:
        """Whether some group is known to have delivered both, in this order."""
        numbers = {entry.group: entry.number for entry in self._entries.get(one, ())}
        others = self._entries.get(other, ())
        return any(entry.group in numbers and numbers[entry.group] < entry.number for entry in others)

    def forget_before(self, id_: MessageId) -> None:
        """Forgets all messages that come before this one. Of each chain that is a beginning."""
        gone = self._all_before(id_)
        for group, chain in self._chains.items():
            kept = [entry for entry in chain if entry.id not in gone]
            if len(kept) < len(chain):
                self._floor[group] = chain[len(chain) - len(kept) - 1].number + 1
                self._chains[group] = kept
        self._journal = [item for item in self._journal if item[1].id not in gone]
        for message in gone:
            self._mention(self._entries.pop(message)[0], -1)

    def _all_before(self, id_: MessageId) -> dict[MessageId, None]:
        found: dict[MessageId, None] = {}
        stack = [id_]
        while stack:
            for before in self.directly_before(stack.pop()):
                if before not in found:
                    found[before] = None
                    stack.append(before)
        assert id_ not in found, "a history is acyclic"
        return found

    def dump(self) -> HistoryState:
        return HistoryState(self._journal, self.position, self._floor, list(self._mentions))

    def load(self, state: HistoryState) -> None:
        self._clear()
        self._mentions = dict.fromkeys(state.mentioned, 0)
        for position, entry in state.journal:
            self.position = position
            self.add(entry)
        self.position = state.position
        self._floor = state.floor
