"""The Spark checker and the in-memory checker agree, on good and damaged runs, hundreds in one job."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from amcast.check.report import ABOUT_THE_WIRE
from amcast.pipeline import TraceSpec, check_runs, generate_trace, read_runs, violations
from amcast.pipeline.checks import checker
from amcast.pipeline.checks.checker import check_files
from amcast.trace import read_run_info
from amcast.trace.schema import RUN_FILE, encode_run_info
from tests.check.traces import JUDGED
from tests.pipeline import sql_oracle as oracle
from tests.pipeline.agreement import assert_same, write_damaged, write_generated

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_five_hundred_damaged_runs_in_one_job(spark: SparkSession, tmp_path: Path) -> None:
    write_damaged(tmp_path, range(440))
    write_generated(tmp_path, range(4))
    runs = read_runs(spark, str(tmp_path))
    assert len(runs) == 500
    assert not runs.quarantined
    reports = check_runs(spark, runs)
    for name in JUDGED:
        assert {report.properties.get(name) for report in reports} >= {"pass", "fail"}, name
    for report in reports:
        assert_same(report, Path(report.path))


def test_proofs_in_pieces_agree(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "_SEGMENT_ROWS", 300)
    write_generated(tmp_path, range(1, 2))
    not_recorded = tmp_path / "not-recorded"
    shutil.copytree(tmp_path / "good-1", not_recorded)
    info = msgspec.structs.replace(read_run_info(not_recorded), run_id="not-recorded", missing=("no trace of g1.p0",))
    (not_recorded / RUN_FILE).write_bytes(encode_run_info(info))
    runs = read_runs(spark, str(tmp_path))
    reports = check_files(spark, runs.runs, key=1, whole_rows_max=0)
    for report in reports:
        assert_same(report, Path(report.path))
    verdicts = {report.run_id: set(report.properties.values()) for report in reports}
    assert verdicts["not-recorded"] == {"unknown"}


def test_violations_are_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("good", "cycle3"):
        damages = () if name == "good" else (name,)
        spec = TraceSpec(deliveries=2_000, run_id=name, stamped=False, damages=damages)
        generate_trace(tmp_path / name, spec)
    frame = violations(spark, read_runs(spark, str(tmp_path)))
    rows = frame.collect()
    assert frame.columns == ["run_id", "property", "messages", "processes", "explanation"]
    assert [(row.run_id, row.property, len(row.messages)) for row in rows] == [("cycle3", "acyclic", 3)]


def test_the_plain_definitions_in_sql_agree(spark: SparkSession, tmp_path: Path) -> None:
    write_damaged(tmp_path, range(1000, 1040))
    runs = read_runs(spark, str(tmp_path))
    # The questions in SQL know neither states that were handed over nor rows that are missing.
    passed_over = {run.run_id for run in runs.runs if run.info.missing}
    passed_over |= {row.run_id for row in runs.table("faults").where("what = 'restored'").select("run_id").collect()}
    tables = oracle.Tables(
        runs.table("deliveries").cache(),
        runs.table("multicasts").cache(),
        runs.table("faults").cache(),
        oracle.members_frame(spark, runs.runs),
    )
    found: dict[str, set[str]] = {run.run_id: set() for run in runs.runs}
    for question in (*oracle.LINEAR, *oracle.PAIRS):
        for row in question(tables).collect():
            found[row.run_id].add(row.property)
    for report in check_runs(spark, runs):
        if report.run_id not in passed_over:
            failed = {name for name, verdict in report.properties.items() if verdict == "fail"} - set(ABOUT_THE_WIRE)
            assert found[report.run_id] & report.properties.keys() == failed, report.path
