"""The messages of each sender that a group has seen, so that a message that is sent again is ordered once.

It is part of the replicated state: only decided entries change it. The `settled` mark in the sender's messages bounds
it: remembered are about the messages that a sender has in flight, with the timestamp that this group gave to each.
"""

from __future__ import annotations

import msgspec

from .ids import SEQ_BITS, SEQ_MASK, MessageId, ProcessId, sender_of, seq_of
from .message import AppMessage
from .timestamps import Timestamp

_SLACK = 16


class SeenOfSender(msgspec.Struct, array_like=True):
    settled: int
    seen: dict[int, Timestamp]  # sequence number -> timestamp given here

    def admit(self, seq: int, settled: int, ts: Timestamp) -> None:
        seen = self.seen
        seen[seq] = ts
        if settled > self.settled:
            # Settled is a promise about lower sequence numbers: it never covers the message that carries it.
            if settled > seq:
                settled = seq
            self.settled = settled
            # Only when half of what is kept must be settled: so the clean-up costs a constant for each message.
            if len(seen) > 2 * (seq - settled) + _SLACK:
                self.seen = {each: given for each, given in seen.items() if each >= settled}


class SeenMessages:
    def __init__(self) -> None:
        self._senders: dict[ProcessId, SeenOfSender] = {}

    def is_known(self, message: MessageId) -> bool:
        sender = self._senders.get(message >> SEQ_BITS)
        if sender is None:
            return False
        seq = message & SEQ_MASK
        return seq < sender.settled or seq in sender.seen

    def is_settled(self, message: MessageId) -> bool:
        sender = self._senders.get(sender_of(message))
        return sender is not None and seq_of(message) < sender.settled

    def timestamp(self, message: MessageId) -> Timestamp | None:
        sender = self._senders.get(sender_of(message))
        return None if sender is None else sender.seen.get(seq_of(message))

    def admit(self, message: AppMessage, ts: Timestamp) -> None:
        """Remembers a message that was ordered, and forgets what its sender says is settled."""
        sender = self._senders.get(message.id >> SEQ_BITS)
        if sender is None:
            sender = self._senders[message.id >> SEQ_BITS] = SeenOfSender(0, {})
        sender.admit(message.id & SEQ_MASK, message.settled, ts)

    def admit_new(self, message: AppMessage, ts: Timestamp) -> bool:
        """Admits the message if it is not known yet. True if it was new."""
        id_ = message.id
        seq = id_ & SEQ_MASK
        sender = self._senders.get(id_ >> SEQ_BITS)
        if sender is None:
            sender = self._senders[id_ >> SEQ_BITS] = SeenOfSender(0, {})
        elif seq < sender.settled or seq in sender.seen:
            return False
        sender.admit(seq, message.settled, ts)
        return True

    def dump(self) -> dict[ProcessId, SeenOfSender]:
        return self._senders

    def load(self, senders: dict[ProcessId, SeenOfSender]) -> None:
        self._senders = senders
