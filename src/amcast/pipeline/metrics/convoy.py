"""The convoy effect: local messages (to one group) that are delayed by global ones (to several groups).

A local message met global traffic if, at any moment between its multicast and its delivery, a global message to the
same group had been multicast and was not yet delivered there.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ...trace.schema import FINAL
from ._summary import summarise
from .frames import Frames
from .latency import group_deliveries, messages

# Events at the same time are sorted in this order, so that two intervals that only touch count as overlapping.
_BEGINS, _ASKS, _ENDS = 0, 1, 2


def local_messages(frames: Frames) -> DataFrame:
    """run_id, grp, msg, latency_us, traffic: 'global in flight' or 'alone'; of local messages that were delivered.

    The global messages that it met are those that began before its delivery, minus those that ended before its
    multicast. Both are running counts over the events of the group, so messages need not be compared in pairs.
    """
    final = frames.deliveries.where(F.col("kind") == FINAL).transform(group_deliveries).drop("delivery")
    addressed = messages(frames.multicasts).select("run_id", "msg", "sent_us", "scope", F.explode("dst").alias("grp"))
    spans = addressed.join(final, on=["run_id", "msg", "grp"], how="left")
    is_global = F.col("scope") == "global"
    sent = spans.where(is_global | F.col("delivered_us").isNotNull()).select(
        "run_id",
        "grp",
        F.when(~is_global, F.col("msg")).alias("msg"),
        F.col("sent_us").alias("t_us"),
        F.when(is_global, _BEGINS).otherwise(_ASKS).alias("step"),
    )
    delivered = spans.where(F.col("delivered_us").isNotNull()).select(
        "run_id",
        "grp",
        F.when(~is_global, F.col("msg")).alias("msg"),
        F.col("delivered_us").alias("t_us"),
        F.when(is_global, _ENDS).otherwise(_ASKS).alias("step"),
    )
    so_far = (
        Window.partitionBy("run_id", "grp")
        .orderBy("t_us", "step")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    counted = sent.unionByName(delivered).select(
        "run_id",
        "grp",
        "msg",
        "t_us",
        F.count_if(F.col("step") == _BEGINS).over(so_far).alias("begun"),
        F.count_if(F.col("step") == _ENDS).over(so_far).alias("ended"),
    )
    met = F.max("begun") - F.min("ended")  # begun as of its delivery, ended as of its multicast
    return (
        counted.where(F.col("msg").isNotNull())
        .groupBy("run_id", "grp", "msg")
        .agg(met.alias("met"), (F.max("t_us") - F.min("t_us")).alias("latency_us"))
        .withColumn("traffic", F.when(F.col("met") > 0, "global in flight").otherwise("alone"))
        .drop("met")
    )


def convoy(frames: Frames) -> DataFrame:
    """Latency of local messages by whether they met global traffic at their group."""
    return local_messages(frames).transform(summarise(["traffic"]))
