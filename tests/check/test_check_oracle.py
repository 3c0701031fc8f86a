"""The checker against the definitions, on random runs, good and damaged; and every counterexample against
its run."""

from __future__ import annotations

from random import Random

import pytest

from amcast.check import Report, _cycles, check_run
from amcast.trace import Run
from tests.check.evidence import assert_evidence
from tests.check.oracle import Oracle
from tests.check.traces import Trace, damage, from_logs, good_trace

BATCHES = 8
RUNS_A_BATCH = 100


def failed(report: Report) -> set[str]:
    return {name for name, verdict in report.properties.items() if verdict == "fail"}


def compare(run: Run, report: Report) -> None:
    oracle = Oracle(run)
    assert failed(report) == {name for name in oracle.failed() if name in report.properties}
    for violation in report.violations:
        assert_evidence(run, violation)
    cycles = [violation for violation in report.violations if violation.property == "acyclic"]
    if cycles:
        assert len(cycles[0].messages) == oracle.shortest_cycle()


def random_trace(rng: Random) -> Trace:
    trace = good_trace(
        rng,
        groups=rng.randint(1, 5),
        replicas=rng.randint(1, 3),
        messages=rng.randint(0, 14),
        dst_max=rng.randint(1, 3),
        clients=rng.randint(1, 3),
    )
    trace.complete = rng.random() < 0.6
    return trace


@pytest.mark.parametrize("batch", range(BATCHES))
def test_agrees_with_the_definitions_on_damaged_runs(batch: int) -> None:
    for seed in range(batch * RUNS_A_BATCH, (batch + 1) * RUNS_A_BATCH):
        rng = Random(seed)
        trace = random_trace(rng)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            damage(rng, trace)
        run = trace.run()
        try:
            compare(run, check_run(run))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def test_good_runs_pass() -> None:
    for seed in range(100):
        trace = random_trace(Random(seed))
        report = check_run(trace.run())
        assert not report.violations, f"seed {seed}"
        wanted = "pass" if trace.complete else "unknown"
        assert report.properties["agreement"] == report.properties["validity"] == wanted
        assert report.verdict == wanted


def shuffled_logs(rng: Random) -> Trace:
    """Groups that agree up to a few neighbours each, and some whose log ends early: short and long cycles."""
    groups, messages = rng.randint(2, 7), rng.randint(2, 9)
    dst = {
        msg: tuple(sorted(rng.sample(range(1, groups + 1), min(groups, rng.choice((2, 2, 2, 3))))))
        for msg in range(messages)
    }
    dst[messages] = (groups,)
    logs = {}
    for group in range(1, groups + 1):
        log = [msg for msg in dst if group in dst[msg]]
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            at = rng.randrange(len(log)) if log else 0
            log[at : at + 2] = reversed(log[at : at + 2])
        logs[group] = log[: rng.randint(0, len(log))] if rng.random() < 0.2 else log
    trace = from_logs(dst, logs)
    trace.complete = False
    return trace


def test_finds_the_shortest_cycle_of_any_length() -> None:
    lengths = set()
    for seed in range(1000):
        run = shuffled_logs(Random(seed)).run()
        compare(run, check_run(run))
        lengths.add(Oracle(run).shortest_cycle())
    assert {None, 2, 3, 4} <= lengths


def test_finds_a_cycle_with_hardly_any_work_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cycles, "_CELLS_PER_STEP", 1)
    for seed in range(500):
        run = shuffled_logs(Random(seed)).run()
        report = check_run(run)
        assert failed(report) == Oracle(run).failed() & set(report.properties)
        for violation in report.violations:
            assert_evidence(run, violation)
