"""Work for Spark: a task is described by a row and answered by a row, both of them small JSON texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession


def answers_of(
    spark: SparkSession, tasks: Sequence[str], perform: Callable[[str], str], at_once: int | None = None
) -> list[str]:
    """The answers, in the order of the tasks. `perform` is a function of a module: tasks import it.

    Each is a task of Spark's, unless they are more than `at_once`: then some are performed one after the other.
    """
    if not tasks:
        return []
    schema = pa.schema([("task", pa.int32()), ("what", pa.string())])
    rows = pa.table({"task": list(range(len(tasks))), "what": list(tasks)}, schema=schema)
    frame = spark.createDataFrame(rows).coalesce(1).repartition(min(len(tasks), at_once or len(tasks)))
    found = frame.mapInArrow(partial(_work, perform), "task int, answer string").collect()
    answers = {row.task: row.answer for row in found}
    return [answers[task] for task in range(len(tasks))]


def _work(perform: Callable[[str], str], frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for frame in frames:
        answers = [perform(what) for what in frame.column("what").to_pylist()]
        yield pa.record_batch([frame.column("task"), pa.array(answers, pa.string())], ["task", "answer"])
