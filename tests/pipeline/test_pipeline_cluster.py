"""The same jobs elsewhere: a standalone cluster on the loopback, and a Spark Connect server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from amcast.check import check_run
from amcast.pipeline import TraceSpec, generate_trace
from amcast.trace import read_run
from tests.pipeline.programs import amcast, connect_server, run_to_end, standalone_cluster
from tests.pipeline.stream.growing import GrowingRun
from tests.pipeline.stream.test_pipeline_stream_watch import trace_with_swap

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("good", "cycle3"):
        damages = () if name == "good" else (name,)
        generate_trace(folder / name, TraceSpec(deliveries=2_000, groups=4, run_id=name, damages=damages))
    return [folder / "good", folder / "cycle3"]


def assert_judged(runs: list[Path], reports: list[dict[str, Any]]) -> None:
    """As in memory, by whichever Spark."""
    assert [report["properties"] for report in reports] == [check_run(read_run(run)).properties for run in runs]
    assert [report["verdict"] for report in reports] == ["pass", "fail"]
    assert {len(found["messages"]) for found in reports[1]["violations"] if found["property"] == "acyclic"} == {3}


# ------------------------------------------------------------------------------------ a standalone cluster

_JOBS = """
import sys
import msgspec
from amcast.pipeline import check_runs, read_runs, running_spark
from amcast.pipeline.swarm import Cell, Plan, SwarmSpec, run_swarm

master, *paths = sys.argv[1:]
with running_spark(master) as spark:
    runs = read_runs(spark, paths)
    reports = [report.to_json() for report in check_runs(spark, runs)]
    swarm = run_swarm(spark, Plan(SwarmSpec((Cell("skeen"), Cell("fastcast")), seeds=10), (5, 5), 4))
print(msgspec.json.encode({"runs": reports, "swarm": swarm}).decode())
"""


def test_a_check_and_a_swarm_on_a_master_and_two_workers(runs: list[Path], tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as cluster:
        ended = run_to_end([sys.executable, "-c", _JOBS, cluster.master, *map(str, runs)], tmp_path)
        (app,) = cluster.state()["completedapps"]
    assert ended.stderr == ""
    document = json.loads(ended.stdout)
    assert_judged(runs, document["runs"])
    assert [cell["schedules"] for cell in document["swarm"]["cells"]] == [10, 10]
    assert document["swarm"]["found"] == []
    assert (app["state"], app["cores"]) == ("FINISHED", 2), "both workers took part"


# ------------------------------------------------------------------------------------------- Spark Connect


def test_a_check_and_a_watch_over_spark_connect(runs: list[Path], tmp_path: Path) -> None:
    growing = GrowingRun(tmp_path / "live", trace_with_swap(20))
    growing.multicasts()
    growing.deliveries(0, 10)
    (tmp_path / "server").mkdir()
    with connect_server(tmp_path / "server") as remote:
        checked = amcast("check", *runs, "--engine", "spark", "--remote", remote, "--json", cwd=tmp_path)
        assert (checked.returncode, checked.stderr) == (1, "")
        assert_judged(runs, json.loads(checked.stdout)["runs"])
        checkpoint = tmp_path / "checkpoint"
        watch = ("watch", growing.folder, "--once", "--checkpoint", checkpoint, "--remote", remote, "--json")
        early = amcast(*watch, cwd=tmp_path)
        assert (early.returncode, early.stderr) == (3, "")
        growing.deliveries(10, 1_000)
        growing.describe(complete=True)
        late = amcast(*watch, cwd=tmp_path)
        assert (late.returncode, late.stderr) == (1, "")
    events = [json.loads(line) for line in late.stdout.splitlines()]
    assert {event["property"] for event in events if event["event"] == "violation"} >= {"prefix", "acyclic"}
    assert events[-1]["multicasts"] == events[-1]["verified"] == 40, "nothing was lost between the two"
    assert not list((checkpoint / "handed").iterdir())
