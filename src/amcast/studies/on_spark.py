"""Runs cells in the tasks of Spark jobs. If Spark runs a task again, since a worker was lost, the results are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..pipeline.spark import SparkSession, is_connect
from ..pipeline.waves import run_waves
from ..pipeline.work import answers_of
from .cell import Result, run_cell
from .plan import Cell

_TASKS_A_CORE = 4  # in a wave
_CELLS_A_TASK = 16  # at most: each task costs Spark some 0.1 s, and what a wave has finished is kept at its end
_WAVES = 20  # at least, if there are cells enough


def run_on_spark(spark: SparkSession, cells: Sequence[Cell], take: Callable[[Cell, Result], None]) -> None:
    """`take` gets each cell with its result, as they are finished."""
    # Spark Connect does not say how many cores there are; a plan for 8 keeps a small cluster busy.
    cores = 8 if is_connect(spark) else spark.sparkContext.defaultParallelism
    tasks = max(1, cores) * _TASKS_A_CORE
    size = tasks * max(1, min(_CELLS_A_TASK, len(cells) // (tasks * _WAVES)))
    waves = [list(cells[start : start + size]) for start in range(0, len(cells), size)]

    def run(number: int) -> list[Result]:
        return _run_wave(spark, waves[number], tasks)

    def take_wave(number: int, results: list[Result]) -> None:
        for cell, result in zip(waves[number], results, strict=True):
            take(cell, result)

    run_waves(spark, range(len(waves)), run, take_wave, "study")


def _run_wave(spark: SparkSession, wave: list[Cell], tasks: int) -> list[Result]:
    texts = [msgspec.json.encode(cell).decode() for cell in wave]
    return [msgspec.json.decode(text, type=Result) for text in answers_of(spark, texts, _run, tasks)]


def _run(text: str) -> str:
    return msgspec.json.encode(run_cell(msgspec.json.decode(text, type=Cell))).decode()
