"""From the pages of one column in one row group to levels and values."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cramjam
import numpy as np
import numpy.typing as npt

from ._bits import unpack_differences, unpack_mixed
from ._thrift import Struct, decode
from .footer import BYTE_ARRAY, INT32, INT64, Chunk, Leaf, ParquetError

Ints = npt.NDArray[Any]
Levels = npt.NDArray[np.uint8]

DATA, DICTIONARY, DATA_V2 = 0, 2, 3
PLAIN, OLD_DICTIONARY, RLE, DELTA, DELTA_LENGTH, DELTA_BYTES, NUMBERS, SPLIT = 0, 2, 3, 5, 6, 7, 8, 9
_DTYPES: dict[int, np.dtype[Any]] = {INT32: np.dtype("<i4"), INT64: np.dtype("<i8")}
_PAGE_BYTES_MAX = 1 << 30

# Compressions.
UNCOMPRESSED, ZSTD = 0, 6


@dataclass(frozen=True, slots=True)
class Page:
    """`repetition` is None where there are no lists, `definition` where every value must be there."""

    count: int
    repetition: Levels | None
    definition: Levels | None
    values: Ints | list[bytes]  # those that are there; of texts, numbers into `words` where there is a dictionary
    words: list[bytes] | None = None


def pages_of(data: bytes, chunk: Chunk, leaf: Leaf) -> Iterator[Page]:
    """`data`: the bytes of the chunk."""
    dictionary: Ints | list[bytes] | None = None
    left = chunk.values
    at = 0
    while left > 0:
        header, at = decode(data, at)
        body = data[at : at + header[3]]
        at += header[3]
        _check_page(header, body, chunk)
        if header[1] == DICTIONARY:
            plain = unpacked(body, chunk.codec, header[2])
            dictionary = _plain(plain, leaf.physical, _within(header[7][1], chunk.values))
        elif header[1] in (DATA, DATA_V2):
            read = _data_page if header[1] == DATA else _data_page_v2
            page = read(body, header, chunk, leaf, dictionary, left)
            left -= page.count
            yield page


def _check_page(header: Struct, body: bytes, chunk: Chunk) -> None:
    size_max = min(_PAGE_BYTES_MAX, max(chunk.bytes_unpacked, 1 << 20))  # not all writers count exactly
    if header[3] != len(body) or not 0 <= header[2] <= size_max:
        raise ParquetError("a page is longer than its column")
    if 4 in header and zlib.crc32(body) != header[4] & 0xFFFF_FFFF:
        raise ParquetError("a page differs from its checksum")


def _within(count: int, most: int) -> int:
    if not 0 <= count <= most:
        raise ParquetError(f"a page with {count} values in a column with {most}")
    return count


def unpacked(body: bytes, codec: int, size: int) -> bytes:
    if codec == UNCOMPRESSED:
        return body
    out = bytearray(size)  # never more than that, whatever the bytes would unpack to
    try:
        done = _unpack_into(body, codec, out)
    except cramjam.DecompressionError as error:
        raise ParquetError(f"a page can't be unpacked: {error}") from error
    if done != size:
        raise ParquetError("a page unpacks to another size than it says")
    return bytes(out)


def _unpack_into(body: bytes, codec: int, out: bytearray) -> int:
    match codec:
        case 1:
            return int(cramjam.snappy.decompress_raw_into(body, out))
        case 2:
            return int(cramjam.gzip.decompress_into(body, out))
        case 4:
            return int(cramjam.brotli.decompress_into(body, out))
        case 6:
            return int(cramjam.zstd.decompress_into(body, out))
        case 7:
            return int(cramjam.lz4.decompress_block_into(body, out, output_len=len(out)))
        case _:
            raise ParquetError(f"compression {codec} is not known; use zstd, snappy or gzip")


def _data_page(
    body: bytes, header: Struct, chunk: Chunk, leaf: Leaf, dictionary: Ints | list[bytes] | None, left: int
) -> Page:
    fields: Struct = header[5]
    count = _within(fields[1], left)
    data = unpacked(body, chunk.codec, header[2])
    levels: list[Levels | None] = []
    for top, encoding in ((leaf.repeated, fields[4]), (leaf.defined, fields[3])):
        if not top:
            levels.append(None)
            continue
        if encoding != RLE:
            raise ParquetError("its levels are in an encoding that is no longer in use")
        size = int.from_bytes(data[:4], "little")
        levels.append(_levels(data[4 : 4 + size], top, count))
        data = data[4 + size :]
    return _page(data, fields[2], count, levels[0], levels[1], leaf, dictionary)


def _data_page_v2(
    body: bytes, header: Struct, chunk: Chunk, leaf: Leaf, dictionary: Ints | list[bytes] | None, left: int
) -> Page:
    """Levels stand in front, and are not compressed."""
    fields: Struct = header[8]
    count = _within(fields[1], left)
    defined, repeated = fields[5], fields[6]
    _within(defined + repeated, len(body))
    repetition = _levels(body[:repeated], leaf.repeated, count) if leaf.repeated else None
    definition = _levels(body[repeated : repeated + defined], leaf.defined, count) if leaf.defined else None
    data = body[repeated + defined :]
    if fields.get(7, True) and data:
        data = unpacked(data, chunk.codec, header[2] - defined - repeated)
    return _page(data, fields[4], count, repetition, definition, leaf, dictionary)


def _levels(data: bytes, top: int, count: int) -> Levels:
    levels = unpack_mixed(data, top.bit_length(), count).astype(np.uint8)
    if count and levels.max() > top:
        raise ParquetError("a level is too high")
    return levels


def _page(
    data: bytes,
    encoding: int,
    count: int,
    repetition: Levels | None,
    definition: Levels | None,
    leaf: Leaf,
    dictionary: Ints | list[bytes] | None,
) -> Page:
    there = count if definition is None else int(np.count_nonzero(definition == leaf.defined))
    if encoding not in (NUMBERS, OLD_DICTIONARY):
        return Page(count, repetition, definition, _values(data, encoding, leaf.physical, there))
    if dictionary is None:
        raise ParquetError("its dictionary is missing")
    numbers = unpack_mixed(data[1:], data[0], there) if there else np.zeros(0, np.uint32)
    if there and numbers.max() >= len(dictionary):
        raise ParquetError("a value is not in its dictionary")
    if isinstance(dictionary, list):
        return Page(count, repetition, definition, numbers, dictionary)
    return Page(count, repetition, definition, dictionary[numbers])


def _values(data: bytes, encoding: int, physical: int, count: int) -> Ints | list[bytes]:
    is_text = physical == BYTE_ARRAY
    if encoding == PLAIN:
        return _plain(data, physical, count)
    if encoding == DELTA and not is_text:
        return _differences(data, count)[0].astype(_DTYPES[physical])
    if encoding == SPLIT and not is_text:
        width = _DTYPES[physical].itemsize
        octets = np.frombuffer(data, np.uint8, count * width).reshape(width, count)
        return np.ascontiguousarray(octets.T).view(_DTYPES[physical]).ravel()
    if encoding == DELTA_LENGTH and is_text:
        return _texts_by_length(data, count)
    if encoding == DELTA_BYTES and is_text:
        return _texts_by_prefix(data, count)
    raise ParquetError(f"encoding {encoding} is not known for this type; use plain or dictionary")


def _differences(data: bytes, count: int) -> tuple[Ints, int]:
    values, end = unpack_differences(data, count)
    if len(values) != count:
        raise ParquetError("a page has fewer values than it says")
    return values, end


def _plain(data: bytes, physical: int, count: int) -> Ints | list[bytes]:
    if physical in _DTYPES:
        return np.frombuffer(data, _DTYPES[physical], count)
    texts = []
    at = 0
    for _ in range(count):
        size = int.from_bytes(data[at : at + 4], "little")
        texts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
        if at > len(data):
            raise ParquetError("a text is longer than its page")
    return texts


def _texts_by_length(data: bytes, count: int) -> list[bytes]:
    sizes, at = _differences(data, count)
    if count and sizes.min() < 0:
        raise ParquetError("a text has no length")
    texts = []
    for size in sizes.tolist():
        texts.append(data[at : at + size])
        at += size
    if at > len(data):
        raise ParquetError("a text is longer than its page")
    return texts


def _texts_by_prefix(data: bytes, count: int) -> list[bytes]:
    """Each text is a part of the one before, and what follows it."""
    shared, at = _differences(data, count)
    texts = []
    last = b""
    total = 0
    for size, rest in zip(shared.tolist(), _texts_by_length(data[at:], count), strict=True):
        if not 0 <= size <= len(last):
            raise ParquetError("a text shares more than there is")
        last = last[:size] + rest
        total += len(last)
        if total > _PAGE_BYTES_MAX:
            raise ParquetError("a page has too much text")
        texts.append(last)
    return texts
