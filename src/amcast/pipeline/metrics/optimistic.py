"""How good the optimistic order is: how often it was right, and how much earlier it came.

It is measured in batches of k, as in the paper on optimistic total order. A process's final deliveries are cut into
batches of k positions; a batch is right if the process delivered the same messages optimistically at these positions,
in whatever order. With k = 1: the same message at the same position. A message that was never delivered optimistically
makes its batch wrong. Processes that deliver nothing optimistically have no row.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ...trace.schema import FINAL, OPTIMISTIC
from ._summary import summarise
from .frames import Frames

BATCHES = (1, 2, 4, 8)


def both_deliveries(deliveries: DataFrame) -> DataFrame:
    """run_id, process, grp, msg, pos, t_us, guessed_pos, guessed_us (null: no guess), of processes that guess."""
    keys = ["run_id", "process", "msg"]
    guesses = deliveries.where(F.col("kind") == OPTIMISTIC)
    guessed = guesses.groupBy(*keys).agg(F.min("pos").alias("guessed_pos"), F.min("t_us").alias("guessed_us"))
    final = deliveries.where(F.col("kind") == FINAL).select(*keys, "grp", "pos", "t_us")
    who = guesses.select("run_id", "process")
    return final.join(who, on=["run_id", "process"], how="left_semi").join(guessed, on=keys, how="left")


def optimistic_order(frames: Frames) -> DataFrame:
    """run_id, grp, process, k, batches, right, ratio."""
    sizes = F.explode(F.array(*(F.lit(size) for size in BATCHES))).alias("k")
    mine = F.floor(F.col("pos") / F.col("k"))
    is_right = F.coalesce(mine == F.floor(F.col("guessed_pos") / F.col("k")), F.lit(False))
    return (
        frames.deliveries.transform(both_deliveries)
        .select("run_id", "grp", "process", "pos", "guessed_pos", sizes)
        .groupBy("run_id", "grp", "process", "k", mine.alias("batch"))
        .agg(F.every(is_right).alias("right"))
        .groupBy("run_id", "grp", "process", "k")
        .agg(F.count("*").alias("batches"), F.count_if("right").alias("right"))
        .withColumn("ratio", F.round(F.col("right") / F.col("batches"), 6))
        .orderBy("run_id", "grp", "process", "k")
    )


def optimistic_window(frames: Frames) -> DataFrame:
    """Final minus optimistic time at each process, for its own messages and for those of others."""
    sent = frames.multicasts.select("run_id", "msg", "sender")
    return (
        frames.deliveries.transform(both_deliveries)
        .join(sent, on=["run_id", "msg"], how="inner")
        .withColumn("window_us", F.col("t_us") - F.col("guessed_us"))
        .withColumn("own", F.col("sender") == F.col("process"))
        .transform(summarise(["grp", "process", "own"], value="window_us"))
    )
