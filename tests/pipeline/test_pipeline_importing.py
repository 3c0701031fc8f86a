"""Imports on Spark give the tables that imports in memory give, whatever way the files are cut into parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amcast.pipeline import import_on_spark
from amcast.pipeline.foreign import Declared, ForeignTraceError, find_sources, import_in_memory
from amcast.pipeline.foreign.parts import parts_of
from amcast.pipeline.foreign.sources import LINE_BYTES_MAX
from amcast.pipeline.importing import _joined, _read_part, _ReadAnswer, _ReadTask
from amcast.trace import TABLES
from tests.cli.cli_harness import Cli
from tests.foreign_traces import GROUP_OPTIONS, GROUPS, ForeignTrace, write_csv

DECLARED = Declared(run_id="theirs", complete=True, claims=["fifo"], groups={name: [*GROUPS[name]] for name in GROUPS})
SMALL = 100_000  # bytes of a part, so that files have several


def assert_same_runs(one: Path, other: Path) -> None:
    assert (one / "run.json").read_bytes() == (other / "run.json").read_bytes()
    folders = [*TABLES, *(f"names/{name}" for name in ("clients", "messages") if (one / "names" / name).exists())]
    for folder in folders:
        # In the order of the files' names, as readers take them.
        mine, theirs = (pq.read_table(root / folder) for root in (one, other))
        assert mine.equals(theirs), folder
    assert (one / "names").exists() == (other / "names").exists()
    logs = [sorted(file.name for file in (root / "deliveries").iterdir()) for root in (one, other)]
    assert logs[0] == logs[1], "one file for each process, so that checks can be divided"


def numbers_for_names(folder: Path) -> None:
    """The same trace with integers: messages above 2^53, processes, groups and clients."""
    trace = ForeignTrace(400)
    number = {name: 100 + at for at, name in enumerate(trace.group_of)}
    group = {name: 7 + at for at, name in enumerate(GROUPS)}
    message = {str(row[0]): 2**53 + 1 + at for at, row in enumerate(trace.multicasts)}
    rows = [(number[str(p)], group[str(g)], pos, message[str(m)], t) for p, g, pos, m, t in trace.delivery_rows()]
    write_csv(folder / "deliveries.csv", ("process", "grp", "pos", "msg", "t_us"), rows)


def without_positions(folder: Path) -> None:
    """JSON lines, deliveries alone, without positions, in the order in which a collector got them."""
    folder.mkdir()
    rows = sorted(ForeignTrace(400).delivery_rows(), key=lambda row: (str(row[3])[-1], row[2]))
    lines = [json.dumps({"process": p, "grp": g, "msg": m, "odd": t}) for p, g, _, m, t in rows]
    (folder / "deliveries.jsonl").write_text("\n".join(lines))


def with_everything(folder: Path) -> None:
    trace = ForeignTrace(3_000)
    trace.write(folder)
    wire = [("client-a", "db-1", "START", "tx-5", 10, 20), ("db-1", "db-3", "HELLO", "", 30, "")] * 500
    write_csv(folder / "wire.csv", ("src", "dst", "kind", "msg", "sent_us", "received_us"), wire)
    write_csv(folder / "faults.csv", ("process", "t_us", "what"), [("db-2", 5, "crash"), ("db-2", 9, "restart")])


@pytest.mark.spark
@pytest.mark.parametrize("write", [with_everything, numbers_for_names, without_positions])
def test_both_engines_give_the_same_run(spark: SparkSession, tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "trace")
    sources = find_sources([tmp_path / "trace"])
    declared = DECLARED if write is with_everything else Declared(run_id="theirs")
    one = import_in_memory(sources, declared, tmp_path / "memory")
    other = import_on_spark(spark, sources, declared, tmp_path / "spark", part_bytes=SMALL)
    assert_same_runs(tmp_path / "memory", tmp_path / "spark")
    assert (one.rows, one.words) == (other.rows, other.words)
    assert one.rows["deliveries"] > 1_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory", "spark", "trace"], "nothing is left over"


@pytest.mark.spark
def test_both_engines_tell_the_same_errors(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", "g", n, f"x{n}") for n in range(4_000)]
    for at in (0, 999, 1_717, 3_999):
        rows[at] = ("a", "g", -1, "x")
    write_csv(tmp_path / "deliveries.csv", ("process", "grp", "pos", "msg"), rows)
    sources = find_sources([tmp_path / "deliveries.csv"])
    with pytest.raises(ForeignTraceError) as in_memory:
        import_in_memory(sources, Declared(), tmp_path / "memory")
    with pytest.raises(ForeignTraceError) as on_spark:
        import_on_spark(spark, sources, Declared(), tmp_path / "spark", part_bytes=5_000)
    assert [problem.line for problem in in_memory.value.problems] == [2, 1_001, 1_719, 4_001]
    assert in_memory.value.lines() == on_spark.value.lines()
    assert [path.name for path in tmp_path.iterdir()] == ["deliveries.csv"]


def test_nothing_is_told_of_a_file_after_a_line_that_ends_its_reading(tmp_path: Path) -> None:
    """As in memory; and the numbers of the lines that follow are not known."""
    long = "x" * (LINE_BYTES_MAX + 1)
    for name in ("one", "two"):
        text = f"process,grp,pos,msg\na,g,-1,x\na,g,0,{long}\na,g,-2,y\n"
        (tmp_path / f"deliveries-{name}.csv").write_text(text)
    sources = find_sources([tmp_path])
    with pytest.raises(ForeignTraceError) as in_memory:
        import_in_memory(sources, Declared(), tmp_path / "memory")
    owners = [source for source in sources for _ in range(4)]
    parts = [part for source in sources for part in parts_of(source, source.size // 4 + 1)]
    tasks = [_ReadTask(part, at, str(tmp_path / f"{at}.parquet")) for at, part in enumerate(parts)]
    answers = [_read_part(msgspec.json.encode(task).decode()) for task in tasks]
    with pytest.raises(ForeignTraceError) as in_parts:
        _joined(owners, [msgspec.json.decode(answer, type=_ReadAnswer) for answer in answers])
    assert in_parts.value.lines() == in_memory.value.lines()
    assert [problem.line for problem in in_parts.value.problems] == [2, 3, 2, 3]


@pytest.mark.spark
def test_the_command_imports_on_spark_and_spark_names_what_is_wrong(cli: Cli) -> None:
    trace = ForeignTrace(300)
    first, second = trace.neighbours("orders", "stock")
    trace.swap(GROUPS["stock"], first, second)
    trace.write(Path("trace"))
    made = cli("import", "trace", *GROUP_OPTIONS, "--complete", "--engine", "spark", "--out", "run")
    assert made.code == 0, made
    checked = cli("check", "run", "--engine", "spark", "--json")
    assert checked.code == 1
    assert f"db-3 delivered {second} before {first}" in checked.out
    assert cli("check", "run", "--json").json["runs"][0]["violations"] == checked.json["runs"][0]["violations"]
    assert "such a path for a pattern" in cli.refuses("import", "trace", "--engine", "spark", "--out", "run[1]")
