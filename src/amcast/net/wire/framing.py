"""Frames on a byte stream: four bytes of length, then as many bytes of msgpack. A frame over the limit is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import cast

_LENGTH = Struct(">I")
_BUFFER = 64 << 10  # bytes of each connection to begin with: it grows for larger frames

Frame = memoryview


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class FrameProtocol(asyncio.BufferedProtocol):
    """Hands whole frames to `_on_frame`. They are views of the buffer, valid until the call returns."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        self._start = 0  # of the bytes that are not handled yet
        self._end = 0
        self._transport: asyncio.Transport | None = None
        self._on_frame: Callable[[Frame], None] = self._ignore

    def _ignore(self, frame_: Frame) -> None:
        """Before a subclass says what to do with frames, and after it has closed the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        start, end, view = self._start, self._end, self._view
        needed = 4
        while end - start >= 4:
            (length,) = _LENGTH.unpack_from(view, start)
            if length > self._limit:
                self._start = self._end = 0
                self.refuse(f"a frame of {length} bytes is over the limit of {self._limit}")
                return
            stop = start + 4 + length
            if stop > end:
                needed = 4 + length
                break
            try:
                self._on_frame(view[start + 4 : stop])
            except Exception as error:
                self._on_failure(error)
                return
            start = stop
        self._start = start
        self._make_room(needed)

    def _on_failure(self, error: Exception) -> None:
        """What a handler of frames raised. The event loop would take an OSError for a broken connection."""
        raise error

    def _make_room(self, needed: int) -> None:
        """Moves the beginning of the next frame to the front, in a buffer that can hold the whole frame."""
        left = self._end - self._start
        if left == 0:
            self._start = self._end = 0
            if len(self._buffer) > 4 * _BUFFER:
                self._replace_buffer(_BUFFER)
        elif needed > len(self._buffer) - self._start:
            if needed > len(self._buffer):
                self._replace_buffer(1 << (needed - 1).bit_length())  # the next one may be a bit larger
            else:
                self._view[:left] = bytes(self._view[self._start : self._end])
                self._start, self._end = 0, left

    def _replace_buffer(self, size: int) -> None:
        rest = bytes(self._view[self._start : self._end])
        self._buffer = bytearray(size)
        self._view = memoryview(self._buffer)
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def refuse(self, reason: str) -> None:
        """The other side broke a rule: the connection is closed. Subclasses tell the other side why."""
        self._on_frame = self._ignore
        if self._transport is not None:
            self._transport.close()
