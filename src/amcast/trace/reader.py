"""Reads a run folder and trusts nothing in it: an error is one line that names the file and says what to do.

Column types must be exactly those of the schema. Writers may choose the order of columns, whether a column is declared
nullable, and whether strings are dictionary encoded, since Spark chooses otherwise than we do. Nulls are refused in
columns that must have none. Files whose names start with `.` or `_`, as Spark leaves them, are not part of a table.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core import UsageError
from . import parquet
from ._convert import answers_of, deliveries_of, faults_of, multicasts_of, wire_of
from .parquet import TEXT_BYTES_MAX, columns_problem, row_groups_problem
from .run import Run, make_run
from .schema import OPTIONAL_TABLES, RUN_FILE, TABLES, RunInfo, decode_run_info

_AGAIN = "copy the whole run again, or record it again"


def read_run(path: str | Path) -> Run:
    folder = Path(path)
    try:
        info = read_run_info(folder)
        tables: dict[str, pa.Table] = {}
        for name in TABLES:
            tables[name] = _read_table(folder / name, name, sum(table.num_rows for table in tables.values()))
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
        where=str(folder),
    )


def read_run_info(path: str | Path) -> RunInfo:
    folder = Path(path)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}: name the folder of a run")
    file = folder / RUN_FILE
    if not file.is_file():
        raise UsageError(f"{file} is missing: {folder} is not a run, or only a part of one; {_AGAIN}")
    try:
        return decode_run_info(file.read_bytes())
    except ValueError as error:
        raise UsageError(f"{file}: {_first_line(error)}; mend it, or record the run again") from error


def _read_table(folder: Path, name: str, rows: int) -> pa.Table:
    """`rows`: how many are in memory already."""
    schema = TABLES[name]
    if not folder.is_dir():
        if name in OPTIONAL_TABLES and not folder.exists():
            return schema.empty_table()
        raise UsageError(f"{folder} is missing: a run needs the table {name}; {_AGAIN}")
    files = _files_of(folder)
    if not files and name not in OPTIONAL_TABLES:
        raise UsageError(f"{folder} has no Parquet file: {name} was not written to its end; {_AGAIN}")
    parts = [schema.empty_table()]
    for file in files:
        parts.append(_read_file(file, schema, rows))
        rows += parts[-1].num_rows
    return pa.concat_tables(parts)


def _files_of(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if not file.name.startswith((".", "_")))
    for file in files:
        if file.suffix != ".parquet" or not file.is_file():
            raise UsageError(f"{file} is not a Parquet file: remove it from the table")
    return files


def _read_file(path: Path, schema: pa.Schema, rows: int) -> pa.Table:
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    try:
        # Texts stay dictionaries until their size is known: one long text may be in millions of rows.
        with pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts) as file:
            if rows + file.metadata.num_rows > parquet.ROWS_MAX:
                raise UsageError(
                    f"{path}: the run has more than {parquet.ROWS_MAX:,} rows, too many for the memory of one program;"
                    " use --engine spark"
                )
            problem = columns_problem(file.schema_arrow, schema) or row_groups_problem(file.metadata)
            if problem is not None:
                raise UsageError(f"{path}: {problem}")
            table = file.read().select(schema.names)
            for name in texts:
                _check_text(path, name, table.column(name))
            plain = pa.table([_plain(table.column(name)) for name in schema.names], names=schema.names)
            plain.validate(full=True)  # finds strings that are not UTF-8
    except UsageError:
        raise
    except Exception as error:  # corrupt bytes make the library raise errors that it does not document
        raise UsageError(f"{path}: not a whole Parquet file ({_first_line(error)}); {_AGAIN}") from error
    for field in schema:
        _check_nulls(path, field, plain.column(field.name))
    return plain.cast(schema)


def _check_text(path: Path, name: str, column: pa.ChunkedArray) -> None:
    size = 0
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            size += pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0
        else:
            size += chunk.nbytes
    if size > TEXT_BYTES_MAX:
        raise UsageError(f"{path}: column {name} has {size:,} bytes of text, and {TEXT_BYTES_MAX:,} are allowed")


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _check_nulls(path: Path, field: pa.Field, column: pa.ChunkedArray) -> None:
    nulls = column.null_count
    if not nulls and pa.types.is_list(field.type):
        nulls = sum(chunk.flatten().null_count for chunk in column.chunks)
    if nulls and not field.nullable:
        raise UsageError(f"{path}: column {field.name} has {nulls} nulls and must have none; {_AGAIN}")


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
