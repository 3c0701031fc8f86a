"""Integers as bits: Parquet's mix of runs and bit-packed values (levels, numbers of dictionaries), and its differences.

Whatever a page claims is compared with what it has: a claim may be wrong, and must not cost more memory than the page's
own number of values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._thrift import encode_varint, encode_zigzag, varint, zigzag

Bytes = npt.NDArray[np.uint8]
Unsigned = npt.NDArray[np.uint64]
Signed = npt.NDArray[np.int64]
Ints = npt.NDArray[Any]

_PAD = bytes(16)  # so that eight bytes and one more can be read wherever a value begins
_WHOLE: dict[int, np.dtype[Any]] = {8: np.dtype("<u1"), 16: np.dtype("<u2"), 32: np.dtype("<u4")}

# Differences are written in blocks. Widths are whole bytes: numpy cuts bytes, and the compression finds the rest.
_BLOCK = 1024
_PART = 128
_PARTS = _BLOCK // _PART
_BLOCK_MAX = 1 << 16  # of others: theirs are of 128
_WIDTH_LIMITS = np.array([(1 << 8 * size) - 1 for size in range(8)], np.uint64)


class BitsError(ValueError):
    """The bytes are not what they should be."""


def _values_at(padded: bytes, position: Signed, width: int) -> Unsigned:
    """The values that begin at these bits, of so many bits each: eight bytes are read, and a ninth if needed."""
    words: Unsigned = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    byte, shift = position >> 3, (position & 7).astype(np.uint64)
    values: Unsigned = words[byte] >> shift
    if width > 57:  # with a shift of 7, eight bytes have 57 bits
        ninth = np.frombuffer(padded, np.uint8)[byte + 8].astype(np.uint64)
        values |= np.where(shift > 0, ninth << (64 - shift) % 64, np.uint64(0))
    return values & np.uint64((1 << width) - 1)


def unpack_mixed(data: bytes, width: int, count: int) -> Ints:
    """So many values of a mix of runs and bit-packed values."""
    if width > 32:
        raise BitsError(f"values of {width} bits")
    steps: list[int] = []  # the lengths of the parts
    repeated: list[int] = []  # the value of a run; -1 for bit-packed values
    starts: list[int] = []  # of bit-packed values, in bytes
    left, at = count, 0
    while left:
        header, at = varint(data, at)
        size = (width + 7) // 8
        step = min(header >> 1, left)
        if header & 1:
            size = (header >> 1) * width
            step = min((header >> 1) * 8, left)
            if (step * width + 7) // 8 > len(data) - at:  # the padding of the last values may be left out
                raise BitsError("values end too early")
            starts.append(at)
            repeated.append(-1)
        else:
            repeated.append(int.from_bytes(data[at : at + size], "little"))
        if not step:
            raise BitsError("an empty run")
        steps.append(step)
        at += size
        left -= step
    if len(steps) == 1 and not starts:
        return np.full(count, repeated[0], np.uint32)
    if len(steps) == 1 and width in _WHOLE:
        return np.frombuffer(data, _WHOLE[width], count, starts[0])
    return _mixed(data, width, np.array(steps, np.int64), np.array(repeated, np.int64), np.array(starts, np.int64))


def _mixed(data: bytes, width: int, steps: Signed, repeated: Signed, starts: Signed) -> Ints:
    values = np.repeat(repeated, steps)
    if len(starts):
        is_packed = repeated < 0
        sizes = steps[is_packed]
        first = np.repeat(starts * 8 - (np.cumsum(sizes) - sizes) * width, sizes)
        position = first + np.arange(len(first)) * width
        values[np.repeat(is_packed, steps)] = _values_at(data + _PAD, position, width).view(np.int64)
    return values


def pack_mixed(values: Ints, width: int) -> bytes:
    """Of unsigned values that have the width as their type, or booleans: one run if all are equal."""
    if not len(values):
        return b""
    if (values == values[0]).all():
        return encode_varint(len(values) << 1) + int(values[0]).to_bytes((width + 7) // 8, "little")
    groups = (len(values) + 7) // 8
    if width == 1:
        return encode_varint(groups << 1 | 1) + np.packbits(values, bitorder="little").tobytes()
    return encode_varint(groups << 1 | 1) + values.tobytes() + bytes((groups * 8 - len(values)) * width // 8)


def unpack_differences(data: bytes, count_max: int) -> tuple[Signed, int]:
    """DELTA_BINARY_PACKED: the values, and where they end."""
    block, at = varint(data, 0)
    parts, at = varint(data, at)
    count, at = varint(data, at)
    first, at = zigzag(data, at)
    part = block // max(parts, 1)
    if not part or part * parts != block or part % 8 or block > _BLOCK_MAX or count > count_max:
        raise BitsError("differences have an impossible header")
    blocks: list[int] = []  # their smallest differences
    starts: list[int] = []  # of the parts, in bytes
    widths = bytearray()
    left = count - 1
    while left > 0:
        smallest, at = zigzag(data, at)
        blocks.append(smallest)
        sizes = data[at : at + parts]
        at += parts
        for width in sizes[: min(parts, -(-left // part))]:
            starts.append(at)
            at += width * part // 8
        widths += sizes[: min(parts, -(-left // part))]
        left -= block
        if at > len(data) + part * 8 or len(sizes) < parts:
            raise BitsError("differences end too early")
    values = np.empty(count, np.int64)
    if count:
        values[0] = _wrapped(first)
    if count > 1:
        steps = _steps(data, np.array(starts, np.int64), np.frombuffer(bytes(widths), np.uint8), part, count - 1)
        smallest_of = np.repeat(np.array([_wrapped(number) for number in blocks], np.int64), block)
        steps += smallest_of[: count - 1]
        values[1:] = steps
        np.cumsum(values, out=values)
    return values, min(at, len(data))


def _wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _steps(data: bytes, starts: Signed, widths: Bytes, part: int, count: int) -> Signed:
    """What the differences are above the smallest of their blocks. Parts that have no bits are all zero."""
    if widths.max() > 64:
        raise BitsError(f"differences of {widths.max()} bits")
    steps = np.zeros((len(widths), part), np.int64)
    room = np.full(len(widths), part)
    room[-1] = count - part * (len(widths) - 1)
    if (starts + (widths * room + 7) // 8 > len(data)).any():
        raise BitsError("differences end too early")
    padded = data + _PAD + bytes(8 * part)  # the last part may be cut short
    number = np.arange(part, dtype=np.int64)
    for width in np.unique(widths).tolist():
        mine = np.flatnonzero(widths == width)
        if width % 8 == 0 and width:
            steps[mine] = _whole_bytes(padded, starts[mine], width // 8, part)
        elif width:
            position = (starts[mine] * 8)[:, None] + number * width
            steps[mine] = _values_at(padded, position.ravel(), width).view(np.int64).reshape(-1, part)
    return steps.ravel()[:count]


def _whole_bytes(padded: bytes, starts: Signed, size: int, part: int) -> Signed:
    flat = np.frombuffer(padded, np.uint8)
    runs = np.lib.stride_tricks.sliding_window_view(flat, size * part)[starts]
    wide = np.zeros((len(starts), part, 8), np.uint8)
    wide[:, :, :size] = runs.reshape(len(starts), part, size)
    return wide.view("<i8")[:, :, 0]


def pack_differences(values: Signed) -> bytes:
    """DELTA_BINARY_PACKED. Sums wrap around, so any value may follow any other."""
    out = bytearray(encode_varint(_BLOCK) + encode_varint(_PARTS) + encode_varint(len(values)))
    out += encode_zigzag(int(values[0]) if len(values) else 0)
    if len(values) < 2:
        return bytes(out)
    steps = np.diff(values)
    blocks = -(-len(steps) // _BLOCK)
    padded = np.pad(steps, (0, blocks * _BLOCK - len(steps)), "edge").reshape(blocks, _BLOCK)
    smallest = padded.min(axis=1)
    above = (padded - smallest[:, None]).view(np.uint64).ravel()
    above[len(steps) :] = 0  # parts without values have no bits
    parts = above.reshape(blocks, _PARTS, _PART)
    sizes = np.searchsorted(_WIDTH_LIMITS, parts.max(axis=2)).astype(np.uint8)
    octets = parts.view(np.uint8).reshape(blocks, _PARTS, _PART, 8)
    for block in range(blocks):
        out += encode_zigzag(int(smallest[block]))
        out += (sizes[block] * 8).tobytes()
        for part, size in enumerate(sizes[block].tolist()):
            if size:
                out += octets[block, part, :, :size].tobytes()
    return bytes(out)
