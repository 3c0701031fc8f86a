"""Encodes wire messages and records as msgpack, and decodes them into typed structs, within a limit of size."""

from __future__ import annotations

from typing import Any

import msgspec

from .message import Record, Wire

FRAME_LIMIT = 256 << 20  # the largest wire message carries the state of a group, with all messages in flight

encode = msgspec.msgpack.Encoder().encode


class BadFrameError(Exception):
    """Bytes that are not a message of this protocol. The connection that they came over is closed."""


class Codec:
    """`messages` and `records` are unions of tagged structs: what a protocol sends, and what it persists."""

    def __init__(self, messages: Any, records: Any) -> None:
        self._message: msgspec.msgpack.Decoder[Wire] = msgspec.msgpack.Decoder(messages)
        self._record: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(records)

    def decode_message(self, data: bytes | memoryview) -> Wire:
        if len(data) > FRAME_LIMIT:
            raise BadFrameError(f"a frame of {len(data)} bytes is over the limit of {FRAME_LIMIT}")
        try:
            return self._message.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadFrameError(f"not a message of this protocol: {error}") from error

    def decode_record(self, data: bytes) -> Record:
        try:
            return self._record.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadFrameError(f"not a record of this protocol: {error}") from error
