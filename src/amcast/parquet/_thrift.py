"""Thrift's compact protocol, as far as Parquet uses it: a struct is a dictionary from the numbers of its fields."""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack_from
from typing import Any

Struct = dict[int, Any]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_DEPTH_MAX = 16  # Parquet's own structs are six deep


class ThriftError(ValueError):
    """The bytes are no struct."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ThriftError("a number has no end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = varint(data, at)
    return value >> 1 ^ -(value & 1), at


def decode(data: bytes, at: int = 0, depth: int = 0) -> tuple[Struct, int]:
    """The struct that begins there, and where it ends."""
    if depth > _DEPTH_MAX:
        raise ThriftError("structs are nested too deeply")
    fields: Struct = {}
    number = 0
    while True:
        head = _byte(data, at)
        at += 1
        if not head:
            return fields, at
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, at = zigzag(data, at)
        if kind in (_TRUE, _FALSE):  # a field of a struct has its truth in its type
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _value(kind, data, at, depth)


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise ThriftError("a struct has no end")
    return data[at]


def _value(kind: int, data: bytes, at: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 4 | 5 | 6:
            return zigzag(data, at)
        case 8:
            size, at = varint(data, at)
            if size > len(data) - at:
                raise ThriftError("a text is longer than what is left")
            return data[at : at + size], at + size
        case 9 | 10:
            return _list(data, at, depth)
        case 12:
            return decode(data, at, depth + 1)
        case 1 | 2 | 3:
            return _byte(data, at), at + 1
        case 7:
            _byte(data, at + 7)
            return unpack_from("<d", data, at)[0], at + 8
        case _:  # Parquet has no maps
            raise ThriftError(f"there is no type {kind}")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    head = _byte(data, at)
    at += 1
    size, kind = head >> 4, head & 0x0F
    if size == 15:
        size, at = varint(data, at)
    if size > len(data) - at:  # every value has at least a byte
        raise ThriftError("a list is longer than what is left")
    values = []
    for _ in range(size):
        value, at = _value(kind, data, at, depth)
        values.append(value)
    return values, at


# ---------------------------------------------------------------------------------------------- to write


class Encoded(bytes):
    """A struct that is encoded already."""


def encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_zigzag(value: int) -> bytes:
    return encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)


class I16(int):
    """A number of 16 bits. Others are written as 32 bits if they are an `int`, as 64 if they are an `I64`."""


class I64(int):
    """A number of 64 bits."""


def struct(fields: dict[int, Any]) -> Encoded:
    """Fields in the order of their numbers; those that are None are left out."""
    out = bytearray()
    last = 0
    for number, value in fields.items():
        if value is None:
            continue
        assert 0 < number - last < 16, "fields are in order, and never far apart"
        kind = (_TRUE if value else _FALSE) if isinstance(value, bool) else _kind(value)
        out.append((number - last) << 4 | kind)
        if not isinstance(value, bool):
            out += _encode(value)
        last = number
    out.append(0)
    return Encoded(out)


def _kind(value: Any) -> int:
    match value:
        case Encoded():
            return _STRUCT
        case bytes():
            return _BINARY
        case list():
            return _LIST
        case I16():
            return _I16
        case I64():
            return _I64
        case int():
            return _I32
        case _:
            raise TypeError(type(value))


def _encode(value: Any) -> bytes:
    match value:
        case Encoded():
            return value
        case bytes():
            return encode_varint(len(value)) + value
        case list():
            return _encode_list(value)
        case int():
            return encode_zigzag(value)
        case _:
            raise TypeError(type(value))


def _encode_list(values: Sequence[Any]) -> bytes:
    kind = _kind(values[0]) if values else _STRUCT
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + encode_varint(len(values))
    return head + b"".join(_encode(value) for value in values)
