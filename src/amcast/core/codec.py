"""Bytes for wire messages and records: msgpack, typed both ways, limits checked before anything is decoded."""

from __future__ import annotations

from typing import Any

import msgspec

from .message import Record, Wire

FRAME_LIMIT = 256 << 20  # the largest is a group's state, with all messages that are on their way

encode = msgspec.msgpack.Encoder().encode


class BadFrameError(Exception):
    """Bytes that are no message of this protocol. The connection they came over is closed."""


class Codec:
    """`messages` and `records` are unions of tagged structs; everything else is refused."""

    def __init__(self, messages: Any, records: Any) -> None:
        self._message: msgspec.msgpack.Decoder[Wire] = msgspec.msgpack.Decoder(messages)
        self._record: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(records)

    def decode_message(self, data: bytes | memoryview) -> Wire:
        if len(data) > FRAME_LIMIT:
            raise BadFrameError(f"a frame of {len(data)} bytes is over the limit of {FRAME_LIMIT}")
        try:
            return self._message.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadFrameError(f"not a message of this protocol: {error}") from error

    def decode_record(self, data: bytes) -> Record:
        try:
            return self._record.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadFrameError(f"not a record of this protocol: {error}") from error
