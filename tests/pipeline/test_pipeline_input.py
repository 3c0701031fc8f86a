"""Bad input, from the command line: one line that names it, an exit code, and nothing half-written."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amcast.core import UsageError
from amcast.pipeline import TraceSpec, generate_trace, read_runs
from amcast.pipeline._errors import SPARK_ERRORS
from amcast.pipeline._inspect import BadRunError, inspect_run
from amcast.pipeline.checks._read import UnreadableError, read_columns
from amcast.pipeline.stream import Watch
from amcast.trace.schema import TABLES
from tests.cli.cli_harness import Cli
from tests.pipeline.programs import free_port
from tests.pipeline.test_pipeline_ingest import retype

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    generate_trace(folder, TraceSpec(deliveries=600, groups=3, run_id="good"))
    return folder


# ------------------------------------------------------------------------------------------------ bad folders


def empty(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def without_table(run: Path) -> None:
    shutil.rmtree(run / "deliveries")


def wrong_type(run: Path) -> None:
    retype(run / "multicasts" / "part-00000.parquet", "sender", pa.int16())


def unfinished(run: Path) -> None:
    (run / "run.json").unlink()


BAD: dict[Callable[[Path], None], str] = {
    empty: "run.json is missing: it is not a run, or is still being written",
    without_table: "a run needs the table deliveries",
    wrong_type: "column sender is int16 and must be int64",
    unfinished: "run.json is missing: it is not a run, or is still being written",
}


@pytest.mark.parametrize(("spoil", "says"), BAD.items(), ids=[spoil.__name__ for spoil in BAD])
def test_a_folder_that_is_no_run_is_refused(
    cli: Cli, run: Path, tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    spoil(run)
    assert says in cli.refuses("check", run, "--engine", "spark")
    assert says in cli.refuses("report", run, "--out", tmp_path / "deep" / "report")
    assert {each.name for each in tmp_path.iterdir()} == {"run"}


@pytest.fixture
def strange_place(tmp_path: Path) -> Path:
    place = tmp_path / "a b#c+d%20e" / "50% ü"
    place.parent.mkdir()
    return place


def test_damaged_runs_are_set_aside_and_the_good_one_is_reported(
    cli: Cli, run: Path, tmp_path: Path, strange_place: Path
) -> None:
    bad = [tmp_path / name for name in ("type", "multicasts", "deliveries")]
    for each in bad:
        shutil.copytree(run, each)
    wrong_type(bad[0])
    for each in bad[1:]:
        flip_a_value(min((each / each.name).iterdir()))
    run.rename(strange_place)
    outcome = cli("report", strange_place, *bad, "--out", strange_place.parent / "report", "--json")
    assert outcome.code == 3, "not everything could be judged"
    (good,) = outcome.json["runs"]
    assert (good["verdict"], good["path"]) == ("pass", str(strange_place))
    files = (strange_place / "deliveries").iterdir()
    assert good["summary"]["deliveries"] == sum(pq.read_metadata(file).num_rows for file in files)
    assert [each["path"] for each in outcome.json["quarantined"]] == list(map(str, bad))
    assert (strange_place.parent / "report" / "index.html").exists()


def test_a_dead_master_is_one_line(cli: Cli, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real session
    address = f"spark://127.0.0.1:{free_port()}"
    for words in (("check", run, "--engine", "spark"), ("report", run, "--out", tmp_path / "report"), ("watch", run)):
        assert f"{address}: nobody answers there" in cli.refuses(*words, "--master", address)
    assert "nobody answers" in cli.refuses("swarm", "-p", "skeen", "--seeds", 1, "--master", address, "--out", "swarm")
    assert {each.name for each in tmp_path.iterdir()} == {"run"}


def test_whoever_listens_need_not_be_spark(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(sys.modules["amcast.pipeline.spark"], "_ANSWER_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"sc://127.0.0.1:{mute.getsockname()[1]}"
        said = cli.refuses("check", run, "--engine", "spark", "--remote", address)
    assert f"{address}: no Spark Connect server answers there within 1 s" in said


# ------------------------------------------------------------------------------------------- flipped bits


@pytest.mark.parametrize("table", ["multicasts", "deliveries"])
def test_a_flipped_bit_is_found_or_does_no_harm(tmp_path: Path, table: str) -> None:
    """Pages have checksums. Whatever else is flipped (names, statistics, counts) must not change what is read."""
    generate_trace(tmp_path / "run", TraceSpec(deliveries=90, groups=1, clients=2))
    file = min((tmp_path / "run" / table).iterdir())
    good, names = file.read_bytes(), TABLES[table].names
    rows = read_columns(str(file), names)
    refused = 0
    for at in range(0, len(good), 3):
        file.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        try:
            assert read_columns(str(file), names).equals(rows), f"byte {at}"
        except UnreadableError:
            refused += 1
    assert refused > len(good) // 6


def test_a_footer_that_contradicts_itself_is_refused(run: Path) -> None:
    file = run / "multicasts" / "part-00000.parquet"
    content = file.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    count = pq.read_metadata(file).num_rows
    for at in range(footer, len(content) - 8):
        file.write_bytes(content[:at] + bytes([content[at] ^ 2]) + content[at + 1 :])
        try:
            said = pq.read_metadata(file).num_rows
        except (OSError, pa.ArrowException):
            continue
        if said != count:
            break
    else:
        pytest.fail("no byte of the footer says how many rows there are")
    with pytest.raises(BadRunError, match="contradicts itself"):
        inspect_run(str(run))


def test_a_footer_that_aborts_its_reader_concerns_one_run_only(spark: SparkSession, run: Path, tmp_path: Path) -> None:
    for name in ("bad", "other"):
        shutil.copytree(run, tmp_path / name)
    file = min((tmp_path / "bad" / "deliveries").iterdir())
    content = file.read_bytes()
    at = content.index(b"\x15\x02\x19", content.rindex(b"schema", 0, content.rindex(b"ARROW")))
    file.write_bytes(content[:at] + b"\x15\x00\x19" + content[at + 3 :])  # the column is INT32, and its chunk BOOLEAN
    runs = read_runs(spark, [str(run), str(tmp_path / "bad"), str(tmp_path / "other")])
    assert [found.path for found in runs.runs] == [str(run), str(tmp_path / "other")]
    assert [(found.path, "footer" in found.reason) for found in runs.quarantined] == [(str(tmp_path / "bad"), True)]


def flip_a_value(file: Path) -> None:
    """Without compression a flipped bit of a page is another value, and only the checksum knows."""
    table = pq.read_table(file)
    pq.write_table(table, file, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(file.read_bytes())
    at = pq.read_metadata(file).row_group(0).column(table.column_names.index("msg"))
    content[at.data_page_offset + at.total_compressed_size - 8] ^= 1  # the last value of the page
    file.write_bytes(content)
    assert pq.read_table(file).column("msg")[-1] != table.column("msg")[-1]


@pytest.mark.parametrize("table", ["multicasts", "deliveries"])
def test_a_flipped_value_is_never_taken_for_data(spark: SparkSession, run: Path, tmp_path: Path, table: str) -> None:
    flip_a_value(min((run / table).iterdir()))
    with pytest.raises(SPARK_ERRORS):  # Spark's own reader, which metrics use
        read_runs(spark, str(run)).table(table).collect()
    with pytest.raises(UsageError, match="the watch stopped"):
        Watch(spark, run, tmp_path / "checkpoint").run_once()


# --------------------------------------------------------------------------------------- strange places


def test_a_run_may_lie_anywhere(cli: Cli, run: Path, tmp_path: Path, strange_place: Path) -> None:
    shutil.copytree(run, tmp_path / "{1}")
    assert "takes such a path for a pattern" in cli.refuses("watch", tmp_path / "{1}", "--once")
    run.rename(strange_place)
    judged = cli("check", strange_place, "--engine", "spark", "--json")
    assert (judged.code, judged.json["verdict"]) == (0, "pass")
    watched = cli("watch", strange_place, "--once", "--json")
    assert watched.code == 0, watched
