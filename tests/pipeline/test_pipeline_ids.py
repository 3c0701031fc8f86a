"""Ids of clients of any width: those of a running cluster have 37 bits, and those of older runs had a column of 32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amcast.check import check_run
from amcast.core import message_id
from amcast.core.ids import CLIENT_ID_LIMIT
from amcast.pipeline import check_runs, read_runs
from amcast.pipeline.metrics import compute, frames_of
from amcast.pipeline.stream import Watch
from amcast.trace import read_run, write_run
from tests.check.traces import Trace, good_trace

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

CLIENT_COLUMNS = {"multicasts": ("sender",), "wire": ("src", "dst"), "faults": ("process",)}


def trace_of(seed: int, add: int) -> Trace:
    """A good run. `add` is added to the ids of its clients, which the ids of its messages have in them."""
    trace = good_trace(Random(seed), groups=3, replicas=2, messages=60, dst_max=2)
    new = {sent.msg: message_id(sent.sender + add, sent.seq) for sent in trace.sent}
    clients = {sent.sender for sent in trace.sent}
    trace.sent = [replace(sent, msg=new[sent.msg], sender=sent.sender + add) for sent in trace.sent]
    for logs in (trace.logs, trace.optimistic):
        for process, rows in logs.items():
            logs[process] = [replace(row, msg=new[row.msg]) for row in rows]
    ends = {client: client + add for client in clients}
    trace.wire = [
        (ends.get(src, src), ends.get(dst, dst), kind, None if msg is None else new[msg], sent, received)
        for src, dst, kind, msg, sent, received in trace.wire
    ]
    trace.faults.append((max(clients) + add, 1, "crash", ""))
    return trace


def narrow(run: Path) -> None:
    """Makes it a run as it was written when the ids of clients had 32 bits."""
    for table, columns in CLIENT_COLUMNS.items():
        for file in (run / table).iterdir():
            rows = pq.read_table(file)
            for name in columns:
                at = rows.column_names.index(name)
                rows = rows.set_column(at, pa.field(name, pa.int32(), nullable=False), rows.column(name).cast("int32"))
            pq.write_table(rows, file)


def metrics_of(spark: SparkSession, run: Path) -> dict[str, Any]:
    return {name: table.to_pylist() for name, table in compute(frames_of(read_runs(spark, str(run)))).items()}


def verdicts_of(spark: SparkSession, run: Path, checkpoint: Path) -> tuple[Any, ...]:
    """What the checker in memory says, the one on Spark, and the watch."""
    (report,) = check_runs(spark, read_runs(spark, str(run)))
    return check_run(read_run(run)).to_json(), report.to_json(), Watch(spark, run, checkpoint).run_once()


HUGE = CLIENT_ID_LIMIT - 1_000


@pytest.mark.parametrize("has_stranger", [False, True])
def test_huge_ids_of_clients_are_judged_like_small_ones(
    spark: SparkSession, tmp_path: Path, has_stranger: bool
) -> None:
    found = {}
    for add in (0, HUGE):
        trace = trace_of(1, add)
        client = trace.sent[0].sender
        if has_stranger:  # a message between clients that nobody multicast anything for: not genuine
            trace.wire += [
                (client + 500, client + 501, "gossip", None, 5, 6),
                (client, client + 501, "gossip", None, 5, 6),
            ]
        write_run(tmp_path / str(add), trace.info(), trace.recorder())
        found[add] = verdicts_of(spark, tmp_path / str(add), tmp_path / f"watch-{add}")
    in_memory, on_spark, _ = found[HUGE]
    assert in_memory == on_spark
    assert found[0][0]["properties"] == in_memory["properties"]
    assert in_memory["properties"]["genuine"] == ("fail" if has_stranger else "pass")
    assert in_memory["properties"]["fifo"] == "pass"
    assert found[0][2] == found[HUGE][2] == "pass"  # the watch does not look at the wire
    if has_stranger:
        ends = {tuple(each["processes"]) for each in in_memory["violations"] if each["property"] == "genuine"}
        assert ends == {(client + 500, client + 501), (client, client + 501)}


def test_huge_ids_of_clients_are_measured_like_small_ones(spark: SparkSession, tmp_path: Path) -> None:
    for add in (0, HUGE):
        trace = trace_of(2, add)
        trace.faults = []  # the table of faults names the process
        write_run(tmp_path / str(add), trace.info(), trace.recorder())
    assert metrics_of(spark, tmp_path / str(HUGE)) == metrics_of(spark, tmp_path / "0")


def test_a_run_with_narrow_ids_of_clients_is_read_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    trace = trace_of(3, 0)
    for name in ("new", "old"):
        write_run(tmp_path / name, trace.info(), trace.recorder())
    narrow(tmp_path / "old")
    assert read_run(tmp_path / "old").multicasts.sender.dtype == "int64"
    assert read_run(tmp_path / "old").wire.src.dtype == "int64"
    assert metrics_of(spark, tmp_path / "old") == metrics_of(spark, tmp_path / "new")
    old = verdicts_of(spark, tmp_path / "old", tmp_path / "watch-old")
    assert old == verdicts_of(spark, tmp_path / "new", tmp_path / "watch-new")
    assert old[0]["verdict"] == old[2] == "pass"
