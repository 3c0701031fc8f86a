"""All metrics by name, and how they are computed: each is a function from the frames to a small table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ...trace.latency import AT, FIRST_REPLICA, UNTIL
from ...trace.schema import FINAL
from . import convoy, latency, optimistic, over_time, wire
from .frames import Frames

Metric = Callable[[Frames], DataFrame]

_JOBS_AT_ONCE = 4  # the jobs are small: most of the time of one is planning
_SMALL = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}


def run_summary(frames: Frames) -> DataFrame:
    """run_id, messages, completed (all destinations delivered), deliveries, duration_us, per_second, faults."""
    messages = frames.multicasts.groupBy("run_id").agg(F.count("*").alias("messages"))
    final = frames.deliveries.where(F.col("kind") == FINAL)
    deliveries = final.groupBy("run_id").agg(F.count("*").alias("deliveries"))
    done = latency.completed(frames).where(F.col("delivery") == "final")
    completed = done.groupBy("run_id").agg(F.count("*").alias("completed"))
    faults = frames.faults.groupBy("run_id").agg(F.count("*").alias("faults"))
    seconds = F.col("duration_us") / 1e6
    joined = over_time.spans(frames).select("run_id", (F.col("end_us") - F.col("start_us")).alias("duration_us"))
    for counted in (messages, completed, deliveries, faults):
        joined = joined.join(counted, on="run_id", how="left")
    counts = ["messages", "completed", "deliveries", "faults"]
    return (
        joined.fillna(0, subset=counts)
        .select(
            "run_id",
            *counts[:3],
            "duration_us",
            F.round(F.try_divide(F.col("completed"), seconds), 3).alias("per_second"),
            "faults",
        )
        .orderBy("run_id")
    )


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric, and how the report presents its table."""

    metric: Metric
    title: str
    note: str


METRICS: Mapping[str, Measure] = {
    "summary": Measure(run_summary, "Runs", "completed: delivered by all destination groups"),
    "latency_at": Measure(
        latency.latency_at,
        "Latency at the client, at the first and at the last replica",
        "; ".join(f"{AT[at]}: {UNTIL[at]}" for at in AT),
    ),
    "latency_by_destinations": Measure(
        latency.latency_by_destinations,
        "Latency by number of destinations",
        f"{AT[FIRST_REPLICA]}: {UNTIL[FIRST_REPLICA]}",
    ),
    "latency_by_scope": Measure(
        latency.latency_by_scope,
        "Latency of local and global messages",
        f"{AT[FIRST_REPLICA]}; local: one destination; global: several",
    ),
    "latency_by_nth": Measure(
        latency.latency_by_nth,
        "Latency of the first, second, third ... destination",
        "until the first process of the n-th destination group to deliver",
    ),
    "latency_by_client_region": Measure(
        latency.latency_by_client_region, "Latency by region of the client", AT[FIRST_REPLICA]
    ),
    "latency_by_group_region": Measure(
        latency.latency_by_group_region,
        "Latency by region of the group",
        "until the first process of a destination group in that region delivered",
    ),
    "latency_cdf": Measure(
        latency.latency_cdf, "Latency distribution", f"{AT[FIRST_REPLICA]}: share of messages that took at most so long"
    ),
    "latency_over_time": Measure(
        over_time.latency_over_time,
        "Latency over time",
        f"{AT[FIRST_REPLICA]}, by the time of the multicast, from the first one on",
    ),
    "throughput_over_time": Measure(
        over_time.throughput_over_time, "Throughput over time", "messages by the time their last group delivered"
    ),
    "convoy": Measure(
        convoy.convoy,
        "Convoy effect",
        "latency of local messages, with and without a global message in flight at their group meanwhile",
    ),
    "faults": Measure(over_time.first_faults, "Faults", "up to 500 a run; times count from the first multicast"),
    "longest_silences": Measure(
        over_time.longest_silences, "Longest silence of each group", "between two deliveries, or until the end"
    ),
    "failover_gaps": Measure(
        over_time.failover_gaps,
        "Silences around faults",
        "longest silence of each group that overlaps the time from the fault to the next one",
    ),
    "time_split": Measure(
        wire.time_split,
        "Where the time went",
        "queue: from multicast to the group; consensus: until the group has told the others; then waiting for others",
    ),
    "wire_cost": Measure(wire.wire_cost, "Wire messages by kind", "and for each application message delivered"),
    "group_overhead": Measure(
        wire.group_overhead,
        "Overhead of each group",
        "share of (process, message) pairs whose payload was received and never delivered there",
    ),
    "optimistic_order": Measure(
        optimistic.optimistic_order, "Optimistic order", "share of batches of k messages that were right"
    ),
    "optimistic_window": Measure(
        optimistic.optimistic_window, "Optimistic window", "final minus optimistic delivery at each process"
    ),
}


def compute(
    frames: Frames, is_small: bool = False, progress: Callable[[str], None] = lambda name: None
) -> dict[str, pa.Table]:
    """Computes every metric. The rows of the trace are read once and stay in Spark; only the results come here.

    `is_small` turns off adaptive planning, which costs more than it gains on up to some million rows.
    """
    with _settings(frames.multicasts.sparkSession, _SMALL if is_small else {}):
        return _compute(frames, progress)


def prepared(frames: Frames) -> Frames:
    """The frames with everything in memory that more than one metric needs; `release` them afterwards."""
    return latency.with_latencies(over_time.with_spans(frames.persist()))


def _compute(frames: Frames, progress: Callable[[str], None]) -> dict[str, pa.Table]:
    kept = prepared(frames)

    def one(name: str) -> pa.Table:
        table = METRICS[name].metric(kept).toArrow()
        progress(name)
        return table

    pool = ThreadPoolExecutor(_JOBS_AT_ONCE, thread_name_prefix="metric")
    try:
        return dict(zip(METRICS, pool.map(one, METRICS), strict=True))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        kept.release()


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)
