"""One Spark session for all tests of the pipeline: it takes half a minute to start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import amcast.pipeline
from amcast.pipeline import spark_session, stop_spark
from tests.cli.cli_harness import Cli


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # The quick compiler only: tests run each job once or twice.
    session = spark_session(
        "local[2]",
        options={"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"},
    )
    yield session
    stop_spark(session)


@pytest.fixture
def cli(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Cli:
    """The command line in this process and in an empty folder, on the session that is there."""

    @contextmanager
    def shared(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(amcast.pipeline, "running_spark", shared)
    monkeypatch.setattr(sys.modules["amcast.pipeline.spark"], "running_spark", shared)
    monkeypatch.chdir(tmp_path)
    return Cli(monkeypatch, capsys)
