"""Linearizability on Spark, object by object: the same verdicts, words and diagrams as in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amcast.check import check_run
from amcast.check.linear.judge import judge
from amcast.pipeline import import_on_spark, read_runs
from amcast.pipeline.checks import check_files
from amcast.pipeline.checks._spread import judge_spread
from amcast.pipeline.foreign import Declared, find_sources, import_in_memory
from amcast.trace import FINAL, GroupInfo, Recorder, RunInfo, read_run, write_run
from amcast.trace.names import Names
from tests.check import linear_oracle as oracle
from tests.cli.cli_harness import Cli

INFO = RunInfo(run_id="r", protocol="p", seed=0, complete=True, groups=(), correct=())
KEY = 12345678901234567890123


def histories(seeds: range, share_damaged: float) -> list[oracle.Row]:
    """Many small histories as one: each has objects of its own."""
    rows = []
    for seed in seeds:
        random = Random(seed)
        mine = oracle.random_history(random, oracle.KINDS[seed % len(oracle.KINDS)], 6)
        if random.random() < share_damaged:
            mine = oracle.damaged(random, mine)
        for row in mine:
            steps = tuple((verb, f"h{seed}.{name}", arguments) for verb, name, arguments in row.steps)
            rows.append(replace(row, steps=steps))
    Random(1).shuffle(rows)
    return rows


def write(path: Path, rows: list[oracle.Row], files: int = 1) -> None:
    write_run(path, INFO, replace(Recorder().tables(), operations=oracle.operations_of(rows)))
    whole = path / "operations" / "part-00000.parquet"
    table = pq.read_table(whole)
    whole.unlink()
    for number in range(files):
        part = table.slice(
            len(table) * number // files, len(table) * (number + 1) // files - len(table) * number // files
        )
        pq.write_table(part, path / "operations" / f"{number}.parquet", row_group_size=500)


@pytest.mark.spark
@pytest.mark.parametrize(("share", "verdict"), [(0.0, "pass"), (0.5, "fail")])
def test_it_finds_what_the_checker_in_memory_finds(
    spark: SparkSession, tmp_path: Path, share: float, verdict: str
) -> None:
    write(tmp_path / "run", histories(range(450), share), files=3)
    run = read_run(tmp_path / "run")
    (files,) = read_runs(spark, str(tmp_path / "run")).runs
    here = judge(run.operations, Names(INFO))
    assert judge_spread(spark, files, KEY) == here
    assert (here.failed > 20) == (share > 0)
    (report,) = check_files(spark, [files], key=1, whole_rows_max=0)
    (whole,) = check_files(spark, [files], key=1)
    in_memory = check_run(run)
    assert in_memory.verdict == verdict
    assert report.to_json() == whole.to_json() == in_memory.to_json()


@pytest.mark.spark
def test_a_large_run_with_deliveries_is_judged_by_both(spark: SparkSession, tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.multicast(7, 9, 0, (1,), 10, 0)
    recorder.delivery(0, 1, 0, 7, FINAL, None, 20)
    recorder.operation(9, 10, 20, "write", "[5]", None, ["x"])
    recorder.operation(9, 30, 40, "read", "[]", "null", ["x"])
    info = RunInfo(run_id="r", protocol="p", seed=0, complete=True, groups=(GroupInfo(1, (0,)),), correct=(0,))
    write_run(tmp_path / "run", info, recorder)
    (files,) = read_runs(spark, str(tmp_path / "run")).runs
    (report,) = check_files(spark, [files], key=1, whole_rows_max=0)
    assert report.to_json() == check_run(read_run(tmp_path / "run")).to_json()
    assert (report.properties["acyclic"], report.properties["linearizability"]) == ("pass", "fail")


@pytest.mark.spark
def test_rows_that_mean_nothing_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "run", histories(range(9), 0.0))
    file = tmp_path / "run" / "operations" / "0.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("operation")
    pq.write_table(table.set_column(at, "operation", pa.array(["flip"] * len(table))), file)
    (files,) = read_runs(spark, str(tmp_path / "run")).runs
    for rows_max in (0, 1_000_000):
        (report,) = check_files(spark, [files], key=1, whole_rows_max=rows_max)
        assert report.verdict == "unknown"
        assert "column operation: 'flip' is none of read, write" in (report.unreadable or "")


@pytest.mark.spark
def test_an_import_on_spark_gives_the_same_run(spark: SparkSession, tmp_path: Path) -> None:
    lines = ["client,invoked,returned,operation,objects,arguments,result"]
    for number in range(2_000):
        verb, arguments, result = [("put", f"v{number}", ""), ("get", "", f"v{number - 1}")][number % 2]
        lines.append(f"c{number % 7},{10 * number},{10 * number + 5},{verb},k{number // 2 % 50},{arguments},{result}")
    steps = '"[[""put"",""k1"",1],[""put"",""k2"",2]]"'
    lines.append(f"c1,30000,,transaction,k1 k2,{steps},")
    (tmp_path / "operations.csv").write_text("\n".join(lines) + "\n")
    sources = find_sources([tmp_path / "operations.csv"])
    here = import_in_memory(sources, Declared(run_id="theirs"), tmp_path / "here")
    there = import_on_spark(spark, sources, Declared(run_id="theirs"), tmp_path / "there", part_bytes=10_000)
    assert (here.rows, here.info, here.words) == (there.rows, there.info, there.words)
    one, other = (pq.read_table(tmp_path / name / "operations") for name in ("here", "there"))
    assert one.equals(other)
    assert check_run(read_run(tmp_path / "there")).properties == {"linearizability": "pass"}


@pytest.mark.spark
def test_the_command_line_gives_the_same_answer_with_both_engines(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "run", histories(range(90), 0.5))
    here, there = (cli("check", "run", "--json", "--engine", engine) for engine in ("memory", "spark"))
    assert (here.code, there.code) == (1, 1)
    documents = [here.json, there.json]
    assert documents[0]["violations"][0]["operations"]
    for document in documents:
        for found in (*document["violations"], *document["runs"]):
            found.pop("run", None)
            found.pop("path", None)
    assert documents[0] == documents[1]
    assert "goes with --engine memory" in cli.refuses("check", "run", "--engine", "spark", "--budget", "5")
    assert cli("report", "run", "--out", "page").code in (0, 1)
    assert "from call to answer" in (tmp_path / "page" / "index.html").read_text()
