"""Parquet files of the tables: how they are encoded, and whether a file that anybody wrote has the right columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from .schema import CLIENT_COLUMNS

ROW_GROUP_ROWS = 32 * 1024

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
            return f"column {field.name} is {field.type} and must be {expected}; cast it"
    return None


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_list(wanted):  # the name and the nullability of the elements are the writer's choice
        return bool(pa.types.is_list(found) and found.value_type == wanted.value_type)
    return bool(found == wanted)


def _was_narrower(found: pa.Field, wanted: pa.DataType) -> bool:
    """Ids of clients had 32 bits once."""
    return bool(found.name in CLIENT_COLUMNS and found.type == pa.int32() and wanted == pa.int64())
