"""Several messages of one sender to the same groups, ordered as one.

A protocol exchanges as many messages to order a large message as to order a small one. So a client that has several
messages for the same groups packs them into one `AppMessage`. Protocols order the batch like any other message and
never look inside, but for the ids (`seen.py`); the driver that delivers it unpacks it. The rule is in this file alone:
when a protocol delivers a batch at position p with timestamp t, its messages, i = 0, 1, 2... in the order in which they
were packed, are delivered with

    position    p + i
    timestamp   t * BATCH_LIMIT + i, or none if t is none
    id          their own; that of message 0 is the batch's id too

So messages are ordered as their batches are, and no two have the same timestamp. A message that is delivered alone is
a batch of one. For protocols that take no batches (`has_batches` is false) the timestamp stays t.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from .ids import SEQ_LIMIT, UNSETTLED_MAX, MessageId, seq_of
from .message import AppMessage
from .timestamps import Timestamp

StampedMessage = tuple[AppMessage, Timestamp | None]  # a message or a batch, as a protocol delivers it

BATCH_LIMIT = 256  # messages
_NUMBER = 4  # bytes


class Parts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The payload of a batch. Numbers are little-endian, of four bytes each."""

    offsets: bytes  # each message's id less the batch's id; empty if the ids are consecutive
    sizes: bytes  # of each message's payload
    payloads: bytes  # all of them, joined


_decoder = msgspec.msgpack.Decoder(Parts)
_encoder = msgspec.msgpack.Encoder()
_NO_OFFSETS = _encoder.encode(Parts(b"", b"", b""))[:3]  # how the payload of a batch with consecutive ids begins


def pack(messages: Sequence[AppMessage]) -> AppMessage:
    """The messages have one sender, the same destinations, and rising ids."""
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
    """How many messages these are, when the ones inside batches are counted too."""
    return sum([message.count for message in messages])


def id_bits(message: AppMessage) -> int:
    """The ids of its messages: bit i is set if one of them has the id that is i above the batch's own."""
    count = message.count
    if count == 1 or message.payload.startswith(_NO_OFFSETS):
        return (1 << count) - 1
    offsets = _decoder.decode(message.payload).offsets
    return sum(map((1).__lshift__, _unpack_numbers(offsets))) if offsets else (1 << count) - 1


def ids_of(message: AppMessage) -> Sequence[MessageId]:
    """The ids of its messages, in order."""
    return (message.id,) if message.count == 1 else _ids(message, _decoder.decode(message.payload).offsets)


def common_size(message: AppMessage) -> int | None:
    """The size of each payload, if all have the same size and the ids are consecutive; otherwise none."""
    if message.count == 1:
        return len(message.payload)
    parts = _decoder.decode(message.payload)
    one = parts.sizes[:_NUMBER]
    return None if parts.offsets or parts.sizes != one * message.count else int.from_bytes(one, "little")


def unpack_deliveries(
    first: int, deliveries: Sequence[StampedMessage], has_batches: bool
) -> Iterator[tuple[int, AppMessage, Timestamp | None]]:
    """Position, message and timestamp of each message in deliveries that begin at the position `first`."""
    scale = BATCH_LIMIT if has_batches else 1
    for delivered, ts in deliveries:
        for index, message in enumerate(unpack(delivered)):
            yield first + index, message, None if ts is None else ts * scale + index
        first += delivered.count


def delivery_runs(
    first: int, deliveries: Sequence[StampedMessage], has_batches: bool
) -> Iterator[tuple[int, MessageId, Timestamp | None, int]]:
    """The same without payloads and in runs: position, id and timestamp of the first message, and how many there are.

    Within a run all three rise by one from each message to the next. A batch with consecutive ids is one run, one with
    gaps in its ids a run between any two of them.
    """
    scale = BATCH_LIMIT if has_batches else 1
    for delivered, ts in deliveries:
        stamp, count = None if ts is None else ts * scale, delivered.count
        if count == 1 or delivered.payload.startswith(_NO_OFFSETS):
            yield first, delivered.id, stamp, count
        else:
            ids = ids_of(delivered)
            starts = [0, *[at for at in range(1, count) if ids[at] - ids[at - 1] != 1]]
            for start, end in pairwise((*starts, count)):
                yield first + start, ids[start], None if stamp is None else stamp + start, end - start
        first += count


def _ids(message: AppMessage, offsets: bytes) -> Sequence[MessageId]:
    id_ = message.id
    return [id_ + offset for offset in _unpack_numbers(offsets)] if offsets else range(id_, id_ + message.count)


def _pack_numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _unpack_numbers(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // _NUMBER}I", packed)


def problem_with_batch(message: AppMessage, part_bytes_max: int) -> str | None:
    """Why a batch from an untrusted client is refused; none if it is a good one."""
    if not 1 < message.count <= BATCH_LIMIT:
        return f"a batch of {message.count} messages: 2 to {BATCH_LIMIT} make one"
    try:
        parts = _decoder.decode(message.payload)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"not a batch of messages: {error}"
    if message.payload[0] != _NO_OFFSETS[0]:
        return "not a batch of messages: there is more in it than their parts"  # a longer array decodes too
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
    seq = seq_of(message.id)
    if seq + last >= SEQ_LIMIT:
        return "the ids in a batch run into another sender's"  # and a client may use no ids but its own
    if max(0, seq - message.settled) + last >= UNSETTLED_MAX:
        return f"the ids in a batch reach too far beyond what is settled: {UNSETTLED_MAX} or more"
    if total != len(parts.payloads):
        return f"the payloads of a batch have {len(parts.payloads)} bytes, and say {total}"
    if largest > part_bytes_max:
        return f"a payload of {largest} bytes is over the limit of {part_bytes_max}"
    return None


def _extent(sizes: bytes, count: int) -> tuple[int, int]:
    """The largest of the sizes, and their sum."""
    first = sizes[:_NUMBER]
    if sizes == first * count:
        size = int.from_bytes(first, "little")
        return size, size * count
    numbers = _unpack_numbers(sizes)
    return max(numbers), sum(numbers)
