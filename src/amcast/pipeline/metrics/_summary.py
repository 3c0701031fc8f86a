"""Distributions in a few numbers. A percentile is a value that occurred: 95 % of the values are at most p95."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_ACCURACY = 10_000  # of Spark's approximation: the rank is off by at most 1/10,000, so up to 10,000 values are exact


def percentile(value: Column, share: float) -> Column:
    return F.percentile_approx(value, share, _ACCURACY)


def percentiles(value: Column, shares: list[float]) -> Column:
    return F.percentile_approx(value, shares, _ACCURACY)


def summarise(by: list[str], value: str = "latency_us") -> Callable[[DataFrame], DataFrame]:
    """count, mean, percentiles and maximum of `value`, for each run and each combination of `by`."""

    def apply(frame: DataFrame) -> DataFrame:
        column = F.col(value)
        grouped = frame.where(column.isNotNull()).groupBy("run_id", *by)
        found = grouped.agg(
            F.count(column).alias("count"),
            F.mean(column).alias("mean"),
            percentiles(column, list(PERCENTILES.values())).alias("found"),
            F.max(column).alias("max"),
        )
        values = [F.col("found")[at].alias(f"{name}_us") for at, name in enumerate(PERCENTILES)]
        chosen: list[str | Column] = [
            "run_id",
            *by,
            "count",
            F.round("mean", 1).alias("mean_us"),
            *values,
            F.col("max").alias("max_us"),
        ]
        return found.select(*chosen).orderBy("run_id", *by)

    return apply
