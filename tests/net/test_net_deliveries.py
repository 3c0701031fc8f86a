"""The delivery log: each position is read as it was delivered, from memory or disk; a crash leaves a first part."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amcast.core import AppMessage, StampedMessage, UsageError, message_id, pack, unpack_deliveries
from amcast.net.disk import _delivery_files, _segments, deliveries
from amcast.net.disk._segments import FILE_HEADER
from amcast.net.disk.deliveries import DeliveryLog, PositionGoneError
from amcast.net.disk.records import CorruptLogError, Durability
from tests.net.logs import WAIT_S, FaultyDisk, PowerLoss, copy_of

PAGE = 4096
ROOT = Path(__file__).parents[2]


def message_at(position: int, size: int = 10) -> StampedMessage:
    message = AppMessage(message_id(position % 7, position), (1, 2), b"%d" % position * (size // 2 + 1), position)
    return message, (None if position % 5 == 0 else position * 65_536)


def open_log(folder: Path, keep: int = 10_000_000, segment_bytes: int = 64 << 20) -> DeliveryLog:
    return DeliveryLog.open(folder, Durability.SYNC, keep, segment_bytes)


def deliver(log: DeliveryLog, start: int, stop: int, make: Callable[[int], StampedMessage] = message_at) -> None:
    for position in range(start, stop):
        assert log.append(position, *make(position))


def read_all(log: DeliveryLog, start: int = 0, limit_bytes: int = 1000) -> list[StampedMessage]:
    found: list[StampedMessage] = []
    while chunk := log.read(start + len(found), limit_bytes):
        found += chunk
    return found


def fill(log: DeliveryLog, first: int, stop: int) -> None:
    end = log.write_fill(first, [message_at(position) for position in range(first, stop)])
    assert end == stop
    log.add_fill(first, end)


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_WINDOW_MESSAGES", 10)


def segment_of(folder: Path) -> Path:
    (path,) = folder.glob("delivered-*")
    return path


# -- batches


def batch_at(first: int, count: int) -> StampedMessage:
    """Messages whose numbers are their positions: in a run, or with gaps between their ids."""
    step = 1 + first % 2
    parts = [AppMessage(message_id(9, 10 * first + i * step), (1,), b"%d" % (first + i), 0) for i in range(count)]
    return pack(parts), first + 1


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("segment_bytes", [1, 600, 1 << 20])
def test_messages_of_batches_are_read_one_by_one(tmp_path: Path, segment_bytes: int) -> None:
    rng = Random(segment_bytes)
    expected: list[StampedMessage] = []
    log = DeliveryLog.open(tmp_path, Durability.SYNC, segment_bytes=segment_bytes, has_batches=True)
    for life in range(3):
        while len(expected) < 120 * (life + 1):
            first, batch = len(expected), batch_at(len(expected), rng.choice((1, 2, 7, 30)))
            log.extend([batch]) if rng.random() < 0.5 else log.append(first, *batch)
            expected += [(each, ts) for _, each, ts in unpack_deliveries(first, [batch], has_batches=True)]
            if rng.random() < 0.4:
                log.flush()
        assert log.next == len(expected)
        for start in {0, 1, *(rng.randrange(len(expected)) for _ in range(20)), len(expected) - 1}:
            assert read_all(log, start, limit_bytes=rng.choice((1, 100, 10_000))) == expected[start:]
        log.close()
        log = DeliveryLog.open(tmp_path, Durability.SYNC, segment_bytes=segment_bytes, has_batches=True)
    assert [message.payload for message, _ in read_all(log)] == [b"%d" % i for i in range(len(expected))]
    log.close()


def test_a_batch_that_comes_again_is_compared_message_by_message(tmp_path: Path) -> None:
    log = DeliveryLog.open(tmp_path, Durability.SYNC, has_batches=True)
    for first in (0, 5, 10):
        assert log.append(first, *batch_at(first, 5))
    assert not log.append(5, *batch_at(5, 5))
    other = pack([AppMessage(message_id(9, 50 + offset), (1,), b"") for offset in (0, 1, 4)])
    with pytest.raises(AssertionError, match="comes at position 6, where"):
        log.append(5, other, 6)
    assert log.next == 15
    log.close()


# -- without crashes


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("segment_bytes", [1, 2000, 1 << 20])
def test_every_position_is_read_from_wherever_it_is(tmp_path: Path, segment_bytes: int) -> None:
    log = open_log(tmp_path, segment_bytes=segment_bytes)
    assert (log.first, log.next) == (0, 0)
    assert log.read(0, 100) == []
    for start in range(0, 300, 30):
        deliver(log, start, start + 30)
        log.flush()
    deliver(log, 300, 305)  # not flushed
    expected = [message_at(position) for position in range(305)]
    for start in (0, 1, 29, 30, 31, 200, 294, 299, 300, 304):
        assert read_all(log, start) == expected[start:]
    assert log.read(305, 100) == []
    assert log.read(900, 100) == []
    log.close()
    again = open_log(tmp_path, segment_bytes=segment_bytes)
    assert (again.first, again.next) == (0, 305)
    assert again.note is None
    for start in (0, 17, 304):
        assert read_all(again, start) == expected[start:]
    again.close()


def test_a_large_turn_and_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_WINDOW_MESSAGES", 100)
    log = open_log(tmp_path, segment_bytes=200_000)
    deliver(log, 0, 10_000)
    log.flush()
    for position in range(10_000, 13_000):  # and small ones
        deliver(log, position, position + 1)
        log.flush()
    for again in (False, True):
        if again:
            log.close()
            log = open_log(tmp_path)
        for position in (0, 511, 512, 999, 1000, 5_432, 9_999, 10_000, 10_999, 11_000, 12_345, 12_999):
            assert log.read(position, 1) == [message_at(position)]
    log.close()


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("is_recent", [True, False])
def test_a_chunk_holds_at_least_one_message_and_at_most_the_limit(tmp_path: Path, is_recent: bool) -> None:
    log = open_log(tmp_path)
    deliver(log, 0, 5, lambda position: message_at(position, 1000))
    log.flush()
    if not is_recent:
        deliver(log, 5, 50)
        log.flush()
    one = 32 + len(message_at(0, 1000)[0].payload)
    assert len(log.read(0, 1)) == 1
    assert len(log.read(0, one)) == 1
    assert len(log.read(0, 2 * one)) == 2
    assert len(log.read(0, 3 * one - 1)) == 2
    log.close()


def test_what_comes_again_after_a_restart_is_compared(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=5000)
    deliver(log, 0, 500)
    assert not log.append(3, *message_at(3))
    log.close()
    log = open_log(tmp_path)
    for position in range(100, 500):
        assert not log.append(position, *message_at(position))
    with pytest.raises(AssertionError, match=r"m1\.9 comes at position 8, where m1\.8 was delivered"):
        log.append(8, AppMessage(message_id(1, 9), (1,), b""), None)
    deliver(log, 500, 501)
    with pytest.raises(CorruptLogError, match="positions 501 to 501 were delivered and are missing"):
        log.append(502, *message_at(502))
    log.close()


def test_the_oldest_segments_are_dropped(tmp_path: Path) -> None:
    log = open_log(tmp_path, keep=100, segment_bytes=500)
    deliver(log, 0, 50)
    log.flush()
    assert log.first == 0
    for position in range(50, 1000):
        deliver(log, position, position + 1)
        log.flush()
        assert log.next - log.first >= min(100, position)
    first = log.first
    assert 850 < first <= 900
    with pytest.raises(PositionGoneError, match=f"this position is gone: start at {first}") as gone:
        log.read(first - 1, 1)
    assert gone.value.first == first
    assert not log.append(5, *message_at(6))  # nothing is known of it
    assert read_all(log, first) == [message_at(position) for position in range(first, 1000)]
    log.close()
    again = open_log(tmp_path)
    assert (again.first, again.next) == (first, 1000)
    again.close()


def test_memory_keeps_a_window(tmp_path: Path) -> None:
    log = DeliveryLog.open(tmp_path / "log", Durability.MEMORY)
    for start in range(0, 200_000, 1000):
        deliver(log, start, start + 1000)
        log.flush()
    log.sync()
    assert log.next == 200_000
    assert 65_536 <= log.next - log.first <= 65_536 * 1.125
    assert log.read(log.first, 1) == [message_at(log.first)]
    with pytest.raises(PositionGoneError):
        log.read(log.first - 1, 1)
    log.close()
    assert not (tmp_path / "log").exists()


def test_memory_keeps_what_it_held_before_a_state(tmp_path: Path) -> None:
    log = DeliveryLog.open(tmp_path, Durability.MEMORY)
    log.skip_to(5)
    assert (log.first, log.next) == (5, 5), "there was nothing to keep"
    deliver(log, 5, 10)
    log.skip_to(20)
    deliver(log, 20, 30)
    log.skip_to(40)
    assert (log.first, log.next) == (5, 40)
    assert log.read(7, 1 << 20) == [message_at(position) for position in range(7, 10)], "up to the gap"
    assert log.read(25, 1 << 20) == [message_at(position) for position in range(25, 30)]
    assert [position for position in range(40) if log.has(position)] == [*range(5, 10), *range(20, 30)]
    for position, following in ((10, 20), (19, 20), (30, 40), (39, 40)):
        with pytest.raises(PositionGoneError) as gone:
            log.read(position, 1)
        assert gone.value.first == log.after_hole(position) == following
    assert [log.after_hole(position) for position in (0, 7, 25, 40)] == [5, 7, 25, 40]
    deliver(log, 40, 80_000)
    log.flush()
    assert log.first > 14_000, "gaps are forgotten with what was before them"
    assert all(map(log.has, (log.first, 79_999)))
    log.close()


def test_large_messages_make_the_window_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_WINDOW_BYTES", 100_000)
    log = DeliveryLog.open(tmp_path, Durability.MEMORY)
    for position in range(1000):
        deliver(log, position, position + 1, lambda position: message_at(position, 1000))
        log.flush()
    kept = read_all(log, log.first, 1 << 30)
    assert 50 < len(kept) <= 115
    log.close()


def test_two_openers_and_a_foreign_file(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(UsageError, match="another process uses this folder"):
        open_log(tmp_path)
    log.close()
    (tmp_path / "notes").write_text("")
    with pytest.raises(UsageError, match="notes: is no file of this log"):
        open_log(tmp_path)


# -- crashes


def _small_log(folder: Path) -> dict[int, int]:
    """How long the file was when all below a position was flushed."""
    log = open_log(folder)
    sizes = {}
    for stop in (2, 3, 6):
        deliver(log, log.next, stop)
        log.flush()
        sizes[stop] = segment_of(folder).stat().st_size
    log.close()
    return sizes


@pytest.mark.usefixtures("without_sync")
def test_a_kill_at_any_byte_leaves_all_that_was_flushed(tmp_path: Path) -> None:
    sizes = _small_log(tmp_path / "log")
    content = segment_of(tmp_path / "log").read_bytes()
    for length in range(sizes[6] + 1):
        folder = copy_of(tmp_path / "log", tmp_path / "copy")
        segment_of(folder).write_bytes(content[:length])
        log = open_log(folder)
        flushed = max([0, *(stop for stop, size in sizes.items() if size <= length)])
        assert (log.first, log.next) == (0, flushed)
        assert (log.note is None) == (length in (0, FILE_HEADER, *sizes.values()))
        deliver(log, flushed, 8)
        log.close()
        log = open_log(folder)
        assert read_all(log) == [message_at(position) for position in range(8)]
        log.close()


@pytest.mark.usefixtures("without_sync")
def test_a_flipped_byte_never_makes_a_wrong_message(tmp_path: Path) -> None:
    _small_log(tmp_path / "log")
    expected = [message_at(position) for position in range(6)]
    refused = 0
    for path in sorted((tmp_path / "log").glob("*")):
        content = path.read_bytes()
        for at in range(len(content)):
            folder = copy_of(tmp_path / "log", tmp_path / "copy")
            damaged = bytearray(content)
            damaged[at] ^= 0x04
            (folder / path.name).write_bytes(damaged)
            try:
                log = open_log(folder)
            except CorruptLogError:
                refused += 1
                continue
            assert read_all(log) == expected
            log.close()
    assert refused > 100


@pytest.mark.usefixtures("without_sync", "small_window")
def test_a_flipped_byte_in_an_old_segment_is_found_when_it_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", segment_bytes=200)
    for position in range(40):
        deliver(log, position, position + 1)
        log.flush()
    log.close()
    expected = [message_at(position) for position in range(40)]
    oldest = min((tmp_path / "log").glob("delivered-*"))
    content = oldest.read_bytes()
    for at in range(FILE_HEADER, len(content)):
        folder = copy_of(tmp_path / "log", tmp_path / "copy")
        damaged = bytearray(content)
        damaged[at] ^= 0x40
        (folder / oldest.name).write_bytes(damaged)
        log = open_log(folder)
        with pytest.raises(CorruptLogError):
            read_all(log)
        assert read_all(log, 20) == expected[20:]
        log.close()


@pytest.mark.usefixtures("without_sync")
def test_unsynced_pages_may_be_lost_in_any_order(tmp_path: Path) -> None:
    """In several segments, the earlier ones too, but nothing of what was synced."""
    log = open_log(tmp_path / "log", segment_bytes=8000)
    deliver(log, 0, 4, lambda position: message_at(position, 1500))
    log.sync()
    for position in range(4, 20):
        deliver(log, position, position + 1, lambda position: message_at(position, 1500))
        log.flush()
    crashed = copy_of(tmp_path / "log", tmp_path / "crashed")
    log.close()
    paths = sorted(crashed.glob("delivered-*"))
    assert len(paths) >= 3
    synced = sum(len(path.read_bytes()) for path in paths[:1])
    places = [(path.name, page) for path in paths[1:] for page in range(0, path.stat().st_size, PAGE)]
    expected = [message_at(position, 1500) for position in range(20)]
    assert synced
    for lost in [some for n in (1, 2) for some in combinations(places, n)]:
        folder = copy_of(crashed, tmp_path / "copy")
        for name, page in lost:
            data = bytearray((folder / name).read_bytes())
            data[page : page + PAGE] = bytes(len(data[page : page + PAGE]))
            (folder / name).write_bytes(data)
        log = open_log(folder)
        found = read_all(log)
        assert found == expected[: len(found)]
        assert 4 <= len(found) < 20
        assert log.note is not None
        deliver(log, log.next, 25)
        log.close()
        log = open_log(folder)
        assert (log.first, log.next) == (0, 25)
        log.close()


@pytest.mark.usefixtures("without_sync")
def test_a_lost_file_of_what_was_synced_is_missed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    for position in range(30):
        deliver(log, position, position + 1)
        log.flush()
    log.sync()
    deliver(log, 30, 31)
    log.close()
    *_, before_last, _ = sorted(tmp_path.glob("delivered-*"))
    before_last.unlink()
    log = open_log(tmp_path)
    with pytest.raises(CorruptLogError, match="is missing"):
        read_all(log)
    log.close()


@pytest.mark.usefixtures("without_sync")
def test_a_crash_around_a_new_beginning(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", segment_bytes=200)
    for position in range(30):
        deliver(log, position, position + 1)
        log.flush()
    before = copy_of(tmp_path / "log", tmp_path / "before")
    log.skip_to(100)
    log.close()
    beginning = max((tmp_path / "log").glob("delivered-*"))
    content = beginning.read_bytes()
    log = open_log(copy_of(tmp_path / "log", tmp_path / "copy"))
    assert (log.next, log.gaps()) == (100, [(30, 100)])
    assert log.read(29, 1) == [message_at(29)]
    log.close()
    for length in range(FILE_HEADER + 48):  # it was not synced yet
        folder = copy_of(before, tmp_path / "copy")
        (folder / beginning.name).write_bytes(content[:length])
        log = open_log(folder)
        assert (log.first, log.next, log.gaps()) == (0, 30, [])
        log.close()


def test_a_crash_between_two_beginnings(tmp_path: Path) -> None:
    """The first one is empty, and deleted when the second one is durable."""
    log = open_log(tmp_path / "log")
    deliver(log, 0, 30)
    log.skip_to(100)
    (first,) = [path for path in (tmp_path / "log").glob("delivered-*") if path.name.endswith("100.amc")]
    content = first.read_bytes()
    log.skip_to(200)
    log.close()
    assert not first.exists()
    first.write_bytes(content)
    log = open_log(tmp_path / "log")
    assert log.gaps() == [(30, 200)]
    assert not first.exists()
    log.close()


# -- full and failing disks


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk(monkeypatch)
    log = open_log(tmp_path)
    deliver(log, 0, 10)
    log.flush()
    size = segment_of(tmp_path).stat().st_size
    disk.write_error = errno.ENOSPC
    for stop in (20, 30):
        deliver(log, log.next, stop)
        log.flush()
        assert segment_of(tmp_path).stat().st_size == size  # nothing half written takes the last space
        with pytest.raises(OSError, match="No space left"):
            log.sync()
    assert read_all(log) == [message_at(position) for position in range(30)]
    disk.write_error = None
    log.sync()
    log.close()
    log = open_log(tmp_path)
    assert read_all(log) == [message_at(position) for position in range(30)]
    log.close()


def test_a_sync_that_failed_is_never_followed_by_one_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyDisk(monkeypatch)
    log = open_log(tmp_path)
    deliver(log, 0, 10)
    disk.sync_error = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        log.sync()
    disk.sync_error = None
    with pytest.raises(OSError, match="Input/output error"):
        log.sync()
    disk.write_error = errno.EIO
    deliver(log, 10, 11)
    with pytest.raises(OSError, match="Input/output error"):
        log.flush()
    disk.write_error = None
    log.close()


def test_the_log_goes_on_while_another_thread_syncs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_syncing, may_end = threading.Event(), threading.Event()
    real = _delivery_files.sync

    def slow_sync(fd: int) -> None:
        is_syncing.set()
        assert may_end.wait(WAIT_S)
        real(fd)

    log = open_log(tmp_path, segment_bytes=300)
    deliver(log, 0, 50)
    monkeypatch.setattr(_delivery_files, "sync", slow_sync)
    thread = threading.Thread(target=log.sync)
    thread.start()
    assert is_syncing.wait(WAIT_S)
    deliver(log, 50, 100)
    log.flush()
    assert read_all(log) == [message_at(position) for position in range(100)]
    may_end.set()
    thread.join()
    log.close()
    log = open_log(tmp_path)
    assert log.next == 100
    log.close()


def test_the_kernel_is_asked_to_write_what_is_new_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []  # offset and length
    monkeypatch.setattr(_segments, "start_writing", lambda fd, offset, length: asked.append((offset, length)))
    monkeypatch.setattr(_segments, "_BEHIND_BYTES", 1_000)
    log = open_log(tmp_path)
    for position in range(100):
        deliver(log, position, position + 1)
        log.flush()
    (path,) = tmp_path.glob("delivered-*")
    assert len(asked) > 3
    assert asked[0][0] == 0
    assert all(offset + length == after for (offset, length), (after, _) in pairwise(asked))
    assert path.stat().st_size - sum(asked[-1]) < 1_000
    log.close()


def test_a_power_failure_takes_nothing_that_was_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    power = PowerLoss(monkeypatch, tmp_path / "log")
    log = open_log(tmp_path / "log", segment_bytes=300)
    images = {}
    for stop in range(3, 100, 3):
        deliver(log, stop - 3, stop)
        log.flush()
        if stop % 5 == 0:
            log.sync()
            images[stop] = power.image(tmp_path / f"at {stop}")
    log.skip_to(1000)
    restored = power.image(tmp_path / "restored")
    log.close()
    assert len(images) == 6
    for stop, image in images.items():
        again = open_log(image)
        assert read_all(again) == [message_at(position) for position in range(stop)]
        again.close()
    again = open_log(restored)
    assert (again.first, again.next, again.gaps()) == (0, 1000, [(99, 1000)])
    for position in range(99):
        assert again.read(position, 1) == [message_at(position)]
    again.close()


# -- a model, and a real kill

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "flush", "sync", "read", "again", "skip", "fill", "fill", "kill", "reopen"]
        ),
        st.integers(1, 40),
    ),
    max_size=40,
)


@pytest.mark.usefixtures("without_sync", "small_window")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(OPERATIONS, st.sampled_from([1, 300, 5000]), st.sampled_from([20, 10_000]))
def test_the_log_behaves_like_a_list(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int]], segment_bytes: int, keep: int
) -> None:
    folder = tmp_path_factory.mktemp("model") / "0"
    log = open_log(folder, keep, segment_bytes)
    missing: set[int] = set()
    next_ = flushed = 0
    for operation, n in operations:
        match operation:
            case "append":
                deliver(log, next_, next_ + n)
                next_ += n
            case "flush":
                log.flush()
                flushed = next_
            case "sync":
                log.sync()
                flushed = next_
            case "read":
                for start in range(max(log.first, next_ - n), next_):
                    _read_one(log, start, missing)
            case "again":
                for position in range(max(0, next_ - n), next_):
                    assert not log.append(position, *message_at(position))
            case "skip":
                log.skip_to(next_ + n)
                missing |= set(range(next_, next_ + n))
                next_ = flushed = next_ + n
            case "fill":
                for start, end in log.gaps()[:1]:
                    first = start + n % (end - start)
                    fill(log, first, min(end, first + 5))
                    missing -= set(range(first, min(end, first + 5)))
            case "kill":
                crashed = copy_of(folder, folder.parent / str(int(folder.name) + 1))
                log.close()
                folder, next_ = crashed, flushed
                log = open_log(folder, keep, segment_bytes)
            case _:
                log.close()
                flushed = next_
                log = open_log(folder, keep, segment_bytes)
        assert log.next == next_
        wanted = range(max(0, next_ - keep), next_)
        assert all(log.has(position) != (position in missing) for position in wanted)
    log.close()


def _read_one(log: DeliveryLog, position: int, missing: set[int]) -> None:
    if position not in missing:
        assert log.read(position, 1) == [message_at(position)]
    else:
        with pytest.raises(PositionGoneError) as gone:
            log.read(position, 1)
        assert gone.value.first > position
        assert gone.value.first == log.next or log.has(gone.value.first)


CHILD = """
import sys
from pathlib import Path
from amcast.net.disk.records import Durability
from tests.net.test_net_deliveries import DeliveryLog, message_at

log = DeliveryLog.open(Path(sys.argv[1]), Durability.ASYNC, segment_bytes=20_000)
while True:
    for _ in range(7):
        log.append(log.next, *message_at(log.next))
    log.flush()
    sys.stdout.write(f"{log.next}\\n")
    sys.stdout.flush()
"""


def test_kill_9_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    for lines in (40, 700):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert child.stdout is not None
        try:
            said = [child.stdout.readline() for _ in range(lines)]
        finally:
            os.kill(child.pid, 9)
        said += child.stdout.readlines()
        child.stdout.close()
        child.wait()
        log = open_log(tmp_path)
        assert log.next >= int(said[-1])
        assert read_all(log, 0, 10_000) == [message_at(position) for position in range(log.next)]
        log.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_segment_of_which_only_the_name_is_left_ends_the_log(tmp_path: Path, lost: int) -> None:
    """The machine stopped before the first sync. The disk had written later segments, and of this one nothing."""
    log = open_log(tmp_path / "log", segment_bytes=1)
    for position in range(4):
        deliver(log, position, position + 1)
        log.flush()
    copied = copy_of(tmp_path / "log", tmp_path / "copy")
    sorted(copied.glob("delivered-*"))[lost].write_bytes(b"")
    log.close()
    again = open_log(copied, segment_bytes=1)
    assert again.next == lost
    deliver(again, lost, 6)
    assert read_all(again) == [message_at(position) for position in range(6)]
    again.close()


def test_what_recovery_deletes_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a second power failure it would look as if the log began with what was deleted after the first."""
    log = open_log(tmp_path / "log", segment_bytes=1)
    for position in range(4):
        deliver(log, position, position + 1)
        log.flush()
    copied = copy_of(tmp_path / "log", tmp_path / "copy")
    log.close()
    sorted(copied.glob("delivered-*"))[1].write_bytes(b"")
    synced: list[list[str]] = []
    monkeypatch.setattr(
        _delivery_files,
        "sync_folder",
        lambda folder: synced.append(sorted(path.name for path in folder.glob("delivered-*"))),
    )
    again = open_log(copied, segment_bytes=1)
    assert again.next == 1
    assert synced == [["delivered-00000000000000000000.amc"]]
    again.close()
