"""Traces of running nodes are bounded, and a run never passes, nor fails, by what was dropped of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from amcast.check import check_run
from amcast.core import UsageError, message_id
from amcast.net.system import System, use
from amcast.net.trace._rawformat import FLUSH_ORDER
from amcast.net.trace._retention import Bounds, Retention
from amcast.net.trace.collect import Boots, Collector, Expected, collect
from amcast.net.trace.writer import TraceWriter
from amcast.trace import FINAL, OPTIMISTIC, GroupInfo, RunInfo, read_run, read_run_info
from tests.net.raw_traces import kill

CLIENT = 9
LIMIT = 160_000  # holds eight segments, of which the smallest takes five blocks of 4,096 bytes
BOUNDS = Bounds(LIMIT)
INFO = RunInfo(
    run_id="real",
    protocol="fastcast",
    seed=0,
    complete=True,
    groups=(GroupInfo(1, (0, 1)),),
    correct=(0, 1),
    claims=("timestamps", "fifo", "local-order"),
)


def described(sent: object) -> RunInfo:
    return INFO


class Clock(System):
    """The operating system, with a clock that stands still."""

    def __init__(self) -> None:
        self.now_us = 1_000_000_000_000

    def wall_us(self) -> int:
        return self.now_us

    def size_and_time(self, path: Path) -> tuple[int, int]:
        return super().size_and_time(path)[0], self.now_us


def writer_of(raw: Path, process: int, boot: int = 1, bounds: Bounds = BOUNDS) -> TraceWriter:
    return TraceWriter(raw, process, 1, boot, wire=True, bounds=bounds)


def deliver(writer: TraceWriter, first: int, stop: int, guesses: bool = False) -> None:
    """A turn of the node for each message."""
    for seq in range(first, stop):
        message = message_id(CLIENT, seq)
        writer.wire(CLIENT, 0, "start", message, 30, seq, seq)
        writer.multicast(message, CLIENT, seq, (1,), 2 * seq, 8)
        if guesses:
            writer.delivery(seq, message, OPTIMISTIC, None, 2 * seq)
        writer.delivery(seq, message, FINAL, seq + 1, 2 * seq + 1)
        writer.flush()


def bytes_of(raw: Path, process: int) -> int:
    return sum(path.stat().st_size for path in raw.glob(f"*.{process}.*.raw"))


def expecting(position: int, boots: int = 1) -> Callable[[], dict[int, Expected]]:
    return lambda: {0: Expected(Boots(boots), position), 1: Expected(None, position)}


def collected(raw: Path, position: int, boots: int = 1) -> tuple[tuple[str, ...], str]:
    """What is missing of the run, and its verdict. Nothing fails."""
    out = raw.parent / f"run-{len(list(raw.parent.iterdir()))}"
    report = collect(raw, out, described, expecting(position, boots))
    checked = check_run(read_run(out))
    assert checked.violations == []
    return report.missing, checked.verdict


def test_a_trace_stays_within_its_limit_and_the_run_says_what_was_dropped(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    writers = [writer_of(raw, 0), writer_of(raw, 1, bounds=Bounds())]
    for first in range(0, 2_000, 100):
        for writer in writers:
            deliver(writer, first, first + 100)
        assert bytes_of(raw, 0) <= LIMIT
    for writer in writers:
        writer.close()
    assert bytes_of(raw, 1) > LIMIT  # without bounds all of it is kept
    (missing,), verdict = collected(raw, 2_000)
    run = read_run(next(tmp_path.glob("run-*")))
    first = int(run.deliveries.pos[run.deliveries.process == 0].min())
    assert first > 500
    assert missing == f"g1.p0: deliveries before position {first:,} were dropped by the limit of 160 kB"
    assert verdict == "unknown"


def test_whoever_follows_a_trace_as_it_grows_has_all_of_it(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    writers = [writer_of(raw, process) for process in (0, 1)]
    collector = Collector(raw, tmp_path / "live", described, expecting(2_000))
    for first in range(0, 2_000, 100):
        for writer in writers:
            deliver(writer, first, first + 100, guesses=True)
        collector.step()
        assert read_run_info(tmp_path / "live").missing == ()
    for writer in writers:
        writer.close()
    assert len(list(raw.glob("deliveries.0.*"))) < 10 < writers[0]._segment
    assert collector.finish().missing == ()
    run = read_run(tmp_path / "live")
    assert check_run(run).verdict == "pass"
    assert len(run.deliveries) == 4 * 2_000


def test_whoever_falls_behind_says_so_before_the_rows_that_follow(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    writers = [writer_of(raw, process) for process in (0, 1)]
    collector = Collector(raw, tmp_path / "live", described, expecting(2_000))
    appended = collector._run.append
    told: list[tuple[str, ...]] = []

    def spy(tables: Any) -> None:
        told.append(read_run_info(tmp_path / "live").missing)
        appended(tables)

    collector._run.append = spy  # type: ignore[method-assign]
    for first, stop in ((0, 200), (200, 2_000)):
        for writer in writers:
            deliver(writer, first, stop)
        collector.step()
    assert told[0] == ()
    assert [word.partition(":")[0] for word in told[1]] == ["g1.p0", "g1.p1"]
    assert all(word.endswith("dropped by the limit of 160 kB") for word in told[1])
    for writer in writers:
        writer.close()
    assert set(told[1]) <= set(collector.finish().missing)
    checked = check_run(read_run(tmp_path / "live"))
    assert (checked.verdict, checked.violations) == ("unknown", [])


@pytest.mark.parametrize("guesses", [False, True])
def test_what_a_process_repeats_is_not_compared_with_what_is_gone(guesses: bool, tmp_path: Path) -> None:
    """A follower has read all of it, but can't read it again: it must not pass what it did not compare."""
    raw = tmp_path / "raw"
    other = writer_of(raw, 1, bounds=Bounds())
    deliver(other, 0, 2_000, guesses)
    other.close()
    first = writer_of(raw, 0)
    collector = Collector(raw, tmp_path / "live", described, expecting(2_000, boots=2))
    for stop in range(100, 2_001, 100):
        deliver(first, stop - 100, stop, guesses)
        collector.step()
    kill(first)
    second = writer_of(raw, 0, boot=2)
    deliver(second, 0, 200, guesses)
    second.close()
    words = collector.finish().missing
    assert "g1.p0: what it delivered again after a restart can't be compared with what was dropped" in words
    checked = check_run(read_run(tmp_path / "live"))
    assert (checked.verdict, checked.violations) == ("unknown", [])


def test_a_restart_counts_what_earlier_boots_left(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    for boot in range(1, 9):
        for process in (0, 1):
            writer = writer_of(raw, process, boot)
            deliver(writer, 300 * (boot - 1), 300 * boot)
            writer.close() if boot % 2 else kill(writer)
            assert bytes_of(raw, process) <= LIMIT
    assert not list(raw.glob("*.0.1*.raw"))
    missing, verdict = collected(raw, 2_400, boots=8)
    assert verdict == "unknown"
    assert [word.partition(" before")[0] for word in missing] == ["g1.p0: deliveries", "g1.p1: deliveries"]


def test_files_of_a_version_without_segments_are_read_and_dropped(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    for process in (0, 1):
        writer = writer_of(raw, process, bounds=Bounds())
        deliver(writer, 0, 300)
        writer.close()
        for table in FLUSH_ORDER:
            path = raw / f"{table}.{process}.1.raw"
            data = path.read_bytes()
            path.write_bytes(data[:8] + pack("<H", 4) + data[10:24] + data[28:])
    assert collected(raw, 300) == ((), "pass")
    for process in (0, 1):
        writer = writer_of(raw, process, boot=2)
        deliver(writer, 300, 3_000)
        writer.close()
    assert not list(raw.glob("*.1.raw"))
    missing, verdict = collected(raw, 3_000, boots=2)
    assert (len(missing), verdict) == (2, "unknown")


def test_old_segments_go_by_their_age(tmp_path: Path) -> None:
    raw, clock = tmp_path / "raw", Clock()
    day = 86_400_000_000
    with use(clock):
        writers = [writer_of(raw, process, bounds=Bounds(1 << 40, 8 * 86_400)) for process in (0, 1)]
        for number in range(20):
            for writer in writers:
                deliver(writer, number, number + 1)
            clock.now_us += day
        for _ in range(20):  # nothing happens, and time passes
            clock.now_us += day
            for writer in writers:
                writer.flush()
        for writer in writers:
            writer.close()
    assert len(list(raw.glob("*.0.*.raw"))) == len(FLUSH_ORDER)
    missing, verdict = collected(raw, 20)
    assert missing == tuple(f"g1.p{p}: a part of its trace was dropped by the limit of 8 days" for p in (0, 1))
    assert verdict == "unknown"


def test_without_a_limit_of_bytes_age_does_not_matter(tmp_path: Path) -> None:
    clock = Clock()
    with use(clock):
        writer = writer_of(tmp_path, 0, bounds=Bounds(0, 1))
        for number in range(5):
            deliver(writer, number, number + 1)
            clock.now_us += 86_400_000_000
        writer.close()
    assert len(list(tmp_path.iterdir())) == len(FLUSH_ORDER)


def test_many_short_boots_are_bounded_too(tmp_path: Path) -> None:
    """Each leaves five files with next to nothing in them, which take blocks all the same."""
    for boot in range(1, 100):
        writer_of(tmp_path, 0, boot).close()
    assert len(list(tmp_path.iterdir())) <= LIMIT // 4_096


@pytest.fixture
def in_segments(tmp_path: Path) -> Path:
    """A trace in four segments, none of which is dropped."""
    raw = tmp_path / "raw"
    for process in (0, 1):
        writer = writer_of(raw, process, bounds=Bounds(400_000))
        deliver(writer, 0, 1_200)
        writer.close()
        assert writer._segment == 3
    return raw


def test_a_trace_in_segments_is_as_good_as_one_without(in_segments: Path) -> None:
    assert collected(in_segments, 1_200) == ((), "pass")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("*.0.1.raw", "has no segment 0"),
        ("*.0.1.2.raw", "has no segment 2"),
        ("*.0.1.3.raw", "has no segment 3"),
        ("wire.0.1.raw", "has no wire"),
        ("wire.0.1.1.raw", "has no wire in its segment 1"),
        ("multicasts.0.1.3.raw", "has no multicasts in its segment 3"),
    ],
)
def test_a_segment_that_is_gone_though_nobody_dropped_it(pattern: str, words: str, in_segments: Path) -> None:
    for path in in_segments.glob(pattern):
        path.unlink()
    missing, verdict = collected(in_segments, 1_200)
    assert f"g1.p0: the trace of its boot 1 {words}" in missing
    assert verdict == "unknown"


def test_a_segment_under_the_name_of_another_one(in_segments: Path) -> None:
    (in_segments / "wire.0.1.2.raw").rename(in_segments / "wire.0.1.7.raw")
    with pytest.raises(UsageError, match=r"wire.0.1.7.raw is wire.0.1.2.raw by its header"):
        collected(in_segments, 1_200)


def test_a_boot_whose_number_was_used_before_is_refused_though_its_beginning_was_dropped(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    for process in (0, 1):
        writer = writer_of(raw, process)
        deliver(writer, 0, 2_000)
        writer.close()
    assert not (raw / "deliveries.0.1.raw").exists()
    again = writer_of(raw, 0)
    assert "File exists" in (again.failed or "")
    again.close()
    missing, verdict = collected(raw, 2_000)
    assert "g1.p0: the trace of its boot 1 broke off" in missing
    assert verdict == "unknown"


# -------------------------------------------------------------------------------- crashes and full disks


class Killed(BaseException):
    pass


class Failing(System):
    """The operating system, until a number of calls that change something is used up."""

    def __init__(self, calls: int, error: BaseException) -> None:
        self._calls = calls
        self._error = error

    def _spend(self) -> None:
        if not self._calls:
            raise self._error
        self._calls -= 1

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._spend()
        return super().open(path, flags, mode)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._spend()
        return super().write(fd, data)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if isinstance(self._error, Killed):  # a full disk has room for a mark
            self._spend()
        return super().pwrite(fd, data, offset)

    def unlink(self, path: Path) -> None:
        if isinstance(self._error, Killed):
            self._spend()
        super().unlink(path)


class Keeping(System):
    """The operating system, but what is removed is in a folder then, for whoever read it in time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def unlink(self, path: Path) -> None:
        path.rename(self._folder / path.name)


TINY = Bounds(60_000)
END = 400  # messages


def at_the_brink(raw: Path) -> tuple[TraceWriter, int]:
    """A writer that is about to begin a segment and to drop another one, and its position. A replica has it all."""
    other = writer_of(raw, 1, bounds=Bounds())
    deliver(other, 0, END)
    other.close()
    writer, now = writer_of(raw, 0, bounds=TINY), 0
    while writer._segment < 3 or sum(file.size for file in writer._files) + 400 < TINY.segment_bytes:
        deliver(writer, now, now + 1)
        now += 1
    return writer, now


def test_a_kill_at_any_moment_of_a_rotation_loses_nothing(tmp_path: Path) -> None:
    was_killed, calls = True, 0
    while was_killed:
        raw = tmp_path / str(calls) / "raw"
        writer, now = at_the_brink(raw)
        was_killed = False
        with use(Failing(calls, Killed())):
            try:
                while writer._segment == 3:
                    deliver(writer, now, now + 1)
                    now += 1
            except Killed:
                was_killed = True
        second = writer_of(raw, 0, boot=2, bounds=TINY)
        deliver(second, now - 5, END)  # a process repeats what came since its last snapshot
        second.close()
        assert bytes_of(raw, 0) <= TINY.bytes
        missing, verdict = collected(raw, END, boots=2)
        assert [word.partition(" before")[0] for word in missing] == ["g1.p0: deliveries"]
        assert verdict == "unknown"
        calls += 1
    assert calls > 20  # five files and their headers, five marks, five files that are removed


def test_a_kill_at_any_moment_of_the_beginning_of_a_trace_loses_nothing(tmp_path: Path) -> None:
    """The process took no part yet. What it left is dropped in time, and no run lacks it."""
    was_killed, calls = True, 0
    while was_killed:
        raw, dropped = tmp_path / str(calls) / "raw", tmp_path / str(calls) / "dropped"
        dropped.mkdir(parents=True)
        other, first = writer_of(raw, 1, bounds=Bounds()), writer_of(raw, 0, bounds=TINY)
        deliver(other, 0, END)
        other.close()
        deliver(first, 0, 100)
        kill(first)
        was_killed = False
        with use(Failing(calls, Killed())):
            try:
                writer_of(raw, 0, boot=2, bounds=TINY)
            except Killed:
                was_killed = True
        with use(Keeping(dropped)):
            third = TraceWriter(raw, 0, 1, 3, wire=True, idle=[2], bounds=TINY)
            deliver(third, 95, END)
            third.close()
        assert not list(raw.glob("*.0.2.raw"))
        assert collected(raw, END, boots=3)[1] == "unknown"
        for path in dropped.iterdir():
            path.rename(raw / path.name)
        assert collected(raw, END, boots=3) == ((), "pass")
        calls += 1
    assert calls > 10  # five files and their headers


def test_a_disk_that_is_full_at_any_moment_of_a_rotation_is_told(tmp_path: Path) -> None:
    calls = 0
    while True:
        raw = tmp_path / str(calls) / "raw"
        writer, now = at_the_brink(raw)
        with use(Failing(calls, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))):
            while writer._segment == 3 and writer.failed is None:
                deliver(writer, now, now + 1)
                now += 1
        if writer.failed is None:
            break
        writer.close()
        assert "No space left" in writer.failed
        missing, verdict = collected(raw, now)
        assert "g1.p0: the trace of its boot 1 broke off" in missing
        assert verdict == "unknown"
        calls += 1
    assert calls > 10  # five files and their headers, and the word of what is dropped


def test_what_can_not_be_removed_goes_at_the_next_start(tmp_path: Path) -> None:
    class Stubborn(System):
        def unlink(self, path: Path) -> None:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with use(Stubborn()):
        writer = writer_of(tmp_path, 0)
        deliver(writer, 0, 2_000)
        writer.close()
    assert writer.failed is None
    assert bytes_of(tmp_path, 0) > LIMIT
    writer_of(tmp_path, 0, boot=2).close()
    assert bytes_of(tmp_path, 0) <= LIMIT


def test_files_of_other_processes_are_left_alone(tmp_path: Path) -> None:
    deliver(other := writer_of(tmp_path, 10, bounds=Bounds()), 0, 2_000)
    other.close()
    before = bytes_of(tmp_path, 10)
    writer = writer_of(tmp_path, 1)
    deliver(writer, 0, 2_000)
    writer.close()
    assert bytes_of(tmp_path, 10) == before
    assert Retention(tmp_path, 0, BOUNDS).due(0) is None


def test_guesses_that_a_process_repeats_in_several_segments_are_left_out_of_all(tmp_path: Path) -> None:
    """After a restart it counts its guesses from 0 again, and knows nothing of those before."""
    raw, bounds = tmp_path / "raw", Bounds(400_000)
    other = writer_of(raw, 1, bounds=Bounds())
    deliver(other, 0, 900, guesses=True)
    other.close()
    first = writer_of(raw, 0, bounds=bounds)
    deliver(first, 0, 600, guesses=True)
    kill(first)
    second = writer_of(raw, 0, boot=2, bounds=bounds)
    collector = Collector(raw, tmp_path / "live", described, expecting(900, boots=2))
    for seq in range(100, 900):
        second.delivery(seq - 100, message_id(CLIENT, seq), OPTIMISTIC, None, 2_000 + 2 * seq)
        second.delivery(seq, message_id(CLIENT, seq), FINAL, seq + 1, 2_001 + 2 * seq)
        second.flush()
        if seq % 300 == 0:
            collector.step()
    second.close()
    assert second._segment > 0
    assert collected(raw, 900, boots=2) == ((), "pass")
    assert collector.finish().missing == ()
    assert check_run(read_run(tmp_path / "live")).verdict == "pass"
