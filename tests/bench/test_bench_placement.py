"""The benchmark of placement: users come to rest where they are used, and the figures say so."""

from __future__ import annotations

import json

import pytest

from amcast.experiments.placement import Measured
from bench.placement import main


def test_placement_is_stable_after_some_75_seconds() -> None:
    """ "Once objects preferred site have been efficiently assigned, something that happens after 75 seconds into the
    execution, most operations will be local single-group." """
    run = Measured(users=150, seconds=100)
    assert 0 < run.stable_s < 80
    bins = run.bins()
    assert sum(each["moves"] for each in bins if each["from_s"] >= 80) <= 2
    assert bins[0]["median_ms"] > 50 > 5 > bins[-1]["median_ms"]
    assert sum(run.spread()["users_of_site"].values()) == 150
    assert max(run.spread()["users_of_site"].values()) < 75, "all three regions have users"


def test_without_a_policy_nothing_moves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--users", "60", "--seconds", "10", "--policy", "", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["moves"], document["stable_s"]) == (0, 0)
    assert document["bins"][-1]["median_ms"] > 50
