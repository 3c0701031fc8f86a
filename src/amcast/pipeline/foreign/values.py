"""Texts become numbers, times, and names, exactly: what does not fit is refused, nothing is rounded.

The result has the columns of the table's schema, except that groups, processes and messages still have their names
(`named_schema`). Values that repeat, such as kinds and sets of destinations, are looked at once each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ...parquet.column import TEXT
from ...parquet.values import INTEGERS
from ...trace.operations import decoded, spelt
from ...trace.schema import FINAL, FORMAT, KIND_NAMES, OPTIMISTIC, DescribedColumn, Table
from .._arrow import arrow_type
from .cells import Cells
from .problems import quoted
from .sources import Source, TimeUnit

NAME_BYTES_MAX = 500
TEXT_BYTES_MAX = 10_000
JSON_BYTES_MAX = 1 << 20
DESTINATIONS_MAX = 10_000

_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?", re.ASCII)
_SEPARATORS = re.compile(r"[ ,;|\t]+")
_SMALLEST = -(1 << 63) + 1  # one below stands for null
_FRACTION_DIGITS = {"us": 0, "ms": 3, "s": 6}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {str(FINAL): FINAL, str(OPTIMISTIC): OPTIMISTIC, **{name: kind for kind, name in KIND_NAMES.items()}}
_NOT_NEGATIVE = frozenset({"pos", "client_seq", "bytes"})
_TIMES = frozenset({"t_us", "sent_us", "received_us", "invoked_us", "returned_us"})
_BLANK = {"detail": "", "arguments": "[]"}  # what stands for a blank cell, where null must not

Wrong = list[tuple[int, str, str]]  # row, column, what is wrong


def named_schema(table: Table) -> pa.Schema:
    """The columns of a table while its rows still have names."""
    return pa.schema([pa.field(column.name, _named_type(column)) for column in table.columns])


def _named_type(column: DescribedColumn) -> pa.DataType:
    if column.names is None:
        return arrow_type(column)
    return pa.list_(pa.string()) if column.is_list else pa.string()


NAMED = {table.name: named_schema(table) for table in FORMAT}


def convert(source: Source, cells: Cells) -> tuple[pa.Table, Wrong]:
    """Columns that the file does not have are null, those with a default have it."""
    rows = len(next(iter(cells.columns.values())))
    wrong: Wrong = []
    columns = []
    for column in source.of.columns:
        kind = _named_type(column)
        texts = cells.columns.get(column.name)
        if texts is None:
            columns.append(_absent(column, kind, rows))
        else:
            made, found = _convert(column, source.unit, texts, kind)
            if column.name == "pos" and source.first_position and not found:
                made, found = _from_zero(made, source.first_position)
            wrong += [(row, source.columns[column.name], what) for row, what in found]
            columns.append(made)
    return pa.Table.from_arrays(columns, schema=NAMED[source.table]), wrong


def _absent(column: DescribedColumn, kind: pa.DataType, rows: int) -> pa.Array:
    if column.nullable or column.names is not None or column.name in ("pos", "client_seq"):
        return pa.nulls(rows, kind)
    return pa.repeat(pa.scalar(_BLANK.get(column.name, "") if kind == pa.string() else 0, kind), rows)


def _convert(
    column: DescribedColumn, unit: TimeUnit, texts: pa.Array, kind: pa.DataType
) -> tuple[pa.Array, list[tuple[int, str]]]:
    if kind in (pa.int64(), pa.int32()) and (column.name not in _TIMES or unit == "us"):
        quick = _quick_integers(column, texts, kind)
        if quick is not None:
            return quick, []
    if kind == pa.string() and column.names is not None and _are_names(column, texts):
        return texts, []
    encoded = texts.dictionary_encode()
    values: list[Any] = []
    wrong: dict[int, str] = {}
    read = partial(_value, column, unit)
    for number, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            values.append(read(text))
        except ValueError as error:
            values.append(None)
            wrong[number] = str(error)
    may_be_blank = column.may_be_blank or not texts.null_count
    found: list[tuple[int, str]] = []
    if wrong or not may_be_blank:
        blank = [] if may_be_blank else [(row, "it is blank") for row in _rows(pc.is_null(texts))]
        bad = pc.is_in(encoded.indices, pa.array(list(wrong), encoded.indices.type))
        found = sorted([*blank, *((row, wrong[encoded.indices[row].as_py()]) for row in _rows(bad))])
    made = pa.array(values, kind).take(encoded.indices)
    if column.name in _BLANK:
        made = pc.fill_null(made, _BLANK[column.name])
    return made, found


def _from_zero(pos: pa.Array, first: int) -> tuple[pa.Array, list[tuple[int, str]]]:
    """Positions of a system that counts from 1, say."""
    below = _rows(pc.less(pos, first))
    return pc.subtract(pos, first), [(row, f"{pos[row].as_py()} is below the first position, {first}") for row in below]


def _rows(mask: pa.Array) -> list[int]:
    rows: list[int] = pc.indices_nonzero(mask).to_pylist()
    return rows


def _are_names(column: DescribedColumn, texts: pa.Array) -> bool:
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    return longest <= NAME_BYTES_MAX and (column.may_be_blank or not texts.null_count)


def _quick_integers(column: DescribedColumn, texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """None: something is wrong with them."""
    if texts.null_count and not column.may_be_blank:
        return None
    if not pc.all(pc.match_substring_regex(texts, "^-?[0-9]{1,19}$"), min_count=0).as_py():
        return None
    try:
        made = texts.cast(kind)
    except pa.ArrowInvalid:
        return None
    smallest = 0 if column.name in _NOT_NEGATIVE else _SMALLEST if kind == pa.int64() else None
    if smallest is not None and not pc.all(pc.greater_equal(made, smallest), min_count=0).as_py():
        return None
    return made


def _value(column: DescribedColumn, unit: TimeUnit, text: str) -> Any:
    """Raises ValueError, which says what is wrong."""
    if column.is_list:
        return _several(text, "group" if column.names == "group" else "object")
    if column.is_json:
        return _json(column, text)
    if column.names is not None:
        return _name(text)
    if column.name == "kind" and column.type == "int8":
        if text.lower() not in _KINDS:
            raise ValueError(f"{quoted(text)} is none of {', '.join(_KINDS)}")
        return _KINDS[text.lower()]
    if column.type == TEXT:
        return _limited(text, TEXT_BYTES_MAX)
    if column.name in _TIMES:
        return _in_range(column, text, _READ_TIME[unit](text))
    return _in_range(column, text, _integer(text))


def _in_range(column: DescribedColumn, text: str, number: int) -> int:
    bits = INTEGERS[column.type].itemsize * 8
    low = 0 if column.name in _NOT_NEGATIVE else _SMALLEST
    if not low <= number < 1 << (bits - 1):
        what = "negative" if number < 0 and low == 0 else f"too large for {bits} bits"
        raise ValueError(f"{quoted(text)} is {what}")
    return number


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{quoted(text)} is not an integer")
    return int(text) if len(text) <= 40 else 1 << 64


def _decimal(unit: str, text: str) -> int:
    found = _DECIMAL.fullmatch(text)
    if found is None or len(text) > 40:
        raise ValueError(f"{quoted(text)} is not a time in {unit}: say --time-unit if it is in another")
    sign, whole, fraction = found[1], found[2], found[3] or ""
    digits = _FRACTION_DIGITS[unit]
    if unit == "us" and fraction:
        raise ValueError(f"{quoted(text)} is not an integer: say --time-unit if it is not in microseconds")
    number = int(whole + fraction[:digits].ljust(digits, "0"))
    return -number if sign else number


def _nanoseconds(text: str) -> int:
    return _integer(text) // 1000


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{quoted(text)} is not a time such as 2026-11-17T12:30:00.000123Z") from error


_READ_TIME: dict[TimeUnit, Callable[[str], int]] = {
    "us": partial(_decimal, "us"),
    "ms": partial(_decimal, "ms"),
    "s": partial(_decimal, "s"),
    "ns": _nanoseconds,
    "iso": _moment,
}


def _limited(text: str, bytes_max: int) -> str:
    if len(text.encode()) > bytes_max:
        raise ValueError(f"{quoted(text)} is longer than {bytes_max:,} bytes")
    return text


def _name(text: str) -> str:
    return _limited(text, NAME_BYTES_MAX)


def _json(column: DescribedColumn, text: str) -> str:
    """As JSON in its one spelling. A text that is none is a word: `alice`. One argument needs no list around it."""
    _limited(text, JSON_BYTES_MAX)
    try:
        value = decoded(text)
    except ValueError:
        if text.startswith(("[", "{", '"')):
            raise
        value = text
    return spelt([value] if column.name == "arguments" and not isinstance(value, list) else value)


def _several(text: str, what: str) -> list[str]:
    """Names between spaces, commas, semicolons or bars; or a JSON list, for names that have such a sign in them."""
    if text.startswith("["):
        try:
            names = [str(name).strip() for name in msgspec.json.decode(text, type=list[str | int])]
        except msgspec.DecodeError as error:
            raise ValueError(f"{quoted(text)} is not a list of names: {error}") from error
    else:
        names = _SEPARATORS.split(text.strip(" ,;|\t"))
    if not names or not all(names):
        raise ValueError(f"{quoted(text)} names no {what}")
    if len(names) > DESTINATIONS_MAX:
        raise ValueError(f"{len(names):,} {what}s are more than {DESTINATIONS_MAX:,}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{quoted(text)} names {twice[0]} twice")
    return [_name(name) for name in names]
