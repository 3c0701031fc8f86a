"""Calls against multicasts: the ratios are medians of the rounds' own ratios, and rates have a target."""

from __future__ import annotations

import pytest

from bench._asking import Load
from bench.calls import figures_of, main


def _rounds(*calls: Load) -> list[dict[str, Load]]:
    return [{"call": call, "multicast": Load(1_000.0, 100.0)} for call in calls]


def test_ratios_are_medians_of_rounds_and_rates_are_judged() -> None:
    found = {1: _rounds(Load(950.0, 110.0)), 64: _rounds(Load(100.0, 900.0), Load(890.0, 120.0), Load(900.0, 130.0))}
    figures = figures_of(found, "here")
    assert [figure.name for figure in figures] == [
        "here: rate of calls, 1 outstanding",
        "here: p50 of calls, 1 outstanding",
        "here: rate of calls, 64 outstanding",
        "here: p50 of calls, 64 outstanding",
    ]
    assert [figure.reached for figure in figures] == [0.95, 1.1, 0.89, 1.3]
    assert [figure.ok for figure in figures] == [True, None, False, None]


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--durability", "memory"]) == 0
    assert "fastcast, memory: rate of calls, 16 outstanding: " in capsys.readouterr().out
