"""The benchmarks run, compare like with like, and say what they mean; how fast anything is, no test can tell."""

from __future__ import annotations

import json

import numpy as np
import pytest

from amcast.check import check_run
from bench import __main__ as cli
from bench import operations
from bench._figures import QUICK, Figure
from bench._worker import Job, start
from bench.checker import good_run
from bench.event_loop import measure


def quiet(what: str) -> None:
    pass


def test_both_sides_of_the_event_loop_ratio_do_the_same_work() -> None:
    """The measure asserts equal hops and equal virtual time before it compares."""
    names = [figure.name for figure in measure(QUICK, quiet)]
    assert names == ["event-loop", "event-loop-scattered"]


def test_the_run_for_the_checker_is_good_and_large_enough() -> None:
    run = good_run(20_000)
    report = check_run(run)
    assert len(run.deliveries) >= 20_000
    assert report.verdict == "pass"
    assert set(report.properties.values()) == {"pass"}
    assert report.properties.keys() >= {"timestamps", "fifo", "genuine"}


def test_the_histories_for_the_checker_are_good_and_can_be_broken() -> None:
    names = [figure.name for figure in operations.measure(QUICK, quiet)]
    assert names == ["operations-registers", "operations-transactions", "operations-counter"]
    history = operations.History(1_000, 10)
    assert (history.value[history.is_write] == np.flatnonzero(history.is_write)).all()
    assert len(set(history.value[~history.is_write].tolist())) > 100, "reads see many writes"


def test_pauses_do_not_change_a_run() -> None:
    pauses: list[int] = []
    whole = start(Job("fastcast", 200, groups=3))
    halting = start(Job("fastcast", 200, groups=3, pauses_us=(300, 600)), lambda: pauses.append(1))
    assert len(pauses) == 2
    assert (halting.wire_messages, halting.deliveries, halting.end_us) == (
        whole.wire_messages,
        whole.deliveries,
        whole.end_us,
    )


@pytest.mark.parametrize(
    ("reached", "target", "is_limit", "ok"),
    [(8.0, 8.0, False, True), (7.9, 8.0, False, False), (1.3, 1.3, True, True), (1.4, 1.3, True, False)],
)
def test_a_target_is_the_least_or_the_most(reached: float, target: float, is_limit: bool, ok: bool) -> None:
    assert Figure("x", reached, "", "", target, is_limit).ok is ok


@pytest.mark.parametrize(("target", "code"), [(1.0, 0), (3.0, 1), (None, 0)])
def test_the_exit_code_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: float | None, code: int
) -> None:
    figure = Figure("checker", 2.0, "x", "why", target)
    monkeypatch.setitem(cli.MEASURES, "checker", lambda sizes, progress: [figure])
    assert cli.main(["--only", "checker"]) == code
    assert "checker" in capsys.readouterr().out
    assert cli.main(["--only", "checker", "--json"]) == code
    ok = None if target is None else not code
    assert json.loads(capsys.readouterr().out) == [
        {"name": "checker", "reached": 2.0, "target": target, "unit": "x", "ok": ok, "detail": "why"}
    ]
