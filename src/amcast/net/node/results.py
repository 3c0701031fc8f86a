"""What an application answered, kept for clients that ask again.

A message is executed once. Its result is kept until its sender says, in a later message to the same group, that the
message is settled: then the sender has the result. Senders that never come back are forgotten when the results of all
together take too much room, the one that has been quiet for longest first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...core import AppMessage, MessageId, ProcessId
from ...core.ids import SEQ_BITS, SEQ_MASK
from ..wire.control import Result

RESULT_LIMIT = 1 << 20  # bytes
_OVERHEAD = 100  # bytes that an empty result takes, about
_SLACK = 16  # settled results that may stay for a while


class _OfSender:
    __slots__ = ("results", "settled")

    def __init__(self, settled: int, results: dict[int, Result]) -> None:
        self.settled = settled
        self.results = results  # by sequence number


_Dumped = list[tuple[ProcessId, int, dict[int, Result]]]
_decoder: msgspec.msgpack.Decoder[_Dumped] = msgspec.msgpack.Decoder(_Dumped)


class Results:
    def __init__(self, bytes_max: int, is_exact: bool = False) -> None:
        """`is_exact`: a dump leaves out nothing, so that what is forgotten later does not depend on when one is made.
        All replicas that executed the same messages have the same dump then."""
        self._bytes_max = bytes_max
        self._is_exact = is_exact
        self._bytes = 0
        self._senders: dict[ProcessId, _OfSender] = {}  # the one that has been quiet for longest comes first

    def add_all(self, messages: Sequence[AppMessage], results: Sequence[Result]) -> None:
        """The messages have one sender. What is kept is the same as if they were added one after the other."""
        sender = messages[0].id >> SEQ_BITS
        known = self._senders.pop(sender, None)
        if known is None:
            known = _OfSender(0, {})
            self._bytes += _OVERHEAD
        self._senders[sender] = known
        for message, result in zip(messages, results, strict=True):
            seq = message.id & SEQ_MASK
            known.results[seq] = result
            self._bytes += _OVERHEAD + len(result) if type(result) is bytes else _OVERHEAD
            settled = message.settled
            if settled > known.settled:
                self._settle(known, settled, seq)
            if self._bytes > self._bytes_max:
                self._forget_others()

    def _settle(self, known: _OfSender, settled: int, seq: int) -> None:
        """A message with this number says that all below `settled` are, of those before it."""
        settled = min(settled, seq)
        if settled > known.settled:
            known.settled = settled
            if len(known.results) > 2 * (seq - settled) + _SLACK:
                self._drop_settled(known)

    def _forget_others(self) -> None:
        while self._bytes > self._bytes_max and len(self._senders) > 1:
            self._forget(next(iter(self._senders)))

    def find(self, id_: MessageId) -> tuple[bool, Result]:
        """Whether the result is known, and the result."""
        known = self._senders.get(id_ >> SEQ_BITS)
        seq = id_ & SEQ_MASK
        if known is None or seq not in known.results:
            return False, None
        return True, known.results[seq]

    def _drop_settled(self, known: _OfSender) -> None:
        kept = {seq: result for seq, result in known.results.items() if seq >= known.settled}
        self._bytes -= sum(map(_size, known.results.values())) - sum(map(_size, kept.values()))
        known.results = kept

    def _forget(self, sender: ProcessId) -> None:
        known = self._senders.pop(sender)
        self._bytes -= _OVERHEAD + sum(map(_size, known.results.values()))

    # -- snapshots

    def dump(self) -> bytes:
        for known in () if self._is_exact else self._senders.values():
            self._drop_settled(known)
        return msgspec.msgpack.encode(
            [(sender, known.settled, known.results) for sender, known in self._senders.items()]
        )

    def load(self, data: bytes) -> None:
        self._senders = {sender: _OfSender(settled, results) for sender, settled, results in _decoder.decode(data)}
        self._bytes = sum(_OVERHEAD + sum(map(_size, known.results.values())) for known in self._senders.values())


def _size(result: Result) -> int:
    return _OVERHEAD + (len(result) if isinstance(result, bytes) else 0)
