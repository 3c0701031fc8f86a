"""Ctrl-C: one line, exit code 130, no process and no file left behind, and a swarm or a watch that goes on later."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from amcast.core import UsageError
from amcast.pipeline import TraceSpec, generate_trace, ingest, running_spark
from amcast.pipeline.stream import Watch
from amcast.pipeline.swarm import SwarmSpec, make_cells, run_swarm
from amcast.pipeline.swarm.store import SwarmStore
from tests.pipeline.programs import own_environment, until
from tests.pipeline.stream.growing import GrowingRun
from tests.pipeline.stream.test_pipeline_stream_watch import MESSAGES, trace_with_swap

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

# Programs that a shell starts in the background ignore Ctrl-C, and so do those that they start.
_PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from amcast.cli import main
main()
"""
_MARK = "AMCAST_TEST_MARK"


class Interrupted:
    """A command in a folder of its own, which is stopped with Ctrl-C."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.scratch = folder / "scratch"
        for made in (self.work, self.scratch):
            made.mkdir()
        self._mark = f"{_MARK}={folder}"

    def processes(self) -> list[str]:
        """Command lines of all that the command started, and that they started."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return [line for line in found if line]

    def run(self, *words: object, when: Callable[[], bool]) -> str:
        """Presses Ctrl-C as soon as `when` holds; what the command wrote to stdout."""
        env = {**own_environment(self.folder), _MARK: str(self.folder), "TMPDIR": str(self.scratch)}
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.work,
            env=env,
        )
        try:
            until(lambda: process.poll() is not None or when(), lambda: f"{words} did not come so far")
            assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=40)
        finally:
            process.kill()
            process.wait()
        assert (process.returncode, err) == (130, "error: stopped\n")
        until(lambda: not self.processes(), lambda: f"left behind: {self.processes()}", seconds=20)
        assert not list(self.scratch.iterdir())
        return out

    def is_at_work(self) -> bool:
        """Spark has a Python worker, so a job runs."""
        return any("pyspark.daemon" in line for line in self.processes())


@pytest.fixture
def interrupted(tmp_path: Path) -> Interrupted:
    return Interrupted(tmp_path)


def test_a_generator(interrupted: Interrupted) -> None:
    def has_begun() -> bool:
        return any(file.stat().st_size for file in interrupted.work.rglob("*.parquet"))

    interrupted.run("tracegen", "runs/big", "--deliveries", 200_000_000, when=has_begun)
    assert not list(interrupted.work.iterdir())


def test_a_spark_that_is_starting(interrupted: Interrupted) -> None:
    generate_trace(interrupted.folder / "run", TraceSpec(deliveries=1_000, groups=2))

    def starts_java() -> bool:
        return any("SparkSubmit" in line for line in interrupted.processes())

    interrupted.run("check", interrupted.folder / "run", "--engine", "spark", when=starts_java)
    assert not list(interrupted.work.iterdir())


def test_a_report(interrupted: Interrupted) -> None:
    """In the middle of a job: the first half of a report is a check on Spark."""
    generate_trace(interrupted.folder / "run", TraceSpec(deliveries=200_000, groups=4))
    interrupted.run("report", interrupted.folder / "run", when=interrupted.is_at_work)
    assert not list(interrupted.work.iterdir())


def test_a_swarm_that_goes_on_afterwards(interrupted: Interrupted, spark: SparkSession) -> None:
    out = interrupted.work / "swarm"
    interrupted.run(
        "swarm", "--protocol", "skeen", "--seeds", 400, "--out", out, when=lambda: any(out.glob("waves/*.parquet"))
    )
    files = [file.name for file in out.rglob("*") if file.is_file()]
    assert not [name for name in files if name.startswith(".")]
    plan = SwarmStore(out).plan(SwarmSpec(make_cells(["skeen"]), 400))
    assert plan is not None
    result = run_swarm(spark, plan, out)
    assert result.resumed == sum(name.startswith("wave-") for name in files)
    assert result.cells[0].schedules == 400


def test_a_thread_that_dies_writes_nothing(spark: SparkSession) -> None:
    """As the thread of a stream may when Java ends: by default Java writes pages about it to stderr."""
    java = spark.sparkContext._jvm
    assert java is not None
    handler = java.java.lang.Thread.getDefaultUncaughtExceptionHandler()
    assert handler.getClass().getSimpleName() == "SparkUncaughtExceptionHandler"
    assert not handler.exitOnUncaughtException()


def test_a_watch_that_goes_on_afterwards(interrupted: Interrupted, spark: SparkSession) -> None:
    run = GrowingRun(interrupted.folder / "live", trace_with_swap(0))
    run.multicasts()
    run.deliveries(0, 12)
    checkpoint = interrupted.work / "checkpoint"
    journal = checkpoint / "violations.jsonl"

    def has_told() -> bool:
        return journal.exists() and journal.stat().st_size > 0

    interrupted.run("watch", run.folder, "--checkpoint", checkpoint, "--trigger", 0.1, when=has_told)
    told = journal.read_text().splitlines()
    assert not [entry.name for entry in checkpoint.iterdir() if entry.name.startswith(".")]
    run.deliveries(12, 1_000)
    run.describe(complete=True)
    watched = Watch(spark, run.folder, checkpoint)
    assert watched.run_once() == "fail"
    lines = journal.read_text().splitlines()
    assert lines[: len(told)] == told
    assert len({(found["property"], found["explanation"]) for found in map(json.loads, lines)}) == len(lines)
    assert watched.state.settled.count == MESSAGES


def interrupted_call(*_: object) -> None:
    """What a call of PySpark does if Ctrl-C comes at a bad moment."""
    try:
        raise KeyboardInterrupt
    finally:
        raise Py4JError("An error occurred while calling o1.setCallSite")


def test_ctrl_c_that_comes_back_as_an_error_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    module = sys.modules["amcast.pipeline.spark"]
    monkeypatch.setattr(module, "spark_session", lambda *_: "a session")
    monkeypatch.setattr(module, "stop_spark", lambda spark: stopped.append("stopped"))
    monkeypatch.setattr(module, "_abandon_spark", lambda spark: stopped.append("abandoned"))
    with pytest.raises(KeyboardInterrupt), running_spark():
        interrupted_call()
    with pytest.raises(UsageError, match="Spark failed"), running_spark():
        raise UsageError("Spark failed")
    assert stopped == ["abandoned", "stopped"]


def test_ctrl_c_is_no_sign_of_a_damaged_footer() -> None:
    frame = Mock()
    frame.coalesce().repartition().mapInArrow().collect = interrupted_call
    spark = Mock(createDataFrame=lambda rows: frame)
    with pytest.raises(Py4JError):
        ingest._inspect(spark, ["runs/one"], [])
