"""Frames on a byte stream: four bytes of length, then as many bytes of msgpack. A frame over the limit is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import cast

_length_at = Struct(">I").unpack_from
_STRANGER_BUFFER = 4 << 10  # bytes, until it is known who sends
_BUFFER = 64 << 10  # from then on: it grows for larger frames

Frame = memoryview


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def ignore(frame_: Frame) -> None:
    """Before a subclass says what to do with frames, and after it has closed the connection."""


class FrameProtocol(asyncio.BufferedProtocol):
    """Hands whole frames to `_on_frame`. They are views of the buffer, valid until the call returns.

    Callers who never say anything must cost next to nothing, and nothing must be left of those that are gone. So there
    is no buffer before the first bytes come, and an object refers to itself, by `_on_frame`, only while its connection
    lasts: not before `connection_made`, which a failed TLS handshake never reaches, nor after `connection_lost`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._room = _STRANGER_BUFFER
        self._has_usual_size = False  # the buffer: if not, it is replaced once it is empty
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = 0  # of the bytes that are not handled yet
        self._end = 0
        self._is_waiting = False  # frames that have come are not handled before `_go_on`
        self._transport: asyncio.Transport | None = None
        self._on_frame: Callable[[Frame], None] = ignore

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_frame = ignore
        self._transport = None

    def _take_frames(self, limit: int, on_frame: Callable[[Frame], None]) -> None:
        """From now on it is known who sends: the buffer may be larger, and frames up to this limit are taken."""
        self._limit = limit
        self._room = _BUFFER
        self._has_usual_size = self._room <= len(self._buffer) <= 4 * self._room
        self._on_frame = on_frame

    def get_buffer(self, sizehint: int) -> memoryview:
        end = self._end
        if not end and self._has_usual_size:
            return self._view  # all of it: no frame is begun
        if end == len(self._buffer):
            # There is none yet. Or whole frames wait in it, and the event loop has read ahead.
            self._replace_buffer(2 * (end - self._start) or self._room)
            end = self._end
        return self._view[end:]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        start, end, view = self._start, self._end, self._view
        needed = 4
        while end - start >= 4 and not self._is_waiting:
            (length,) = _length_at(view, start)
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
        if start == self._end and self._has_usual_size:
            self._start = self._end = 0
        else:
            self._start = start
            self._make_room(needed)

    def _go_on(self) -> None:
        """Handles the frames that have waited."""
        self._is_waiting = False
        self.buffer_updated(0)

    def _on_failure(self, error: Exception) -> None:
        """What a handler of frames raised. The event loop would take an OSError for a broken connection."""
        raise error

    def _make_room(self, needed: int) -> None:
        """Moves the beginning of the next frame to the front, in a buffer that can hold the whole frame."""
        left = self._end - self._start
        if left == 0:
            self._start = self._end = 0
            if not self._has_usual_size:
                self._replace_buffer(0)  # the next bytes get one of the right size
                self._may_hold(0)
        elif needed > len(self._buffer) - self._start:
            if needed > len(self._buffer):
                size = 1 << (needed - 1).bit_length()  # the next one may be a bit larger
                # Only those count that shrink again: a connection keeps a smaller one, and could not give it back.
                if size <= 4 * self._room or self._may_hold(size):
                    self._replace_buffer(size)
            else:
                self._view[:left] = bytes(self._view[self._start : self._end])
                self._start, self._end = 0, left

    def _may_hold(self, size: int) -> bool:
        """Whether the buffer may have this size. If not, a subclass has refused to go on."""
        return True

    def _replace_buffer(self, size: int) -> None:
        rest = bytes(self._view[self._start : self._end])
        self._buffer = bytearray(size)
        self._has_usual_size = self._room <= size <= 4 * self._room
        self._view = memoryview(self._buffer)
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def refuse(self, reason: str) -> None:
        """The other side broke a rule: the connection is closed. Subclasses tell the other side why."""
        self._on_frame = ignore
        if self._transport is not None:
            self._transport.close()
