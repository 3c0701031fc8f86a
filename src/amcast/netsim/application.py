"""The application that simulated nodes run: its state is a checksum of all that it has applied, in order.

For some of the messages, the groups tell each other their states before they apply it: what was told goes into the
checksums, so that a wrong word makes states differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from zlib import crc32

from ..apps.store import Store
from ..core import AppMessage, MessageId
from ..net.node.application import ExchangingMachine

# Told apply, query, snapshot or restore, and for which message; raises if it is to fail.
Try = Callable[[str, MessageId], None]

EXCHANGE = b"exchange "  # how the payload of a message begins for which groups tell each other their states


class Execution(NamedTuple):
    """What became of one message in one replica."""

    number: int  # of the messages that were executed
    before: int  # the state
    after: int
    reads: dict[str, bytes]  # what all groups had told
    answer: bytes = b""  # of the store of objects, if the message is an operation

    @property
    def result(self) -> bytes:
        """Nobody can get it in another way than by executing the message there."""
        state = _state(self.number, self.after)
        return b"%b %b" % (state, self.answer) if self.answer else state

    @property
    def told(self) -> bytes:
        """What this group tells the others before it executes the message."""
        return _state(self.number, self.before)


def _state(number: int, sum_: int) -> bytes:
    return b"%d %d" % (number, sum_)


Note = Callable[[MessageId, Execution], None]


class Chain(ExchangingMachine):
    def __init__(self, note: Note, try_: Try) -> None:
        self._number = 0
        self._sum = 0
        self._note = note
        self._try = try_

    def read(self, message: AppMessage) -> bytes | None:
        return _state(self._number, self._sum) if message.payload.startswith(EXCHANGE) else None

    def apply(self, message: AppMessage, reads: Mapping[str, bytes]) -> bytes:
        before = self._sum
        self._sum = crc32(message.payload, crc32(message.id.to_bytes(16, "big"), self._sum))
        self._try("apply", message.id)  # in the middle, when half of the state has changed
        for group, told in reads.items():
            self._sum = crc32(told, crc32(group.encode(), self._sum))
        execution = Execution(self._number, before, self._sum, dict(reads), self._answer(message))
        self._number += 1
        self._note(message.id, execution)
        return execution.result

    def _answer(self, message: AppMessage) -> bytes:
        return b""

    def query(self, payload: bytes) -> bytes:
        self._try("query", 0)
        return _state(self._number, self._sum)

    def snapshot(self) -> bytes:
        self._try("snapshot", 0)
        return _state(self._number, self._sum)

    def restore(self, state: bytes) -> None:
        self._try("restore", 0)
        self._number, self._sum = map(int, state.split())


class ObjectChain(Chain):
    """Where messages are operations on objects: it also executes them in a store, whose answer is in the result."""

    def __init__(self, note: Note, try_: Try) -> None:
        super().__init__(note, try_)
        self._store = Store()

    def read(self, message: AppMessage) -> None:
        """Groups execute operations in orders of their own: they have nothing to tell each other."""

    def _answer(self, message: AppMessage) -> bytes:
        return self._store.execute(message.payload)

    def snapshot(self) -> bytes:
        return b"%b %b" % (super().snapshot(), self._store.dump())

    def restore(self, state: bytes) -> None:
        number, sum_, store = state.split(b" ", 2)
        super().restore(b"%b %b" % (number, sum_))
        self._store.load(store)


def answer_in(result: bytes) -> bytes:
    """What the store said, of an `ObjectChain`'s result."""
    return result.split(b" ", 2)[2]
