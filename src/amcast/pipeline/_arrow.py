"""The columns of a run's tables, as Arrow has them."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from ..parquet.column import Column, Encoding
from ..trace.encodings import ENCODINGS
from ..trace.schema import Schema

_TYPES = {"int8": pa.int8(), "int32": pa.int32(), "int64": pa.int64(), "string": pa.string()}


@cache
def arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([pa.field(column.name, arrow_type(column), column.nullable) for column in schema.columns])


def arrow_type(column: Column) -> pa.DataType:
    kind = _TYPES[column.type]
    return pa.list_(pa.field("element", kind, nullable=False)) if column.is_list else kind


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Options of Arrow's writers: columns are stored as `amcast.trace` stores them."""
    # Parquet's names of the columns: the values of a list are a column of their own.
    leaves = {f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name: field for field in schema}
    encodings = {leaf: ENCODINGS.get(field.name) for leaf, field in leaves.items()}
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [leaf for leaf, encoding in encodings.items() if encoding is Encoding.DICTIONARY],
        "column_encoding": {
            leaf: "DELTA_BINARY_PACKED" for leaf, encoding in encodings.items() if encoding is Encoding.DIFFERENCES
        },
        "write_page_checksum": True,
    }


def columns_in(schema: pa.Schema) -> list[Column]:
    """Of a file. Whether strings are dictionaries, and how the elements of lists are called, is the writer's choice."""
    return [_column(field) for field in schema]


def _column(field: pa.Field) -> Column:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_list(kind):
        return Column(field.name, str(kind.value_type), field.nullable, is_list=True)
    return Column(field.name, str(kind), field.nullable)
