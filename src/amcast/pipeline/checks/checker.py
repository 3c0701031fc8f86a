"""The verdicts of many runs at once, on Spark.

Small runs are judged whole by `amcast.check`, many in one task. Large ones are proved right in pieces, by many tasks. A
proof that does not go through says nothing: that run is judged whole after all, in a task of its own, and the judge
names what is wrong. What comes back to the driver is a few rows for each run, whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ...check import Report
from ...check.checker import report_on_operations
from ...check.linearizability import is_judged
from ...check.report import (
    ABOUT_OPERATIONS,
    ABOUT_THE_WIRE,
    ALWAYS_CHECKED,
    CONFLICT_ORDER,
    NO_STAMPS,
    Findings,
    always_checked,
)
from ...core import UsageError
from ...trace.schema import FINAL, OPTIMISTIC
from ..files import RunFiles
from ._proof import GroupProof, sequence_files
from ._spread import judge_spread
from ._tasks import (
    Answer,
    FindCut,
    Judge,
    Judged,
    JudgeWire,
    ProveGroups,
    ProveMulticasts,
    ProveStamped,
    ProveUnstamped,
    Task,
    answer_problem,
    run_tasks,
)
from .report import RunReport

WHOLE_ROWS_MAX = 3_000_000  # a run up to this size is judged in one task
_OPERATIONS_ROWS = 1_000_000  # of operations that one task judges
_BATCH_ROWS = 1_000_000  # rows of small runs for one task
_GROUPS_ROWS = 2_000_000  # deliveries for one task that proves groups
_SEGMENT_ROWS = 4_000_000
_BAND_WIDENINGS = (1, 16)

VIOLATIONS = pa.schema(
    [
        ("run_id", pa.string()),
        ("property", pa.string()),
        ("messages", pa.list_(pa.int64())),
        ("processes", pa.list_(pa.int64())),
        ("explanation", pa.string()),
    ]
)


def check_files(
    spark: SparkSession, runs: Sequence[RunFiles], key: int | None = None, whole_rows_max: int = WHOLE_ROWS_MAX
) -> list[RunReport]:
    """A report for each run, in order. `key` makes the proofs repeatable; without it a new one is drawn."""
    drawn = np.random.SeedSequence(key).generate_state(4, np.uint32)
    secret = "".join(f"{part:08x}" for part in drawn.tolist())
    large = [run for run in runs if _rows(run) > whole_rows_max and _is_provable(run)]
    proved = _prove(spark, large, secret)
    whole = [run for run in runs if run.path not in proved]
    apart = [
        run
        for run in runs
        if run.rows("operations") > min(whole_rows_max, _OPERATIONS_ROWS)
        or (run.path in proved and (run.rows("operations") or is_judged(run.info)))
    ]
    judged = proved | dict(zip((run.path for run in whole), _judge(spark, whole, apart), strict=True))
    for run in apart:
        judged[run.path] = _with_operations(spark, run, judged[run.path], int(secret, 16))
    return [_report(run, judged[run.path]) for run in runs]


def violations_frame(spark: SparkSession, reports: Sequence[RunReport]) -> DataFrame:
    """A row for each violation. A run without a row passed, or a verdict of it is unknown."""
    columns: dict[str, list[object]] = {name: [] for name in VIOLATIONS.names}
    for report in reports:
        for found in report.violations:
            columns["run_id"].append(report.run_id)
            for name in VIOLATIONS.names[1:]:
                columns[name].append(getattr(found, name))
    return spark.createDataFrame(pa.table(columns, schema=VIOLATIONS))


def _report(run: RunFiles, judged: Judged) -> RunReport:
    found = judged.report
    if found is not None:
        return RunReport(found.properties, found.violations, found.reasons, run.run_id, run.path)
    always = always_checked(run.info.claims) if run.info.groups else ABOUT_OPERATIONS
    names = dict.fromkeys((*always, *run.info.claims))
    why = judged.refusal
    return RunReport(dict.fromkeys(names, "unknown"), [], dict.fromkeys(names, why), run.run_id, run.path, why)


def _with_operations(spark: SparkSession, run: RunFiles, judged: Judged, key: int) -> Judged:
    """With the verdict on operations that are too many for one task."""
    if judged.report is None:
        return judged
    try:
        found = report_on_operations(run.info, judge_spread(spark, run, key))
    except UsageError as error:
        return Judged(refusal=str(error))
    known = judged.report
    violations = [*known.violations, *found.violations]
    return Judged(Report(known.properties | found.properties, violations, known.reasons | found.reasons))


def _rows(run: RunFiles) -> int:
    return run.rows("deliveries") + run.rows("multicasts")


# ------------------------------------------------------------------------------------------ whole runs


def _judge(spark: SparkSession, runs: list[RunFiles], apart: list[RunFiles]) -> list[Judged]:
    """`apart`: runs whose operations are not judged here."""
    batches = _batches(runs)
    paths = {run.path for run in apart}
    answers = run_tasks(spark, [Judge(batch, [r.path for r in batch if r.path in paths]) for batch in batches])
    results: list[Judged] = []
    for batch, answer in zip(batches, answers, strict=True):
        results += answer.judged or [Judged(refusal=answer.refusal or "no answer")] * len(batch)
    return results


def _batches(runs: list[RunFiles]) -> list[list[RunFiles]]:
    """Runs in order, as many in a batch as make a task worth its while. A file costs as much as some thousand rows."""
    batches: list[list[RunFiles]] = []
    room = 0.0
    for run in runs:
        cost = _rows(run) + run.rows("wire") + 4 * run.rows("operations") + 4_000 * sum(map(len, run.tables.values()))
        if cost > room or not batches:
            batches.append([])
            room = _BATCH_ROWS
        batches[-1].append(run)
        room -= cost
    return batches


# ---------------------------------------------------------------------------------------------- proofs


@dataclass
class _Proof:
    """What is proved of one run so far."""

    run: RunFiles
    groups: list[GroupProof] = field(default_factory=list)
    messages: int = 0
    stands: bool = False
    wire: Report | None = None

    @property
    def sequences(self) -> list[tuple[int, int]]:
        return [group.stands for group in self.groups]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    @property
    def is_stamped(self) -> bool:
        return any(group.is_stamped for group in self.groups)


def _is_provable(run: RunFiles) -> bool:
    """Proofs are for complete runs with files that hold the deliveries of one member each, by one kind.

    Nothing is proved of a run of which evidence is missing. FIFO order, local order and the order of conflicting
    operations have no proof in pieces.
    """
    members = {process for group in run.info.groups for process in group.processes}
    files = run.table("deliveries")
    return (
        run.info.complete
        and not run.info.missing
        and not {"fifo", "local-order", CONFLICT_ORDER} & set(run.info.claims)
        and all(file.process in members and file.kind in (FINAL, OPTIMISTIC) for file in files)
        and all(any(process in run.info.correct for process in group.processes) for group in run.info.groups)
    )


def _prove(spark: SparkSession, runs: list[RunFiles], key: str) -> dict[str, Judged]:
    """The reports of the runs that were proved right; about the others nothing is known."""
    proofs = _prove_delivery(spark, runs, key)
    _prove_order(spark, [proof for proof in proofs if proof.stands], key)
    return {proof.run.path: Judged(_passed(proof)) for proof in proofs if proof.stands}


def _prove_delivery(spark: SparkSession, runs: list[RunFiles], key: str) -> list[_Proof]:
    tasks: list[Task] = []
    bounds: list[tuple[int, int]] = []
    for run in runs:
        start = len(tasks)
        kinds = sorted({kind for _, kind in sequence_files(run)} | {FINAL})
        lanes = [(lane, kind) for kind in kinds for lane in range(len(run.info.groups))]
        share = max(1, len(lanes) * _GROUPS_ROWS // run.rows("deliveries"))
        tasks += [ProveGroups(run, lanes[at : at + share], key) for at in range(0, len(lanes), share)]
        tasks.append(ProveMulticasts(run, key))
        if run.rows("wire") or set(run.info.claims) & set(ABOUT_THE_WIRE):
            tasks.append(JudgeWire(run))
        bounds.append((start, len(tasks)))
    answers = run_tasks(spark, tasks)
    return [_delivery_proof(run, answers[start:stop]) for run, (start, stop) in zip(runs, bounds, strict=True)]


def _delivery_proof(run: RunFiles, answers: list[Answer]) -> _Proof:
    proof = _Proof(run)
    groups = [group for answer in answers for group in answer.groups]
    multicasts = next((answer.multicasts for answer in answers if answer.multicasts is not None), None)
    wire = next((answer.judged[0].report for answer in answers if answer.judged), None)
    if answer_problem(answers) is not None or multicasts is None or not multicasts.holds:
        return proof
    if not all(group.holds for group in groups):
        return proof
    lanes = len(run.info.groups)
    for at, group in enumerate(groups):
        if (group.hash, group.rows) != (multicasts.hashes[at % lanes], multicasts.counts[at % lanes]):
            return proof
    proof.groups, proof.messages, proof.wire = groups[:lanes], multicasts.messages, wire
    stamped = {group.is_stamped for group in proof.groups if group.rows}
    proof.stands = len(stamped) <= 1
    return proof


def _prove_order(spark: SparkSession, proofs: list[_Proof], key: str) -> None:
    """Cuts are looked for in a narrow band of rows at first, and for proofs that fail so in a wide one."""
    left = proofs
    for widening in _BAND_WIDENINGS:
        _prove_segments(spark, left, key, widening)
        left = [proof for proof in left if not proof.stands and not proof.is_stamped]


def _prove_segments(spark: SparkSession, proofs: list[_Proof], key: str, widening: int) -> None:
    cuts = _find_cuts(spark, [proof for proof in proofs if not proof.is_stamped], widening)
    tasks: list[Task] = []
    bounds: list[tuple[int, int]] = []
    for proof in proofs:
        start = len(tasks)
        tasks += _stamped_tasks(proof, key) if proof.is_stamped else _unstamped_tasks(proof, cuts[proof.run.path])
        bounds.append((start, len(tasks)))
    answers = run_tasks(spark, tasks)
    for proof, (start, stop) in zip(proofs, bounds, strict=True):
        segments = [answer.segment for answer in answers[start:stop]]
        held = [segment for segment in segments if segment is not None and segment.holds]
        counts = (sum(segment.rows for segment in held), sum(segment.messages for segment in held))
        proof.stands = len(held) == len(segments) and counts == (proof.rows, proof.messages)


def _quantiles(proof: _Proof) -> list[int]:
    """Timestamps, or times, that cut the groups' sequences into segments of about the wanted size."""
    samples = np.sort(np.concatenate([np.array(group.samples, np.int64) for group in proof.groups]))
    count = -(-proof.rows // _SEGMENT_ROWS)
    if not len(samples) or count < 2:
        return []
    at = (np.arange(1, count) * len(samples)) // count
    return sorted(set(samples[at].tolist()))


def _stamped_tasks(proof: _Proof, key: str) -> list[Task]:
    bounds = [-(1 << 63) + 1, *_quantiles(proof), (1 << 63) - 1]
    return [ProveStamped(proof.run, proof.sequences, low, high, key) for low, high in pairwise(bounds)]


def _find_cuts(spark: SparkSession, proofs: list[_Proof], widening: int) -> dict[str, list[list[int]]]:
    wanted = [(proof, moment) for proof in proofs for moment in _quantiles(proof)]
    answers = run_tasks(spark, [FindCut(proof.run, proof.sequences, moment, widening) for proof, moment in wanted])
    cuts: dict[str, list[list[int]]] = {proof.run.path: [] for proof in proofs}
    for (proof, _), answer in zip(wanted, answers, strict=True):
        if answer.cut is not None:
            cuts[proof.run.path].append(answer.cut)
    return cuts


def _unstamped_tasks(proof: _Proof, cuts: list[list[int]]) -> list[Task]:
    """Where two cuts cross, as (5, 9) and (7, 8) do in their second sequence, each is cut at the lower one first."""
    ends = [group.rows for group in proof.groups]
    rows = np.array([[0] * len(ends), *cuts, ends])
    rows[1:-1].sort(axis=0)
    return [ProveUnstamped(proof.run, proof.sequences, start, stop) for start, stop in pairwise(rows.tolist())]


def _passed(proof: _Proof) -> Report:
    """Everything holds but, perhaps, what is about the wire: those checks are exact, and may have found something."""
    findings = Findings(unproven=proof.run.info.unproven)
    for name in ALWAYS_CHECKED:
        findings.begin(name)
    if proof.is_stamped:
        findings.begin("timestamps")
    elif "timestamps" in proof.run.info.claims:
        findings.unknown("timestamps", NO_STAMPS)
    if proof.wire is not None:
        findings.verdicts.update(proof.wire.properties)
        findings.reasons.update(proof.wire.reasons)
        findings.violations += proof.wire.violations
    findings.refuse_strange(proof.run.info.claims)
    return findings.report()
