"""The definitions as plain joins and windows in SQL, slow and easy to read: a witness that the checker must agree with.

Each function returns a frame with a row (run_id, property) for each run that breaks a property. Those in `LINEAR` can
be timed on large traces; those in `PAIRS` look at all pairs of messages and are for small ones. Runs with restored
replicas are left out: their positions jump, and what other replicas delivered there can't be filled in by a join.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from amcast.pipeline.files import RunFiles
from amcast.trace.schema import CRASH, FINAL, RESTART

_CLOSURE_ROUNDS_MAX = 12  # paths double each round


@dataclass(frozen=True, slots=True)
class Tables:
    deliveries: DataFrame  # with run_id, as Runs.table gives them
    multicasts: DataFrame
    faults: DataFrame
    members: DataFrame  # run_id, process, own (its group), correct, complete, first (of its group)

    @property
    def final(self) -> DataFrame:
        return self.deliveries.where(F.col("kind") == FINAL)

    @property
    def addressed(self) -> DataFrame:
        """run_id, msg, own, sender, client_seq: a row for each destination."""
        return self.multicasts.select("run_id", "msg", F.explode("dst").alias("own"), "sender", "client_seq")


def members_frame(spark: SparkSession, runs: list[RunFiles]) -> DataFrame:
    rows = [
        (run.run_id, process, group.id, process in run.info.correct, run.info.complete, process == group.processes[0])
        for run in runs
        for group in run.info.groups
        for process in group.processes
    ]
    names = ("run_id", "process", "own", "correct", "complete", "first")
    kinds = (pa.string(), pa.int32(), pa.int32(), pa.bool_(), pa.bool_(), pa.bool_())
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return spark.createDataFrame(pa.table(columns, names=list(names)))


def positions(tables: Tables) -> DataFrame:
    log = Window.partitionBy("run_id", "process", "kind").orderBy("pos")
    numbered = tables.deliveries.withColumn("wanted", F.row_number().over(log) - 1)
    return _named(numbered.where(F.col("pos") != F.col("wanted")), "positions")


def integrity(tables: Tables) -> DataFrame:
    rows = tables.deliveries.join(tables.members, on=["run_id", "process"], how="left")
    elsewhere = rows.where(F.col("own").isNull() | (F.col("own") != F.col("grp")))
    misplaced = rows.join(tables.addressed, on=["run_id", "msg", "own"], how="left_anti")
    repeated = tables.deliveries.groupBy("run_id", "process", "kind", "msg").count().where("count > 1")
    doubled = tables.multicasts.groupBy("run_id", "msg").count().where("count > 1")
    found = [frame.select("run_id") for frame in (elsewhere, misplaced, repeated, doubled)]
    return _named(found[0].unionAll(found[1]).unionAll(found[2]).unionAll(found[3]), "integrity")


def validity_and_agreement(tables: Tables) -> DataFrame:
    due = tables.members.where("correct and complete")
    missing = tables.addressed.join(due, on=["run_id", "own"], how="inner").join(
        tables.final.select("run_id", "process", "msg"), on=["run_id", "process", "msg"], how="left_anti"
    )
    lost = missing.join(_faulty(tables), on=["run_id", "sender"], how="left_anti")
    split = missing.join(tables.final.select("run_id", "msg"), on=["run_id", "msg"], how="left_semi")
    return _named(lost, "validity").unionAll(_named(split, "agreement"))


def _faulty(tables: Tables) -> DataFrame:
    """Members that are not correct, and clients that crashed and did not come back."""
    last = Window.partitionBy("run_id", "process").orderBy(F.col("t_us").desc())
    down = (
        tables.faults.where(F.col("what").isin(CRASH, RESTART))
        .withColumn("nth", F.row_number().over(last))
        .where((F.col("nth") == 1) & (F.col("what") == CRASH))
        .join(tables.members, on=["run_id", "process"], how="left_anti")
        .select("run_id", F.col("process").alias("sender"))
    )
    return tables.members.where("not correct").select("run_id", F.col("process").alias("sender")).unionAll(down)


def replicas(tables: Tables) -> DataFrame:
    """Two members differ at the same place, or correct ones of a finished run end at different places."""
    log = Window.partitionBy("run_id", "process").orderBy("pos")
    rows = tables.final.join(tables.members, on=["run_id", "process"], how="inner")
    placed = rows.withColumn("place", F.row_number().over(log))
    differ = placed.groupBy("run_id", "own", "place").agg(F.min("msg").alias("low"), F.max("msg").alias("high"))
    sizes = tables.members.where("correct and complete").join(
        tables.final.groupBy("run_id", "process").count(), on=["run_id", "process"], how="left"
    )
    ends = sizes.groupBy("run_id", "own").agg(F.countDistinct(F.coalesce("count", F.lit(0))).alias("ends"))
    return _named(differ.where("low <> high"), "replicas").unionAll(_named(ends.where("ends > 1"), "replicas"))


def timestamps(tables: Tables) -> DataFrame:
    """With rising timestamps, one for each message, this is also a proof of acyclic order."""
    stamped = tables.final.where("ts is not null")
    log = Window.partitionBy("run_id", "process").orderBy("pos")
    falls = stamped.withColumn("before", F.lag("ts").over(log)).where("before >= ts")
    several = stamped.groupBy("run_id", "msg").agg(F.min("ts").alias("low"), F.max("ts").alias("high"))
    shared = stamped.groupBy("run_id", "ts").agg(F.min("msg").alias("low"), F.max("msg").alias("high"))
    found = [frame.select("run_id") for frame in (falls, several.where("low <> high"), shared.where("low <> high"))]
    return _named(found[0].unionAll(found[1]).unionAll(found[2]), "timestamps")


# ------------------------------------------------------------------------------------- pairs of messages


def _ordered(tables: Tables) -> DataFrame:
    """run_id, process, own, msg, place: the first delivery of each message where it is addressed."""
    rows = (
        tables.final.join(tables.members, on=["run_id", "process"], how="inner")
        .join(
            tables.addressed.select("run_id", "msg", "own").dropDuplicates(), on=["run_id", "msg", "own"], how="inner"
        )
        .groupBy("run_id", "process", "own", "msg")
        .agg(F.min(F.struct("pos", "t_us")).alias("place"))
    )
    return rows


def precedences(tables: Tables) -> DataFrame:
    """run_id, first, then: some process delivered `first` before `then`, or without it though both are addressed."""
    ordered = _ordered(tables)
    delivered = ordered.select("run_id", F.col("msg").alias("then")).dropDuplicates()
    addressed = tables.addressed.select("run_id", "own", F.col("msg").alias("then")).dropDuplicates()
    wanted = addressed.join(delivered, on=["run_id", "then"], how="left_semi")
    places = ordered.select("run_id", "process", F.col("msg").alias("then"), F.col("place").alias("later"))
    return (
        ordered.join(wanted, on=["run_id", "own"], how="inner")
        .where("msg <> then")
        .join(places, on=["run_id", "process", "then"], how="left")
        .where("later is null or place < later")
        .select("run_id", F.col("msg").alias("first"), "then")
        .dropDuplicates()
    )


def prefix(tables: Tables) -> DataFrame:
    edges = precedences(tables)
    back = edges.select("run_id", F.col("then").alias("first"), F.col("first").alias("then"))
    return _named(edges.join(back, on=["run_id", "first", "then"], how="left_semi"), "prefix")


def acyclic(tables: Tables) -> DataFrame:
    """Paths, doubled until there are no new ones."""
    paths = precedences(tables).localCheckpoint()
    count = paths.count()
    for _ in range(_CLOSURE_ROUNDS_MAX):
        onward = paths.select("run_id", F.col("first").alias("then"), F.col("then").alias("end"))
        longer = paths.join(onward, on=["run_id", "then"], how="inner").select("run_id", "first", F.col("end"))
        paths = paths.unionAll(longer.withColumnRenamed("end", "then")).dropDuplicates().localCheckpoint()
        before, count = count, paths.count()
        if count == before:
            break
    return _named(paths.where("first = then"), "acyclic")


def fifo(tables: Tables) -> DataFrame:
    """Something was delivered before, or without, what its sender had multicast to the same group earlier."""
    sent = tables.addressed
    log = _ordered(tables)
    late = log.join(sent, on=["run_id", "msg", "own"], how="inner")
    earlier = sent.select("run_id", "own", "sender", F.col("msg").alias("due"), F.col("client_seq").alias("number"))
    places = log.select("run_id", "process", F.col("msg").alias("due"), F.col("place").alias("due_place"))
    pairs = late.join(earlier, on=["run_id", "own", "sender"], how="inner").where("number < client_seq")
    wrong = pairs.join(places, on=["run_id", "process", "due"], how="left").where(
        "due_place is null or due_place > place"
    )
    return _named(wrong, "fifo")


def _named(found: DataFrame, name: str) -> DataFrame:
    return found.select("run_id", F.lit(name).alias("property")).dropDuplicates()


LINEAR = (positions, integrity, validity_and_agreement, replicas, timestamps)
PAIRS = (prefix, acyclic, fifo)
