"""The cluster benchmark runs, ends what it started, and counts right; how fast anything is, no test can tell."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench._figures import Figure
from bench.cluster import __main__ as cli
from bench.cluster._children import BrokenError, Worker
from bench.cluster._comparisons import COMPARISONS, DEEP, ONE, Found, rate_1024, two_groups
from bench.cluster._jobs import CpuMeter, Outcome, Shape
from bench.cluster._measure import Sizes, measure_all
from bench.cluster._report import draw, figure_rows, measurement_rows, table
from bench.cluster._soak import percentile, trend
from bench.cluster._systems import SYSTEMS, Amcast, missing

SHORT = Sizes(rounds=1, seconds=0.3)


def quiet(what: str) -> None:
    pass


def made_up(rate: float, cpu_us: float = 8.0) -> Outcome:
    return Outcome(int(rate), 1.0, 100.0, 300.0, cpu_us, 2.0)


@pytest.mark.slow
def test_amcast_and_a_peer_are_measured_in_the_same_shapes(tmp_path: Path) -> None:
    shapes = (Shape(1, 1), Shape(2, 8))
    wanted = [(system, shape) for system in ("amcast", "pysyncobj") for shape in shapes]
    results, broken = measure_all(wanted, SHORT, tmp_path, quiet)
    assert broken == {}
    assert list(results) == wanted
    for outcomes in results.values():
        (outcome,) = outcomes
        assert outcome.messages >= 200
        assert 0 < outcome.p50_us <= outcome.p99_us
        assert outcome.rate > 0
        assert outcome.cpu_us > 0
    assert all(results["amcast", shape][0].load_cpu_us > 0 for shape in shapes)
    draw(results, tmp_path / "cluster.svg")
    assert "amcast" in (tmp_path / "cluster.svg").read_text()


@pytest.mark.slow
def test_a_system_ends_with_its_block_even_if_that_fails(tmp_path: Path) -> None:
    pids: list[int] = []

    def fail_inside() -> None:
        with Amcast(tmp_path / "amcast") as system:
            pids.extend(system.pids().values())
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail_inside()
    assert len(pids) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not (tmp_path / "amcast").exists()


def test_a_worker_that_ends_is_no_answer() -> None:
    worker = Worker("bench.cluster._load_amcast")
    try:
        worker.tell(ONE)  # it is no job
        with pytest.raises(BrokenError, match="ended without an answer"):
            worker.hear(Outcome, 30)
    finally:
        worker.end()


def test_a_comparison_holds_against_the_best_shape_of_the_peer() -> None:
    found = Found(
        {
            ("amcast", Shape(64, 16)): [made_up(90), made_up(120)],
            ("amcast", Shape(1, 1_024)): [made_up(240)],
            ("pysyncobj", Shape(64, 16)): [made_up(10)],
            ("pysyncobj", Shape(1, 1_024)): [made_up(20), made_up(5)],
        }
    )
    assert [(figure.reached, figure.ok) for figure in rate_1024(found)] == [(6.0, True), (12.0, True)]


def test_what_did_not_run_is_not_compared() -> None:
    assert two_groups(Found({("amcast", DEEP): [made_up(100)]})) == []


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_every_comparison_finds_what_it_asks_for(name: str) -> None:
    wanted, figures = COMPARISONS[name]
    assert {system for system, _ in wanted} <= set(SYSTEMS)
    found = figures(Found({measurement: [made_up(100)] for measurement in wanted}))
    assert any(figure.target is not None for figure in found)


def test_cpu_time_is_counted_between_the_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([1.0, 10.0, 1.5, 10.1, 3.0, 10.5])
    monkeypatch.setattr("bench.cluster._jobs.cpu_seconds", lambda pids: next(readings))
    meter = CpuMeter([1], [2])
    for messages in (500, 1_000, 1_500):
        meter.mark(messages)
    assert meter.us_a_message() == pytest.approx((2_000.0, 500.0))


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "etcd-server" in str(missing("etcd"))
    assert "nats-server" in str(missing("nats"))
    assert missing("amcast") is None


def test_the_exit_code_and_the_tables_say_what_was_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {("amcast", DEEP): [made_up(1_000), made_up(2_000)]}
    figures = [Figure("cpu", 12.0, "us", "why", 10.0, is_limit=True)]
    monkeypatch.setattr(cli, "compare", lambda *_: (results, figures, {"etcd": "not installed"}))
    assert cli.main(["--quick"]) == 1
    text = capsys.readouterr().out
    assert "missed" in text
    assert "etcd did not run" in text
    assert cli.main(["--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["messages_per_s"] for each in document["measurements"][0]["rounds"]] == [1_000, 2_000]
    assert document["absent"] == {"etcd": "not installed"}


def test_tables_line_up() -> None:
    lines = table(measurement_rows({("amcast", DEEP): [made_up(1_000)], ("etcd", ONE): [made_up(10)]})).splitlines()
    column = lines[0].index("messages/s")
    assert [line[column - 1] for line in lines] == [" "] * len(lines)
    assert lines[2][column:].startswith("1,000")
    assert figure_rows([Figure("x", 2.0, "x", "", 1.0)])[1][2:4] == ["at least 1", "met"]


def test_a_percentile_lies_in_its_bucket() -> None:
    us = np.array([100.0] * 98 + [1_000.0] * 2)
    numbers, counts = np.unique((np.log(us) * 50).astype(int), return_counts=True)
    buckets = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    assert percentile(buckets, 0.50) == pytest.approx(100, rel=0.03)
    assert percentile(buckets, 0.99) == pytest.approx(1_000, rel=0.03)


def test_a_trend_is_the_growth_over_the_whole_time() -> None:
    seconds = np.arange(10.0, 110.0)
    assert trend(seconds, 50 + 0.1 * seconds) == pytest.approx((9.9, 51.0))
