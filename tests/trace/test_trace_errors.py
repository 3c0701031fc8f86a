"""Whatever is wrong with a folder: one line that names the file and what to do, no other exception."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amcast.core import UsageError
from amcast.core.ids import SEQ_BITS
from amcast.trace import GroupInfo, Recorder, RunInfo, limits, read_run, write_run

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
    recorder = Recorder()
    for seq in range(3):
        recorder.multicast(9 << SEQ_BITS | seq, 9, seq, (1, 2), seq, 10)
        for process, group in ((0, 1), (1, 1), (2, 2)):
            recorder.delivery(process, group, seq, 9 << SEQ_BITS | seq, 0, seq + 1, seq)
            recorder.wire(9, process, "START", 9 << SEQ_BITS | seq, 10, seq, seq + 1)
    recorder.fault(1, 5, "crash", "")
    write_run(tmp_path / "run", INFO, recorder)
    return tmp_path / "run"


def refused(run: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_run(run)
    words = str(caught.value)
    assert "\n" not in words
    assert str(run) in words
    return words


def edit(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(file)), file)


def edit_info(run: Path, **changes: Any) -> None:
    document = json.loads((run / "run.json").read_text())
    document.update(changes)
    (run / "run.json").write_text(json.dumps({k: v for k, v in document.items() if v is not ...}))


def test_no_folder(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "nowhere")


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    assert "is not a folder" in refused(tmp_path / "run")


def test_no_description(run: Path) -> None:
    (run / "run.json").unlink()
    assert "run.json is missing" in refused(run)


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_a_description_that_is_no_json_object(run: Path, document: bytes) -> None:
    (run / "run.json").write_bytes(document)
    assert "run.json" in refused(run)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": ...}, "seed"),
        ({"seed": "7"}, "seed"),
        ({"complete": 1}, "complete"),
        ({"complete": None}, "complete"),
        ({"groups": [{"id": 1}]}, "processes"),
        ({"groups": []}, "no group"),
        ({"groups": [{"id": 1, "processes": []}]}, "no processes"),
        ({"groups": [{"id": 1, "processes": [0, 1]}, {"id": 2, "processes": [1]}]}, "must be disjoint"),
        ({"groups": [{"id": 1, "processes": [0, 0]}]}, "must be disjoint"),
        ({"groups": [{"id": 1, "processes": [0]}, {"id": 1, "processes": [1]}]}, "listed twice"),
        ({"groups": [{"id": 1, "processes": [2**40]}]}, "out of range"),
        ({"correct": [0, 7]}, "process 7 is listed as correct but is in no group"),
        ({"claims": "fifo"}, "claims"),
    ],
)
def test_a_description_that_is_wrong(run: Path, changes: dict[str, Any], words: str) -> None:
    edit_info(run, **changes)
    message = refused(run)
    assert "run.json" in message
    assert words in message


@pytest.mark.parametrize("table", ["multicasts", "deliveries"])
def test_a_missing_table(run: Path, table: str) -> None:
    shutil.rmtree(run / table)
    assert f"{table} is missing" in refused(run)


@pytest.mark.parametrize("table", ["multicasts", "deliveries"])
def test_a_table_without_files(run: Path, table: str) -> None:
    for file in (run / table).iterdir():
        file.unlink()
    assert "has no Parquet file" in refused(run)


def test_wire_and_faults_may_be_absent_or_empty(run: Path) -> None:
    shutil.rmtree(run / "wire")
    (run / "faults" / "part-00000.parquet").unlink()
    found = read_run(run)
    assert len(found.wire) == 0
    assert found.faults == ()


def test_a_table_that_is_a_file(run: Path) -> None:
    shutil.rmtree(run / "wire")
    (run / "wire").touch()
    assert "wire" in refused(run)


def test_a_stray_file(run: Path) -> None:
    (run / "deliveries" / "p00000003-final.parquet.tmp").touch()
    assert "remove it" in refused(run)


def test_what_spark_leaves_beside_its_files_is_passed_over(run: Path) -> None:
    (run / "deliveries" / "_SUCCESS").touch()
    (run / "deliveries" / ".part.crc").touch()
    assert len(read_run(run).deliveries) == 9


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_file_that_was_cut_short(run: Path, keep: int) -> None:
    file = run / "multicasts" / "part-00000.parquet"
    file.write_bytes(file.read_bytes()[:keep])
    assert "not a whole Parquet file" in refused(run)


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("deliveries", "p00000000-final.parquet"),
        ("multicasts", "part-00000.parquet"),
        ("wire", "part-00000.parquet"),
    ],
)
def test_corrupt_bytes_are_refused_or_harmless(run: Path, table: str, name: str) -> None:
    """Flipped bits anywhere in a file: pages have checksums, the rest is checked by hand."""
    file = run / table / name
    good = file.read_bytes()
    rng = Random(11)
    for _ in range(150):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        file.write_bytes(bytes(bad))
        with suppress(UsageError):
            read_run(run)


def test_a_flipped_bit_in_the_values_never_passes(run: Path) -> None:
    file = run / "multicasts" / "part-00000.parquet"
    good = file.read_bytes()
    column = pq.read_metadata(file).row_group(0).column(0)
    end = column.data_page_offset + column.total_compressed_size
    for bit in range(8 * 16):
        bad = bytearray(good)
        bad[end - 1 - bit // 8] ^= 1 << bit % 8
        file.write_bytes(bytes(bad))
        refused(run)


def test_a_missing_column(run: Path) -> None:
    edit(run / "wire" / "part-00000.parquet", lambda table: table.drop_columns(["bytes"]))
    assert "column bytes is missing" in refused(run)


def test_a_misspelt_column(run: Path) -> None:
    edit(
        run / "deliveries" / "p00000001-final.parquet",
        lambda table: table.rename_columns(["process", "group", "pos", "msg", "kind", "ts", "t_us"]),
    )
    message = refused(run)
    assert "p00000001-final.parquet" in message
    assert "column grp is missing" in message


def test_one_column_too_many(run: Path) -> None:
    edit(run / "faults" / "part-00000.parquet", lambda table: table.append_column("run", [["x"]]))
    assert "column run is not in the schema" in refused(run)


def test_one_column_twice(run: Path) -> None:
    edit(run / "faults" / "part-00000.parquet", lambda table: table.append_column("what", [["x"]]))
    assert "column what is there twice" in refused(run)


@pytest.mark.parametrize(
    ("table", "column", "kind"),
    [
        ("multicasts", "sender", pa.int16()),
        ("multicasts", "client_seq", pa.int32()),
        ("deliveries", "process", pa.int64()),
        ("multicasts", "dst", pa.list_(pa.field("element", pa.int64()))),
        ("multicasts", "msg", pa.string()),
        ("deliveries", "pos", pa.int32()),
        ("deliveries", "kind", pa.int32()),
        ("deliveries", "ts", pa.float64()),
        ("wire", "kind", pa.binary()),
    ],
)
def test_a_column_of_the_wrong_type(run: Path, table: str, column: str, kind: pa.DataType) -> None:
    file = next(iter(sorted((run / table).iterdir())))

    def retype(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index(column)
        return rows.set_column(at, column, rows.column(column).cast(kind))

    edit(file, retype)
    assert f"column {column} is {kind} and must be" in refused(run)


@pytest.mark.parametrize(("table", "column"), [("multicasts", "dst"), ("deliveries", "msg"), ("wire", "kind")])
def test_a_null_where_there_must_be_none(run: Path, table: str, column: str) -> None:
    file = next(iter(sorted((run / table).iterdir())))

    def punch(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index(column)
        kind = rows.schema.field(column).type
        return rows.set_column(at, column, pa.array([None, *rows.column(column).to_pylist()[1:]], kind))

    edit(file, punch)
    assert f"column {column} has 1 nulls" in refused(run)


def test_a_null_among_the_destinations(run: Path) -> None:
    file = run / "multicasts" / "part-00000.parquet"
    edit(file, lambda rows: rows.set_column(3, "dst", pa.array([[1], [None], [2]], pa.list_(pa.int32()))))
    assert "column dst has 1 nulls" in refused(run)


def test_nullable_flags_order_of_columns_and_dictionaries_make_no_difference(run: Path) -> None:
    file = run / "wire" / "part-00000.parquet"
    rows = pq.read_table(file)
    columns = {name: rows.column(name) for name in reversed(rows.column_names)}
    columns["kind"] = columns["kind"].dictionary_encode()
    pq.write_table(pa.table(columns), file)
    assert read_run(run).wire.kinds == ("START",)


@pytest.mark.parametrize(
    ("dst", "words"),
    [
        ([[], [1], [1]], "has no destination"),
        ([[1], [1, 9], [1]], "is sent to g9, which run.json does not know"),
        ([[1], [2, 1, 2], [1]], "names a destination twice"),
    ],
)
def test_impossible_destinations(run: Path, dst: list[list[int]], words: str) -> None:
    file = run / "multicasts" / "part-00000.parquet"
    edit(file, lambda rows: rows.set_column(3, "dst", pa.array(dst, pa.list_(pa.int32()))))
    message = refused(run)
    assert "multicasts" in message
    assert words in message


def test_an_unknown_kind_of_delivery(run: Path) -> None:
    file = run / "deliveries" / "p00000000-final.parquet"
    edit(file, lambda rows: rows.set_column(4, "kind", pa.array([0, 2, 0], pa.int8())))
    assert "kind 2" in refused(run)


@pytest.mark.parametrize("detail", ["", "7", "{}", '{"position": "7"}', '{"position": -1}', '{"position": true}'])
def test_a_restored_process_without_a_position(run: Path, detail: str) -> None:
    row = {"process": [1], "t_us": [5], "what": ["restored"], "detail": [detail]}
    edit(run / "faults" / "part-00000.parquet", lambda rows: pa.table(row, schema=rows.schema))
    assert "process 1 was restored to" in refused(run)


def test_a_string_that_is_no_text(run: Path) -> None:
    file = run / "wire" / "part-00000.parquet"
    garbage = pa.array([b"\xff\xfe"] * 9).view(pa.string())
    edit(file, lambda rows: rows.set_column(2, "kind", garbage))
    assert "not a whole Parquet file" in refused(run)


def test_the_same_holds_for_a_run_in_memory() -> None:
    recorder = Recorder()
    recorder.multicast(1, 9, 0, (5,), 0, 1)
    with pytest.raises(UsageError, match="the run in memory/multicasts: m1 is sent to g5"):
        recorder.run(INFO)


# -- small files that are large in memory


def repeated(run: Path, table: str, rows: int, **values: Any) -> Path:
    """The first row of a table, so many times."""
    file = min((run / table).glob("*.parquet"))
    first = pq.read_table(file).slice(0, 1)
    row = first.to_pylist()[0] | values
    fields = {field.name: pa.array([row[field.name]], field.type) for field in first.schema}
    pq.write_table(pa.table(fields).take(pa.array([0] * rows)), file, compression="zstd")
    return file


@pytest.mark.parametrize("table", ["deliveries", "multicasts", "wire", "faults"])
def test_more_rows_than_fit_into_memory_are_refused_unread(
    table: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROWS_MAX", 1_000)
    file = repeated(run, table, 2_000)
    assert "--engine spark" in refused(run)
    assert file.stat().st_size < 10_000


def test_the_limit_is_for_all_files_together(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sum(pq.read_table(run / name).num_rows for name in ("multicasts", "deliveries", "wire", "faults"))
    monkeypatch.setattr(limits, "ROWS_MAX", rows)
    read_run(run)
    monkeypatch.setattr(limits, "ROWS_MAX", rows - 1)
    assert "--engine spark" in refused(run)


def test_one_long_text_in_many_rows_is_refused(run: Path) -> None:
    file = repeated(run, "faults", 10_000, detail="x" * 20_000)
    assert file.stat().st_size < 200_000
    assert "column detail" in refused(run)


def test_one_row_with_very_many_destinations_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS_MAX", 1_000)
    repeated(run, "multicasts", 1, dst=[1] * 2_000)
    assert "2,000 values" in refused(run)
