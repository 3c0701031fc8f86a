"""The application message, and the base classes of wire messages and records."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import ClassVar

import msgspec

from .errors import UsageError
from .ids import SEQ_LIMIT, GroupId, MessageId, ProcessId, message_id, sender_of, seq_of

PAYLOAD_LIMIT = 1 << 20
DESTINATIONS_LIMIT = 4096


class AppMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an application multicasts.

    `settled` bounds what replicas must remember: the sender knows that its messages with a lower sequence number
    were delivered in all their groups, so a copy of one of them that still turns up is stale. Replicas believe it as
    far as it concerns copies from this sender, and no further.
    """

    id: MessageId  # of sender and sequence number: no two messages have the same
    dst: tuple[GroupId, ...]  # sorted, without repetition
    payload: bytes
    settled: int = 0  # see above
    count: int = 1  # of the messages in it: more than one is a batch, see `batch`
    proof: bytes = b""  # that its sender said all this: its signature, in protocols that survive liars

    @property
    def sender(self) -> ProcessId:
        """Who multicast it: a client's id, or a process's."""
        return sender_of(self.id)

    @property
    def seq(self) -> int:
        """Its number among the messages of its sender."""
        return seq_of(self.id)


def app_message(sender: ProcessId, seq: int, dst: Sequence[GroupId], payload: bytes, settled: int = 0) -> AppMessage:
    """A message from what a user passes in, which is checked here."""
    if not 0 <= seq < SEQ_LIMIT:
        raise UsageError(f"sequence number {seq} is out of range: a sender has at most {SEQ_LIMIT} messages")
    if not dst:
        raise UsageError("a message needs at least one destination group")
    if len(dst) > DESTINATIONS_LIMIT:
        raise UsageError(f"{len(dst)} destinations are too many: the limit is {DESTINATIONS_LIMIT}")
    if len(payload) > PAYLOAD_LIMIT:
        raise UsageError(
            f"a payload of {len(payload)} bytes is over the limit of {PAYLOAD_LIMIT}: split it, or send a reference"
        )
    return AppMessage(message_id(sender, seq), tuple(sorted(set(dst))), payload, settled)


_encode_dst = msgspec.msgpack.Encoder().encode


def digest(message: AppMessage) -> bytes:
    """Tells messages apart that a client gave the same id: what they say, and to which groups.

    Nobody finds two messages with the same digest.
    """
    hashed = blake2b(_encode_dst((message.id, message.dst, message.count)), digest_size=16)
    hashed.update(message.payload)
    return hashed.digest()


def signed_part(message: AppMessage) -> bytes:
    """What the sender of a message signs: all of it, with a hash in place of the payload, which may be large."""
    hashed = sha256(message.payload).digest()
    return _encode_dst((message.id, message.dst, message.count, message.settled, hashed))


class Wire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of wire messages. The tag is the paper's word for it and the `kind` of the trace's wire table."""

    hands_over_state: ClassVar[bool] = False  # the receiver takes it in place of messages that it never delivers

    def about(self) -> tuple[MessageId, ...]:
        """The application messages it carries or speaks of; empty for traffic inside a group."""
        return ()


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of what a process persists."""
