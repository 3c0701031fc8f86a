"""Metrics over the time of a run: throughput, latency, silences, and silences around faults.

Each run's time is cut into up to a hundred buckets of a round width, such as 20 ms. Buckets in which nothing was
delivered have a row too: that is how a fail-over shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ...trace.schema import FINAL
from ._summary import summarise
from .frames import Frames
from .latency import completed

BUCKETS = 100
FAULTS_MAX = 500


def spans(frames: Frames) -> DataFrame:
    """run_id, start_us, end_us, width_us: from the first multicast to the last event, and the width of a bucket."""
    if frames.spans is not None:
        return frames.spans
    sent = frames.multicasts.select("run_id", "t_us", F.col("t_us").alias("sent_us"))
    done = frames.deliveries.select("run_id", "t_us", F.lit(None).cast("long").alias("sent_us"))
    found = (
        sent.unionByName(done)
        .groupBy("run_id")
        .agg(F.coalesce(F.min("sent_us"), F.min("t_us")).alias("start_us"), F.max("t_us").alias("end_us"))
    )
    return found.withColumn("width_us", _round_up((F.col("end_us") - F.col("start_us")) / BUCKETS))


def with_spans(frames: Frames) -> Frames:
    """Computes the spans now, once: one row a run, which half of the metrics join."""
    return replace(frames, spans=frames.multicasts.sparkSession.createDataFrame(spans(frames).toArrow()))


def _round_up(value: Column) -> Column:
    """To 1, 2 or 5 times a power of ten; at least 1."""
    least = F.greatest(value, F.lit(1.0))
    power = F.pow(F.lit(10.0), F.floor(F.log10(least)))
    steps = [F.when(least <= power * step, power * step) for step in (1, 2, 5)]
    return F.coalesce(*steps, power * 10).cast("long")


def _buckets(spans_: DataFrame) -> DataFrame:
    last = F.floor((F.col("end_us") - F.col("start_us")) / F.col("width_us")).cast("long")
    return spans_.select("run_id", "width_us", F.explode(F.sequence(F.lit(0).cast("long"), last)).alias("bucket"))


def in_buckets(spans_: DataFrame, time: str) -> Callable[[DataFrame], DataFrame]:
    """Adds `bucket`, the number of the bucket in which `time` is, and `width_us`."""

    def apply(frame: DataFrame) -> DataFrame:
        bucket = F.floor((F.col(time) - F.col("start_us")) / F.col("width_us")).cast("long")
        return frame.join(F.broadcast(spans_), on="run_id", how="inner").withColumn("bucket", bucket)

    return apply


def _from() -> Column:
    return F.col("bucket") * F.col("width_us")


def throughput_over_time(frames: Frames) -> DataFrame:
    """run_id, from_us (since the first multicast), width_us, messages, per_second: when their last group delivered."""
    axis = spans(frames)
    final = completed(frames).where(F.col("delivery") == "final")
    counted = (
        final.transform(in_buckets(axis, "delivered_us")).groupBy("run_id", "bucket").agg(F.count("*").alias("found"))
    )
    messages = F.coalesce("found", F.lit(0))
    return (
        _buckets(axis)
        .join(counted, on=["run_id", "bucket"], how="left")
        .select(
            "run_id",
            _from().alias("from_us"),
            "width_us",
            messages.alias("messages"),
            F.round(messages * 1e6 / F.col("width_us"), 3).alias("per_second"),
        )
        .orderBy("run_id", "from_us")
    )


def latency_over_time(frames: Frames) -> DataFrame:
    """Latency by the time of the multicast: a message that took long counts where it was sent."""
    return (
        completed(frames)
        .transform(in_buckets(spans(frames), "sent_us"))
        .withColumn("from_us", _from())
        .transform(summarise(["delivery", "scope", "from_us"]))
    )


# ------------------------------------------------------------------------------------------------ silences


def silences(frames: Frames) -> DataFrame:
    """run_id, grp, silent_from_us, silent_to_us, silence_us: between two successive final deliveries of a group.

    Times count from the first multicast. The last silence lasts until the end of the run, so that a group that never
    delivered again is not overlooked.
    """
    final = frames.deliveries.where(F.col("kind") == FINAL)
    axis = F.broadcast(spans(frames))
    delivered = (
        final.groupBy("run_id", "grp", "msg")
        .agg(F.min("t_us").alias("t_us"))
        .join(axis, on="run_id", how="inner")
        .select("run_id", "grp", (F.col("t_us") - F.col("start_us")).alias("t_us"))
    )
    groups = frames.processes.where(F.col("grp").isNotNull()).groupBy("run_id", "grp").agg(F.count("*").alias("size"))
    end = (F.col("end_us") - F.col("start_us")).alias("t_us")
    ends = groups.join(axis, on="run_id", how="inner").select("run_id", "grp", end)
    by_time = Window.partitionBy("run_id", "grp").orderBy("t_us")
    before = F.lag("t_us").over(by_time)  # `lag` takes no explicit frame
    return (
        delivered.unionByName(ends)
        .withColumn("silent_from_us", before)
        .where(F.col("silent_from_us").isNotNull())
        .select(
            "run_id",
            "grp",
            "silent_from_us",
            F.col("t_us").alias("silent_to_us"),
            (F.col("t_us") - F.col("silent_from_us")).alias("silence_us"),
        )
    )


def _longest(silences_: DataFrame, by: list[str]) -> DataFrame:
    columns = ["silent_from_us", "silent_to_us", "silence_us"]
    longest = F.max_by(F.struct(*columns), F.struct("silence_us", -F.col("silent_from_us"))).alias("longest")
    found = silences_.groupBy(*by).agg(longest)
    return found.select(*by, *(F.col("longest")[name].alias(name) for name in columns)).orderBy(*by)


def longest_silences(frames: Frames) -> DataFrame:
    """The longest silence of each group."""
    return silences(frames).transform(lambda frame: _longest(frame, ["run_id", "grp"]))


def fault_times(frames: Frames) -> DataFrame:
    """run_id, at_us (since the first multicast; before it: negative), process, what, detail."""
    at = (F.col("t_us") - F.col("start_us")).alias("at_us")
    axis = F.broadcast(spans(frames))
    return frames.faults.join(axis, on="run_id", how="inner").select("run_id", at, "process", "what", "detail")


def first_faults(frames: Frames) -> DataFrame:
    """The first 500 faults of each run, by time."""
    by_time = Window.partitionBy("run_id").orderBy("at_us", "process", "what")
    number = F.row_number().over(by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    first = fault_times(frames).withColumn("number", number).where(F.col("number") <= FAULTS_MAX)
    return first.drop("number").orderBy("run_id", "at_us", "process", "what")


def failover_gaps(frames: Frames) -> DataFrame:
    """For each fault, the longest silence of each group that overlaps the time from it to the run's next fault."""
    by_time = Window.partitionBy("run_id").orderBy("at_us")
    following = by_time.rangeBetween(1, Window.unboundedFollowing)
    eras = fault_times(frames).select(
        "run_id", "process", "what", F.col("at_us").alias("fault_us"), F.min("at_us").over(following).alias("until_us")
    )
    overlaps = [
        F.col("silent_to_us") > F.col("fault_us"),
        F.col("until_us").isNull() | (F.col("silent_from_us") < F.col("until_us")),
    ]
    return (
        silences(frames)
        .join(F.broadcast(eras), on="run_id", how="inner")
        .where(reduce(Column.__and__, overlaps))
        .transform(lambda frame: _longest(frame, ["run_id", "fault_us", "process", "what", "grp"]))
    )
