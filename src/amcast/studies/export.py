"""The table of a study for other programs: as CSV and as Parquet. Equal tables are equal byte for byte."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..parquet.column import DOUBLE, TEXT, Column
from ..parquet.values import INTEGERS, MISSING, Floats, Integers, Texts, Values
from ..parquet.writer import write_to
from .table import COLUMNS, Row

_ROW_GROUP_ROWS = 32 * 1024
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets run texts that begin with one of these


def csv_bytes(rows: Sequence[Row]) -> bytes:
    names = [column.name for column in COLUMNS]
    lines = [names, *([row[name] for name in names] for row in rows)]
    return "".join(",".join(map(_cell, line)) + "\n" for line in lines).encode()


def _cell(value: Any) -> str:
    if not isinstance(value, str):
        return "" if value is None else repr(value)
    safe = f"'{value}" if value.startswith(_FORMULA) else value  # the apostrophe says that it is a text
    return '"' + safe.replace('"', '""') + '"'


def parquet_bytes(rows: Sequence[Row]) -> bytes:
    file = io.BytesIO()
    write_to(file, COLUMNS, [_values(column, rows) for column in COLUMNS], {}, _ROW_GROUP_ROWS)
    return file.getvalue()


def _values(column: Column, rows: Sequence[Row]) -> Values:
    found = [row[column.name] for row in rows]
    if column.type == TEXT:
        code_of = {word: code for code, word in enumerate(dict.fromkeys(word for word in found if word is not None))}
        return Texts(np.array([code_of.get(word, MISSING) for word in found], np.int32), tuple(code_of))
    present = np.array([value is not None for value in found], np.bool_)
    filled = [0 if value is None else value for value in found]
    if column.type == DOUBLE:
        return Floats(np.array(filled, np.float64), present)
    return Integers(np.array(filled, INTEGERS[column.type]), present)
