"""Runs the waves of a plan on Spark.

Counts are added up in Spark: of a wave, one row for each cell comes back, with the schedules that violate a property.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ..waves import run_waves
from .plan import COUNTS, CellTotals, Chunk, Found, Plan, SwarmSpec
from .store import SwarmStore, WaveResult
from .task import ROWS_DDL, task

Progress = Callable[[WaveResult], None]


class SwarmResult(msgspec.Struct, frozen=True):
    spec: SwarmSpec
    cells: tuple[CellTotals, ...]  # in the order of the spec
    found: tuple[Found, ...]  # by cell and seed
    resumed: int  # waves that an earlier swarm in the same folder had finished

    @property
    def violations(self) -> int:
        return sum(cell.violations for cell in self.cells)


def run_swarm(
    spark: SparkSession, plan: Plan, out: Path | None = None, progress: Progress | None = None
) -> SwarmResult:
    """With `out`, waves whose results are in that folder are not run again. The folder must be of the same plan."""
    store = None if out is None else SwarmStore(out)
    results: list[WaveResult] = []
    waves = plan.waves()
    finished = {} if store is None else store.begin(plan)
    for number in sorted(finished):
        _take(finished[number], results, progress)

    def take(number: int, result: WaveResult) -> None:
        if store is not None:
            store.save(plan, number, result)
        _take(result, results, progress)

    todo = (number for number in range(len(waves)) if number not in finished)
    run_waves(spark, todo, lambda number: _run_wave(spark, plan.spec, waves[number]), take, "swarm")
    return _add_up(plan.spec, results, len(finished))


def _run_wave(spark: SparkSession, spec: SwarmSpec, wave: list[Chunk]) -> WaveResult:
    rows = spark.range(0, len(wave), 1, len(wave)).transform(lambda frame: _simulate(frame, spec, wave))
    totals: list[CellTotals] = []
    found: list[Found] = []
    for row in rows.transform(_by_cell).collect():
        totals.append(CellTotals(row["cell"], *(row[name] for name in COUNTS)))
        found += [msgspec.json.decode(text, type=Found) for text in row["found"]]
    return WaveResult(totals, sorted(found, key=lambda one: (one.cell, one.seed)))


def _simulate(chunks: DataFrame, spec: SwarmSpec, wave: list[Chunk]) -> DataFrame:
    return chunks.mapInArrow(task(spec, wave), ROWS_DDL)


def _by_cell(rows: DataFrame) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in COUNTS]
    return rows.groupBy("cell").agg(*sums, F.collect_list("found").alias("found"))


def _take(result: WaveResult, results: list[WaveResult], progress: Progress | None) -> None:
    results.append(result)
    if progress is not None:
        progress(result)


def _add_up(spec: SwarmSpec, results: list[WaveResult], resumed: int) -> SwarmResult:
    totals = {index: CellTotals(index) for index in range(len(spec.cells))}
    for result in results:
        for part in result.totals:
            totals[part.cell] = totals[part.cell].plus(part)
    found = sorted((one for result in results for one in result.found), key=lambda one: (one.cell, one.seed))
    return SwarmResult(spec, tuple(totals.values()), tuple(found), resumed)
