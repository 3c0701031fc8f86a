"""The order of conflicts on Spark: the same verdicts as in memory, with the same evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amcast.check import check_run
from amcast.errata.geopaxos import StaleSites, _in_a_hurry
from amcast.pipeline import read_runs
from amcast.pipeline.checks.checker import check_files
from amcast.protocols import protocol
from amcast.sim import simulate
from amcast.trace import read_run, write_run

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("whole_rows_max", [0, 1_000_000])
def test_conflicts_are_judged_as_in_memory(spark: SparkSession, tmp_path: Path, whole_rows_max: int) -> None:
    """Also where runs are large: there is no proof in pieces of this property."""
    made = _in_a_hurry(0, 8)
    published = replace(protocol("geopaxos"), build=StaleSites)
    for name, result in {"mended": simulate(made), "published": simulate(made, published)}.items():
        write_run(tmp_path / name, result.info, result.recorder)
    runs = read_runs(spark, str(tmp_path))
    assert runs.table("objects").count() > 8
    verdicts = {}
    for report in check_files(spark, runs.runs, whole_rows_max=whole_rows_max):
        expected = check_run(read_run(report.path))
        assert report.to_json() == expected.to_json()
        verdicts[Path(report.path).name] = report.properties["conflict-order"]
    assert verdicts == {"mended": "pass", "published": "fail"}
