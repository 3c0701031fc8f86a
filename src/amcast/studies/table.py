"""The one table of a study: a row for each cell, in the order of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..protocols import protocol
from ..trace.latency import AT, PERCENTILES
from .cell import Result
from .plan import Cell

FIGURES = (*PERCENTILES, "mean", "max")


def latency_column(at: str, figure: str) -> str:
    """`latency_at_client_p50_ms`."""
    return f"latency_at_{at}_{figure}_ms"


_CELL: Mapping[str, pa.DataType] = {
    "protocol": pa.string(),
    "protocol_title": pa.string(),
    "destinations": pa.string(),
    "groups": pa.int32(),
    "replicas": pa.int32(),
    "network": pa.string(),
    "client_region": pa.string(),  # null: clients are in all regions
    "clients": pa.int32(),
    "outstanding": pa.int32(),  # null: open loop
    "rate_per_s": pa.float64(),  # null: closed loop
    "messages": pa.int64(),
    "payload_bytes": pa.int32(),
    "cpu_us": pa.float64(),
    "seed": pa.int64(),
}
_RESULT: Mapping[str, pa.DataType] = {
    "verdict": pa.string(),
    "why": pa.string(),
    "sent": pa.int64(),
    "delivered": pa.int64(),
    "delivered_per_s": pa.float64(),
    "wire_messages": pa.int64(),
    "simulated_ms": pa.float64(),
}
SCHEMA = pa.schema(
    [*_CELL.items(), *_RESULT.items(), *((latency_column(at, name), pa.float64()) for at in AT for name in FIGURES)]
)


def row_of(cell: Cell, result: Result) -> dict[str, Any]:
    seconds = result.simulated_us / 1e6
    row: dict[str, Any] = {name: getattr(cell, name) for name in _CELL if name != "protocol_title"}
    row |= {name: getattr(result, name) for name in ("verdict", "why", "sent", "delivered", "wire_messages")}
    row["protocol_title"] = short_title(cell.protocol)
    row["simulated_ms"] = result.simulated_us / 1000
    row["delivered_per_s"] = round(result.delivered / seconds, 3) if seconds else None
    for at in AT:
        found = result.latency[at]
        for name in FIGURES:
            row[latency_column(at, name)] = None if found is None else round(found[f"{name}_us"] / 1000, 4)
    return {name: row[name] for name in SCHEMA.names}


def short_title(name: str) -> str:
    """Multi-Paxos, of "Multi-Paxos, one ordering group"."""
    return protocol(name).title.partition(",")[0]


def table_of(cells: Sequence[Cell], results: Mapping[str, Result]) -> pa.Table:
    rows = [row_of(cell, results[cell.key()]) for cell in cells]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
