"""Converts the numpy columns of a run (`run.py`) to Arrow tables and back; a missing value is `NULL` in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .run import NO_ANSWERS, NULL, Answers, Deliveries, Fault, Int64s, Multicasts, WireRows
from .schema import ANSWERS, DELIVERIES, FAULTS, MULTICASTS, WIRE


def to_tables(
    multicasts: Multicasts,
    deliveries: Deliveries,
    wire: WireRows,
    faults: Sequence[Fault],
    answers: Answers = NO_ANSWERS,
) -> dict[str, pa.Table]:
    return {
        "multicasts": _multicasts_table(multicasts),
        "deliveries": _deliveries_table(deliveries),
        "wire": _wire_table(wire),
        "faults": _faults_table(faults),
        "answers": pa.Table.from_arrays([pa.array(answers.msg), pa.array(answers.t_us)], schema=ANSWERS),
    }


def _multicasts_table(rows: Multicasts) -> pa.Table:
    list_type = MULTICASTS.field("dst").type
    dst = pa.ListArray.from_arrays(pa.array(rows.dst_start, pa.int32()), pa.array(rows.dst), type=list_type)
    columns = [rows.msg, rows.sender, rows.client_seq, dst, rows.t_us, rows.bytes]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=MULTICASTS)


def _deliveries_table(rows: Deliveries) -> pa.Table:
    columns = [rows.process, rows.grp, rows.pos, rows.msg, rows.kind, _nullable(rows.ts), rows.t_us]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=DELIVERIES)


def _wire_table(rows: WireRows) -> pa.Table:
    kinds = pa.DictionaryArray.from_arrays(pa.array(rows.kind), pa.array(rows.kinds, pa.string()))
    columns = [
        rows.src,
        rows.dst,
        kinds.cast(pa.string()),
        _nullable(rows.msg),
        rows.bytes,
        rows.sent_us,
        _nullable(rows.received_us),
    ]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=WIRE)


def _faults_table(faults: Sequence[Fault]) -> pa.Table:
    columns = {name: [getattr(fault, name) for fault in faults] for name in FAULTS.names}
    return pa.Table.from_pydict(columns, schema=FAULTS)


def _nullable(column: Int64s) -> pa.Array:
    return pa.array(column, mask=column == NULL)


def multicasts_of(table: pa.Table) -> Multicasts:
    lists = table.column("dst").combine_chunks()
    sizes = _numbers(lists.value_lengths())
    return Multicasts(
        _numbers(table.column("msg")),
        _numbers(table.column("sender")),
        _numbers(table.column("client_seq")),
        np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
        _numbers(lists.flatten()),
        _numbers(table.column("t_us")),
        _numbers(table.column("bytes")),
    )


def deliveries_of(table: pa.Table) -> Deliveries:
    return Deliveries(*(_numbers(table.column(name)) for name in DELIVERIES.names))


def wire_of(table: pa.Table) -> WireRows:
    kinds = table.column("kind").combine_chunks().dictionary_encode()
    return WireRows(
        _numbers(table.column("src")),
        _numbers(table.column("dst")),
        _numbers(kinds.indices),
        tuple(kinds.dictionary.to_pylist()),
        _numbers(table.column("msg")),
        _numbers(table.column("bytes")),
        _numbers(table.column("sent_us")),
        _numbers(table.column("received_us")),
    )


def faults_of(table: pa.Table) -> list[Fault]:
    return [Fault(**row) for row in table.select(FAULTS.names).to_pylist()]


def answers_of(table: pa.Table) -> Answers:
    return Answers(*(_numbers(table.column(name)) for name in ANSWERS.names))


def _numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    filled = column.fill_null(NULL) if column.null_count else column
    numbers: npt.NDArray[Any] = filled.to_numpy()
    return numbers
