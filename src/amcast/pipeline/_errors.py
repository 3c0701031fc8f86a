"""Errors of libraries, which may be pages, as the one line that a user reads."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)  # what a job raises; errors that Spark has no class for come as the second


def was_stopped(error: BaseException | None) -> bool:
    """Whether Ctrl-C came first: PySpark tidies up after an interrupted call, and if that fails, tells only so."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, Py4JError) and len(lines) > 1:  # the first one says which call it was
        return lines[1].lstrip(": ").rpartition("Exception: ")[2]
    return lines[0] if lines else type(error).__name__
