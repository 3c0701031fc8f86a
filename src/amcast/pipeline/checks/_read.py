"""Columns of Parquet files as numpy arrays, read inside a task, which trusts nothing in them.

Tasks read the files themselves instead of being fed rows by Spark. The checks need the deliveries of a process in
order, as the files have them, and handing a hundred million rows from Java to Python costs more than checking them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...core import UsageError
from ...trace import NULL
from ...trace.schema import Schema
from .._errors import first_line
from ..files import filesystem_of


class UnreadableError(UsageError):
    """A file can't be read, or what is in it contradicts the schema. Its run gets no verdict; other runs do."""


def open_parquet(uri: str) -> pq.ParquetFile:
    try:
        filesystem, path = filesystem_of(uri)
        return pq.ParquetFile(path, filesystem=filesystem, page_checksum_verification=True)
    except Exception as error:  # corrupt bytes make the library fail in ways that it does not list
        raise UnreadableError(f"{uri}: not a whole Parquet file ({first_line(error)})") from error


def read_columns(uri: str, names: Sequence[str], row_groups: Sequence[int] | None = None) -> pa.Table:
    with open_parquet(uri) as file:
        return read_from(file, uri, names, row_groups)


def read_from(
    file: pq.ParquetFile, uri: str, names: Sequence[str], row_groups: Sequence[int] | None = None
) -> pa.Table:
    try:
        if row_groups is None:
            table = file.read(columns=list(names), use_threads=False)
        else:
            table = file.read_row_groups(list(row_groups), columns=list(names), use_threads=False)
        return table.select(list(names))
    except Exception as error:
        raise UnreadableError(f"{uri}: can't be read to its end ({first_line(error)})") from error


def batches(uri: str, names: Sequence[str], rows: int) -> Iterator[pa.Table]:
    """The file in order, some row groups at a time, about `rows` rows each."""
    with open_parquet(uri) as file:
        wanted: list[int] = []
        size = 0
        for number in range(file.num_row_groups):
            wanted.append(number)
            size += file.metadata.row_group(number).num_rows
            if size >= rows:
                yield read_from(file, uri, names, wanted)
                wanted, size = [], 0
        if wanted:
            yield read_from(file, uri, names, wanted)


def numbers(table: pa.Table, name: str, where: str, nullable: bool = False) -> npt.NDArray[Any]:
    column = table.column(name)
    if column.null_count:
        if not nullable:
            raise UnreadableError(f"{where}: column {name} has {column.null_count} nulls and must have none")
        column = column.fill_null(NULL)
    if column.num_chunks == 1:
        return np.asarray(column.chunk(0).to_numpy(zero_copy_only=False))
    return np.asarray(column.to_numpy())


def refuse_nulls(table: pa.Table, schema: Schema, where: str) -> None:
    for column in schema.columns:
        found = table.column(column.name)
        nulls = found.null_count
        if column.is_list and not nulls:
            nulls = sum(chunk.flatten().null_count for chunk in found.chunks)
        if nulls and not column.nullable:
            raise UnreadableError(f"{where}: column {column.name} has {nulls} nulls and must have none")


def destinations(table: pa.Table, where: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The number of destinations of each message, and all destinations, message after message."""
    lists = table.column("dst").combine_chunks()
    flat = lists.flatten()
    nulls = lists.null_count + flat.null_count
    if nulls:
        raise UnreadableError(f"{where}: column dst has {nulls} nulls and must have none")
    return lists.value_lengths().to_numpy(zero_copy_only=False), flat.to_numpy(zero_copy_only=False)
