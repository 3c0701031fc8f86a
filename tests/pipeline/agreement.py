"""Runs of all kinds on disk, and the comparison of a Spark report with the in-memory checker's."""

from __future__ import annotations

from pathlib import Path
from random import Random

from amcast.check import check_run
from amcast.pipeline import RunReport, TraceSpec, generate_trace
from amcast.pipeline._damage import DAMAGES
from amcast.trace import read_run, write_run
from tests.check.evidence import assert_evidence
from tests.check.oracle import Oracle
from tests.check.test_check_oracle import random_trace, shuffled_logs
from tests.check.traces import Trace, damage, lose_rows


def damaged_trace(seed: int) -> Trace:
    rng = Random(seed)
    if seed % 5 == 4:
        return shuffled_logs(rng)
    trace = random_trace(rng)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        damage(rng, trace)
    if seed % 5 == 3:
        lose_rows(rng, trace)
    return trace


def write_damaged(folder: Path, seeds: range) -> None:
    for seed in seeds:
        trace = damaged_trace(seed)
        write_run(folder / f"seed-{seed:05d}", trace.info(), trace.recorder())


def small_spec(seed: int, name: str | None) -> TraceSpec:
    """All damages have room in it: eight groups, some hundred messages, several chunks."""
    return TraceSpec(
        deliveries=1_200,
        groups=8,
        replicas=1 + seed % 3,
        destinations=2 + seed % 2,
        skew=seed % 2 * 0.7,
        in_flight_us=(2_000, 150_000)[seed // 2 % 2],
        stamped=seed % 3 != 0,
        seed=seed,
        claims=(("timestamps",) if seed % 3 else ()),
        damages=(name,) if name else (),
        chunk_messages=61,
    )


def write_generated(folder: Path, seeds: range) -> None:
    for seed in seeds:
        for name in (None, *DAMAGES):
            generate_trace(folder / f"{name or 'good'}-{seed}", small_spec(seed, name))


def assert_same(report: RunReport, folder: Path) -> None:
    """The same document as that of the in-memory checker, and what the definitions say, with evidence that holds."""
    run = read_run(folder)
    expected = check_run(run)
    assert list(report.properties) == list(expected.properties), folder.name
    assert report.to_json() == expected.to_json(), folder.name
    for found in report.violations:
        assert_evidence(run, found)
    failed = {name for name, verdict in report.properties.items() if verdict == "fail"}
    assert failed == {found.property for found in report.violations}
    if len(run.deliveries) < 200:  # for longer runs the definitions, word for word, are too slow
        oracle = Oracle(run)
        assert failed == oracle.failed() & report.properties.keys(), folder.name
        cycles = [found for found in report.violations if found.property == "acyclic"]
        assert not cycles or len(cycles[0].messages) == oracle.shortest_cycle(), folder.name
