"""The frames that metrics are computed from: the tables of many runs at once, and a table of their processes.

Every frame has a column `run_id`, and metrics group by it: one Spark job computes a metric for all runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ...trace.schema import RunInfo
from ..files import RunFiles
from ..ingest import Runs

NOWHERE = "local"  # the region of processes that run.json gives none

_PROCESSES = pa.schema([("run_id", pa.string()), ("process", pa.int64()), ("grp", pa.int32()), ("region", pa.string())])


@dataclass(frozen=True, slots=True)
class Frames:
    multicasts: DataFrame
    deliveries: DataFrame
    wire: DataFrame
    faults: DataFrame
    answers: DataFrame  # empty if nobody wrote down when messages were answered
    processes: DataFrame  # run_id, process, grp (null: a client), region
    # Results that several metrics start from; None until `suite.prepared` has computed them.
    latencies: DataFrame | None = None
    completed: DataFrame | None = None
    spans: DataFrame | None = None

    def persist(self) -> Frames:
        """Keeps the rows in memory, so that many metrics read them once. `release` frees the memory."""
        for frame in self._all():
            frame.persist()
        return self

    def release(self) -> None:
        for frame in self._all():
            frame.unpersist()

    def _all(self) -> list[DataFrame]:
        kept = [self.multicasts, self.deliveries, self.wire, self.faults, self.answers, self.latencies, self.completed]
        return [frame for frame in kept if frame is not None]


def frames_of(runs: Runs) -> Frames:
    return Frames(
        runs.table("multicasts"),
        runs.table("deliveries"),
        runs.table("wire"),
        runs.table("faults"),
        runs.table("answers"),
        processes_frame(runs.spark, runs.runs),
    )


def processes_frame(spark: SparkSession, runs: list[RunFiles]) -> DataFrame:
    """A row for each member of a group and each client whose region is known."""
    rows = [row for run in runs for row in _rows(run)]
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(_PROCESSES)]
    return spark.createDataFrame(pa.table(columns, schema=_PROCESSES))


def _rows(run: RunFiles) -> Iterator[tuple[str, int, int | None, str]]:
    regions = regions_of(run.info)
    members = {process: group.id for group in run.info.groups for process in group.processes}
    for process in {**members, **regions}:
        yield run.run_id, process, members.get(process), regions.get(process, NOWHERE)


def regions_of(info: RunInfo) -> dict[int, str]:
    """Process -> region, from `regions` in run.json. Other programs may have put anything there: that is ignored."""
    said: Any = info.extra.get("regions")
    if not isinstance(said, dict):
        return {}
    return {int(process): str(region) for process, region in said.items() if str(process).isdecimal()}
