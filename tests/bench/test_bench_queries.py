"""Queries against calls: the ratios are of medians, and only those that say something have a target."""

from __future__ import annotations

import pytest

from bench.queries import figures_of, main

FOUND = {
    "call_us": [100.0, 200.0, 900.0],
    "query_us": [90.0, 100.0, 110.0],
    "local_us": [50.0, 50.0, 50.0],
    "call_rate": [1_000.0, 1_000.0, 10.0],
    "query_rate": [2_000.0, 4_000.0, 5_000.0],
    "local_rate": [2_000.0, 2_000.0, 2_000.0],
}


def test_ratios_are_of_medians_and_judged() -> None:
    figures = {figure.name.partition(": ")[2]: figure for figure in figures_of(FOUND, "here", has_disk=True)}
    assert {name: figure.reached for name, figure in figures.items()} == {
        "rate of query": 4.0,
        "latency of query": 0.5,
        "rate of local": 2.0,
        "latency of local": 0.25,
    }
    assert {name: figure.ok for name, figure in figures.items()} == {
        "rate of query": True,
        "latency of query": True,
        "rate of local": None,
        "latency of local": None,
    }


def test_slow_queries_fail_where_calls_wait_for_a_disk() -> None:
    slow = {**FOUND, "query_us": [190.0, 190.0, 190.0], "query_rate": [2_900.0] * 3}
    assert [figure.ok for figure in figures_of(slow, "here", has_disk=True)][:2] == [False, False]
    assert [figure.ok for figure in figures_of(slow, "here", has_disk=False)][:2] == [False, None]


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--durability", "memory"]) == 0
    assert "fastcast, memory: rate of query: " in capsys.readouterr().out
