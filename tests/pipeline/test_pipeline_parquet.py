"""Runs between this package's Parquet and Spark's: Spark reads ours row by row, and we read what Spark writes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from amcast.core.ids import SEQ_BITS
from amcast.pipeline.ingest import spark_schema
from amcast.trace import TABLES, GroupInfo, Recorder, RunInfo, read_run, write_run

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

INFO = RunInfo(
    run_id="r1",
    protocol="skeen",
    seed=7,
    complete=True,
    groups=(GroupInfo(1, (0, 1)), GroupInfo(2, (2,))),
    correct=(0, 1, 2),
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    recorder = Recorder()
    for seq in range(40_000):  # more than a row group
        msg, t_us = 9 << SEQ_BITS | seq, int(rng.integers(0, 1 << 40))
        recorder.multicast(msg, 9, seq, (1, 2) if seq % 3 else (2,), t_us, int(rng.integers(0, 2_000)))
        recorder.delivery(2, 2, seq, msg, 0, None if seq % 7 == 0 else seq * 1_000 + t_us % 1_000, t_us)
        recorder.wire(9, 2, ("START", "soft", "ACK")[seq % 3], None if seq % 5 else msg, 10, t_us, None)
    recorder.fault(1, 5, "crash", "žluťoučký")
    write_run(tmp_path / "run", INFO, recorder)
    return tmp_path / "run"


@pytest.mark.parametrize(
    "options",
    [
        {},  # Snappy, pages of version 1
        {"compression": "zstd", "parquet.writer.version": "PARQUET_2_0"},
        {"compression": "gzip", "parquet.enable.dictionary": "false"},
    ],
    ids=str,
)
def test_a_run_survives_spark(spark: SparkSession, run: Path, tmp_path: Path, options: dict[str, str]) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(run / "run.json", copy / "run.json")
    for name, schema in TABLES.items():
        rows = spark.read.schema(spark_schema(schema)).parquet(str(run / name))
        rows.coalesce(1).write.options(**options).parquet(str(copy / name))
    wanted, found = read_run(run), read_run(copy)
    assert found.faults == wanted.faults
    words = [[each.wire.kinds[code] for code in each.wire.kind.tolist()] for each in (wanted, found)]
    assert words[0] == words[1]
    for table, names in (
        ("multicasts", ("msg", "sender", "client_seq", "dst_start", "dst", "t_us", "bytes")),
        ("deliveries", TABLES["deliveries"].names),
        ("wire", ("src", "dst", "msg", "bytes", "sent_us", "received_us")),
    ):
        for name in names:
            mine, theirs = (getattr(getattr(each, table), name) for each in (wanted, found))
            assert mine.dtype == theirs.dtype
            assert np.array_equal(mine, theirs), (table, name)
