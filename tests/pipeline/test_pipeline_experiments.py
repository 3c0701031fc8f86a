"""Recipes on Spark: what their cells measure is what they measure in this process."""

from __future__ import annotations

from pyspark.sql import SparkSession

from amcast.experiments import RECIPES, Measured, run_recipe_cell
from amcast.experiments.cell import run_text
from amcast.studies.on_spark import run_on_spark


def test_cells_measure_the_same_in_tasks(spark: SparkSession) -> None:
    cells = RECIPES["byzcast-trees"].cells("small") + RECIPES["geopaxos-latency"].cells("small")[:2]
    found: dict[str, Measured] = {}
    run_on_spark(spark, cells, lambda cell, result: found.update({cell.key(): result}), run_text, Measured, 1)
    assert found == {cell.key(): run_recipe_cell(cell) for cell in cells}
