"""The tables of a growing run as one Spark stream, and the batches of the stream as rows for the verifier.

Any new Parquet file in `multicasts/`, `deliveries/` or `faults/` is read, whatever its name, unless it starts with `.`
or `_`. A file must appear whole (write it under a hidden name, then rename it) and never change. The folders need not
exist yet.
"""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...core import UsageError
from ..files import READ_OPTIONS
from .verifier import Arrived, DeliveryRows

_MULTICASTS, _DELIVERIES, _FAULTS = 0, 1, 2

# The columns of amcast.trace.schema that the watch reads.
_SCHEMAS = {
    "multicasts": "msg bigint, sender bigint, dst array<int>, t_us bigint",
    "deliveries": "process int, grp int, pos bigint, msg bigint, kind tinyint, ts bigint, t_us bigint",
    "faults": "process bigint, t_us bigint, what string, detail string",
}
_COLUMNS = {
    "process": "bigint",
    "grp": "int",
    "pos": "bigint",
    "msg": "bigint",
    "kind": "tinyint",
    "ts": "bigint",
    "t_us": "bigint",
    "sender": "bigint",
    "dst": "array<int>",
    "what": "string",
    "detail": "string",
}


def growing_run(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of the rows of all three tables, each marked with its table and the time its file was written."""
    root = str(folder.resolve())
    if re.search(r"[\[\]{}*?\\]", root):
        raise UsageError(
            f"{root}: Spark takes such a path for a pattern: move the run to one without any of []{{}}*?\\"
        )
    # With the name in braces, the path is a pattern: Spark then waits for a folder that does not exist yet.
    parts = []
    for number, (name, schema) in enumerate(_SCHEMAS.items()):
        reader = spark.readStream.options(**READ_OPTIONS, pathGlobFilter="*.parquet").schema(schema)
        frame = reader.parquet(f"{root}/{{{name}}}")
        own = set(frame.columns)
        columns = [
            (F.col(column) if column in own else F.lit(None).cast(kind)).alias(column)
            for column, kind in _COLUMNS.items()
        ]
        written = F.unix_millis(F.col("_metadata.file_modification_time")).alias("written_ms")
        parts.append(frame.select(F.lit(number).alias("table"), *columns, written))
    return reduce(DataFrame.unionAll, parts)


def arrived_of(batch: pa.Table) -> tuple[Arrived, int]:
    """The rows of a batch, and when the oldest of its files was written, in milliseconds; 0 if it has no rows."""
    table = batch.column("table").to_numpy()
    multicasts = batch.filter(pa.array(table == _MULTICASTS))
    deliveries = batch.filter(pa.array(table == _DELIVERIES))
    faults = batch.filter(pa.array(table == _FAULTS))
    rows = Arrived(
        list(zip(*(_values(multicasts, "multicasts", name) for name in ("msg", "sender", "dst")), strict=True)),
        _deliveries(deliveries),
        list(zip(*(_values(faults, "faults", name) for name in ("process", "t_us", "what", "detail")), strict=True)),
    )
    written = batch.column("written_ms").to_numpy()
    return rows, int(written.min()) if len(written) else 0


def _deliveries(deliveries: pa.Table) -> dict[tuple[int, int], DeliveryRows]:
    if not len(deliveries):
        return {}
    process, grp, pos, msg, kind = (
        _numbers(deliveries, "deliveries", name) for name in ("process", "grp", "pos", "msg", "kind")
    )
    if not np.isin(kind, (0, 1)).all():
        raise UsageError("deliveries: a kind is neither 0 (final) nor 1 (optimistic); record the run again")
    stamps = deliveries.column("ts").to_pylist()
    order = np.lexsort((pos, kind, process))
    changes = np.flatnonzero(np.diff(process[order]) | np.diff(kind[order])) + 1
    found = {}
    for part in np.split(order, changes):
        ts = [stamps[row] for row in part.tolist()]
        found[int(process[part[0]]), int(kind[part[0]])] = DeliveryRows(grp[part], pos[part], msg[part], ts)
    return found


def _values(table: pa.Table, name: str, column: str) -> list[Any]:
    _refuse_nulls(table, name, column)
    values: list[Any] = table.column(column).to_pylist()
    return values


def _numbers(table: pa.Table, name: str, column: str) -> npt.NDArray[Any]:
    _refuse_nulls(table, name, column)
    numbers: npt.NDArray[Any] = table.column(column).to_numpy()
    return numbers


def _refuse_nulls(table: pa.Table, name: str, column: str) -> None:
    if table.column(column).null_count:
        raise UsageError(f"{name}: column {column} is missing or has nulls; write all columns of the schema")
