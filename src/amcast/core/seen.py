"""The messages of each sender that a group has seen, so that a message that is sent again is ordered once.

It is part of the replicated state: only decided entries change it. The `settled` mark in the sender's messages bounds
it: below the mark everything counts as known, above it there is a bit for each sequence number. A sender that never
settles is bounded as well, since nobody takes a message that is `UNSETTLED_MAX` or more ahead of its own mark.

A sender may lie about its mark. Then messages of its own that the group never saw count as known and are not ordered.
That is all: nothing here says that a message below the mark was delivered, or ever existed.
"""

from __future__ import annotations

import msgspec

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

    def is_known(self, seq: int) -> bool:
        ahead = seq - self.settled
        return ahead < 0 or self.bits >> ahead & 1 == 1

    def admit(self, seq: int, settled: int) -> None:
        # Settled is a promise about lower sequence numbers: it never covers the message that carries it.
        passed = (settled if settled < seq else seq) - self.settled
        if passed > 0:
            self.settled += passed
            self.bits >>= passed
        if seq >= self.settled:
            self.bits |= 1 << (seq - self.settled)


class SeenMessages:
    def __init__(self) -> None:
        self._senders: dict[ProcessId, _Sender] = {}

    def is_known(self, message: MessageId) -> bool:
        sender = self._senders.get(message >> SEQ_BITS)
        return sender is not None and sender.is_known(message & SEQ_MASK)

    def admit(self, message: AppMessage) -> None:
        """Remembers a message that was ordered, and forgets what its sender says is settled."""
        sender = self._senders.get(message.id >> SEQ_BITS)
        if sender is None:
            sender = self._senders[message.id >> SEQ_BITS] = _Sender()
        sender.admit(message.id & SEQ_MASK, message.settled)

    def admit_new(self, message: AppMessage) -> bool:
        """Admits the message if it is not known yet. True if it was new."""
        id_ = message.id
        seq = id_ & SEQ_MASK
        sender = self._senders.get(id_ >> SEQ_BITS)
        if sender is None:
            sender = self._senders[id_ >> SEQ_BITS] = _Sender()
        elif sender.is_known(seq):
            return False
        sender.admit(seq, message.settled)
        return True

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
