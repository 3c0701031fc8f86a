"""Work for Spark: a task is described by a row and answered by a row. Both are small, however much the task reads.

A task never fails the job: if a run can't be read, or can't be checked for any other reason, the answer is that reason.
The run gets no verdict then, and the other runs are not affected.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyspark.sql import SparkSession

from ...check import Report
from ...check.checker import check_source, check_wire_only
from ...core import UsageError
from .._errors import first_line
from ..files import RunFiles
from ..work import answers_of
from ._proof import GroupProof, MulticastProof, prove_group, prove_multicasts
from ._segments import SegmentProof, find_cut, prove_stamped, prove_unstamped
from ._source import source_in

SequenceKey = tuple[int, int]  # process and kind


class Judge(msgspec.Struct, frozen=True, tag=True):
    """All properties of some small runs, or of one large one; but for operations of the runs with these paths."""

    runs: list[RunFiles]
    apart: list[str] = []


class JudgeWire(msgspec.Struct, frozen=True, tag=True):
    run: RunFiles


class ProveGroups(msgspec.Struct, frozen=True, tag=True):
    """The deliveries of some groups of a run, each with a kind. Starting a task costs as much as 100,000 rows or so."""

    run: RunFiles
    lanes: list[tuple[int, int]]
    key: str  # hexadecimal: it is longer than a JSON number may be


class ProveMulticasts(msgspec.Struct, frozen=True, tag=True):
    run: RunFiles
    key: str


class FindCut(msgspec.Struct, frozen=True, tag=True):
    run: RunFiles
    sequences: list[SequenceKey]
    moment_us: int
    widening: int


class ProveStamped(msgspec.Struct, frozen=True, tag=True):
    run: RunFiles
    sequences: list[SequenceKey]
    low: int
    high: int
    key: str


class ProveUnstamped(msgspec.Struct, frozen=True, tag=True):
    run: RunFiles
    sequences: list[SequenceKey]
    starts: list[int]
    stops: list[int]


Task = Judge | JudgeWire | ProveGroups | ProveMulticasts | FindCut | ProveStamped | ProveUnstamped


class Judged(msgspec.Struct, frozen=True):
    """The report on one run, or the reason why there is none."""

    report: Report | None = None
    refusal: str = ""


class Answer(msgspec.Struct, frozen=True):
    judged: list[Judged] = []
    refusal: str | None = None
    groups: list[GroupProof] = []
    multicasts: MulticastProof | None = None
    segment: SegmentProof | None = None
    cut: list[int] | None = None


def run_tasks(spark: SparkSession, tasks: Sequence[Task]) -> list[Answer]:
    """The answers, in the order of the tasks."""
    answers = answers_of(spark, [msgspec.json.encode(task).decode() for task in tasks], _work)
    return [msgspec.json.decode(answer, type=Answer) for answer in answers]


def _work(what: str) -> str:
    return msgspec.json.encode(perform(msgspec.json.decode(what, type=Task))).decode()


def perform(task: Task) -> Answer:
    try:
        return _perform(task)
    except UsageError as error:
        return Answer(refusal=str(error))
    except Exception as error:  # whatever it was, it concerns this run only
        return Answer(refusal=f"can't be checked: {type(error).__name__}: {first_line(error)}")


def _perform(task: Task) -> Answer:
    match task:
        case Judge(runs, apart):
            return Answer(judged=[_judged(run, run.path not in apart) for run in runs])
        case JudgeWire(run):
            return Answer(judged=[Judged(check_wire_only(source_in(run)))])
        case ProveGroups(run, lanes, key):
            return Answer(groups=[prove_group(run, lane, int(key, 16), kind) for lane, kind in lanes])
        case ProveMulticasts(run, key):
            return Answer(multicasts=prove_multicasts(run, int(key, 16)))
        case FindCut(run, sequences, moment_us, widening):
            return Answer(cut=find_cut(run, sequences, moment_us, widening))
        case ProveStamped(run, sequences, low, high, key):
            return Answer(segment=prove_stamped(run, sequences, low, high, int(key, 16)))
        case ProveUnstamped(run, sequences, starts, stops):
            return Answer(segment=prove_unstamped(run, sequences, starts, stops))


def _judged(run: RunFiles, with_operations: bool) -> Judged:
    try:
        return Judged(check_source(source_in(run, with_operations)))
    except UsageError as error:
        return Judged(refusal=str(error))
    except Exception as error:
        return Judged(refusal=f"{run.path}: can't be checked: {type(error).__name__}: {first_line(error)}")


def answer_problem(answers: Sequence[Answer]) -> str | None:
    return next((answer.refusal for answer in answers if answer.refusal is not None), None)
