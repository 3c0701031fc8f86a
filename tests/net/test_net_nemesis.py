"""A few rounds of faults on real processes (`make nemesis` runs many), and how the nemesis judges."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from amcast.core import AppMessage, app_message
from amcast.net.client.observer import Delivery
from amcast.net.local import LocalCluster, plan
from bench.nemesis import Result, torment
from bench.nemesis._judge import Reading, count_changed, count_lost, differences
from bench.nemesis._load import Acknowledged
from bench.nemesis._node import Digest, read_states

FAULTS = ("kill-leader", "cut", "stop-then-kill", "format-by-mistake", "restore-copy")  # each comes once in five rounds


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["fastcast", "basecast"])
def test_a_real_cluster_keeps_its_promises_under_faults(protocol: str, tmp_path: Path) -> None:
    result = asyncio.run(torment(tmp_path / "c", protocol, rounds=5, seed=7, faults=FAULTS))
    assert result.is_good, result
    assert sorted(result.faults) == sorted(FAULTS)


@pytest.mark.slow
def test_one_liar_in_each_group_breaks_no_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = asyncio.run(torment(tmp_path / "c", "byzcast", rounds=2, seed=7, faults=("kill-leader", "cut")))
    assert result.is_good, result
    assert capsys.readouterr().out.count(" lie (") == 1, "in every second round"


@pytest.mark.slow
def test_geopaxos_stays_linearizable_when_a_whole_site_is_killed(tmp_path: Path) -> None:
    faults = ("kill-group", "cut", "kill-leader")
    result = asyncio.run(torment(tmp_path / "c", "geopaxos", rounds=3, seed=7, clients=6, faults=faults))
    assert result.is_good, result
    assert sorted(result.faults) == sorted(faults)


def message(seq: int, payload: bytes = b"x") -> AppMessage:
    return app_message(9, seq, (1,), payload, 0)


def read(messages: list[AppMessage]) -> Reading:
    reading = Reading()
    for position, each in enumerate(messages):
        reading.add(Delivery(position, each, None))
    return reading


def states_of(path: Path, messages: list[AppMessage]) -> list[tuple[int, int]]:
    machine = Digest(path)
    for each in messages:
        machine.apply(each)
    return read_states(path)


def test_an_application_that_applied_what_was_read_is_good(tmp_path: Path) -> None:
    sent = [message(0), message(1), message(2)]
    assert differences("g1.p0", states_of(tmp_path / "a" / "g1.p0", sent), read(sent).states) == []


@pytest.mark.parametrize(
    ("applied", "complaint"),
    [
        ([message(0), message(2), message(1)], "2 times in a state that nobody can have read, first at position 2"),
        ([message(0), message(1, b"y"), message(2)], "first at position 2"),
        ([message(0), message(1)], "ended at position 2 of 3"),
        ([message(0), message(1), message(2), message(3)], "first at position 4"),
    ],
)
def test_an_application_that_applied_anything_else_is_not(
    applied: list[AppMessage], complaint: str, tmp_path: Path
) -> None:
    expected = read([message(0), message(1), message(2)]).states
    (found,) = differences("g1.p0", states_of(tmp_path / "a" / "g1.p0", applied), expected)
    assert complaint in found


def test_an_application_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    first, second = Digest(tmp_path / "a" / "g1.p0"), Digest(tmp_path / "a" / "g1.p1")
    first.apply(message(0))
    second.restore(first.snapshot())
    second.apply(message(1))
    assert differences("g1.p1", read_states(tmp_path / "a" / "g1.p1"), read([message(0), message(1)]).states) == []
    second.apply(message(1))
    (found,) = differences("g1.p1", read_states(tmp_path / "a" / "g1.p1"), read([message(0), message(1)]).states)
    assert "first at position 3" in found, "a message that is applied twice is seen"


def test_what_is_missing_in_one_group_is_lost_and_what_was_altered_is_changed() -> None:
    first, second = message(0, b"one"), message(1, b"two")
    told = {
        first.id: Acknowledged(("g1", "g2"), read([first]).checksums[first.id]),
        second.id: Acknowledged(("g1",), read([message(1, b"another")]).checksums[second.id]),
    }
    readings = {"g1": read([first, second]), "g2": read([])}
    assert count_lost(told, readings) == 1
    assert count_changed(told, readings.values()) == 1


def test_a_run_is_good_only_without_any_complaint() -> None:
    good = Result("fastcast", {"kill": 1}, 10, {"g1": 10}, "pass", [], 0, 0, 0, 0, [], [])
    assert good.is_good
    bad = {
        "acknowledged": 0,
        "verdict": "unknown",
        "lost": 1,
        "duplicates": 1,
        "changed": 1,
        "reused_ids": 1,
        "applications": ["g1.p0 ended at position 2 of 3"],
        "problems": ["not drained"],
    }
    for name, value in bad.items():
        assert not msgspec.structs.replace(good, **{name: value}).is_good, name


class Sleepers(LocalCluster):
    def command(self, name: str) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_child_runs_until_it_is_waited_for_whatever_its_command_line_says(tmp_path: Path) -> None:
    """A process that is ending has no command line any more. It still holds its files, and the lock of its folder."""
    LocalCluster.create(tmp_path / "c", plan(tmp_path / "c", "fastcast", 1))
    cluster = Sleepers(tmp_path / "c")
    cluster.start(["g1.p0"])
    assert cluster.pid("g1.p0") is not None
    cluster.kill("g1.p0")
    assert cluster.pid("g1.p0") is None
