"""How long messages take, from their multicast until they are delivered.

What latency is stands in `trace/latency.py`. `latency_at` compares its three kinds; all other tables have the latency
at the first replica: a group has delivered a message when the first of its processes has, and a message is delivered
when its last destination group has. The column `delivery` is "final" or "optimistic". Messages that were not delivered
everywhere have no latency and no row here; `summary` counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ...trace.latency import AT, CLIENT, FIRST_REPLICA, LAST_REPLICA
from ...trace.schema import FINAL
from ._summary import percentiles, summarise
from .frames import NOWHERE, Frames

CDF_SHARES = [0.0, *(at / 100 for at in range(1, 100)), 0.995, 0.999, 1.0]


def scope(destinations: Column) -> Column:
    return F.when(destinations == 1, "local").otherwise("global")


def messages(multicasts: DataFrame) -> DataFrame:
    """run_id, msg, sender, sent_us, bytes, dst, destinations, scope."""
    destinations = F.size("dst")
    return multicasts.select(
        "run_id",
        "msg",
        "sender",
        F.col("t_us").alias("sent_us"),
        "bytes",
        "dst",
        destinations.alias("destinations"),
        scope(destinations).alias("scope"),
    )


def group_deliveries(deliveries: DataFrame) -> DataFrame:
    """run_id, msg, grp, delivery, delivered_us: when the first process of each group delivered."""
    kind = F.when(F.col("kind") == FINAL, "final").otherwise("optimistic").alias("delivery")
    return deliveries.groupBy("run_id", "msg", "grp", kind).agg(F.min("t_us").alias("delivered_us"))


def group_latencies(multicasts: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Adds latency_us and the columns of `messages` to `group_deliveries`; drops groups that are no destination."""

    def apply(delivered: DataFrame) -> DataFrame:
        addressed = F.array_contains("dst", F.col("grp"))
        return (
            delivered.join(messages(multicasts), on=["run_id", "msg"], how="inner")
            .where(addressed)
            .withColumn("latency_us", F.col("delivered_us") - F.col("sent_us"))
            .drop("dst")
        )

    return apply


def nth_destination(latencies: DataFrame) -> DataFrame:
    """Adds `nth`: 1 for the destination group that delivered the message first, 2 for the next."""
    by_time = Window.partitionBy("run_id", "msg", "delivery").orderBy("delivered_us", "grp")
    up_to_here = by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return latencies.withColumn("nth", F.row_number().over(up_to_here))


def message_latencies(latencies: DataFrame) -> DataFrame:
    """A row for each message that all its destination groups delivered; its latency is that of the last."""
    keys = ["run_id", "msg", "delivery", "sender", "sent_us", "destinations", "scope"]
    return (
        latencies.groupBy(*keys)
        .agg(F.max("delivered_us").alias("delivered_us"), F.count("*").alias("groups"))
        .where(F.col("groups") == F.col("destinations"))
        .withColumn("latency_us", F.col("delivered_us") - F.col("sent_us"))
        .drop("groups")
    )


# ------------------------------------------------------------------------------------------------- metrics


def _latencies(frames: Frames) -> DataFrame:
    if frames.latencies is not None:
        return frames.latencies
    return frames.deliveries.transform(group_deliveries).transform(group_latencies(frames.multicasts))


def with_latencies(frames: Frames) -> Frames:
    """Computes once what half of the metrics start from."""
    kept = replace(frames, latencies=_latencies(frames).persist())
    return replace(kept, completed=completed(kept).persist())


def completed(frames: Frames) -> DataFrame:
    if frames.completed is not None:
        return frames.completed
    return _latencies(frames).transform(message_latencies)


def latency_at(frames: Frames) -> DataFrame:
    """At the client, if the run says when messages were answered, and at the first and the last replica."""
    done = completed(frames).where(F.col("delivery") == "final")
    answered = frames.answers.groupBy("run_id", "msg").agg(F.min("t_us").alias("until_us"))
    kinds = (
        _kind(CLIENT, messages(frames.multicasts).join(answered, on=["run_id", "msg"], how="inner")),
        _kind(FIRST_REPLICA, done.withColumn("until_us", F.col("delivered_us"))),
        _kind(LAST_REPLICA, _at_last_replica(frames, done)),
    )
    return reduce(DataFrame.unionByName, kinds).transform(summarise(["destinations", "latency"]))


def _at_last_replica(frames: Frames, done: DataFrame) -> DataFrame:
    """`done`, and until_us: when the last process of all destination groups delivered."""
    sent = messages(frames.multicasts).select("run_id", "msg", "dst")
    last = (
        frames.deliveries.where(F.col("kind") == FINAL)
        .join(sent, on=["run_id", "msg"], how="inner")
        .where(F.array_contains("dst", F.col("grp")))
        .groupBy("run_id", "msg")
        .agg(F.max("t_us").alias("until_us"))
    )
    return done.join(last, on=["run_id", "msg"], how="inner")


def _kind(at: str, found: DataFrame) -> DataFrame:
    latency_us = (F.col("until_us") - F.col("sent_us")).alias("latency_us")
    return found.select("run_id", "destinations", F.lit(AT[at]).alias("latency"), latency_us)


def latency_by_destinations(frames: Frames) -> DataFrame:
    return completed(frames).transform(summarise(["delivery", "destinations"]))


def latency_by_scope(frames: Frames) -> DataFrame:
    return completed(frames).transform(summarise(["delivery", "scope"]))


def latency_by_nth(frames: Frames) -> DataFrame:
    """Latency of the first, second, third ... destination group to deliver; by scope, as local messages have one."""
    return _latencies(frames).transform(nth_destination).transform(summarise(["delivery", "scope", "nth"]))


def latency_by_client_region(frames: Frames) -> DataFrame:
    where = frames.processes.select("run_id", F.col("process").alias("sender"), F.col("region").alias("client_region"))
    return (
        completed(frames)
        .join(F.broadcast(where), on=["run_id", "sender"], how="left")
        .fillna({"client_region": NOWHERE})
        .transform(summarise(["delivery", "scope", "client_region"]))
    )


def latency_by_group_region(frames: Frames) -> DataFrame:
    """Latency until the first process in that region, of a destination group, delivered."""
    where = frames.processes.select("run_id", "process", F.col("region").alias("group_region"))
    kind = F.when(F.col("kind") == FINAL, "final").otherwise("optimistic").alias("delivery")
    delivered = (
        frames.deliveries.join(F.broadcast(where), on=["run_id", "process"], how="left")
        .fillna({"group_region": NOWHERE})
        .groupBy("run_id", "msg", "grp", "group_region", kind)
        .agg(F.min("t_us").alias("delivered_us"))
    )
    return delivered.transform(group_latencies(frames.multicasts)).transform(
        summarise(["delivery", "scope", "group_region"])
    )


def latency_cdf(frames: Frames) -> DataFrame:
    """run_id, delivery, destinations, share, latency_us: `share` of the messages took at most that long."""
    keys = ["run_id", "delivery", "destinations"]
    shares = F.array(*(F.lit(share) for share in CDF_SHARES))
    found = completed(frames).groupBy(*keys).agg(percentiles(F.col("latency_us"), CDF_SHARES).alias("values"))
    steps = found.select(*keys, F.explode(F.arrays_zip(shares.alias("share"), "values")).alias("step"))
    return steps.select(
        *keys, F.col("step")["share"].alias("share"), F.col("step")["values"].alias("latency_us")
    ).orderBy(*keys, "share")
