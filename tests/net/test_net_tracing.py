"""Raw traces: what a node writes outlives it, a full disk ends the trace and not the node, damaged files are named."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from amcast.core import AppMessage, UsageError, message_id, pack, unpack_deliveries
from amcast.core.ids import SEQ_BITS
from amcast.net.trace._multicasts import multicasts_of
from amcast.net.trace._rawfile import ROWS, raw_files
from amcast.net.trace._rawformat import END_AT, HEADER_BYTES
from amcast.net.trace.collect import Collector, collect
from amcast.net.trace.writer import TraceWriter
from amcast.trace import FINAL, NULL, GroupInfo, RunInfo, read_run, read_run_info

INFO = RunInfo(run_id="r", protocol="skeen", seed=0, complete=True, groups=(GroupInfo(1, (0, 1)),), correct=(0, 1))
CLIENT = 9


def described(sent: object) -> RunInfo:
    return INFO


def write_some(folder: Path, process: int = 0, boot: int = 0, rows: int = 3) -> TraceWriter:
    writer = TraceWriter(folder, process, 1, boot, wire=True)
    for seq in range(rows):
        writer.multicast(CLIENT << SEQ_BITS | seq, CLIENT, seq, (1,), 100 + seq, 8)
        writer.wire(CLIENT, process, "START" if seq % 2 else "ACK", None, 8, 100 + seq, None)
        writer.delivery(seq, CLIENT << SEQ_BITS | seq, FINAL, seq + 1, 200 + seq)
    writer.fault("slow", "disk", 150)
    return writer


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    write_some(tmp_path / "raw").close()
    return tmp_path / "raw"


# ------------------------------------------------------------------------------------------------- writing


def test_rows_are_as_they_were_given(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "raw", 1, 1, 0, wire=True)
    writer.multicast(7, CLIENT, 7, (1, 2), 1_000, 8)
    writer.wire(CLIENT, 1, "STÄRT\n", None, 9, 1_001, 1_002)
    writer.wire(1, 0, "ACK", 7, 10, 1_003, None)
    writer.delivery(0, 7, FINAL, None, 1_004)
    writer.delivery(1, 8, FINAL, 5, 1_005)
    writer.delivery(2, 9, FINAL, None, 1_006)
    writer.close()
    info = RunInfo(
        run_id="r",
        protocol="skeen",
        seed=0,
        complete=True,
        groups=(GroupInfo(1, (0, 1)), GroupInfo(2, (2,))),
        correct=(0,),
    )
    collect(tmp_path / "raw", tmp_path / "run", lambda sent: info)
    run = read_run(tmp_path / "run")
    assert run.multicasts.dst.tolist() == [1, 2]
    assert [run.wire.kinds[kind] for kind in run.wire.kind] == ["STÄRT\n", "ACK"]
    assert run.wire.msg.tolist() == [NULL, 7]
    assert run.wire.received_us.tolist() == [2, NULL]
    assert run.deliveries.pos.tolist() == [0, 1, 2]
    assert run.deliveries.ts.tolist() == [NULL, 5, NULL]
    assert run.deliveries.t_us.tolist() == [4, 5, 6]


def test_nothing_is_written_before_the_flush_and_all_after_it(tmp_path: Path) -> None:
    writer = write_some(tmp_path / "raw")
    sizes = {path.stat().st_size for path in (tmp_path / "raw").iterdir()}
    assert sizes == {HEADER_BYTES}
    writer.flush()
    assert (tmp_path / "raw" / "deliveries.0.0.raw").stat().st_size == HEADER_BYTES + 3 * ROWS["deliveries"].itemsize
    writer.close()


def test_wire_can_be_off(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "raw", 0, 1, 0, wire=False)
    writer.wire(0, 1, "START", None, 8, 1, 2)
    writer.close()
    assert collect(tmp_path / "raw", tmp_path / "run", described).wire == 0


def test_kill_9_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from amcast.net.trace.writer import TraceWriter\n"
        "writer = TraceWriter(Path(sys.argv[1]), 0, 1, 0, True)\n"
        "for pos in range(1000):\n"
        "    writer.delivery(pos, pos, 0, pos, 10 + pos)\n"
        "    if pos == 899: writer.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "raw")], check=False)
    assert done.returncode == -signal.SIGKILL
    report = collect(tmp_path / "raw", tmp_path / "run", described)
    assert report.deliveries == 900
    assert [fault.what for fault in read_run(tmp_path / "run").faults] == ["crash"]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As a full disk: a write ends in the middle, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_ends_the_trace_and_not_the_node(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "raw", 0, 1, 0, wire=True)
    row = ROWS["deliveries"].itemsize
    with files_of_at_most(HEADER_BYTES + 10 * row + 5):
        for pos in range(30):
            writer.delivery(pos, pos, FINAL, pos, pos)
        writer.flush()
        failed = writer.failed
        assert failed is not None
        assert os.strerror(errno.EFBIG) in failed
    for pos in range(30, 1_000):
        writer.delivery(pos, pos, FINAL, pos, pos)
        writer.flush()
    assert writer.failed == failed
    assert not writer._deliveries, "what nobody writes must not pile up"
    writer.close()
    report = collect(tmp_path / "raw", tmp_path / "run", described)
    assert (report.deliveries, report.torn_bytes, report.stopped) == (10, 5, (0,))
    assert report.missing == read_run_info(tmp_path / "run").missing == ("g1.p0: the trace of its boot 0 broke off",)


def test_a_disk_that_is_full_at_the_start_is_no_error_either(tmp_path: Path) -> None:
    with files_of_at_most(5):
        writer = write_some(tmp_path / "raw")
        writer.close()
    assert writer.failed is not None
    assert collect(tmp_path / "raw", tmp_path / "run", described).files == 0


@pytest.mark.parametrize("obstacle", ["the same boot twice", "a file instead of the folder"])
def test_a_place_that_is_taken_is_left_alone(raw: Path, obstacle: str) -> None:
    before = {path: path.read_bytes() for path in raw.iterdir()}
    folder = raw if obstacle == "the same boot twice" else raw / "deliveries.0.0.raw"
    writer = write_some(folder)
    writer.close()
    assert writer.failed is not None
    after = {path: path.read_bytes() for path in raw.iterdir()}
    assert {path: data[:END_AT] + data[END_AT + 1 :] for path, data in after.items()} == {
        path: data[:END_AT] + data[END_AT + 1 :] for path, data in before.items()
    }
    marked = collect(raw, raw.parent / "run", described).missing
    assert marked == (("g1.p0: the trace of its boot 0 broke off",) if folder == raw else ())


# ------------------------------------------------------------------------------------------------- reading


def refused(raw: Path, name: str) -> str:
    words = []
    for attempt in (
        lambda: collect(raw, raw.parent / "run", described),
        lambda: Collector(raw, raw.parent / f"live-{len(words)}", described).step(),
    ):
        with pytest.raises(UsageError) as caught:
            attempt()
        words.append(str(caught.value))
        assert name in words[-1]
        assert "\n" not in words[-1]
    assert not (raw.parent / "run").exists()
    return words[0]


def overwrite(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["notes.txt", "deliveries.raw", "deliveries.0.x.raw", "gossip.0.0.raw", "deliveries.0.0.raw.bak"]
)
def test_a_foreign_file(raw: Path, name: str) -> None:
    (raw / name).write_bytes(b"whatever this is, it is longer than a header")
    assert "remove it" in refused(raw, name)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_folder_or_a_pipe_of_that_name(raw: Path, make: Callable[[Path], None]) -> None:
    make(raw / "deliveries.1.0.raw")
    assert "remove it" in refused(raw, "deliveries.1.0.raw")


def test_no_folder(tmp_path: Path) -> None:
    assert "can't be read" in refused(tmp_path / "raw", str(tmp_path / "raw"))


DELIVERIES, MULTICASTS, WIRE = "deliveries.0.0.raw", "multicasts.0.0.raw", "wire.0.0.raw"


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (DELIVERIES, lambda path: overwrite(path, 0, b"PK"), "not a trace file"),
        (DELIVERIES, lambda path: overwrite(path, 8, b"\x09"), "another version"),
        (DELIVERIES, lambda path: overwrite(path, 10, b"\x00"), "by its header"),
        (DELIVERIES, lambda path: overwrite(path, 10, b"\xff"), "by its header"),
        (DELIVERIES, lambda path: overwrite(path, 12, b"\x05"), "by its header"),
        (DELIVERIES, lambda path: overwrite(path, HEADER_BYTES + 16, b"\x03"), "no delivery"),
        (DELIVERIES, lambda path: overwrite(path, HEADER_BYTES + 7, b"\x80"), "no delivery"),
        (MULTICASTS, lambda path: overwrite(path, HEADER_BYTES + 40, b"\x01"), "count down"),
        (MULTICASTS, lambda path: overwrite(path, HEADER_BYTES + 40, b"\xff\xff\xff\xff"), "count down"),
        (MULTICASTS, lambda path: overwrite(path, HEADER_BYTES + 44, b"\x00"), "no multicast"),
        (MULTICASTS, lambda path: overwrite(path, HEADER_BYTES + 46, b"\x01"), "no multicast"),
        (WIRE, lambda path: overwrite(path, HEADER_BYTES + 16, b"\x02"), "does not name"),
        (WIRE, lambda path: overwrite(path, HEADER_BYTES + 19, b"\xff"), "does not name"),
        ("kinds.0.0.raw", lambda path: overwrite(path, HEADER_BYTES, b"x"), "makes no sense"),
        ("faults.0.0.raw", lambda path: overwrite(path, HEADER_BYTES, b"{"), "makes no sense"),
        ("faults.0.0.raw", lambda path: path.write_bytes(path.read_bytes() + b'[1e400,"",""]\n'), "makes no sense"),
        ("faults.0.0.raw", lambda path: path.write_bytes(path.read_bytes() + b'[9223372036854775807,"",""]\n'), "time"),
    ],
)
def test_a_damaged_file(raw: Path, name: str, change: Callable[[Path], None], words: str) -> None:
    change(raw / name)
    assert words in refused(raw, name)


def test_two_clusters_in_one_folder(raw: Path) -> None:
    TraceWriter(raw, 0, 2, 1, wire=False).close()
    assert "two clusters" in refused(raw, "deliveries.0.1.raw")


def test_a_file_that_becomes_shorter_while_it_is_followed(raw: Path, tmp_path: Path) -> None:
    collector = Collector(raw, tmp_path / "run", described)
    collector.step()
    os.truncate(raw / "deliveries.0.0.raw", HEADER_BYTES + 10)
    with pytest.raises(UsageError, match=r"deliveries\.0\.0\.raw is damaged: it became shorter"):
        collector.step()


def test_any_damage_is_refused_or_harmless(raw: Path, tmp_path: Path) -> None:
    rng = Random(6)
    good = {path: path.read_bytes() for path in raw.iterdir()}
    for number in range(150):
        path = rng.choice(sorted(good))
        bad = bytearray(good[path])
        for _ in range(rng.randint(1, 3)):
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad[: rng.choice((len(bad), rng.randrange(len(bad))))])
        with suppress(UsageError):
            collect(raw, tmp_path / f"run-{number}", described)
            read_run(tmp_path / f"run-{number}")
        path.write_bytes(good[path])


def test_a_run_that_grows_needs_an_empty_place(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    with pytest.raises(UsageError, match="is not empty"):
        Collector(raw, tmp_path / "run", described)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can't write the run there"):
        Collector(raw, tmp_path / "file" / "run", described)


def test_a_run_in_which_nothing_happened(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    collector = Collector(tmp_path / "raw", tmp_path / "live", described)
    collector.step()
    collector.finish()
    collect(tmp_path / "raw", tmp_path / "run", described)
    for name in ("live", "run"):
        run = read_run(tmp_path / name)
        assert (len(run.multicasts), len(run.deliveries), run.info.complete) == (0, 0, True)


@pytest.mark.parametrize("count", [1, 5, 40, 256])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("sizes", [1, 7])
def test_a_batch_is_a_row_for_each_of_its_messages(count: int, step: int, sizes: int, tmp_path: Path) -> None:
    parts = [AppMessage(message_id(CLIENT, step * i), (1, 2), bytes(i % sizes), 0) for i in range(count)]
    alone = AppMessage(message_id(CLIENT, 9_000), (1,), b"alone")
    writer = TraceWriter(tmp_path, 1, 1, 1, False)
    writer.multicast_all((pack(parts), alone), 50)
    writer.deliver_all(10, ((pack(parts), 7), (alone, 8)), True, 60)
    writer.deliver_all(11 + count, ((pack(parts), None),), True, 70)
    writer.close()

    files = {file.table: file for file in raw_files(tmp_path, {})}
    multicasts, taken = multicasts_of(files["multicasts"].rows())
    assert taken == 2 * (1 if step == 1 == sizes else count) + 1
    assert multicasts.msg.tolist() == [message.id for message in (*parts, alone)]
    assert multicasts.client_seq.tolist() == [message.seq for message in (*parts, alone)]
    assert multicasts.dst.tolist() == [1, 2] * count + [1]
    assert multicasts.dst_start.tolist() == [*range(0, 2 * count + 1, 2), 2 * count + 1]
    assert multicasts.bytes.tolist() == [len(message.payload) for message in (*parts, alone)]
    rows = files["deliveries"].rows()
    ids = [message.id for message in parts]
    assert rows["msg"].tolist() == [*ids, alone.id, *ids]
    assert rows["pos"].tolist() == list(range(10, 11 + 2 * count))
    stamps = [ts for _, _, ts in unpack_deliveries(10, ((pack(parts), 7), (alone, 8)), has_batches=True)]
    assert rows["ts"].tolist() == [*stamps, *[NULL] * count]
    files["deliveries"].take_rows(count + 1)
    assert files["deliveries"].rows()["msg"].tolist() == ids
    assert len(files["deliveries"].rows_taken()) == count + 1
