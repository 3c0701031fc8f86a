"""Sequence numbers that say where a message enters, so that no id enters at two groups.

Where a message enters follows from its destinations: at the lowest group above them all. A client that lies gives one
id to two messages with other destinations. Each enters at another group, and each of these groups sees the id for the
first time. Nothing can be done about it later: a group below both gets a second message under an id that it has
delivered. If it delivers that one too, it has two contents behind one id. If it drops it, other destinations have
delivered a message that this one never will, half of a transfer say.

So an id belongs to one group from the beginning. Numbers are dealt to the groups in turn, `DEALT` at a time:

    0 to 7   g1        8 to 15   g2        16 to 23   g3        24 to 31   g1        and so on, for three groups

A group orders no message of a client whose number is another group's. It orders each id once, and all groups below it
get the message from it. So an id names one message, at all members of all groups that tell the truth.

A client numbers its messages in the order in which it makes them, and leaves out numbers of other groups.
"""

from __future__ import annotations

from ..core import AppMessage, GroupId, Topology
from ..core.batch import ids_of
from ..core.ids import SEQ_MASK, seq_of

# At a time. Consecutive ids are cheaper in a batch, but what is left out counts as well against the numbers that a
# client may have without an answer (`UNSETTLED_MAX`).
DEALT = 8


def next_number(seq: int, entry: GroupId, topology: Topology) -> int:
    """The first number from `seq` on that belongs to this group."""
    groups = topology.groups
    block = seq // DEALT
    away = (groups.index(entry) - block) % len(groups)
    return seq if not away else (block + away) * DEALT


def is_number_of(message: AppMessage, entry: GroupId, topology: Topology) -> bool:
    """Whether all its ids belong to this group. A batch must be a good one (`problem_with_batch`)."""
    groups = topology.groups
    count = len(groups)
    if count == 1:
        return True
    rank = groups.index(entry)
    if message.count == 1:
        return (message.id & SEQ_MASK) // DEALT % count == rank
    return all((id_ & SEQ_MASK) // DEALT % count == rank for id_ in ids_of(message))


def problem_with_entry(message: AppMessage, entry: GroupId, topology: Topology) -> str | None:
    if is_number_of(message, entry, topology):
        return None
    return f"message {seq_of(message.id)} can't enter at g{entry}: its number, or one in its batch, is another group's"
