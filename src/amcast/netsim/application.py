"""The application that simulated nodes run: its state is a checksum of all that it has applied, in order."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from ..core import AppMessage
from ..net.node.application import StateMachine

Note = Callable[[int, int], None]  # a position, and the state after it
Try = Callable[[str], None]  # told apply, query, snapshot or restore; raises if it is to fail


def result_at(position: int, state: int) -> bytes:
    """What it answers to the message at this position: nobody can get it in another way than by executing it there."""
    return b"%d %d" % (position, state)


class Chain(StateMachine):
    def __init__(self, note: Note, try_: Try) -> None:
        self.position = 0
        self._sum = 0
        self._note = note
        self._try = try_

    def apply(self, position: int, message: AppMessage) -> bytes:
        assert position == self.position, f"position {position} is applied after {self.position - 1}"
        self._sum = crc32(message.payload, crc32(message.id.to_bytes(16, "big"), self._sum))
        self._try("apply")  # in the middle, when half of the state has changed
        self.position += 1
        self._note(position, self._sum)
        return result_at(position, self._sum)

    def query(self, payload: bytes) -> bytes:
        self._try("query")
        return b"%d %d" % (self.position, self._sum)

    def snapshot(self) -> bytes:
        self._try("snapshot")
        return b"%d %d" % (self.position, self._sum)

    def restore(self, state: bytes) -> None:
        self._try("restore")
        self.position, self._sum = map(int, state.split())
