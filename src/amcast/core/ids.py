"""Identifiers: plain integers on the wire and in the trace, names for people.

A message id holds its sender and the sender's sequence number, so that any process can tell whose message it is
without a table. Groups are numbered from 1 (`g1`), the processes of a group from 0 (`g1.p0`).

A message id is below 2^63: 37 bits for the sender and 26 for its sequence number. Sequence numbers can run out, and a
client goes on under another sender id then. Sender ids must not run out, and none is ever given out twice.
"""

from __future__ import annotations

import re

from .errors import UsageError

ProcessId = int
GroupId = int
MessageId = int

SEQ_BITS = 26
SEQ_MASK = (1 << SEQ_BITS) - 1
PROCESS_ID_LIMIT = 1 << 24  # a ballot keeps its owner in 24 bits
CLIENT_ID_LIMIT = 1 << 37  # for clients that get their id from a running cluster: what a message id leaves for it
GROUP_ID_LIMIT = 1 << 16  # a timestamp keeps its group in 16 bits
SEQ_LIMIT = 1 << SEQ_BITS
# So far ahead of the first message without an answer may a sender's messages be: what a group remembers of a sender
# that never says that anything is settled takes a bit for each.
UNSETTLED_MAX = 1 << 17

_MESSAGE = re.compile(r"m?(?:([0-9]{1,12})\.)?([0-9]{1,19})")


def message_id(sender: ProcessId, seq: int) -> MessageId:
    return sender << SEQ_BITS | seq


def sender_of(message: MessageId) -> ProcessId:
    return message >> SEQ_BITS


def seq_of(message: MessageId) -> int:
    return message & SEQ_MASK


def process_label(group: GroupId, index: int) -> str:
    """`g1.p0` is the first process of group 1."""
    return f"g{group}.p{index}"


def client_name(client: ProcessId) -> str:
    return f"c{client}"


def message_name(message: MessageId) -> str:
    """`m12.7` is message 7 of process 12. An id with no sender in it, as in traces of other programs, is `m7`."""
    if 0 <= message < SEQ_LIMIT:
        return f"m{message}"
    return f"m{sender_of(message)}.{seq_of(message)}" if message > 0 else f"m({message})"


def message_named(name: str) -> MessageId:
    """The id of the message that `message_name` calls so, as people give it back to commands. Plain numbers are ids."""
    found = _MESSAGE.fullmatch(name)
    if found is not None:
        sender, number = int(found[1] or 0), int(found[2])
        if found[1] is None and number < 1 << 63:
            return number
        if sender < CLIENT_ID_LIMIT and number < SEQ_LIMIT:
            return message_id(sender, number)
    raise UsageError(f"'{name}' is no message: give its name as `amcast send` or `amcast tail` prints it: m12.7")
