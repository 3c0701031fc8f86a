"""What leaves on a connection: frames are gathered, and written in one go; delays between regions are added here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

_SMALL = 16 << 10  # bytes of a frame


class Delay:
    """Emulates distance: all data arrives later by about the mean, and in order."""

    def __init__(self, mean_us: int, sigma: float, rng: Random) -> None:
        self._mean_s = mean_us / 1e6
        self._sigma = sigma
        self._rng = rng
        self._last = 0.0

    def send(self, loop: asyncio.AbstractEventLoop, write: Callable[[bytes], None], data: bytes) -> None:
        factor = max(0.25, self._rng.gauss(1.0, self._sigma)) if self._sigma else 1.0
        self._last = max(self._last, loop.time() + self._mean_s * factor)
        loop.call_at(self._last, write, data)


class SendBuffer:
    """Gathers frames, and writes them in one go at the end of a turn of the event loop.

    While there is no connection, a patient one keeps frames up to the limit; others drop them.
    """

    def __init__(self, limit: int, delay: Delay | None, is_patient: bool = False) -> None:
        self._limit = limit
        self._delay = delay
        self._is_patient = is_patient
        self._frames: list[bytes] = []
        self._size = 0
        self._delayed = 0  # bytes that are on their way in the emulation
        self._transport: asyncio.Transport | None = None
        self.dropped = 0

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    @property
    def waiting_bytes(self) -> int:
        """What was added and has not left yet."""
        waiting = self._size + self._delayed
        return waiting if self._transport is None else waiting + self._transport.get_write_buffer_size()

    def attach(self, transport: asyncio.Transport | None) -> None:
        self._transport = transport
        if not self._is_patient:
            self._frames = []
            self._size = 0
        elif transport is not None:
            self.flush()

    def add(self, data: bytes, is_owed: bool = False) -> bool:
        """Returns whether it is the first frame since the last `flush`: the caller must then call `flush` again.

        What is owed is never dropped while there is a connection: the caller sees to it that it does not pile up.
        """
        size, transport = self._size + len(data), self._transport
        if (
            (transport is not None and size + transport.get_write_buffer_size() <= self._limit)
            or self._has_room(len(data))
            or (is_owed and transport is not None)
        ):
            frames = self._frames
            frames.append(data)
            self._size = size
            return len(frames) == 1
        self.dropped += 1
        return False

    def _has_room(self, size: int) -> bool:
        """Where the frame does not simply fit."""
        transport, waiting = self._transport, self._size
        if transport is not None:
            waiting += transport.get_write_buffer_size()
        elif not self._is_patient:
            return False
        limit = self._limit
        if size > limit:
            # Otherwise it could never be sent. Little may wait before it: heartbeats that leave in each turn, say.
            return waiting <= limit
        # Small frames have twice the room, so that large ones do not keep out votes and heartbeats.
        return waiting + size <= (limit if size > _SMALL else 2 * limit)

    def flush(self) -> None:
        transport = self._transport
        if transport is None or not self._frames:
            return
        frames = self._frames
        self._frames, self._size = [], 0
        # A transport can be closing while this buffer is still attached. Writing to it is an error in uvloop.
        if transport.is_closing():
            self.dropped += len(frames)
            return
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        if self._delay is None:
            transport.write(data)
        else:
            self._delayed += len(data)
            self._delay.send(asyncio.get_running_loop(), self._write_late, data)

    def _write_late(self, data: bytes) -> None:
        self._delayed -= len(data)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
