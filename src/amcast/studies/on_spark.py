"""Runs cells in the tasks of Spark jobs. If Spark runs a task again, since a worker was lost, the results are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from ..pipeline.spark import SparkSession, is_connect
from ..pipeline.waves import run_waves
from ..pipeline.work import answers_of
from .cell import run_cell
from .plan import Cell

C = TypeVar("C")  # a cell
R = TypeVar("R")  # its result

_TASKS_A_CORE = 4  # in a wave
_CELLS_A_TASK = 16  # at most: each task costs Spark some 0.1 s, and what a wave has finished is kept at its end
_WAVES = 20  # at least, if there are cells enough


def run_on_spark(
    spark: SparkSession,
    cells: Sequence[C],
    take: Callable[[C, R], None],
    perform: Callable[[str], str],
    kind: type[R],
    cells_a_task: int = _CELLS_A_TASK,
) -> None:
    """`take` gets each cell with its result, as they are finished. `perform` runs a cell in a task, from text to text:
    a function of a module, whose results are of this kind."""
    # Spark Connect does not say how many cores there are; a plan for 8 keeps a small cluster busy.
    cores = 8 if is_connect(spark) else spark.sparkContext.defaultParallelism
    tasks = max(1, cores) * _TASKS_A_CORE
    size = tasks * max(1, min(cells_a_task, len(cells) // (tasks * _WAVES)))
    waves = [list(cells[start : start + size]) for start in range(0, len(cells), size)]

    def run(number: int) -> list[R]:
        texts = [msgspec.json.encode(cell).decode() for cell in waves[number]]
        return [msgspec.json.decode(text, type=kind) for text in answers_of(spark, texts, perform, tasks)]

    def take_wave(number: int, results: list[R]) -> None:
        for cell, result in zip(waves[number], results, strict=True):
            take(cell, result)

    run_waves(spark, range(len(waves)), run, take_wave, "study")


def run_cell_text(text: str) -> str:
    """The cell of a study, in a task."""
    return msgspec.json.encode(run_cell(msgspec.json.decode(text, type=Cell))).decode()
