"""The one table of a study: a row for each cell, in the order of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..parquet.column import DOUBLE, TEXT, Column
from ..protocols import protocol
from ..trace.latency import AT, PERCENTILES
from .cell import Result
from .plan import Cell

FIGURES = (*PERCENTILES, "mean", "max")


def latency_column(at: str, figure: str) -> str:
    """`latency_at_client_p50_ms`."""
    return f"latency_at_{at}_{figure}_ms"


_CELL = (
    Column("protocol", TEXT),
    Column("protocol_title", TEXT),
    Column("destinations", TEXT),
    Column("groups", "int32"),
    Column("replicas", "int32"),
    Column("network", TEXT),
    Column("client_region", TEXT, nullable=True),  # null: clients are in all regions
    Column("clients", "int32"),
    Column("outstanding", "int32", nullable=True),  # null: open loop
    Column("rate_per_s", DOUBLE, nullable=True),  # null: closed loop
    Column("messages", "int64"),
    Column("payload_bytes", "int32"),
    Column("cpu_us", DOUBLE),
    Column("seed", "int64"),
)
_RESULT = (
    Column("verdict", TEXT),
    Column("why", TEXT),
    Column("sent", "int64"),
    Column("delivered", "int64"),
    Column("delivered_per_s", DOUBLE, nullable=True),
    Column("wire_messages", "int64"),
    Column("simulated_ms", DOUBLE),
)
_LATENCY = tuple(Column(latency_column(at, name), DOUBLE, nullable=True) for at in AT for name in FIGURES)
COLUMNS = _CELL + _RESULT + _LATENCY

Row = dict[str, Any]  # a value for each column


def row_of(cell: Cell, result: Result) -> Row:
    seconds = result.simulated_us / 1e6
    row: Row = {column.name: getattr(cell, column.name) for column in _CELL if column.name != "protocol_title"}
    row |= {name: getattr(result, name) for name in ("verdict", "why", "sent", "delivered", "wire_messages")}
    row["protocol_title"] = short_title(cell.protocol)
    row["simulated_ms"] = result.simulated_us / 1000
    row["delivered_per_s"] = round(result.delivered / seconds, 3) if seconds else None
    for at in AT:
        found = result.latency[at]
        for name in FIGURES:
            row[latency_column(at, name)] = None if found is None else round(found[f"{name}_us"] / 1000, 4)
    return {column.name: row[column.name] for column in COLUMNS}


def short_title(name: str) -> str:
    """Multi-Paxos, of "Multi-Paxos, one ordering group"."""
    return protocol(name).title.partition(",")[0]


def table_of(cells: Sequence[Cell], results: Mapping[str, Result]) -> list[Row]:
    return [row_of(cell, results[cell.key()]) for cell in cells]
