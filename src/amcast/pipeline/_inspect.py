"""Looks at one run folder without reading its rows: `run.json`, its files, and what the footers of the files say.

An error is one line that names the file. A run with any error is set aside as a whole: a verdict on the rows that could
be read would be about another run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.parquet as pq
from pyarrow import fs

from ..trace.limits import GroupSize, row_groups_problem
from ..trace.schema import (
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
from ._arrow import columns_in
from ._errors import first_line
from .files import FileInfo, RunFiles, filesystem_of


class BadRunError(Exception):
    """Why a folder can't be checked."""


def inspect_run(uri: str) -> RunFiles:
    try:
        filesystem, path = filesystem_of(uri)
        info = _read_info(filesystem, path, uri)
        needed = needed_tables(info)
        tables = {
            name: _inspect_table(filesystem, f"{path}/{name}", f"{uri}/{name}", name, name in needed) for name in TABLES
        }
    except OSError as error:
        raise BadRunError(f"{uri}: can't be read: {first_line(error)}") from error
    for name in ("multicasts", "deliveries"):
        if not info.groups and any(file.rows for file in tables[name]):
            raise BadRunError(f"{uri}/{RUN_FILE}: there are {name}, and no group")
    return RunFiles(uri, info, tables)


def _read_info(filesystem: fs.FileSystem, path: str, uri: str) -> RunInfo:
    found = filesystem.get_file_info(path)
    if found.type == fs.FileType.NotFound:
        raise BadRunError(f"{uri} does not exist")
    if found.type != fs.FileType.Directory:
        raise BadRunError(f"{uri} is not a folder")
    if is_bare(entry.base_name for entry in filesystem.get_file_info(fs.FileSelector(path))):
        return bare_info(path.rstrip("/").rpartition("/")[2])
    if filesystem.get_file_info(f"{path}/{RUN_FILE}").type != fs.FileType.File:
        raise BadRunError(f"{uri}/{RUN_FILE} is missing: it is not a run, or is still being written")
    try:
        with filesystem.open_input_file(f"{path}/{RUN_FILE}") as file:
            return decode_run_info(file.read())
    except ValueError as error:
        raise BadRunError(f"{uri}/{RUN_FILE}: {first_line(error)}") from error


def _inspect_table(filesystem: fs.FileSystem, path: str, uri: str, name: str, is_needed: bool) -> list[FileInfo]:
    kind = filesystem.get_file_info(path).type
    if kind != fs.FileType.Directory:
        if not is_needed and kind == fs.FileType.NotFound:
            return []
        raise BadRunError(f"{uri} is missing: a run needs the table {name}")
    entries = sorted(filesystem.get_file_info(fs.FileSelector(path)), key=lambda entry: str(entry.base_name))
    files = []
    for entry in entries:
        if entry.base_name.startswith((".", "_")):
            continue
        where = f"{uri}/{entry.base_name}"
        if entry.type != fs.FileType.File or not entry.base_name.endswith(".parquet"):
            raise BadRunError(f"{where} is not a Parquet file")
        files.append(_inspect_file(filesystem, entry.path, where, TABLES[name], name))
    if not files and is_needed:
        raise BadRunError(f"{uri} has no Parquet file: {name} was not written to its end")
    return files


def _inspect_file(filesystem: fs.FileSystem, path: str, uri: str, schema: Schema, name: str) -> FileInfo:
    try:
        with pq.ParquetFile(path, filesystem=filesystem) as file:
            footer, found = file.metadata, file.schema_arrow
    except Exception as error:  # corrupt bytes make the library raise errors that it does not document
        raise BadRunError(f"{uri}: not a whole Parquet file ({first_line(error)})") from error
    problem = columns_problem(columns_in(found), schema) or row_groups_problem(_group_sizes(footer))
    if problem is not None:
        raise BadRunError(f"{uri}: {problem}")
    _check_counts(uri, footer)
    if name != "deliveries" or not footer.num_rows:
        return FileInfo(uri, footer.num_rows)
    process, kind = (_only_value(footer, column) for column in ("process", "kind"))
    first_pos = _range(footer, "pos")
    if process is None or kind is None or first_pos is None:
        return FileInfo(uri, footer.num_rows)
    return FileInfo(uri, footer.num_rows, process, kind, first_pos[0])


def _group_sizes(footer: pq.FileMetaData) -> Iterator[GroupSize]:
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = [group.column(at) for at in range(group.num_columns)]
        values = max([group.num_rows, *(column.num_values for column in columns)])
        yield GroupSize(values, sum(column.total_uncompressed_size for column in columns))


def _check_counts(uri: str, footer: pq.FileMetaData) -> None:
    """Footers have no checksum, but they say in several places how many rows there are: all must agree."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    plain = [at for at in range(footer.num_columns) if footer.schema.column(at).max_repetition_level == 0]
    if footer.num_rows != sum(group.num_rows for group in groups) or any(
        group.column(at).num_values != group.num_rows for group in groups for at in plain
    ):
        raise BadRunError(f"{uri}: not a whole Parquet file (its footer contradicts itself)")


def _range(footer: pq.FileMetaData, column: str) -> tuple[int, int] | None:
    """The smallest and the largest value of a column, if every row group has them in its statistics."""
    at = footer.schema.names.index(column)
    low, high = [], []
    for number in range(footer.num_row_groups):
        statistics = footer.row_group(number).column(at).statistics
        if statistics is None or not statistics.has_min_max or statistics.null_count:
            return None
        low.append(int(statistics.min))
        high.append(int(statistics.max))
    return min(low), max(high)


def _only_value(footer: pq.FileMetaData, column: str) -> int | None:
    found = _range(footer, column)
    return found[0] if found is not None and found[0] == found[1] else None
