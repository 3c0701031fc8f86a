"""A run on disk: written whole or not at all, byte for byte the same, and read back as it was recorded."""

from __future__ import annotations

import os
import stat
from dataclasses import fields, replace
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amcast.core import UsageError
from amcast.core.ids import SEQ_BITS
from amcast.pipeline._arrow import arrow_schema
from amcast.trace import NULL, TABLES, GroupInfo, Recorder, Run, RunInfo, read_run, write_run, writer

INFO = RunInfo(
    run_id="r1",
    protocol="skeen",
    seed=7,
    complete=True,
    groups=(GroupInfo(1, (0, 1)), GroupInfo(2, (2, 3))),
    correct=(0, 1, 2),
    claims=("genuine",),
    extra={"config": {"loss": 0.5, "links": [1, 2]}, "regions": {"0": "eu"}},
)


def small_recorder() -> Recorder:
    recorder = Recorder()
    recorder.multicast(5 << SEQ_BITS | 1, 5, 1, (1, 2), 100, 64)
    recorder.multicast(5 << SEQ_BITS | 2, 5, 2, (2,), 150, 0)
    for process, group in ((3, 2), (0, 1), (2, 2), (1, 1)):
        recorder.delivery(process, group, 0, 5 << SEQ_BITS | 1, 1, None, 190 + process)
        recorder.delivery(process, group, 0, 5 << SEQ_BITS | 1, 0, 1 << 40, 200 + process)
    recorder.delivery(2, 2, 1, 5 << SEQ_BITS | 2, 0, 2 << 40, 300)
    recorder.wire(5, 0, "START", 5 << SEQ_BITS | 1, 80, 100, 120)
    recorder.wire(0, 1, "ping", None, 8, 130, None)
    recorder.answer(5 << SEQ_BITS | 1, 230)
    recorder.fault(3, 250, "crash", "")
    recorder.fault(2, 240, "restored", '{"position": 0}')
    return recorder


def assert_equal_runs(one: Run, other: Run) -> None:
    assert one.info == other.info
    assert one.faults == other.faults
    assert one.restored == other.restored
    kinds = [[run.wire.kinds[code] for code in run.wire.kind.tolist()] for run in (one, other)]
    assert kinds[0] == kinds[1]
    for table in ("multicasts", "deliveries", "wire", "answers"):
        left, right = getattr(one, table), getattr(other, table)
        for field in fields(left):
            if (table, field.name) not in {("wire", "kind"), ("wire", "kinds")}:
                mine, theirs = getattr(left, field.name), getattr(right, field.name)
                assert mine.dtype == theirs.dtype, (table, field.name)
                assert np.array_equal(mine, theirs), (table, field.name)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_run_comes_back_as_it_was_recorded(tmp_path: Path) -> None:
    recorder = small_recorder()
    write_run(tmp_path / "run", INFO, recorder)
    assert_equal_runs(read_run(tmp_path / "run"), recorder.run(INFO))


def test_a_recorder_can_go_on_after_it_was_looked_at() -> None:
    recorder = small_recorder()
    before = recorder.run(INFO)
    recorder.multicast(5 << SEQ_BITS | 3, 5, 3, (1,), 400, 1)
    assert len(recorder.run(INFO).multicasts) == len(before.multicasts) + 1


messages = st.integers(-(2**62), 2**62)
instants = st.integers(-(2**50), 2**50)
processes = st.integers(0, 2**31 - 1)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(messages, processes, st.lists(st.sampled_from((1, 2)), min_size=1, unique=True), instants)),
    st.lists(st.tuples(processes, messages, messages, st.sampled_from((0, 1)), st.none() | messages, instants)),
    st.lists(st.tuples(processes, st.text(max_size=4), st.none() | messages, instants, st.none() | instants)),
)
def test_any_row_survives(
    tmp_path_factory: pytest.TempPathFactory,
    sent: list[tuple[int, int, list[int], int]],
    delivered: list[tuple[int, int, int, int, int | None, int]],
    wire: list[tuple[int, str, int | None, int, int | None]],
) -> None:
    recorder = Recorder()
    for msg, sender, dst, t_us in sent:
        recorder.multicast(msg, sender, msg, dst, t_us, 1)
    for process, pos, msg, kind, ts, t_us in delivered:
        recorder.delivery(process, 1, pos, msg, kind, ts, t_us)
    for process, kind_name, about, sent_us, received_us in wire:
        recorder.wire(process, 0, kind_name, about, 1, sent_us, received_us)
        recorder.fault(process, sent_us, "note", kind_name)
    path = tmp_path_factory.mktemp("any") / "run"
    write_run(path, INFO, recorder)
    assert_equal_runs(read_run(path), recorder.run(INFO))


def test_equal_runs_are_equal_bytes(tmp_path: Path) -> None:
    extra = dict(reversed(INFO.extra.items()))
    write_run(tmp_path / "one", INFO, small_recorder())
    write_run(tmp_path / "two", msgspec.structs.replace(INFO, extra=extra), small_recorder())
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_the_layout_is_one_file_for_each_log_in_position_order(tmp_path: Path) -> None:
    recorder = Recorder()
    positions = list(range(70_000))
    Random(1).shuffle(positions)
    for pos in positions:
        recorder.delivery(3, 2, pos, pos, 0, pos * 7, pos)
    recorder.delivery(0, 1, 0, 1, 1, None, 5)
    write_run(tmp_path / "run", INFO, recorder)
    names = sorted(file.name for file in (tmp_path / "run" / "deliveries").iterdir())
    assert names == ["p00000000-optimistic.parquet", "p00000003-final.parquet"]
    file = pq.ParquetFile(tmp_path / "run" / "deliveries" / names[1])
    assert file.read().column("pos").to_pylist() == list(range(70_000))
    assert [file.metadata.row_group(n).num_rows for n in range(3)] == [32768, 32768, 70_000 - 65536]
    for column in range(7):
        described = file.metadata.row_group(0).column(column)
        assert described.compression == "ZSTD"
        if described.path_in_schema in ("pos", "ts", "t_us"):
            assert "DELTA_BINARY_PACKED" in described.encodings
            assert not described.has_dictionary_page


def test_every_table_is_there_with_the_schema_even_if_empty(tmp_path: Path) -> None:
    write_run(tmp_path / "run", INFO, Recorder())
    for name, schema in TABLES.items():
        (file,) = (tmp_path / "run" / name).iterdir()
        assert pq.read_schema(file).remove_metadata().equals(arrow_schema(schema))
    assert len(read_run(tmp_path / "run").deliveries) == 0


def test_wire_can_be_off(tmp_path: Path) -> None:
    recorder = Recorder(records_wire=False)
    recorder.wire(1, 2, "START", None, 8, 0, 1)
    write_run(tmp_path / "run", INFO, recorder)
    assert len(read_run(tmp_path / "run").wire) == 0


def test_tables_are_taken_instead_of_a_recorder(tmp_path: Path) -> None:
    tables = replace(small_recorder().tables(), wire=Recorder().tables().wire)
    write_run(tmp_path / "run", INFO, tables)
    found = read_run(tmp_path / "run")
    assert (len(found.deliveries), len(found.wire)) == (9, 0)


def test_unknown_keys_of_the_description_are_kept(tmp_path: Path) -> None:
    write_run(tmp_path / "run", INFO, Recorder())
    assert read_run(tmp_path / "run").info.extra == INFO.extra
    document = msgspec.json.decode((tmp_path / "run" / "run.json").read_bytes())
    assert document["config"] == INFO.extra["config"]
    assert document["groups"] == [{"id": 1, "processes": [0, 1]}, {"id": 2, "processes": [2, 3]}]


def test_deliveries_in_any_file_and_order_are_sorted(tmp_path: Path) -> None:
    path = tmp_path / "run"
    write_run(path, INFO, small_recorder())
    wanted = read_run(path)
    files = sorted((path / "deliveries").iterdir())
    table = pa.concat_tables([pq.read_table(file) for file in files])
    for file in files:
        file.unlink()
    order = list(range(len(table)))
    Random(3).shuffle(order)
    pq.write_table(table.take(order[:4]), path / "deliveries" / "z.parquet")
    pq.write_table(table.take(order[4:]), path / "deliveries" / "a.parquet")
    assert_equal_runs(read_run(path), wanted)


def test_nulls_are_marked() -> None:
    run = small_recorder().run(INFO)
    assert run.wire.msg.tolist() == [5 << SEQ_BITS | 1, NULL]
    assert run.wire.received_us.tolist() == [120, NULL]
    assert run.deliveries.ts[run.deliveries.kind == 1].tolist() == [NULL] * 4


# ---------------------------------------------------------------------------------- all or nothing


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run"
    write_run(path, INFO, small_recorder())
    before = files_of(path)
    with pytest.raises(UsageError, match="is not empty: remove it"):
        write_run(path, INFO, Recorder())
    assert files_of(path) == before
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        write_run(tmp_path / "file", INFO, Recorder())


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    write_run(tmp_path, INFO, small_recorder())
    assert read_run(tmp_path).info == INFO


def test_parents_are_made(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "today" / "one", INFO, Recorder())
    assert read_run(tmp_path / "runs" / "today" / "one").info == INFO


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError])
def test_nothing_stays_behind_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    written = []

    def fail_at_the_third(path: Path, *_: object) -> None:
        written.append(path)
        path.touch()
        if len(written) == 3:
            raise error("the disk is full")

    monkeypatch.setattr(writer, "_write_file", fail_at_the_third)
    with pytest.raises(UsageError if error is OSError else error):
        write_run(tmp_path / "run", INFO, small_recorder())
    assert len(written) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can't write the run there"):
        write_run(tmp_path / "file" / "run", INFO, Recorder())


def test_others_may_read_a_run(tmp_path: Path) -> None:
    """The scratch folder is private, the run is what the umask says."""
    (tmp_path / "plain").mkdir()
    write_run(tmp_path / "run", INFO, Recorder())
    modes = [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("plain", "run")]
    assert modes[0] == modes[1]


def test_a_description_that_contradicts_itself_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in no group"):
        write_run(tmp_path / "run", msgspec.structs.replace(INFO, correct=(9,)), Recorder())
    assert list(tmp_path.iterdir()) == []
