"""Jobs of one kind on Spark, two at a time, so that no core waits for the slowest task of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

from pyspark.sql import SparkSession

from ..core import UsageError
from ._errors import first_line
from .spark import is_connect

_WAVES_AT_ONCE = 2

_T = TypeVar("_T")


def run_waves(
    spark: SparkSession, waves: Iterable[int], run: Callable[[int], _T], take: Callable[[int, _T], None], what: str
) -> None:
    """Runs the waves with these numbers; `take` gets the result of each when it is there. `what` is for errors."""
    todo = list(waves)
    pool = ThreadPoolExecutor(_WAVES_AT_ONCE, thread_name_prefix=what)
    running: dict[Future[_T], int] = {}
    try:
        while todo or running:
            while todo and len(running) < _WAVES_AT_ONCE:
                number = todo.pop(0)
                running[pool.submit(run, number)] = number
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number = running.pop(future)
                take(number, _result_of(future, what))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if running:
            with suppress(Exception):  # the Spark session may have ended, and its jobs with it
                spark.interruptAll() if is_connect(spark) else spark.sparkContext.cancelAllJobs()


def _result_of(future: Future[_T], what: str) -> _T:
    try:
        return future.result()
    except UsageError:
        raise
    except Exception as error:
        # Spark's error is a page long; the line of interest is the last one of the traceback from the task.
        lines = str(error).splitlines()
        told = next((line for line in lines if "Error: " in line and "Exception: Traceback" not in line), None)
        raise UsageError(f"a task of the {what} failed: {(told or first_line(error)).strip()}") from error
