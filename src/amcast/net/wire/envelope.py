"""Payloads with a word from the client to the nodes: an idempotency key, or the decision to skip a message.

A payload that begins with `ENVELOPE` is one of the structs below. All other payloads are as the program gave them. A
program's own payload that happens to begin so is put into an envelope as well, so that nothing is ever mistaken.
"""

from __future__ import annotations

import msgspec

from ...core import AppMessage
from ...core.batch import unpack
from .control import DECODE_ERRORS

ENVELOPE = b"\xc1am"  # neither msgpack, JSON nor UTF-8 text begins so
KEY_LIMIT = 256  # characters


class Plain(msgspec.Struct, frozen=True, array_like=True, tag="plain"):
    payload: bytes


class Keyed(msgspec.Struct, frozen=True, array_like=True, tag="keyed"):
    """A request that is executed once, however many messages bring it: requests with this name and key are the same."""

    name: str  # the client's, as it has proved it
    key: str
    payload: bytes


class Skip(msgspec.Struct, frozen=True, array_like=True, tag="skip"):
    """The message at this position of the group is not executed, by any replica."""

    position: int


Enclosed = Plain | Keyed | Skip
_decoder: msgspec.msgpack.Decoder[Enclosed] = msgspec.msgpack.Decoder(Enclosed)


def enclose(what: Enclosed) -> bytes:
    return ENVELOPE + msgspec.msgpack.encode(what)


def as_sent(payload: bytes) -> bytes:
    """What a program's own payload looks like in a message."""
    return enclose(Plain(payload)) if payload.startswith(ENVELOPE) else payload


def as_given(payload: bytes) -> bytes:
    """The program's own payload; of a decision to skip, what it says."""
    found = opened(payload)
    if found is None:
        return payload
    return b"skip %d" % found.position if isinstance(found, Skip) else found.payload


def opened(payload: bytes) -> Enclosed | None:
    """None if it is no envelope, also if it only begins like one, as a message of an earlier version may."""
    if not payload.startswith(ENVELOPE):
        return None
    try:
        return enclosed(payload)
    except DECODE_ERRORS:
        return None


def enclosed(payload: bytes) -> Enclosed:
    """Of a payload that begins with `ENVELOPE`; raises what decoding raises."""
    return _decoder.decode(memoryview(payload)[len(ENVELOPE) :])


def may_hold_envelope(batch: bytes) -> bool:
    """Most batches hold none, and one byte is found much faster than three."""
    return ENVELOPE[0] in batch and ENVELOPE in batch


def envelopes_in(message: AppMessage) -> list[bytes]:
    """The payloads in a message or a batch that are envelopes."""
    if message.count == 1:
        return [message.payload] if message.payload.startswith(ENVELOPE) else []
    if not may_hold_envelope(message.payload):
        return []
    return [part.payload for part in unpack(message) if part.payload.startswith(ENVELOPE)]
