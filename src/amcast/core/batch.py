"""Several messages of one sender to the same groups, ordered as one.

To order a message costs a protocol the same whatever is in it. So a client that has more than one message for the same
groups at a time packs them into one `AppMessage`, which protocols treat like any other: they never look inside. Whoever
delivers it unpacks it. Its messages take the positions from its own on, in the order in which they were packed; every
order that holds between batches then holds between their messages.

The id of a batch is that of its first message. Its timestamp t gives message i of it t * BATCH_LIMIT + i: still no two
alike, and rising where batches rise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from .message import AppMessage
from .timestamps import Timestamp

BATCH_LIMIT = 256  # messages


class Parts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the payload of a batch holds."""

    offsets: tuple[int, ...]  # of the ids, from the batch's own; none where one follows the other
    payloads: tuple[bytes, ...]


_EMPTY = 0x90  # an array of nothing, in msgpack
_decoder = msgspec.msgpack.Decoder(Parts)
_encoder = msgspec.msgpack.Encoder()


def pack(messages: Sequence[AppMessage]) -> AppMessage:
    """They have one sender, the same destinations, and rising ids."""
    first, last, count = messages[0], messages[-1], len(messages)
    if count == 1:
        return first
    id_ = first.id
    is_run = last.id - id_ == count - 1
    offsets = () if is_run else tuple([message.id - id_ for message in messages])
    parts = Parts(offsets, tuple([message.payload for message in messages]))
    return AppMessage(id_, first.dst, _encoder.encode(parts), last.settled, count)


def unpack(message: AppMessage) -> list[AppMessage]:
    if message.count == 1:
        return [message]
    parts = _decoder.decode(message.payload)
    dst, settled = message.dst, message.settled
    return [
        AppMessage(id_, dst, payload, settled)
        for id_, payload in zip(_ids(message, parts), parts.payloads, strict=True)
    ]


def payload_sizes(message: AppMessage) -> list[int]:
    if message.count == 1:
        return [len(message.payload)]
    return list(map(len, _decoder.decode(message.payload).payloads))


def unpack_ids(message: AppMessage) -> Sequence[int]:
    if message.count == 1 or message.payload[1] == _EMPTY:  # no need to look at the payloads
        return range(message.id, message.id + message.count)
    return _ids(message, _decoder.decode(message.payload))


def unpack_delivery(message: AppMessage, ts: Timestamp | None) -> list[tuple[AppMessage, Timestamp | None]]:
    if ts is None:
        return [(each, None) for each in unpack(message)]
    return list(zip(unpack(message), range(ts * BATCH_LIMIT, ts * BATCH_LIMIT + message.count), strict=True))


def _ids(message: AppMessage, parts: Parts) -> Sequence[int]:
    id_ = message.id
    return [id_ + offset for offset in parts.offsets] if parts.offsets else range(id_, id_ + message.count)


def problem_with_batch(message: AppMessage, part_bytes_max: int) -> str | None:
    """What is wrong with a batch that a stranger sent."""
    if not 1 < message.count <= BATCH_LIMIT:
        return f"a batch of {message.count} messages: 2 to {BATCH_LIMIT} make one"
    try:
        parts = _decoder.decode(message.payload)
    except msgspec.DecodeError as error:
        return f"not a batch of messages: {error}"
    offsets, payloads = parts.offsets, parts.payloads
    if len(payloads) != message.count or len(offsets) not in (0, message.count):
        return f"a batch that says it has {message.count} messages has {len(payloads)}"
    if offsets and (offsets[0] != 0 or any(later <= earlier for earlier, later in pairwise(offsets))):
        return "the ids in a batch do not rise from its own"
    longest = max(map(len, payloads))
    if longest > part_bytes_max:
        return f"a payload of {longest} bytes is over the limit of {part_bytes_max}"
    return None
