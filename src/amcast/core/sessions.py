"""What a group remembers of each sender, so that a retried message is ordered once.

It is part of the replicated state: changed by decided entries only. The sender's own `settled` mark bounds it: about
the messages that a sender has in flight are remembered, and the timestamp this group gave each of them.
"""

from __future__ import annotations

import msgspec

from .ids import SEQ_BITS, SEQ_MASK, MessageId, ProcessId, sender_of, seq_of
from .message import AppMessage
from .timestamps import Timestamp

_SLACK = 16


class SessionState(msgspec.Struct, array_like=True):
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
            # Only now and then, when half of what is kept is surely settled: then each costs a constant.
            if len(seen) > 2 * (seq - settled) + _SLACK:
                self.seen = {each: given for each, given in seen.items() if each >= settled}


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[ProcessId, SessionState] = {}

    def is_known(self, message: MessageId) -> bool:
        session = self._sessions.get(message >> SEQ_BITS)
        if session is None:
            return False
        seq = message & SEQ_MASK
        return seq < session.settled or seq in session.seen

    def is_settled(self, message: MessageId) -> bool:
        session = self._sessions.get(sender_of(message))
        return session is not None and seq_of(message) < session.settled

    def timestamp(self, message: MessageId) -> Timestamp | None:
        session = self._sessions.get(sender_of(message))
        return None if session is None else session.seen.get(seq_of(message))

    def admit(self, message: AppMessage, ts: Timestamp) -> None:
        """Remembers a message that was ordered, and forgets what its sender says is settled."""
        session = self._sessions.get(message.id >> SEQ_BITS)
        if session is None:
            session = self._sessions[message.id >> SEQ_BITS] = SessionState(0, {})
        session.admit(message.id & SEQ_MASK, message.settled, ts)

    def admit_new(self, message: AppMessage, ts: Timestamp) -> bool:
        """Admits it unless it is known: whether it was new."""
        id_ = message.id
        seq = id_ & SEQ_MASK
        session = self._sessions.get(id_ >> SEQ_BITS)
        if session is None:
            session = self._sessions[id_ >> SEQ_BITS] = SessionState(0, {})
        elif seq < session.settled or seq in session.seen:
            return False
        session.admit(seq, message.settled, ts)
        return True

    def dump(self) -> dict[ProcessId, SessionState]:
        return self._sessions

    def load(self, sessions: dict[ProcessId, SessionState]) -> None:
        self._sessions = sessions
