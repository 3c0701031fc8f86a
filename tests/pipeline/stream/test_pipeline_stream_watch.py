"""The watch on Spark: violations in time, once each, across kills; late files; a run that ends."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from amcast.core import UsageError
from amcast.pipeline.stream import Event, Watch
from amcast.pipeline.stream.checkpoint import Checkpoint
from tests.check.traces import Trace, good_trace
from tests.pipeline.stream.growing import GrowingRun

MESSAGES = 40


class KilledError(Exception):
    pass


def trace_with_swap(position: int) -> Trace:
    """All replicas of group 1 deliver two messages in an order that is not that of group 2."""
    trace = good_trace(Random(1), groups=2, replicas=2, messages=MESSAGES, dst_max=2)
    shared = [row.pos for row in trace.logs[0] if len(trace.message(row.msg).dst) == 2]
    one, other = [at for at in shared if at >= position][:2]
    for process in (0, 1):
        trace.swap(process, one, other)
    return trace


def journal(checkpoint: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (checkpoint / "violations.jsonl").read_text().splitlines()]


def test_a_violation_in_a_later_file_is_told_within_two_triggers(watch_spark: SparkSession, tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run", trace_with_swap(20))
    run.multicasts()
    run.deliveries(0, 10)
    events: list[Event] = []
    arrived = 0

    def between_triggers(_: float) -> None:
        nonlocal arrived
        last = events[-1]
        if not arrived and last["event"] == "idle":
            assert last["verdict"] == "unknown", "nothing is wrong yet, and nothing is proven"
            arrived = last["trigger"]
            run.deliveries(10, 1_000)
        elif arrived and last["trigger"] > arrived + 1:
            run.describe(complete=True)

    verdict = Watch(watch_spark, run.folder, tmp_path / "checkpoint", events.append).run(0.1, between_triggers)
    assert verdict == "fail"
    found = [event for event in events if event["event"] == "violation"]
    assert {event["property"] for event in found} >= {"prefix", "acyclic"}
    assert all(arrived < event["trigger"] <= arrived + 2 for event in found)
    assert [event["property"] for event in journal(tmp_path / "checkpoint")] == [event["property"] for event in found]
    assert events[-1]["event"] == "end"
    assert events[-1]["properties"]["agreement"] == "pass"


def test_a_good_run_passes_when_it_is_complete_and_files_may_come_late(
    watch_spark: SparkSession, tmp_path: Path
) -> None:
    trace = good_trace(Random(2), groups=2, replicas=2, messages=MESSAGES)
    trace.restore(1, 5, 9)
    run = GrowingRun(tmp_path / "run", trace)
    run.deliveries(10, 1_000)  # before what comes before, and before anybody says what was multicast
    events: list[Event] = []

    def look() -> str:
        return Watch(watch_spark, run.folder, tmp_path / "checkpoint", events.append, patience=2).run_once()

    assert look() == "unknown"
    run.deliveries(0, 10)
    run.multicasts()
    run.faults()
    run.describe(complete=True)
    assert look() == "pass"
    assert not [event for event in events if event["event"] == "violation"]
    assert events[-1]["verified"] == MESSAGES


@pytest.mark.parametrize("when", ["before the state is replaced", "after the state is replaced"])
def test_killed_and_started_again_it_repeats_and_misses_nothing(
    watch_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    run = GrowingRun(tmp_path / "run", trace_with_swap(0))
    run.multicasts()
    run.deliveries(0, 12)
    checkpoint = tmp_path / "checkpoint"
    commit = Checkpoint.commit

    def die(*_: object) -> None:
        raise KilledError

    def commit_and_die(self: Checkpoint, *arguments: Any) -> None:
        commit(self, *arguments)
        raise KilledError

    doomed = Watch(watch_spark, run.folder, checkpoint)
    with monkeypatch.context() as patch:
        if when.startswith("before"):
            patch.setattr("amcast.trace.whole.os.replace", die)
        else:
            patch.setattr(Checkpoint, "commit", commit_and_die)
        with pytest.raises(UsageError, match="the watch stopped"):
            doomed.run_once()
    told = journal(checkpoint)
    assert {line["property"] for line in told} == {"prefix", "acyclic", "timestamps"}
    run.deliveries(12, 1_000)
    run.describe(complete=True)
    assert Watch(watch_spark, run.folder, checkpoint).run_once() == "fail"
    lines = journal(checkpoint)
    assert lines[: len(told)] == told
    assert len({(line["property"], line["explanation"]) for line in lines}) == len(lines)
    # As if nobody had been killed, up to the numbers of batches.
    assert Watch(watch_spark, run.folder, tmp_path / "other").run_once() == "fail"
    assert {line["property"] for line in journal(tmp_path / "other")} == {line["property"] for line in lines}


def test_checkpoints_of_others_and_bad_runs_are_refused(watch_spark: SparkSession, tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run", trace_with_swap(0))
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(UsageError, match="does not exist"):
        Watch(watch_spark, tmp_path / "nowhere", checkpoint)
    held = Checkpoint(checkpoint)
    with pytest.raises(UsageError, match="another watch is using"):
        Watch(watch_spark, run.folder, checkpoint)
    held.commit(held.load("another run"), [])
    held.close()
    with pytest.raises(UsageError, match="belongs to the run another run"):
        Watch(watch_spark, run.folder, checkpoint)
    (checkpoint / "state.msgpack").write_bytes(b"half")
    with pytest.raises(UsageError, match="can't be read"):
        Watch(watch_spark, run.folder, checkpoint)
    (run.folder / "deliveries").mkdir()
    (run.folder / "deliveries" / "0-1.parquet").write_bytes(b"no parquet")
    with pytest.raises(UsageError, match="the watch stopped") as caught:
        Watch(watch_spark, run.folder, tmp_path / "fresh").run_once()
    assert "\n" not in str(caught.value)
