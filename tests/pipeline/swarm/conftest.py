"""One Spark session for the tests of the swarm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from amcast.pipeline.spark import spark_session, stop_spark


@pytest.fixture(scope="session")
def swarm_spark() -> Iterator[SparkSession]:
    spark = spark_session("local[2]", options={"spark.driver.memory": "1g"})
    yield spark
    stop_spark(spark)
