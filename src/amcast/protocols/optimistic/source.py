"""A group as a source of messages: what its log says, to its own members and to all who follow it.

The log gives each message its final timestamp. Everything here depends on the log alone, so all followers of a group
compute the same timestamps, whether they see whole entries or notes of those that do not concern them.
"""

from __future__ import annotations

import msgspec

from ...core import GroupId, MessageId, ProcessId, Timestamp, sender_of, seq_of, timestamp
from .messages import BARRIER_MAX, TIME_MAX, Join, Time


class Link(msgspec.Struct, array_like=True):
    """Whether the group sends to another one, and how often it has joined that one's senders."""

    count: int = 0
    joined: bool = False
    left_at: int = 0  # the instance in which it left


class Source(msgspec.Struct, array_like=True):
    group: GroupId
    links: dict[GroupId, Link]
    position: int = 0  # the first instance of its log that is not in here
    clock: Time = 0  # the time of the last message or barrier: all that follow are later
    next_seq: dict[ProcessId, int] = {}  # of each sender: messages are taken in the order of their senders only

    def reaches(self, group: GroupId) -> bool:
        link = self.links.get(group)
        return group == self.group or (link is not None and link.joined)

    def is_known(self, id_: MessageId) -> bool:
        return seq_of(id_) < self.next_seq.get(sender_of(id_), 0)

    def stamp(self, id_: MessageId, dst: tuple[GroupId, ...], time: Time) -> Timestamp | None:
        """Lines 23 to 26: the final timestamp; None if the message was ordered before, or can't be yet."""
        self.clock = max(min(time, TIME_MAX), self.clock + 1)
        sender, seq = sender_of(id_), seq_of(id_)
        if seq != self.next_seq.get(sender, 0) or not all(map(self.reaches, dst)):
            return None
        self.next_seq[sender] = seq + 1
        return timestamp(self.clock, self.group)

    def raise_clock(self, time: Time) -> None:
        self.clock = max(self.clock, min(time, BARRIER_MAX))

    def tick(self) -> Timestamp:
        """A timestamp for an entry that is no message, such as an Admit."""
        self.clock += 1
        return timestamp(self.clock, self.group)

    def join(self, entry: Join) -> bool:
        link = self.links.setdefault(entry.group, Link())
        if link.joined or entry.count != link.count + 1:
            return False
        link.count, link.joined = entry.count, True
        self.raise_clock(entry.time)
        return True

    def leave(self, group: GroupId, instance: int) -> bool:
        link = self.links.get(group)
        if link is None or not link.joined:
            return False
        link.joined, link.left_at = False, instance
        return True

    def barrier(self) -> Timestamp:
        """No message of this group that is still to come has a timestamp below this one."""
        return timestamp(self.clock + 1, self.group)


def barrier_time(group: GroupId, time: Time, source: GroupId) -> Time:
    """The clock value that `group` must reach so that nothing of it comes before (time, source) any more."""
    return time - 1 if group > source else time
