"""The summary that `amcast sim` and `amcast demo` print: how many messages, and how long they took."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from ..sim import SimResult
from ..trace import NULL, Run
from ..trace.latency import AT, FIRST_REPLICA, distribution_us, latencies_us
from ..trace.run import Int64s
from ._output import console, line, table


def latency_rows(run: Run) -> dict[str, dict[str, Any]]:
    """Number of destinations -> how many messages all of them delivered, and their latencies.

    The figures in the row itself are those at the first replica; `at` has all three.
    """
    sizes = np.diff(run.multicasts.dst_start)
    found = latencies_us(run)
    rows: dict[str, dict[str, Any]] = {}
    for size in np.unique(sizes):
        at = {name: _figures(took[(sizes == size) & (took != NULL)]) for name, took in found.items()}
        first = at[FIRST_REPLICA]
        if first is not None:
            shown = {name: first[name] for name in ("messages", "p50_us", "p95_us", "p99_us")}
            rows[str(size)] = {**shown, "at": at}
    return rows


def _figures(took: Int64s) -> dict[str, Any] | None:
    return {"messages": len(took), **distribution_us(took)} if len(took) else None


def summary(result: SimResult, run: Run) -> dict[str, Any]:
    return {
        "run_id": result.info.run_id,
        "protocol": result.info.protocol,
        "seed": result.info.seed,
        "complete": result.complete,
        "messages": result.messages,
        "deliveries": result.deliveries,
        "wire_messages": result.wire_messages,
        "faults_injected": result.faults,
        "simulated_us": result.end_us,
        "workload": result.scenario.workload.title(),
        "application": None if result.application is None else msgspec.to_builtins(result.application),
        "latency_by_destinations": latency_rows(run),
    }


def show_summary(document: dict[str, Any]) -> None:
    seconds = document["simulated_us"] / 1e6
    console.print(
        line(
            (document["protocol"], "bold"),
            f", seed {document['seed']}: {document['messages']} messages, {document['deliveries']} deliveries, "
            f"{document['wire_messages']} wire messages, {document['faults_injected']} faults"
            f" in {seconds:.3f} simulated seconds",
        )
    )
    made = table("destinations", "latency", "messages", "p50 ms", "p95 ms", "p99 ms")
    for size, row in document["latency_by_destinations"].items():
        for name, figures in row["at"].items():
            if figures is not None:
                times = [f"{figures[key] / 1000:.3f}" for key in ("p50_us", "p95_us", "p99_us")]
                made.add_row(size, AT[name], str(figures["messages"]), *times)
    console.print(made)
