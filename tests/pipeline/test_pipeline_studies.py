"""A study on Spark: the same bytes as in local processes, resumed like there, and errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amcast.core import UsageError
from amcast.studies import Cell, Result, Study, cells_of
from amcast.studies import on_spark as studies_on_spark
from amcast.studies.on_spark import run_cell_text, run_on_spark
from tests.cli.cli_harness import Cli

OPTIONS = ("sweep", "-p", "skeen,fastcast", "--network", "lan", "--clients", 2, "--messages", 10)


def test_the_bytes_are_those_of_local_processes(cli: Cli) -> None:
    assert cli(*OPTIONS, "--seeds", 2, "--jobs", 1, "--out", "local").code == 0
    assert cli(*OPTIONS, "--seeds", 1, "--engine", "spark", "--out", "spark").code == 0
    again = cli(*OPTIONS, "--seeds", 2, "--engine", "spark", "--out", "spark", "--json")
    assert (again.code, again.json["resumed_cells"]) == (0, 4)
    for name in ("results.csv", "results.parquet", "figure.svg", "figure.png", "study.json"):
        assert Path("local", name).read_bytes() == Path("spark", name).read_bytes(), name


def test_all_waves_are_run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six cells on two cores: three waves of one cell a task; or one wave, with several cells a task."""
    monkeypatch.setattr(studies_on_spark, "_TASKS_A_CORE", 1)
    cells = cells_of(Study(protocols=("skeen",), networks=("lan",), clients=(1,), seeds=3, messages=3))
    results = []
    for waves in (20, 1):
        monkeypatch.setattr(studies_on_spark, "_WAVES", waves)
        taken: dict[Cell, Result] = {}
        run_on_spark(spark, cells, taken.__setitem__, run_cell_text, Result)
        assert list(taken) == cells if waves == 1 else taken.keys() == set(cells)
        results.append([taken[cell] for cell in cells])
    assert results[0] == results[1]
    assert {result.sent for result in results[0]} == {3}


def test_a_task_that_fails_is_one_line(spark: SparkSession) -> None:
    cells = cells_of(Study(protocols=("skeen",), networks=("lan",), clients=(1,), seeds=1, messages=3))
    strange = Cell(**{**{name: getattr(cells[0], name) for name in Cell.__struct_fields__}, "network": "mars"})
    with pytest.raises(UsageError, match=r"^a task of the study failed: .*there is no network 'mars'") as failed:
        run_on_spark(spark, [strange], lambda cell, result: None, run_cell_text, Result)
    assert "\n" not in str(failed.value)
