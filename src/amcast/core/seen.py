"""The messages of each sender that a group has seen, so that a message that is sent again is ordered once.

It is part of the replicated state: only decided entries change it. The `settled` mark in the sender's messages bounds
it: below the mark everything counts as known, above it there is a bit for each sequence number. A sender that never
settles is bounded as well, since nobody takes a message that is `UNSETTLED_MAX` or more ahead of its own mark.

A batch has several ids, and all of them are remembered. Correct senders give each id to one message, and send a batch
again as it was. A sender that lies may send messages 5, 6 and 7 in one batch, and then 6 alone, or 6 and 8 in another
batch. A batch with an id that is known is not ordered: otherwise message 6 would be delivered twice. But all its ids
count as known from then on: a group that refuses it never orders it later, and can say so to groups that have ordered
it.

A sender may lie about its mark. Then messages of its own that the group never saw count as known and are not ordered.
That is all: nothing here says that a message that is known was delivered, or ever existed.
"""

from __future__ import annotations

import msgspec

from .batch import id_bits
from .ids import SEQ_BITS, SEQ_MASK, MessageId, ProcessId
from .message import AppMessage


class SeenOfSender(msgspec.Struct, array_like=True):
    """As it is in a snapshot."""

    settled: int
    bits: bytes  # little-endian: bit i is the sequence number settled + i


class _Sender:
    __slots__ = ("bits", "settled")

    def __init__(self, settled: int = 0, bits: int = 0) -> None:
        self.settled = settled
        self.bits = bits


class SeenMessages:
    def __init__(self) -> None:
        self._senders: dict[ProcessId, _Sender] = {}

    def is_known(self, message: MessageId) -> bool:
        sender = self._senders.get(message >> SEQ_BITS)
        if sender is None:
            return False
        ahead = (message & SEQ_MASK) - sender.settled
        return ahead < 0 or sender.bits >> ahead & 1 == 1

    def admit(self, message: AppMessage) -> None:
        """Remembers a message that another group has ordered, and forgets what its sender says is settled."""
        self.admit_new(message)

    def admit_new(self, message: AppMessage) -> bool:
        """Admits the message if it is not known yet. True if it is new: then, and only then, it may be ordered.

        One that is known changes nothing. A batch is known if its own id is, and it is not new if any of its ids is.
        """
        id_ = message.id
        sender = self._senders.get(id_ >> SEQ_BITS)
        if sender is None:
            sender = self._senders[id_ >> SEQ_BITS] = _Sender()
        settled, bits = sender.settled, sender.bits
        ahead = (id_ & SEQ_MASK) - settled
        if ahead < 0:
            return False
        known = bits >> ahead
        if known & 1:
            return False
        ids = 1 if message.count == 1 else id_bits(message)
        passed = message.settled - settled
        if passed >= ahead:
            # Settled is a promise about lower sequence numbers: it never covers the message that carries it. With all
            # lower ones settled, as of a client that sends one batch after the other, nothing else is to be kept.
            sender.settled = settled + ahead
            sender.bits = known | ids
        elif passed > 0:
            sender.settled = settled + passed
            sender.bits = bits >> passed | ids << (ahead - passed)
        else:
            sender.bits = bits | ids << ahead
        return not known & ids

    def dump(self) -> dict[ProcessId, SeenOfSender]:
        return {
            process: SeenOfSender(sender.settled, sender.bits.to_bytes((sender.bits.bit_length() + 7) // 8, "little"))
            for process, sender in self._senders.items()
        }

    def load(self, senders: dict[ProcessId, SeenOfSender]) -> None:
        self._senders = {
            process: _Sender(sender.settled, int.from_bytes(sender.bits, "little"))
            for process, sender in senders.items()
        }
