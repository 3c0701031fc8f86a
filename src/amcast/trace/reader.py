"""Reads a run folder and trusts nothing in it: an error is one line that names the file and says what to do.

Column types must be exactly those of the schema. Writers may choose the order of columns, whether a column is declared
nullable, and whether strings are dictionary encoded, since Spark chooses otherwise than we do. Nulls are refused in
columns that must have none. Files whose names start with `.` or `_`, as Spark leaves them, are not part of a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..core import UsageError
from ..parquet.column import TEXT, Column
from ..parquet.footer import Footer, read_footer
from ..parquet.reader import Gathered, read_column
from ..parquet.values import MISSING
from . import limits
from ._convert import answers_of, deliveries_of, faults_of, multicasts_of, objects_of, operations_of, wire_of
from .limits import TEXT_BYTES_MAX, group_sizes, row_groups_problem
from .names import names_in_folder
from .run import Run, make_run
from .schema import (
    NULL,
    RUN_FILE,
    TABLES,
    RunInfo,
    Schema,
    bare_info,
    columns_problem,
    decode_run_info,
    is_bare,
    needed_tables,
)

_AGAIN = "copy the whole run again, or record it again"


def read_run(path: str | Path) -> Run:
    folder = Path(path)
    try:
        info = read_run_info(folder)
        rows = 0
        tables: dict[str, dict[str, Gathered]] = {}
        for name in TABLES:
            tables[name], rows = _read_table(folder / name, name, rows, name in needed_tables(info))
    except OSError as error:
        where = error.filename or folder
        raise UsageError(f"{where}: can't be read: {error.strerror or _first_line(error)}") from error
    return make_run(
        info,
        multicasts_of(tables["multicasts"]),
        deliveries_of(tables["deliveries"]),
        wire_of(tables["wire"]),
        faults_of(tables["faults"]),
        answers_of(tables["answers"]),
        operations_of(tables["operations"]),
        objects_of(tables["objects"]),
        where=str(folder),
        look_up=names_in_folder(folder),
    )


def read_run_info(path: str | Path) -> RunInfo:
    folder = Path(path)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}: name the folder of a run")
    file = folder / RUN_FILE
    if not file.is_file() and is_bare(child.name for child in folder.iterdir()):
        return bare_info(folder.resolve().name)
    if not file.is_file():
        raise UsageError(f"{file} is missing: {folder} is not a run, or only a part of one; {_AGAIN}")
    try:
        return decode_run_info(file.read_bytes())
    except ValueError as error:
        raise UsageError(f"{file}: {_first_line(error)}; mend it, or record the run again") from error


def _read_table(folder: Path, name: str, rows: int, is_needed: bool) -> tuple[dict[str, Gathered], int]:
    """The columns of a table. `rows`: how many rows are in memory already; it returns how many then are."""
    footers = []
    for file in _files_of(folder, name, is_needed):
        footer = _read_footer(file, TABLES[name], rows)
        footers.append((file, footer))
        rows += footer.rows
    total = sum(footer.rows for _, footer in footers)
    columns = {column.name: _gathered(column, total) for column in TABLES[name].columns}
    for file, footer in footers:
        _read_file(file, footer, TABLES[name], columns)
    return columns, rows


def _gathered(column: Column, rows: int) -> Gathered:
    return Gathered(column, rows, MISSING if column.type == TEXT else NULL)


def _files_of(folder: Path, name: str, is_needed: bool) -> list[Path]:
    if not folder.is_dir():
        if not is_needed and not folder.exists():
            return []
        raise UsageError(f"{folder} is missing: a run needs the table {name}; {_AGAIN}")
    files = sorted(file for file in folder.iterdir() if not file.name.startswith((".", "_")))
    for file in files:
        if file.suffix != ".parquet" or not file.is_file():
            raise UsageError(f"{file} is not a Parquet file: remove it from the table")
    if not files and is_needed:
        raise UsageError(f"{folder} has no Parquet file: {name} was not written to its end; {_AGAIN}")
    return files


def _read_footer(path: Path, schema: Schema, rows: int) -> Footer:
    with _whole(path), path.open("rb") as file:
        footer = read_footer(file)
    if rows + footer.rows > limits.ROWS_MAX:
        raise UsageError(
            f"{path}: the run has more than {limits.ROWS_MAX:,} rows, too many for the memory of one program;"
            " use --engine spark"
        )
    problem = columns_problem(footer.columns, schema) or row_groups_problem(group_sizes(footer))
    if problem is not None:
        raise UsageError(f"{path}: {problem}")
    return footer


def _read_file(path: Path, footer: Footer, schema: Schema, columns: Mapping[str, Gathered]) -> None:
    """Adds its rows to the columns."""
    with _whole(path), path.open("rb") as file:
        for column in schema.columns:
            into = columns[column.name]
            nulls, text = into.nulls, into.text_bytes
            read_column(file, footer, column.name, into)
            nulls, text = into.nulls - nulls, into.text_bytes - text
            if text > TEXT_BYTES_MAX:  # one long text may be in millions of rows
                size = f"{text:,} bytes of text, and {TEXT_BYTES_MAX:,} are allowed"
                raise UsageError(f"{path}: column {column.name} has {size}")
            if nulls and not column.nullable:
                raise UsageError(f"{path}: column {column.name} has {nulls} nulls and must have none; {_AGAIN}")


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except (UsageError, OSError):
        raise
    except Exception as error:  # corrupt bytes may be wrong in more ways than there are words for
        raise UsageError(f"{path}: not a whole Parquet file ({_first_line(error)}); {_AGAIN}") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
