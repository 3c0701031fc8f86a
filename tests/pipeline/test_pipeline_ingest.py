"""What lies about beside whole runs is named and set aside; only where nothing is left is it an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amcast.core import UsageError
from amcast.pipeline import TraceSpec, check_runs, generate_trace, read_runs
from amcast.trace.schema import MULTICASTS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "good"
    generate_trace(folder, TraceSpec(deliveries=600, groups=3, run_id="good"))
    return folder


def broken(good: Path, name: str) -> Path:
    """A copy to break."""
    folder = good.parent / name
    shutil.copytree(good, folder)
    return folder


def first_log(folder: Path) -> Path:
    return min((folder / "deliveries").iterdir())


def break_all(good: Path) -> dict[str, str]:
    """Every way to be no run, and a word of the reason for it."""
    truncated = first_log(broken(good, "truncated"))
    truncated.write_bytes(truncated.read_bytes()[:-100])
    first_log(broken(good, "empty-file")).write_bytes(b"")
    (broken(good, "foreign") / "deliveries" / "notes.txt").write_text("hello")
    shutil.rmtree(broken(good, "no-multicasts") / "multicasts")
    (broken(good, "unfinished") / "run.json").unlink()
    (broken(good, "bad-json") / "run.json").write_text("{")
    retype(broken(good, "retyped") / "multicasts" / "part-00000.parquet", "msg", pa.int32())
    (good.parent / "nothing").mkdir()
    (good.parent / ".half.x1").mkdir()
    (good.parent / "half.tmp").mkdir()
    (good.parent / "readme.txt").write_text("hello")
    return {
        "truncated": "not a whole Parquet file",
        "empty-file": "not a whole Parquet file",
        "foreign": "notes.txt is not a Parquet file",
        "no-multicasts": "a run needs the table multicasts",
        "unfinished": "run.json is missing",
        "bad-json": "run.json",
        "retyped": "column msg is int32 and must be int64",
        "nothing": "run.json is missing",
        ".half.x1": "still being written",
        "half.tmp": "still being written",
        "readme.txt": "a file that belongs to no run",
    }


def retype(path: Path, column: str, kind: pa.DataType) -> None:
    table = pq.read_table(path)
    fields = [field.with_type(kind) if field.name == column else field for field in table.schema]
    columns = [pa.array([0] * len(table), kind) if f.name == column else table.column(f.name) for f in fields]
    pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), path)


def test_whatever_is_broken_is_named_and_the_rest_is_checked(spark: SparkSession, good: Path) -> None:
    reasons = break_all(good)
    runs = read_runs(spark, str(good.parent))
    assert [run.run_id for run in runs.runs] == ["good"]
    found = {Path(item.path).name: item.reason for item in runs.quarantined}
    assert found.keys() == reasons.keys()
    for name, words in reasons.items():
        assert words in found[name]
        assert "\n" not in found[name]
    (report,) = check_runs(spark, runs)
    assert report.verdict == "pass"


def test_nothing_usable_is_an_error_in_one_line(spark: SparkSession, good: Path, tmp_path: Path) -> None:
    reasons = break_all(good)
    for name in reasons:
        if not name.startswith("."):
            with pytest.raises(UsageError) as caught:
                read_runs(spark, str(good.parent / name))
            assert name in str(caught.value)
            assert "\n" not in str(caught.value)
    for path in (str(tmp_path / "no" / "such"), str(tmp_path / "no*"), "nowhere://x/y"):
        with pytest.raises(UsageError):
            read_runs(spark, path)
    with pytest.raises(UsageError):
        read_runs(spark, [])


def test_patterns_lists_and_twins(spark: SparkSession, good: Path) -> None:
    broken(good, "twin")
    runs = read_runs(spark, [str(good), f"{good.parent}/t*", f"file://{good}"])
    assert len(runs) == 2
    assert runs.runs[0].run_id == "good"
    assert "twin" in runs.runs[1].run_id  # two runs with one id can't be told apart otherwise


def test_tables_have_the_columns_of_the_schema(spark: SparkSession, good: Path) -> None:
    broken(good, "twin")
    runs = read_runs(spark, str(good.parent))
    multicasts = runs.table("multicasts")
    assert multicasts.columns == ["run_id", *MULTICASTS.names]
    counts = {row.run_id: row["count"] for row in multicasts.groupBy("run_id").count().collect()}
    assert counts == {run.run_id: run.rows("multicasts") for run in runs.runs}
    assert runs.table("wire").count() == 0
