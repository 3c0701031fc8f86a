"""The end of a Parquet file says what columns it has, and where their pages are. Nothing of it is trusted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO

from ._thrift import Struct, decode
from .column import Column

MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_END_BYTES = 8  # the length of the footer, and MAGIC
_FOOTER_BYTES_MAX = 256 << 20
_LEAVES_MAX = 10_000

REQUIRED, OPTIONAL, REPEATED = range(3)
INT32, INT64, FLOAT64, BYTE_ARRAY = 1, 2, 5, 6

_PHYSICAL = {0: "bool", 1: "int32", 2: "int64", 3: "timestamp[ns]", 4: "float", 5: "double", 6: "binary"}
_CONVERTED = {
    0: "string",
    4: "string",
    5: "decimal",
    6: "date32[day]",
    7: "time32[ms]",
    8: "time64[us]",
    9: "timestamp[ms]",
    10: "timestamp[us]",
    **{11 + at: f"uint{8 << at}" for at in range(4)},
    **{15 + at: f"int{8 << at}" for at in range(4)},
    19: "string",
}
_LOGICAL = {
    1: "string",
    4: "string",
    5: "decimal",
    6: "date32[day]",
    7: "time",
    8: "timestamp",
    11: "null",
    12: "string",
}
_LOGICAL_INTEGER = 10


class ParquetError(ValueError):
    """The bytes are no Parquet file, or use a part of the format that this package does not know."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column, and what its levels mean: a value is there if its definition level is `defined`."""

    column: Column
    physical: int
    defined: int
    repeated: int  # the deepest repetition level: 0, or 1 in a column of lists
    listed: int  # the definition level from which on a list has an element; 0 if it is no list


@dataclass(frozen=True, slots=True)
class Chunk:
    """The pages of one column in one row group."""

    physical: int
    codec: int
    values: int
    bytes: int
    bytes_unpacked: int
    start: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    rows: int
    chunks: tuple[Chunk, ...]  # as the leaves are


@dataclass(frozen=True, slots=True)
class Footer:
    rows: int
    leaves: tuple[Leaf, ...]
    groups: tuple[RowGroup, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(leaf.column for leaf in self.leaves)


def read_footer(file: BinaryIO) -> Footer:
    size = file.seek(0, os.SEEK_END)
    if size < len(MAGIC) + _END_BYTES:
        raise ParquetError(f"it has only {size} bytes")
    file.seek(size - _END_BYTES)
    end = file.read(_END_BYTES)
    file.seek(0)
    if end[4:] == _ENCRYPTED:
        raise ParquetError("it is encrypted")
    if end[4:] != MAGIC or file.read(len(MAGIC)) != MAGIC:
        raise ParquetError("it does not begin and end as one does")
    length = int.from_bytes(end[:4], "little")
    if length > min(size - _END_BYTES - len(MAGIC), _FOOTER_BYTES_MAX):
        raise ParquetError("its footer is longer than the file")
    file.seek(size - _END_BYTES - length)
    fields, _ = decode(file.read(length))
    return _footer(fields, size)


def _footer(fields: Struct, size: int) -> Footer:
    leaves = tuple(_leaves(fields[2]))
    groups = tuple(_row_group(group, leaves, size) for group in fields.get(4, []))
    rows = _count(fields[3])
    if rows != sum(group.rows for group in groups):
        raise ParquetError("its footer contradicts itself")
    return Footer(rows, leaves, groups)


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ParquetError(f"{value!r} is no number of anything")
    return value


def _row_group(fields: Struct, leaves: tuple[Leaf, ...], size: int) -> RowGroup:
    chunks = tuple(_chunk(chunk, size) for chunk in fields[1])
    rows = _count(fields[3])
    if len(chunks) != len(leaves):
        raise ParquetError(f"a row group has {len(chunks)} columns, and the schema {len(leaves)}")
    for chunk, leaf in zip(chunks, leaves, strict=True):
        # Footers have no checksum, but they say in several places how many rows there are: all must agree.
        if chunk.physical != leaf.physical or (not leaf.repeated and chunk.values != rows):
            raise ParquetError("its footer contradicts itself")
    return RowGroup(rows, chunks)


def _chunk(fields: Struct, size: int) -> Chunk:
    if 1 in fields:
        raise ParquetError("its columns are in other files")
    meta: Struct = fields[3]
    start = _count(meta[9])
    if 0 < meta.get(11, 0) < start:  # a dictionary comes before the values
        start = meta[11]
    length = _count(meta[7])
    if start + length > size:
        raise ParquetError("a column is longer than the file")
    return Chunk(meta[1], meta[4], _count(meta[5]), length, _count(meta[6]), start)


# ---------------------------------------------------------------------------------------------- the schema


def _leaves(elements: list[Struct]) -> list[Leaf]:
    """The schema is a tree, written as a list: each node before its children."""
    if len(elements) > _LEAVES_MAX:
        raise ParquetError(f"it has {len(elements)} columns")
    nodes = iter(elements)
    root = next(nodes)
    leaves = [leaf for _ in range(_count(root.get(5, 0))) for leaf in _leaves_below(nodes, (), 0)]
    if next(nodes, None) is not None:
        raise ParquetError("its schema contradicts itself")
    return leaves


def _leaves_below(nodes: Any, above: tuple[Struct, ...], depth: int) -> list[Leaf]:
    node = next(nodes, None)
    if node is None or depth > 8:
        raise ParquetError("its schema contradicts itself")
    path = (*above, node)
    if 1 in node:
        return [_leaf(path)]
    return [leaf for _ in range(_count(node.get(5, 0))) for leaf in _leaves_below(nodes, path, depth + 1)]


def _leaf(path: tuple[Struct, ...]) -> Leaf:
    """Columns that are neither flat nor lists of values get a type that no schema asks for."""
    kinds = [node.get(3, REQUIRED) for node in path]
    repeated = kinds.count(REPEATED)
    defined = len(kinds) - kinds.count(REQUIRED)
    listed = len([kind for kind in kinds[: kinds.index(REPEATED) + 1] if kind != REQUIRED]) if repeated else 0
    node, name = path[-1], path[0][4].decode()
    is_list = repeated == 1 and 2 <= len(path) <= 3
    if not is_list and len(path) > 1:
        return Leaf(Column(name, "struct"), node[1], defined, repeated, listed)
    kind = _type(node) if is_list or not repeated else "repeated"
    return Leaf(Column(name, kind, kinds[0] == OPTIONAL, is_list), node[1], defined, repeated, listed)


def _type(node: Struct) -> str:
    logical: Struct = node.get(10) or {}
    if _LOGICAL_INTEGER in logical:
        integer = logical[_LOGICAL_INTEGER]
        return f"{'' if integer.get(2, True) else 'u'}int{integer[1]}"
    name = next((_LOGICAL[number] for number in logical if number in _LOGICAL), None)
    physical = _PHYSICAL.get(node[1], f"fixed_size_binary[{node.get(2)}]")
    return name or _CONVERTED.get(node.get(6, -1)) or physical
