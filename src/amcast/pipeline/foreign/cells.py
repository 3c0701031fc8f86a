"""A block of lines as columns of texts: every value is the text that stands in the file, and blank ones are null.

So a number is never a float on its way: 9007199254740993 stays what it is. Most blocks of CSV have no quotes and are
split by Arrow. All others, and those that Arrow refuses, are read line by line, which also finds out what is wrong and
where: that way is the definition, and the quick one gives the same.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ...trace.schema import DescribedColumn
from .problems import quoted
from .sources import Source

_BLANKS = " \t"
_STRANGE_KEYS_MAX = 50

Cell = str | None
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


@dataclass(slots=True)
class Cells:
    columns: dict[str, pa.Array]  # by the table's names, all strings
    line_of: (
        Sequence[int] | None
    )  # of each row, from 0 at the beginning of the block; None: only blank lines are left out
    wrong: list[tuple[int, str, str]] = field(default_factory=list)  # line, column, what is wrong
    ignored: set[str] = field(default_factory=set)


class _WrongLineError(Exception):
    def __init__(self, what: str, column: str = "") -> None:
        super().__init__(what)
        self.column = column


def read_cells(source: Source, lines: bytes) -> Cells:
    if source.format == "csv" and b'"' not in lines:
        quick = _split(source, lines)
        if quick is not None:
            return quick
    return read_lines(source, lines)


def _split(source: Source, lines: bytes) -> Cells | None:
    """None: it is for `read_lines` to say what is wrong."""
    plain = lines.replace(b"\r\n", b"\n")
    if b"\r" in plain or b"\0" in plain:
        return None
    places = {name: f"c{source.header.index(own)}" for name, own in source.columns.items()}
    try:
        table = pa_csv.read_csv(
            io.BytesIO(plain),
            pa_csv.ReadOptions(
                column_names=[f"c{number}" for number in range(len(source.header))],
                block_size=len(plain) + 1,
                use_threads=False,
            ),
            pa_csv.ParseOptions(delimiter=source.delimiter, quote_char=False),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(places.values(), pa.string()), include_columns=list(places.values())
            ),
        )
    except pa.ArrowException:
        return None
    return Cells({name: _trimmed(table.column(place)) for name, place in places.items()}, None)


def _trimmed(column: pa.ChunkedArray) -> pa.Array:
    texts = pc.utf8_trim(column.combine_chunks(), _BLANKS)
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def read_lines(source: Source, lines: bytes) -> Cells:
    rows: list[list[Cell]] = []
    line_of: list[int] = []
    made = Cells({}, line_of)
    read = _csv_row if source.format == "csv" else _json_row
    for number, line in enumerate(lines.split(b"\n")):
        line = line.removesuffix(b"\r")
        if not line.strip():
            continue
        try:
            rows.append(read(source, line, made.ignored))
            line_of.append(number)
        except _WrongLineError as error:
            made.wrong.append((number, error.column, str(error)))
    by_column: Iterator[tuple[Cell, ...]] = zip(*rows, strict=True) if rows else iter([()] * len(source.columns))
    made.columns = {name: pa.array(cells, pa.string()) for name, cells in zip(source.columns, by_column, strict=True)}
    return made


def _text(line: bytes) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise _WrongLineError(f"byte {error.start + 1} is not UTF-8: save the file as UTF-8") from error
    if "\0" in text:
        raise _WrongLineError("it has a null character: is it a text file?")
    return text


def _csv_row(source: Source, line: bytes, ignored: set[str]) -> list[Cell]:
    text = _text(line)
    if "\r" in text:
        raise _WrongLineError("it has a carriage return inside: end lines by LF or CR LF")
    try:
        fields = next(csv.reader([text], strict=True, delimiter=source.delimiter))
    except csv.Error as error:
        if text.count('"') % 2:
            raise _WrongLineError("a quote is not closed in its line: no value may have a line end in it") from error
        raise _WrongLineError(f"it is not CSV: {error}") from error
    if len(fields) != len(source.header):
        raise _WrongLineError(f"it has {len(fields)} values, and the first line names {len(source.header)} columns")
    cells = dict(zip(source.header, fields, strict=True))
    return [cells[own].strip(_BLANKS) or None for own in source.columns.values()]


def _json_row(source: Source, line: bytes, ignored: set[str]) -> list[Cell]:
    _text(line)
    try:
        values = _decode_object(line)
        if values.keys() - source.columns.values():
            _look_at_others(source, values.keys() - source.columns.values(), ignored)
        return [_cell(source.column(name), values.get(own)) for name, own in source.columns.items()]
    except (msgspec.DecodeError, RecursionError) as error:
        raise _WrongLineError(f"it is not a JSON object: {error}") from error


def _look_at_others(source: Source, others: set[str], ignored: set[str]) -> None:
    for column in source.of.columns:
        if column.name in others and column.name not in source.columns:
            raise _WrongLineError("the first line does not have it: give all lines the same columns", column.name)
    ignored |= set(sorted(others)[:_STRANGE_KEYS_MAX])


def _cell(column: DescribedColumn, raw: msgspec.Raw | None) -> Cell:
    if raw is None:
        return None
    text = bytes(raw).strip()
    if column.is_json:
        return None if text == b"null" and not column.nullable else text.decode()
    if text.startswith(b'"'):
        return _decode_text(text).strip(_BLANKS) or None
    if text == b"null":
        return None
    if text.startswith((b"{", b"t", b"f")) or (text.startswith(b"[") and not column.is_list):
        raise _WrongLineError(f"{quoted(text.decode())} is neither a text nor a number", column.name)
    return text.decode()
