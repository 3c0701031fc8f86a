"""What latency is: all commands, tables and figures take the definitions and the words from here.

The latency of a message counts from its multicast until

- at the client: its sender has the replies of all destination groups;
- at the first replica: in each destination group, the first replica has delivered it;
- at the last replica: every replica that delivers it has done so, in all destination groups.

A message that not all of its destination groups delivered has no latency at the replicas. A replica that crashed, or
was handed a state instead of messages, does not hold up the last replica; one that owes a delivery makes the run fail.
Only final deliveries count here. docs/latency.md tells the same with a drawing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from .run import Int64s, Multicasts, Run
from .schema import FINAL, NULL

CLIENT, FIRST_REPLICA, LAST_REPLICA = "client", "first_replica", "last_replica"

# What people read: "latency at the client".
AT: Mapping[str, str] = {
    CLIENT: "at the client",
    FIRST_REPLICA: "at the first replica",
    LAST_REPLICA: "at the last replica",
}
UNTIL: Mapping[str, str] = {
    CLIENT: "from multicast until the client has the replies of all destination groups",
    FIRST_REPLICA: "from multicast until the first replica of every destination group delivered",
    LAST_REPLICA: "from multicast until the last replica of all destination groups delivered",
}
PERCENTILES: Mapping[str, int] = {"p50": 50, "p95": 95, "p99": 99}

_NEVER = np.iinfo(np.int64).max


def latencies_us(run: Run) -> dict[str, Int64s]:
    """Where it is measured -> the latency of each row of `run.multicasts`; `NULL` where a message has none."""
    first, last = _delivered_us(run)
    reached = {CLIENT: _answered_us(run), FIRST_REPLICA: first, LAST_REPLICA: last}
    sent = run.multicasts.t_us
    return {at: np.where(times == _NEVER, NULL, times - sent) for at, times in reached.items()}


def percentile(values: npt.NDArray[np.int64], percent: float) -> int:
    """A value that occurred: at least so many percent of the values are not above it."""
    return int(np.percentile(values, percent, method="inverted_cdf"))


def distribution_us(values: Int64s) -> dict[str, float]:
    """p50_us, p95_us, p99_us, mean_us, max_us of latencies that there are: one at least."""
    found: dict[str, float] = {f"{name}_us": percentile(values, q) for name, q in PERCENTILES.items()}
    return {**found, "mean_us": round(float(values.mean()), 1), "max_us": int(values.max())}


def _rows_of(multicasts: Multicasts, messages: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """The row of each message, and whether there is one: a trace may speak of messages that nobody multicast."""
    order = np.argsort(multicasts.msg, kind="stable")
    if not len(order):
        return np.zeros(len(messages), np.int64), np.zeros(len(messages), np.bool_)
    place = np.searchsorted(multicasts.msg, messages, sorter=order)
    rows = order[np.minimum(place, len(order) - 1)]
    return rows, multicasts.msg[rows] == messages


def _answered_us(run: Run) -> Int64s:
    rows, is_known = _rows_of(run.multicasts, run.answers.msg)
    answered = np.full(len(run.multicasts), _NEVER, np.int64)
    np.minimum.at(answered, rows[is_known], run.answers.t_us[is_known])
    return answered


def _delivered_us(run: Run) -> tuple[Int64s, Int64s]:
    """For each multicast, when the first replica of its slowest group delivered it, and when the last replica did."""
    multicasts, deliveries = run.multicasts, run.deliveries
    if not len(multicasts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # A number for each pair of a message and a destination of it, sorted: pairs of a message stand together.
    sizes = np.diff(multicasts.dst_start)
    pairs = np.sort(np.repeat(np.arange(len(multicasts)), sizes) << 32 | multicasts.dst)
    rows, is_known = _rows_of(multicasts, deliveries.msg)
    key = rows << 32 | deliveries.grp
    place = np.minimum(np.searchsorted(pairs, key), len(pairs) - 1)
    counts = is_known & (pairs[place] == key) & (deliveries.kind == FINAL)
    first, last = np.full(len(pairs), _NEVER), np.full(len(pairs), NULL)
    np.minimum.at(first, place[counts], deliveries.t_us[counts])
    np.maximum.at(last, place[counts], deliveries.t_us[counts])
    starts = multicasts.dst_start[:-1]
    slowest = np.maximum.reduceat(first, starts)
    return slowest, np.where(slowest == _NEVER, _NEVER, np.maximum.reduceat(last, starts))
