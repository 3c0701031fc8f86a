"""Writes tables as Parquet files. Equal tables give equal bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ._encode import CODEC, EncodedChunk, encode_chunk
from ._thrift import I16, I64, Encoded, struct
from .column import DOUBLE, TEXT, Column, Encoding
from .footer import BYTE_ARRAY, FLOAT64, INT32, INT64, MAGIC, OPTIONAL, REPEATED, REQUIRED
from .values import Floats, Integers, Lists, TextLists, Texts, Values

# Readers in Java want a version and a build, and believe statistics if they know who wrote them.
_CREATED_BY = b"amcast version 1.0.0 (build 1)"
_VERSION = 2
_UTF8, _LIST = 0, 3  # converted types, for older readers
_BITS = {"int8": 8, "int16": 16}
_PHYSICAL = {TEXT: BYTE_ARRAY, DOUBLE: FLOAT64, "int64": INT64}  # all smaller integers have 32 bits
_EMPTY = struct({})


def write_table(
    path: Path,
    columns: Sequence[Column],
    values: Sequence[Values],
    encodings: Mapping[str, Encoding],
    row_group_rows: int,
) -> None:
    """Replaces the file. A column that has no encoding is written plainly."""
    with path.open("wb") as file:
        write_to(file, columns, values, encodings, row_group_rows)


def write_to(
    file: BinaryIO,
    columns: Sequence[Column],
    values: Sequence[Values],
    encodings: Mapping[str, Encoding],
    row_group_rows: int,
) -> None:
    """As `write_table`, into a file that is open and empty."""
    rows = len(values[0])
    assert all(len(part) == rows for part in values), "columns have the same length"
    groups: list[Encoded] = []
    at = file.write(MAGIC)
    for start in range(0, rows, row_group_rows):
        stop = min(start + row_group_rows, rows)
        parts = [_slice(part, start, stop) for part in values]
        chunks = [
            encode_chunk(column, part, encodings.get(column.name, Encoding.PLAIN))
            for column, part in zip(columns, parts, strict=True)
        ]
        group_at = at
        described = []
        for column, chunk in zip(columns, chunks, strict=True):
            described.append(_describe(column, chunk, at))
            at += file.write(chunk.dictionary) + file.write(chunk.data)
        groups.append(_row_group(described, chunks, stop - start, group_at, at - group_at, len(groups)))
    footer = _footer(columns, rows, groups)
    file.write(footer + len(footer).to_bytes(4, "little") + MAGIC)


def _slice(values: Values, start: int, stop: int) -> Values:
    match values:
        case Integers(numbers, present):
            return Integers(numbers[start:stop], None if present is None else present[start:stop])
        case Floats(floats, present):
            return Floats(floats[start:stop], None if present is None else present[start:stop])
        case Texts(codes, words):
            return Texts(codes[start:stop], words)
        case Lists(starts, numbers):
            return Lists(starts[start : stop + 1], numbers)
        case TextLists(starts, codes, words):
            return TextLists(starts[start : stop + 1], codes, words)


def _physical(column: Column) -> int:
    return _PHYSICAL.get(column.type, INT32)


def _path(column: Column) -> list[bytes]:
    return [column.name.encode(), b"list", b"element"] if column.is_list else [column.name.encode()]


def _describe(column: Column, chunk: EncodedChunk, at: int) -> Encoded:
    has_dictionary = bool(chunk.dictionary)
    packed = len(chunk.dictionary) + len(chunk.data)
    statistics = None
    if chunk.low is not None or chunk.nulls:
        statistics = struct({3: I64(chunk.nulls), 5: chunk.high, 6: chunk.low})
    meta = struct(
        {
            1: _physical(column),
            2: chunk.encodings,
            3: _path(column),
            4: CODEC,
            5: I64(chunk.count),
            6: I64(chunk.unpacked),
            7: I64(packed),
            9: I64(at + len(chunk.dictionary)),
            11: I64(at) if has_dictionary else None,
            12: statistics,
        }
    )
    return struct({2: I64(at), 3: meta})


def _row_group(
    described: list[Encoded], chunks: list[EncodedChunk], rows: int, at: int, packed: int, number: int
) -> Encoded:
    unpacked = sum(chunk.unpacked for chunk in chunks)
    ordinal = I16(number) if number < 1 << 15 else None
    return struct({1: described, 2: I64(unpacked), 3: I64(rows), 5: I64(at), 6: I64(packed), 7: ordinal})


def _footer(columns: Sequence[Column], rows: int, groups: list[Encoded]) -> Encoded:
    schema = [struct({4: b"schema", 5: len(columns)}), *(node for column in columns for node in _nodes(column))]
    orders = [struct({1: _EMPTY}) for _ in columns]
    return struct({1: _VERSION, 2: schema, 3: I64(rows), 4: groups, 6: _CREATED_BY, 7: orders})


def _nodes(column: Column) -> Iterator[Encoded]:
    repetition = OPTIONAL if column.nullable else REQUIRED
    name = column.name.encode()
    leaf = {1: _physical(column), 3: repetition, 4: name, **_annotation(column)}
    if not column.is_list:
        yield struct(leaf)
        return
    yield struct({3: repetition, 4: name, 5: 1, 6: _LIST, 10: struct({3: _EMPTY})})
    yield struct({3: REPEATED, 4: b"list", 5: 1})
    yield struct(leaf | {3: REQUIRED, 4: b"element"})


def _annotation(column: Column) -> dict[int, Any]:
    if column.type == TEXT:
        return {6: _UTF8, 10: struct({1: _EMPTY})}
    bits = _BITS.get(column.type)
    if bits is None:
        return {}
    # The byte of the width is written as a struct's raw value.
    return {6: 15 if bits == 8 else 16, 10: struct({10: Encoded(bytes([0x13, bits, 0x11, 0]))})}
