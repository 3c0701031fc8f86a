"""Parquet files of the tables: how they are encoded, and whether a file that anybody wrote has the right columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .schema import CLIENT_COLUMNS

ROW_GROUP_ROWS = 32 * 1024

# Equal values take no space in a file, but in memory: a megabyte may hold a billion rows.
ROWS_MAX = 20_000_000  # of a run that is read into memory; and of a row group, which is always read at once
TEXT_BYTES_MAX = 128 << 20  # of a column of strings in a file
_GROUP_BYTES_MAX = 2 << 30  # of a row group, when it is decompressed

# Columns whose neighbouring values are close are stored as differences, those with few values as dictionaries.
_DELTA_COLUMNS = frozenset({"pos", "ts", "t_us", "client_seq", "sent_us", "received_us"})
_DICTIONARY_COLUMNS = frozenset(
    {"process", "grp", "kind", "sender", "src", "dst", "dst.list.element", "what", "detail", "bytes"}
)


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Options of pyarrow's Parquet writers. Equal tables give equal bytes."""
    # Parquet's names of the columns: the values of a list are a column of their own.
    leaves = [f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in schema]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [leaf for leaf in leaves if leaf in _DICTIONARY_COLUMNS],
        "column_encoding": {leaf: "DELTA_BINARY_PACKED" for leaf in leaves if leaf in _DELTA_COLUMNS},
        "write_page_checksum": True,
    }


def row_groups_problem(footer: pq.FileMetaData) -> str | None:
    """Whether a row group is too large to be read at once, and what to do about it; None if none is."""
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = [group.column(at) for at in range(group.num_columns)]
        values = max([group.num_rows, *(column.num_values for column in columns)])
        if values > ROWS_MAX:
            return f"row group {number} has {values:,} values, and {ROWS_MAX:,} are allowed; write smaller row groups"
        size = sum(column.total_uncompressed_size for column in columns)
        if size > _GROUP_BYTES_MAX:
            return f"row group {number} has {size:,} bytes, and {_GROUP_BYTES_MAX:,} are allowed; write smaller ones"
    return None


def columns_problem(found: pa.Schema, wanted: pa.Schema) -> str | None:
    """What is wrong with a file's columns, and what to do about it; None if nothing is."""
    for name in wanted.names:
        if name not in found.names:
            return f"column {name} is missing; write all columns of the schema"
    for field in found:
        if field.name not in wanted.names:
            return f"column {field.name} is not in the schema; remove it"
        if found.names.count(field.name) > 1:
            return f"column {field.name} is there twice; remove one"
        expected = wanted.field(field.name).type
        if not _same_type(field.type, expected) and not _was_narrower(field, expected):
            return f"column {field.name} is {_value_type(field.type)} and must be {expected}; cast it"
    return None


def _value_type(found: pa.DataType) -> pa.DataType:
    return found.value_type if pa.types.is_dictionary(found) else found


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    found = _value_type(found)
    if pa.types.is_list(wanted):  # the name and the nullability of the elements are the writer's choice
        return bool(pa.types.is_list(found) and found.value_type == wanted.value_type)
    return bool(found == wanted)


def _was_narrower(found: pa.Field, wanted: pa.DataType) -> bool:
    """Ids of clients had 32 bits once."""
    return bool(found.name in CLIENT_COLUMNS and found.type == pa.int32() and wanted == pa.int64())
