"""Several messages of one sender to the same groups, ordered as one.

To order a message costs a protocol the same whatever is in it. So a client that has more than one message for the same
groups at a time packs them into one `AppMessage`, which protocols treat like any other: they never look inside. Whoever
delivers it unpacks it. Its messages take the positions from its own on, in the order in which they were packed; every
order that holds between batches then holds between their messages.

The id of a batch is that of its first message. Its timestamp t gives message i of it t * BATCH_LIMIT + i: still no two
alike, and rising where batches rise.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from .ids import SEQ_LIMIT, seq_of
from .message import AppMessage
from .timestamps import Timestamp

BATCH_LIMIT = 256  # messages
_NUMBER = 4  # bytes


class Parts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the payload of a batch holds. Numbers have four bytes, the lowest first."""

    offsets: bytes  # of the ids, from the batch's own; none where one follows the other
    sizes: bytes  # of the payloads
    payloads: bytes  # one after the other


_decoder = msgspec.msgpack.Decoder(Parts)
_encoder = msgspec.msgpack.Encoder()
_NO_OFFSETS = _encoder.encode(Parts(b"", b"", b""))[:3]  # how a payload begins that has none


def pack(messages: Sequence[AppMessage]) -> AppMessage:
    """They have one sender, the same destinations, and rising ids."""
    first, last, count = messages[0], messages[-1], len(messages)
    if count == 1:
        return first
    id_ = first.id
    is_run = last.id - id_ == count - 1
    offsets = b"" if is_run else _pack_numbers([message.id - id_ for message in messages])
    payloads = [message.payload for message in messages]
    parts = Parts(offsets, _pack_numbers(list(map(len, payloads))), b"".join(payloads))
    return AppMessage(id_, first.dst, _encoder.encode(parts), last.settled, count)


def unpack(message: AppMessage) -> list[AppMessage]:
    if message.count == 1:
        return [message]
    parts = _decoder.decode(message.payload)
    dst, settled, payloads = message.dst, message.settled, parts.payloads
    messages: list[AppMessage] = []
    start = 0
    for id_, size in zip(_ids(message, parts.offsets), _unpack_numbers(parts.sizes), strict=True):
        messages.append(AppMessage(id_, dst, payloads[start : start + size], settled))
        start += size
    return messages


def count_messages(messages: Sequence[AppMessage]) -> int:
    """Those in batches, and those by themselves."""
    return sum([message.count for message in messages])


def common_size(message: AppMessage) -> int | None:
    """Of the payloads, where all have the same and the ids follow one another."""
    if message.count == 1:
        return len(message.payload)
    parts = _decoder.decode(message.payload)
    one = parts.sizes[:_NUMBER]
    return None if parts.offsets or parts.sizes != one * message.count else int.from_bytes(one, "little")


def unpack_ids(message: AppMessage) -> Sequence[int]:
    """A range where one follows the other."""
    is_run = message.count == 1 or message.payload.startswith(_NO_OFFSETS)
    return _ids(message, b"" if is_run else _decoder.decode(message.payload).offsets)


def unpack_delivery(message: AppMessage, ts: Timestamp | None) -> list[tuple[AppMessage, Timestamp | None]]:
    if ts is None:
        return [(each, None) for each in unpack(message)]
    return list(zip(unpack(message), range(ts * BATCH_LIMIT, ts * BATCH_LIMIT + message.count), strict=True))


def _ids(message: AppMessage, offsets: bytes) -> Sequence[int]:
    id_ = message.id
    return [id_ + offset for offset in _unpack_numbers(offsets)] if offsets else range(id_, id_ + message.count)


def _pack_numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _unpack_numbers(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // _NUMBER}I", packed)


def problem_with_batch(message: AppMessage, part_bytes_max: int) -> str | None:
    """What is wrong with a batch that a stranger sent."""
    if not 1 < message.count <= BATCH_LIMIT:
        return f"a batch of {message.count} messages: 2 to {BATCH_LIMIT} make one"
    try:
        parts = _decoder.decode(message.payload)
    except msgspec.DecodeError as error:
        return f"not a batch of messages: {error}"
    count, offsets = message.count, parts.offsets
    if len(parts.sizes) != _NUMBER * count or len(offsets) not in (0, len(parts.sizes)):
        return f"a batch that says it has {count} messages does not"
    largest, total = _extent(parts.sizes, count)
    last = count - 1
    if offsets:
        numbers = _unpack_numbers(offsets)
        last = numbers[-1]
        if numbers[0] != 0 or any(later <= earlier for earlier, later in pairwise(numbers)):
            return "the ids in a batch do not rise from its own"
    if seq_of(message.id) + last >= SEQ_LIMIT:
        return "the ids in a batch run into another sender's"  # who sent something is never a matter of the message
    if total != len(parts.payloads):
        return f"the payloads of a batch have {len(parts.payloads)} bytes, and say {total}"
    if largest > part_bytes_max:
        return f"a payload of {largest} bytes is over the limit of {part_bytes_max}"
    return None


def _extent(sizes: bytes, count: int) -> tuple[int, int]:
    """The largest size, and the sum of them."""
    first = sizes[:_NUMBER]
    if sizes == first * count:
        size = int.from_bytes(first, "little")
        return size, size * count
    numbers = _unpack_numbers(sizes)
    return max(numbers), sum(numbers)
