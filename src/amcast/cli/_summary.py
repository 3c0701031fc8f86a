"""The summary that `amcast sim` and `amcast demo` print: how many messages, and how long they took."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sim import SimResult
from ..trace import FINAL, Run
from ._output import console, line, table


def latencies_us(run: Run) -> dict[int, np.ndarray[Any, np.dtype[np.int64]]]:
    """Number of destinations -> latencies, from the multicast until the last group delivered.

    A group has delivered when the first of its processes has.
    """
    multicasts, deliveries = run.multicasts, run.deliveries
    order = np.argsort(multicasts.msg)
    final = deliveries.kind == FINAL
    rows = order[np.searchsorted(multicasts.msg, deliveries.msg[final], sorter=order)]
    key = rows * (int(deliveries.grp.max(initial=0)) + 1) + deliveries.grp[final]
    keys, inverse = np.unique(key, return_inverse=True)
    first = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(first, inverse, deliveries.t_us[final])
    last = np.zeros(len(multicasts), np.int64)
    np.maximum.at(last, keys // (int(deliveries.grp.max(initial=0)) + 1), first)
    took = last - multicasts.t_us
    sizes = np.diff(multicasts.dst_start)
    return {int(size): took[(sizes == size) & (last > 0)] for size in np.unique(sizes)}


def summary(result: SimResult, run: Run) -> dict[str, Any]:
    by_size = {
        str(size): {
            "messages": len(took),
            "p50_us": float(np.percentile(took, 50)),
            "p95_us": float(np.percentile(took, 95)),
            "p99_us": float(np.percentile(took, 99)),
        }
        for size, took in latencies_us(run).items()
        if len(took)
    }
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
        "latency_by_destinations": by_size,
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
    made = table("destinations", "messages", "p50 ms", "p95 ms", "p99 ms")
    for size, row in document["latency_by_destinations"].items():
        times = [f"{row[key] / 1000:.3f}" for key in ("p50_us", "p95_us", "p99_us")]
        made.add_row(size, str(row["messages"]), *times)
    console.print(made)
