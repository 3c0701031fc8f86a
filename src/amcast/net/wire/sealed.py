"""A connection whose two ends have proved who they are, and of which every byte carries a proof (`security/seal.py`).

It stands between a socket and whoever takes frames, as TLS does, where members may lie and there is no TLS. First come
the frames of the handshake, and after them records, which are frames of a tag and data. Data is handed up when its tag
was found right, and not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from ..security.seal import TAG, Handshake, Session, Tagger
from ..security.tls import PeerError
from .control import DECODE_ERRORS
from .framing import Frame, FrameProtocol, frame, ignore

_DATA = 32 << 10  # bytes in a record, at most
_HANDSHAKE_LIMIT = 1 << 10  # bytes of a frame
_NO_SEAL = "members of this cluster prove who they are: connect with the cluster.toml, not with addresses"
_WRONG_TAG = "what comes from there was altered, repeated, left out or added on its way"

# Also gets the frame that is not what it should be: perhaps it says in plain text why the other side refuses.
OnProblem = Callable[[PeerError, bytes], None]


class SealedTransport(asyncio.Transport):
    """What `SealedProtocol` hands up: it seals what is written once the handshake is over."""

    def __init__(self, below: asyncio.Transport) -> None:
        super().__init__()
        self._below = below
        self._session: Session | None = None
        self._tagger: Tagger | None = None

    def seal(self, session: Session) -> None:
        self._session, self._tagger = session, session.sends

    def write(self, data: Any) -> None:
        tagger = self._tagger
        if tagger is None:  # only those are told anything before whom nobody believes: why they are refused
            self._below.write(data)
        elif len(data) <= _DATA:
            self._below.write(_record(tagger, data))
        else:
            view = memoryview(data)
            parts = [view[start : start + _DATA] for start in range(0, len(view), _DATA)]
            self._below.write(b"".join([_record(tagger, part) for part in parts]))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._session if name == "session" else self._below.get_extra_info(name, default)

    # -- nothing is added to these

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()


def _record(tagger: Tagger, data: bytes | memoryview) -> bytes:
    """A frame, made in one go."""
    return b"".join(((TAG + len(data)).to_bytes(4, "big"), tagger.tag(data), data))


class SealedProtocol(FrameProtocol):
    """Hands up what comes to `above`, which learns nothing of the handshake but that it takes a while."""

    def __init__(
        self, above: FrameProtocol, handshake: Handshake, on_sealed: Callable[[Session], None], on_problem: OnProblem
    ) -> None:
        super().__init__(_HANDSHAKE_LIMIT)
        self._above = above
        self._handshake = handshake
        self._on_sealed = on_sealed
        self._on_problem = on_problem
        self._sealed: SealedTransport | None = None
        self._tagger: Tagger | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._transport is not None
        self._on_frame = self._on_handshake
        self._sealed = SealedTransport(self._transport)
        self._above.connection_made(self._sealed)
        self._say(self._handshake.begin())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._sealed = None
        self._above.connection_lost(exc)

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    def refuse(self, reason: str) -> None:
        """A frame is too long: the other side speaks of something else, or its length was altered."""
        self._break(PeerError(_NO_SEAL if self._tagger is None else _WRONG_TAG))

    def _break(self, error: PeerError, data: bytes = b"") -> None:
        self._on_frame = ignore
        self._on_problem(error, data)

    def _say(self, message: msgspec.Struct | None) -> None:
        if message is not None and self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(msgspec.msgpack.encode(message)))

    def _on_handshake(self, data: Frame) -> None:
        try:
            self._say(self._handshake.take(data))
        except DECODE_ERRORS:
            self._break(PeerError(_NO_SEAL), bytes(data))
            return
        except PeerError as error:
            self._break(error)
            return
        session = self._handshake.session
        if session is not None and self._sealed is not None:
            self._tagger = session.hears
            self._sealed.seal(session)
            self._take_frames(TAG + _DATA, self._on_record)
            self._on_sealed(session)

    def _on_record(self, record: Frame) -> None:
        assert self._tagger is not None
        data = record[TAG:]
        if not self._tagger.is_next(record[:TAG], data):
            self._break(PeerError(_WRONG_TAG), bytes(record))
            return
        above = self._above
        while data:
            room = above.get_buffer(len(data))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            above.buffer_updated(size)
            data = data[size:]
