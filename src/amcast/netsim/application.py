"""The application that simulated nodes run: its state is a checksum of all that it has applied, in order.

For some of the messages, the groups tell each other their states before they apply it: what was told goes into the
checksums, so that a wrong word makes states differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from zlib import crc32

from ..core import AppMessage, MessageId
from ..net.node.application import ExchangingMachine

Note = Callable[[int, int], None]  # a position, and the state after it
NoteReads = Callable[[MessageId, Mapping[str, bytes]], None]
Try = Callable[[str], None]  # told apply, snapshot or restore; raises if it is to fail

EXCHANGE = b"exchange "  # how the payload of a message begins for which groups tell each other their states


def result_at(position: int, state: int) -> bytes:
    """What it answers to the message at this position: nobody can get it in another way than by executing it there."""
    return b"%d %d" % (position, state)


class Chain(ExchangingMachine):
    def __init__(self, note: Note, note_reads: NoteReads, try_: Try) -> None:
        self.position = 0
        self._sum = 0
        self._note = note
        self._note_reads = note_reads
        self._try = try_

    def read(self, message: AppMessage) -> bytes | None:
        return self.snapshot_of() if message.payload.startswith(EXCHANGE) else None

    def apply(self, message: AppMessage, reads: Mapping[str, bytes]) -> bytes:
        self._sum = crc32(message.payload, crc32(message.id.to_bytes(16, "big"), self._sum))
        self._try("apply")  # in the middle, when half of the state has changed
        for group, told in reads.items():
            self._sum = crc32(told, crc32(group.encode(), self._sum))
        position = self.position
        self.position += 1
        if reads:
            self._note_reads(message.id, reads)
        self._note(position, self._sum)
        return result_at(position, self._sum)

    def snapshot_of(self) -> bytes:
        return b"%d %d" % (self.position, self._sum)

    def snapshot(self) -> bytes:
        self._try("snapshot")
        return self.snapshot_of()

    def restore(self, state: bytes) -> None:
        self._try("restore")
        self.position, self._sum = map(int, state.split())
