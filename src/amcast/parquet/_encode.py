"""From the values of one column in one row group to pages: one of data, before it a dictionary if that is shorter."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import cramjam
import numpy as np
import numpy.typing as npt

from ._bits import pack_differences, pack_mixed
from ._pages import DATA, DELTA, DICTIONARY, NUMBERS, PLAIN, RLE, ZSTD
from ._thrift import struct
from .column import Column, Encoding
from .values import MISSING, Floats, Integers, Lists, TextLists, Texts, Values

Ints = npt.NDArray[Any]

CODEC = ZSTD
_LEVEL = 1  # of zstd: others are slower, and hardly shorter
_RANGE_MAX = 1 << 17  # of values whose dictionary is found by counting instead of sorting
_DICTIONARY_MAX = 1 << 16  # numbers of two bytes


@dataclass(slots=True)
class EncodedChunk:
    """Pages, and what the footer says of them."""

    count: int
    nulls: int
    encodings: list[int]
    dictionary: bytes = b""
    data: bytes = b""
    unpacked: int = 0
    low: bytes | None = None
    high: bytes | None = None


def encode_chunk(column: Column, values: Values, encoding: Encoding) -> EncodedChunk:
    match values:
        case Integers() | Floats():
            return _numbers(column, values, encoding)
        case Texts():
            return _texts(column, values)
        case Lists():
            return _lists(values, encoding)
        case TextLists():
            return _text_lists(values)


def _numbers(column: Column, numbers: Integers | Floats, encoding: Encoding) -> EncodedChunk:
    there: Ints = numbers.values if numbers.present is None else numbers.values[numbers.present]
    chunk = EncodedChunk(len(numbers), len(numbers) - len(there), [])
    present = np.ones(len(numbers), np.bool_) if numbers.present is None else numbers.present
    levels = _presence(column, present)
    if isinstance(numbers, Floats):
        _add_data(chunk, levels + there.astype("<f8", copy=False).tobytes(), PLAIN)
    else:
        _finish(chunk, _physical(there), encoding, levels)
    return chunk


def _presence(column: Column, present: npt.NDArray[np.bool_]) -> bytes:
    return _with_size(pack_mixed(present, 1)) if column.nullable else b""


def _physical(values: Ints) -> Ints:
    """The smallest integers have 32 bits in a file."""
    return values.astype("<i8" if values.dtype.itemsize == 8 else "<i4", copy=False)


def _with_size(levels: bytes) -> bytes:
    return len(levels).to_bytes(4, "little") + levels


def _lists(lists: Lists, encoding: Encoding) -> EncodedChunk:
    chunk, levels = _begin_lists(lists.start)
    values = lists.values[int(lists.start[0]) : int(lists.start[-1])]
    _finish(chunk, _physical(values), encoding, levels, with_range=False)
    return chunk


def _text_lists(lists: TextLists) -> EncodedChunk:
    chunk, levels = _begin_lists(lists.start)
    _finish_texts(chunk, lists.codes[int(lists.start[0]) : int(lists.start[-1])], lists.words, levels)
    return chunk


def _begin_lists(start: Ints) -> tuple[EncodedChunk, bytes]:
    """A list begins with repetition level 0 and goes on with 1. An empty one is a level without a value."""
    sizes = np.diff(start)
    slots = np.maximum(sizes, 1)
    repetition = np.ones(int(slots.sum()), np.bool_)
    repetition[np.cumsum(slots) - slots] = False
    definition = np.repeat(sizes > 0, slots)
    levels = _with_size(pack_mixed(repetition, 1)) + _with_size(pack_mixed(definition, 1))
    return EncodedChunk(len(repetition), 0, []), levels


def _texts(column: Column, texts: Texts) -> EncodedChunk:
    present = texts.codes != MISSING
    levels = _presence(column, present)
    there = texts.codes[present] if column.nullable else texts.codes
    chunk = EncodedChunk(len(texts), len(texts) - len(there), [])
    _finish_texts(chunk, there, texts.words, levels)
    return chunk


def _finish_texts(chunk: EncodedChunk, codes: Ints, words: tuple[str, ...], levels: bytes) -> None:
    """The dictionary has those that are there, each once."""
    used, numbers = _dictionary(codes)
    encoded = [words[code].encode() for code in used.tolist()]
    spelt = [len(word).to_bytes(4, "little") + word for word in encoded]
    if len(used) > _DICTIONARY_MAX:
        _add_data(chunk, levels + b"".join(spelt[number] for number in numbers.tolist()), PLAIN)
    else:
        _add_numbers(chunk, b"".join(spelt), len(spelt), numbers, levels)


def _finish(chunk: EncodedChunk, values: Ints, encoding: Encoding, levels: bytes, with_range: bool = True) -> None:
    if with_range and len(values):
        chunk.low, chunk.high = values.min().tobytes(), values.max().tobytes()
    if encoding is Encoding.DIFFERENCES:
        _add_data(chunk, levels + pack_differences(values), DELTA)
        return
    if encoding is Encoding.DICTIONARY and len(values):
        found, numbers = _dictionary(values)
        if len(found) <= min(_DICTIONARY_MAX, len(values) // 2 + 1):
            _add_numbers(chunk, found.tobytes(), len(found), numbers, levels)
            return
    _add_data(chunk, levels + values.tobytes(), PLAIN)


def _dictionary(values: Ints) -> tuple[Ints, Ints]:
    """The different values in order, and which of them each one is."""
    if not len(values):
        return values[:0], np.zeros(0, np.int64)
    low, high = int(values.min()), int(values.max())
    if low == high:
        return values[:1], np.zeros(len(values), np.uint8)
    if high - low >= _RANGE_MAX:
        return np.unique(values, return_inverse=True)
    offset = values.astype(np.int64) - low
    is_there = np.zeros(high - low + 1, np.bool_)
    is_there[offset] = True
    number_of = np.cumsum(is_there) - 1
    return (np.flatnonzero(is_there) + low).astype(values.dtype), number_of[offset]


def _add_numbers(chunk: EncodedChunk, plain: bytes, count: int, numbers: Ints, levels: bytes = b"") -> None:
    width = 8 if count <= 1 << 8 else 16
    header = struct({1: count, 2: PLAIN, 3: False})
    chunk.dictionary = _page(chunk, plain, DICTIONARY, {7: header})
    packed = pack_mixed(numbers.astype(f"<u{width // 8}"), width)
    chunk.encodings.append(PLAIN)
    _add_data(chunk, levels + bytes([width]) + packed, NUMBERS)


def _add_data(chunk: EncodedChunk, data: bytes, encoding: int) -> None:
    header = struct({1: chunk.count, 2: encoding, 3: RLE, 4: RLE})
    chunk.encodings += [encoding, RLE]
    chunk.data = _page(chunk, data, DATA, {5: header})


def _page(chunk: EncodedChunk, data: bytes, kind: int, header: dict[int, Any]) -> bytes:
    body = bytes(cramjam.zstd.compress(data, level=_LEVEL))
    checksum = zlib.crc32(body)
    signed = checksum - (1 << 32) if checksum >> 31 else checksum
    head = struct({1: kind, 2: len(data), 3: len(body), 4: signed, **header})
    chunk.unpacked += len(head) + len(data)
    return head + body
