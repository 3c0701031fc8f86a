"""What messages cost on the wire, which groups got payloads that they did not need, and where the time went.

Without a wire table these metrics have no rows. A wire message counts as one that carries a payload if it names the
message and is at least as large as the payload.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ...trace.schema import FINAL
from ._summary import percentile
from .frames import Frames
from .latency import group_deliveries, group_latencies


def _members(frames: Frames, process: str, grp: str) -> DataFrame:
    members = frames.processes.where(F.col("grp").isNotNull())
    return F.broadcast(members.select("run_id", F.col("process").alias(process), F.col("grp").alias(grp)))


def wire_cost(frames: Frames) -> DataFrame:
    """run_id, kind, messages, bytes, and both for each application message that was delivered anywhere."""
    final = frames.deliveries.where(F.col("kind") == FINAL)
    delivered = final.groupBy("run_id").agg(F.count_distinct("msg").alias("delivered"))
    counted = frames.wire.groupBy("run_id", "kind").agg(
        F.count("*").alias("messages"), F.sum(F.col("bytes").cast("long")).alias("bytes")
    )
    each = [
        F.round(F.col(name) / F.col("delivered"), 4).alias(f"{name}_per_delivered") for name in ("messages", "bytes")
    ]
    return (
        counted.join(F.broadcast(delivered), on="run_id", how="left")
        .select("run_id", "kind", "messages", "bytes", *each)
        .orderBy("run_id", "kind")
    )


def group_overhead(frames: Frames) -> DataFrame:
    """run_id, grp, received, delivered, overhead.

    Counts pairs (process, message): how many payloads arrived at a process, and how many of them it delivered.
    """
    payload = frames.multicasts.select("run_id", "msg", F.col("bytes").alias("payload_bytes"))
    received = (
        frames.wire.where(F.col("received_us").isNotNull())
        .join(payload, on=["run_id", "msg"], how="inner")
        .where(F.col("bytes") >= F.col("payload_bytes"))
        .join(_members(frames, "dst", "grp"), on=["run_id", "dst"], how="inner")
        .groupBy("run_id", "grp", F.col("dst").alias("process"), "msg")
        .agg(F.count("*").alias("copies"))
    )
    final = frames.deliveries.where(F.col("kind") == FINAL)
    delivered = final.groupBy("run_id", "process", "msg").agg(F.lit(1).alias("is_delivered"))
    return (
        received.join(delivered, on=["run_id", "process", "msg"], how="left")
        .groupBy("run_id", "grp")
        .agg(F.count("*").alias("received"), F.count("is_delivered").alias("delivered"))
        .withColumn("overhead", F.round(1 - F.col("delivered") / F.col("received"), 6))
        .orderBy("run_id", "grp")
    )


def message_times(frames: Frames) -> DataFrame:
    """For each message and destination group, when it was sent, arrived, left for other groups, was delivered.

    received_us: when it first arrived from its sender at a process of the group. left_us: when the group told other
    groups what it decided about the message; null if it told them nothing. Some protocols first send a guess, then the
    decided value: of each kind of wire message the first counts, and of the kinds the last.
    """
    about = frames.wire.where(F.col("msg").isNotNull())
    sender = frames.multicasts.select("run_id", "msg", F.col("sender").alias("src"))
    received = (
        about.join(sender, on=["run_id", "msg", "src"], how="left_semi")
        .join(_members(frames, "dst", "grp"), on=["run_id", "dst"], how="inner")
        .groupBy("run_id", "msg", "grp")
        .agg(F.min("received_us").alias("received_us"))
    )
    left = (
        about.join(_members(frames, "src", "grp"), on=["run_id", "src"], how="inner")
        .join(_members(frames, "dst", "other"), on=["run_id", "dst"], how="inner")
        .where(F.col("grp") != F.col("other"))
        .groupBy("run_id", "msg", "grp", "kind")
        .agg(F.min("sent_us").alias("left_us"))
        .groupBy("run_id", "msg", "grp")
        .agg(F.max("left_us").alias("left_us"))
    )
    final = frames.deliveries.where(F.col("kind") == FINAL)
    return (
        final.transform(group_deliveries)
        .transform(group_latencies(frames.multicasts))
        .join(received, on=["run_id", "msg", "grp"], how="left")
        .join(left, on=["run_id", "msg", "grp"], how="left")
    )


def time_split(frames: Frames) -> DataFrame:
    """run_id, destinations, count, and the mean and 95th percentile of three parts of the time until delivery.

    queue: from the multicast to the arrival at the group. consensus: until the group told other groups what it decided,
    or delivered. other_groups: from there to the delivery. All are null where the wire table has no arrival.
    """
    delivered = F.col("delivered_us")
    # least() ignores nulls, but an arrival that is not in the table must stay null.
    arrived = F.when(F.col("received_us").isNotNull(), F.least("received_us", delivered))
    said = F.when(arrived.isNotNull(), F.greatest(arrived, F.least(F.coalesce("left_us", delivered), delivered)))
    parts = {"queue": arrived - F.col("sent_us"), "consensus": said - arrived, "other_groups": delivered - said}
    named = message_times(frames).select("run_id", "destinations", *(part.alias(n) for n, part in parts.items()))
    summaries = [
        column
        for name in parts
        for column in (
            F.round(F.mean(name), 1).alias(f"{name}_mean_us"),
            percentile(F.col(name), 0.95).alias(f"{name}_p95_us"),
        )
    ]
    return (
        named.groupBy("run_id", "destinations")
        .agg(F.count("*").alias("count"), *summaries)
        .orderBy("run_id", "destinations")
    )
