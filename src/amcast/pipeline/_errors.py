"""Errors of Spark and Parquet, which may be pages long, as one line for the user."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)  # what a job can raise; Py4JError if Spark has no class for the error


def was_stopped(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused the error. PySpark cleans up after an interrupted call; if that fails, it raises that."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, Py4JError) and len(lines) > 1:  # the first line only says which call failed
        return lines[1].lstrip(": ").rpartition("Exception: ")[2]
    return lines[0] if lines else type(error).__name__
