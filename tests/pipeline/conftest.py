"""One Spark session for all tests of the pipeline: it takes half a minute to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from amcast.pipeline import spark_session, stop_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # The quick compiler only: tests run each job once or twice.
    session = spark_session("local[2]", options={"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"})
    yield session
    stop_session(session)
