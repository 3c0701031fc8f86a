"""A run in files, for the exact judge: read inside a task, one process at a time, and the wire in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...check.source import DeliveryColumns, RunSource, WireColumns, by_process
from ...trace import Deliveries, Fault, Multicasts, Objects, Operations
from ...trace.operations import NO_OPERATIONS, check_operations
from ...trace.run import Int64s, by_position, check_destinations, check_kinds, restored_positions
from ...trace.schema import DELIVERIES, FAULTS, MULTICASTS, OBJECTS, OPERATIONS
from ..files import RunFiles, names_of
from ..operations import operations_in
from ._read import batches, destinations, numbers, read_columns, refuse_nulls

_WIRE_ROWS = 1 << 19


def source_in(files: RunFiles, with_operations: bool = True) -> RunSource:
    faults = _faults(files)
    return RunSource(
        files.info,
        faults,
        restored_positions(faults, f"{files.path}/faults"),
        files.rows("deliveries"),
        files.rows("wire"),
        lambda: _multicasts(files),
        lambda: _deliveries(files),
        lambda: _wire(files),
        (lambda: _operations(files)) if with_operations else None,
        lambda: _objects(files),
        names_of(files),
    )


def _faults(files: RunFiles) -> tuple[Fault, ...]:
    tables = [read_columns(file.path, FAULTS.names) for file in files.table("faults")]
    return tuple(sorted((Fault(**row) for table in tables for row in table.to_pylist()), key=lambda fault: fault.t_us))


def _multicasts(files: RunFiles) -> Multicasts:
    names = [name for name in MULTICASTS.names if name != "dst"]
    tables = _tables([file.path for file in files.table("multicasts")], MULTICASTS.names)
    sizes, dst = zip(*(destinations(table, path) for path, table in tables), strict=True) if tables else ((), ())
    start = np.concatenate(([0], np.cumsum(_joined(sizes), dtype=np.int64)))
    columns = {name: _column(tables, name) for name in names}
    columns["sender"] = _wide(columns["sender"])
    rows = Multicasts(**columns, dst_start=start, dst=_joined(dst))
    check_destinations(files.info, rows, f"{files.path}/multicasts")
    return rows


def _objects(files: RunFiles) -> Objects:
    tables = _tables([file.path for file in files.table("objects")], OBJECTS.names)
    return Objects(**{name: _column(tables, name) for name in OBJECTS.names})


def _deliveries(files: RunFiles) -> Iterator[DeliveryColumns]:
    """Process by process, if the footers say that no file has rows of two; otherwise all rows are read at once."""
    paths: dict[tuple[int, int], list[str]] = {}
    is_apart = all(file.process is not None for file in files.table("deliveries"))
    for file in files.table("deliveries"):
        key = (file.process or 0, file.kind or 0) if is_apart else (0, 0)
        paths.setdefault(key, []).append(file.path)
    for key in sorted(paths):
        tables = _tables(paths[key], DELIVERIES.names)
        rows = Deliveries(**{name: _column(tables, name) for name in DELIVERIES.names})
        del tables
        check_kinds(rows, f"{files.path}/deliveries")
        yield from by_process(by_position(rows))


def _tables(paths: Sequence[str], names: Sequence[str]) -> list[tuple[str, pa.Table]]:
    return [(path, read_columns(path, names)) for path in paths]


def _column(tables: Sequence[tuple[str, pa.Table]], name: str) -> npt.NDArray[Any]:
    return _joined([numbers(table, name, path, nullable=name == "ts") for path, table in tables])


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else np.empty(0, np.int64)


def _wide(ids: npt.NDArray[Any]) -> Int64s:
    """In older runs the ids of clients have 32 bits."""
    return ids.astype(np.int64, copy=False)


def _wire(files: RunFiles) -> Iterator[WireColumns]:
    for file in files.table("wire"):
        for table in batches(file.path, ("src", "dst", "msg", "kind"), _WIRE_ROWS):
            src, dst = (_wide(numbers(table, name, file.path)) for name in ("src", "dst"))
            msg = numbers(table, "msg", file.path, nullable=True)
            yield WireColumns(src, dst, msg, partial(_word, table.column("kind")))


def _operations(files: RunFiles) -> Operations:
    tables = [read_columns(file.path, OPERATIONS.names) for file in files.table("operations")]
    for file, table in zip(files.table("operations"), tables, strict=True):
        refuse_nulls(table, OPERATIONS, file.path)
    if not tables:
        return NO_OPERATIONS
    operations = operations_in(pa.concat_tables(tables))
    check_operations(operations, f"{files.path}/operations")
    return operations


def _word(column: pa.ChunkedArray, row: int) -> str:
    return str(column[row].as_py())
