"""Which file is which table, and which of its columns is which.

A file is recognised by its name: `deliveries.csv`, `deliveries-db7.jsonl`, `run3.multicasts.csv`. A table may have many
files, such as one for each process. In a CSV file the first line names the columns. In a file of JSON lines the first
object does; only columns that may be blank can turn up later.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ...trace.schema import FORMAT, RUN_FILE, DescribedColumn, Table
from .problems import Problem, Problems, quoted

LINE_BYTES_MAX = 1 << 20
FILES_MAX = 10_000
COLUMNS_MAX = 1_000
_SUFFIXES: dict[str, Literal["csv", "jsonl"]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_TABLES = {table.name: table for table in FORMAT}
_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}

TimeUnit = Literal["us", "ns", "ms", "s", "iso"]


class Source(msgspec.Struct, frozen=True):
    """A file, and how to read it. It is plain data: tasks on Spark get it as JSON."""

    path: str
    table: str
    format: Literal["csv", "jsonl"]
    begins: int  # where its rows begin, in bytes,
    line: int  # and in which line that is
    size: int
    columns: dict[str, str]  # of the table, and what the file calls each
    header: tuple[str, ...] = ()  # of a CSV file: all its columns
    delimiter: str = ","
    unit: TimeUnit = "us"
    first_position: int = 0
    ignored: tuple[str, ...] = ()

    @property
    def of(self) -> Table:
        return _TABLES[self.table]

    def column(self, name: str) -> DescribedColumn:
        return self.of.column(name)


def find_sources(
    paths: Sequence[Path],
    tables: Mapping[Path, str] | None = None,
    renamed: Mapping[str, str] | None = None,
    unit: TimeUnit = "us",
    first_position: int = 0,
) -> list[Source]:
    """`tables` says which table a file is, `renamed` what the files call a column: {"msg": "tx_id"}."""
    problems = Problems()
    named = dict(tables or {})
    files = [*_expand([path for path in paths if path not in named], problems), *named]
    if len(files) > FILES_MAX:
        problems.add(Problem(f"{len(files):,} files are more than {FILES_MAX:,}: join them"))
        problems.refuse()
    sources: list[Source] = []
    for file in dict.fromkeys(files):
        table = named.get(file) or _table_of(file, is_alone=len(files) == 1)
        source = None if table is None else _open(file, table, renamed or {}, problems)
        if table is None:
            which = ", ".join(_TABLES)
            problems.add(
                Problem(f"its name does not say which table it is ({which}): say --table deliveries={file}", str(file))
            )
        elif source is not None:
            sources.append(source)
    if not problems and not any(source.table in ("deliveries", "operations") for source in sources):
        problems.add(Problem("there is no file of deliveries, and none of operations: so nothing can be judged"))
    _check_alike(sources, problems)
    problems.refuse()
    return [msgspec.structs.replace(source, unit=unit, first_position=first_position) for source in sources]


def declared_file(paths: Sequence[Path]) -> Path | None:
    """A folder may hold the description of its trace."""
    return next((path / RUN_FILE for path in paths if (path / RUN_FILE).is_file()), None)


def _expand(paths: Sequence[Path], problems: Problems) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES and file.is_file())
        if not found:
            problems.add(Problem("no file in this folder is .csv or .jsonl", str(path)))
        yield from found


def _table_of(file: Path, is_alone: bool) -> str | None:
    words = set(re.split(r"[^a-z]+", file.stem.lower()))
    found = [name for name in _TABLES if name in words]
    if len(found) == 1:
        return found[0]
    return "deliveries" if is_alone and not found else None


def _open(file: Path, table: str, renamed: Mapping[str, str], problems: Problems) -> Source | None:
    if not file.exists():
        problems.add(Problem("there is no such file or folder", str(file)))
        return None
    if file.suffix.lower() not in _SUFFIXES:
        problems.add(Problem(f"only {', '.join(_SUFFIXES)} can be imported", str(file)))
        return None
    try:
        if not file.is_file():
            problems.add(Problem("it is not a file", str(file)))
            return None
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(len(_BOM))
            for bom, encoding in _OTHER_BOMS.items():
                if start.startswith(bom):
                    problems.add(Problem(f"it is {encoding}: save it as UTF-8", str(file)))
                    return None
            begins = len(_BOM) if start == _BOM else 0
            stream.seek(begins)
            line, first = 0, b""
            while not first.strip() and (first := stream.readline(LINE_BYTES_MAX + 1)):
                line += 1
                begins += len(first)
    except OSError as error:
        problems.add(Problem(f"can't be read: {error.strerror or error}", str(file)))
        return None
    if not first.strip():
        problems.add(Problem("it is empty: a table has a line with the names of its columns, and rows", str(file)))
        return None
    if len(first) > LINE_BYTES_MAX:
        problems.add(Problem(f"it is longer than {LINE_BYTES_MAX:,} bytes", str(file), line))
        return None
    return _describe(file, table, renamed, problems, first, begins, line, size)


def _describe(
    file: Path,
    table: str,
    renamed: Mapping[str, str],
    problems: Problems,
    first: bytes,
    begins: int,
    line: int,
    size: int,
) -> Source | None:
    form = _SUFFIXES[file.suffix.lower()]
    try:
        text = first.decode().strip("\r\n")
        if form == "csv":
            delimiter = "," if "," in text else next((mark for mark in "\t;" if mark in text), ",")
            header = tuple(name.strip(" \t") for name in next(csv.reader([text], strict=True, delimiter=delimiter)))
        else:
            delimiter, header = ",", tuple(msgspec.json.decode(first, type=dict[str, msgspec.Raw]))
            begins, line = begins - len(first), line - 1  # the first object is a row
    except UnicodeDecodeError:
        problems.add(Problem("it is not UTF-8: save it as UTF-8", str(file), line))
        return None
    except (csv.Error, msgspec.DecodeError, StopIteration) as error:
        what = "names of columns" if form == "csv" else "a JSON object"
        problems.add(Problem(f"the first line is not {what}: {error}", str(file), line))
        return None
    if len(header) > COLUMNS_MAX:
        problems.add(Problem(f"{len(header):,} columns are more than {COLUMNS_MAX:,}", str(file), line))
        return None
    before = len(problems)
    columns = _columns(file, _TABLES[table], header, renamed, problems, form == "jsonl")
    if len(problems) > before:
        return None
    used = set(columns.values())
    ignored = tuple(name for name in header if name not in used)
    known = header if form == "csv" else ()
    return Source(str(file), table, form, begins, line + 1, size, columns, known, delimiter, ignored=ignored)


def _columns(
    file: Path, table: Table, header: Sequence[str], renamed: Mapping[str, str], problems: Problems, may_come: bool
) -> dict[str, str]:
    """What the file calls each column of the table. `may_come`: those that may be blank need not be in the header."""
    for name in sorted({name for name in header if header.count(name) > 1}):
        problems.add(Problem(f"{quoted(name)} is the name of {header.count(name)} columns", str(file)))
    columns: dict[str, str] = {}
    for column in table.columns:
        own = [renamed[key] for key in (f"{table.name}.{column.name}", column.name) if key in renamed]
        wanted = own[:1] or [name for name in (column.name, column.also) if name]
        here = [name for name in wanted if name in header]
        if len(here) > 1:
            problems.add(Problem(f"{here[0]} and {here[1]} are two names of one column: remove one", str(file)))
        if here:
            columns[column.name] = here[0]
        elif may_come and column.may_be_blank:
            columns[column.name] = wanted[0]
        elif column.absent is None:
            have = ", ".join(header[:12])
            what = f"it is missing; the file has {have}: if one of these is it, say --column {column.name}=ITS_NAME"
            problems.add(Problem(what, str(file), column=column.name))
    return columns


def _check_alike(sources: Sequence[Source], problems: Problems) -> None:
    """Positions by the order of rows in one file and by numbers in another can't be put together; and so on."""
    for name, table in _TABLES.items():
        files = [source for source in sources if source.table == name]
        for column in table.columns:
            without = [source for source in files if column.name not in source.columns]
            if without and len(without) < len(files) and not column.may_be_blank:
                with_it = next(source for source in files if column.name in source.columns)
                what = (
                    f"{with_it.path} has this column, and this file has not: give all files of a table the same columns"
                )
                problems.add(Problem(what, without[0].path, column=column.name))
