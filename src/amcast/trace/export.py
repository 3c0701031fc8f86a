"""Small tables for other programs: as CSV and as Parquet. Equal tables are equal byte for byte."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq


def csv_bytes(data: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(_without_formulas(data), sink)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def parquet_bytes(data: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _without_formulas(data: pa.Table) -> pa.Table:
    """Spreadsheets run texts that begin with one of these characters. An apostrophe tells them that it is a text."""
    for at, field in enumerate(data.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = data.column(at)
            is_formula = pc.match_substring_regex(column, r"^[=+\-@\t\r]")
            data = data.set_column(
                at, field, pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)
            )
    return data
