"""What an ordering group owes to the other groups: messages for a group that no majority of it is known to hold.

The ordering group answers for messages that other groups deliver, and it forgets what is old. So it keeps each message,
whatever the limits of its history, until a majority of each destination has it on disk: only then is the client told
that this group has it, and only then may it be forgotten. A group that is down for a day costs bounded memory: above a
limit nothing more is ordered for it, and its clients try again.

All replicas of the ordering group keep the same debts, and each drops by itself what the other groups say they hold.
Some know of it later than others: none knows too much. Debts are part of the state that is handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from ..core import AppMessage, MessageId, ProcessId, Timestamp


class OwedMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message, and the position at which the group that it is owed to delivers it."""

    position: int
    message: AppMessage
    ts: Timestamp


class Debt:
    """What is owed to one group."""

    def __init__(self) -> None:
        self.owed: deque[OwedMessage] = deque()  # by position, without a gap up to the group's last message
        self._ids: set[MessageId] = set()
        self._count = 0  # of messages, in batches or not, with those that are proposed and not ordered yet
        self._bytes = 0
        # Volatile:
        self._held_by: dict[ProcessId, int] = {}  # a process of the group holds what it delivers below this position
        self._floor = 0  # a majority holds what is delivered below
        self._told = 0  # clients know that what is delivered below has to wait
        self._seen = 0  # what is delivered below was there when the timer last looked

    def __contains__(self, id_: MessageId) -> bool:
        return id_ in self._ids

    def has_room(self, count_max: int, bytes_max: int) -> bool:
        """Whether one message more may be ordered for the group. A single one always may, however large it is."""
        return not self._count or (self._count < count_max and self._bytes < bytes_max)

    def count(self, message: AppMessage, sign: int) -> None:
        self._count += sign * message.count
        self._bytes += sign * len(message.payload)

    def add(self, owed: OwedMessage) -> bool:
        """False if a majority holds it already: other learners may be faster than this replica."""
        if owed.position + owed.message.count <= self._floor:
            return False
        self.owed.append(owed)
        self._ids.add(owed.message.id)
        self.count(owed.message, 1)
        return True

    def hold(self, process: ProcessId, position: int, majority: int) -> list[AppMessage]:
        """A process of the group holds all below this position. Returns what a majority holds now."""
        self._held_by[process] = max(position, self._held_by.get(process, 0))
        if len(self._held_by) >= majority:
            self._floor = sorted(self._held_by.values(), reverse=True)[majority - 1]
        return self._settle()

    def _settle(self) -> list[AppMessage]:
        settled = []
        owed, floor = self.owed, self._floor
        while owed and owed[0].position + owed[0].message.count <= floor:
            message = owed.popleft().message
            self._ids.discard(message.id)
            self.count(message, -1)
            settled.append(message)
        return settled

    def overdue(self) -> list[AppMessage]:
        """What was owed when this was last asked, and still is; each message once."""
        told, self._told = self._told, self._seen
        self._seen = self.owed[-1].position + 1 if self.owed else self._floor
        return [each.message for each in self.owed if told <= each.position < self._told] if told < self._told else []

    def load(self, owed: Iterable[OwedMessage], proposed: Iterable[AppMessage]) -> None:
        self.owed = deque(owed)
        self._ids = {each.message.id for each in self.owed}
        self._count = self._bytes = 0
        for message in (*(each.message for each in self.owed), *proposed):
            self.count(message, 1)
        self._settle()
