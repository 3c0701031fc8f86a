from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amcast.pipeline.spark import spark_session, stop_spark
from tests.pipeline.report.report_traces import HandMade, make_report

# The quick compiler only: each job runs once.
_OPTIONS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = spark_session("local[2]", app="report tests", options=_OPTIONS)
    yield made
    stop_spark(made)


@pytest.fixture(scope="session")
def handmade(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> HandMade:
    """Three runs by hand in one report."""
    return make_report(spark, Path(tmp_path_factory.mktemp("handmade")))
