"""The table of operations: written and read back, refused with all that is wrong with it, alone in a folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amcast.check import check_run
from amcast.core import UsageError
from amcast.trace import GroupInfo, Recorder, RunInfo, read_run, write_run

INFO = RunInfo(run_id="r", protocol="p", seed=0, complete=True, groups=(), correct=())


def recorded() -> Recorder:
    recorder = Recorder()
    recorder.operation(1 << 40, 5, 9, "write", '["ä"]', None, ["x"])
    recorder.operation(2, 6, None, "add", "[1]", None, ["n"])
    recorder.operation(3, 7, 9, "transaction", '[["read","x"],["append","l",2]]', '["ä",null]', ["x", "l"])
    return recorder


def test_they_are_written_and_read_back(tmp_path: Path) -> None:
    write_run(tmp_path / "run", INFO, recorded())
    table = pq.read_table(tmp_path / "run" / "operations")
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (1 << 40, 5, 9, "write", '["ä"]', None, ["x"]),
        (2, 6, None, "add", "[1]", None, ["n"]),
        (3, 7, 9, "transaction", '[["read","x"],["append","l",2]]', '["ä",null]', ["x", "l"]),
    ]
    again = replace(Recorder().tables(), operations=read_run(tmp_path / "run").operations)
    write_run(tmp_path / "again", INFO, again)
    assert pq.read_table(tmp_path / "again" / "operations").equals(table)


def test_a_folder_with_nothing_but_operations_is_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "whole", INFO, recorded())
    shutil.copytree(tmp_path / "whole" / "operations", tmp_path / "mine" / "operations")
    run = read_run(tmp_path / "mine")
    assert (run.info.run_id, run.info.groups, len(run.operations)) == ("mine", (), 3)
    assert check_run(run).properties == {"linearizability": "pass"}


def test_a_run_with_groups_needs_its_tables(tmp_path: Path) -> None:
    info = RunInfo(run_id="r", protocol="p", seed=0, complete=True, groups=(GroupInfo(1, (0,)),), correct=(0,))
    write_run(tmp_path / "run", info, recorded())
    assert list(check_run(read_run(tmp_path / "run")).properties)[-1] == "linearizability"
    shutil.rmtree(tmp_path / "run" / "deliveries")
    with pytest.raises(UsageError, match="a run needs the table deliveries"):
        read_run(tmp_path / "run")


def test_deliveries_need_groups() -> None:
    recorder = recorded()
    recorder.delivery(0, 1, 0, 7, 0, None, 5)
    with pytest.raises(UsageError, match="there are deliveries, and no group"):
        recorder.run(INFO)


def test_all_that_is_wrong_is_told_at_once() -> None:
    recorder = Recorder()
    for operation, arguments, result, objects in [
        ("write", "[1]", None, ["x"]),
        ("flip", "[]", None, ["x"]),
        ("write", "[]", None, ["x"]),
        ("write", "5", None, ["x"]),
        ("read", "[]", "{", ["x"]),
        ("contains", "[1]", "5", ["s"]),
        ("add", '["1"]', None, ["n"]),
        ("read", "[]", "1", ["x", "y"]),
        ("read", "[]", "1", []),
        ("transaction", '[["read","x"]]', "[1,2]", ["x"]),
        ("transaction", '[["read","x"]]', "[1]", ["y"]),
    ]:
        recorder.operation(1, 5, 6, operation, arguments, result, objects)
    recorder.operation(1, 5, 4, "read", "[]", "1", ["x"])
    recorder.operation(1, -(1 << 62), 4, "read", "[]", "1", ["x"])
    with pytest.raises(UsageError) as error:
        recorder.run(INFO)
    assert str(error.value).removeprefix("the run in memory/operations: ").split("; ") == [
        "row 1, column operation: 'flip' is none of read, write, cas, get, put, delete, add, total, insert, remove,"
        " contains, members, append, items, transaction",
        "row 2, column arguments: write takes 1 argument, and 0 are given",
        "row 3, column arguments: '5' is not a list, as in [5]",
        "row 4, column result: '{' is not JSON",
        "row 5, column result: contains answers true or false, not '5'",
        "row 6, column arguments: '\"1\"' is not an integer",
        "row 7, column objects: it names 2 objects: only a transaction has several",
        "row 8, column objects: it names no object",
        "row 9, column result: a transaction of 1 step answers a list of as many results",
        "row 10, column arguments: it is about x, and the column objects says something else",
        "row 11, column returned_us: 4 is before it was invoked, at 5",
        "row 12, column invoked_us: -4611686018427387904 is too far from 0 for a time in microseconds",
    ]


def test_an_object_is_of_one_kind() -> None:
    recorder = Recorder()
    recorder.operation(1, 5, 6, "write", "[1]", None, ["x"])
    recorder.operation(1, 5, 6, "transaction", '[["add","x",1]]', "[null]", ["x"])
    with pytest.raises(UsageError, match="row 1, column operation: 'x' is used as a counter, and before as a register"):
        recorder.run(INFO)


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("client", pa.array([1, 2, 3], pa.int32()), "column client is int32 and must be int64; cast it"),
        ("operation", pa.array(["read", None, "read"]), "column operation has 1 nulls and must have none"),
        ("objects", pa.array([["x"], None, ["x"]]), "column objects has 1 nulls and must have none"),
        ("objects", pa.array([["x"], [None], ["x"]]), "column objects has 1 nulls and must have none"),
    ],
)
def test_columns_must_be_those_of_the_schema(tmp_path: Path, column: str, values: pa.Array, problem: str) -> None:
    write_run(tmp_path / "run", INFO, recorded())
    file = tmp_path / "run" / "operations" / "part-00000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(table.column_names.index(column), column, values), file)
    with pytest.raises(UsageError, match=problem):
        read_run(tmp_path / "run")
