"""The record log on disks that are full or fail: no record is reported durable that is not."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from queue import SimpleQueue

import pytest

from amcast.core import UsageError
from amcast.net import system
from amcast.net.disk.records import Durability
from tests.net.logs import WAIT_S, FaultyDisk, Owner, PowerLoss, copy_of, recovered


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20])
def test_a_full_disk_is_waited_for(tmp_path: Path, disk: FaultyDisk, segment_bytes: int) -> None:
    owner = Owner(tmp_path / "log", segment_bytes=segment_bytes)
    owner.write(b"a")
    disk.write_error = errno.ENOSPC
    owner.log.append(b"b" * 1000)
    owner.log.commit()
    disk.wait_refused(3)
    owner.log.append(b"c")
    owner.log.commit()
    disk.wait_refused(6)
    assert owner.log.waits_for_space
    assert owner.durable == [1]
    assert owner.log.durable == 1
    disk.write_error = None
    owner.wait_durable(3)
    owner.log.close()
    assert not owner.log.waits_for_space
    assert owner.failures == []
    assert recovered(tmp_path / "log") == [b"a", b"b" * 1000, b"c"]


def test_a_snapshot_waits_for_space_and_leaves_no_draft_behind(tmp_path: Path, disk: FaultyDisk) -> None:
    owner = Owner(tmp_path)
    owner.write(b"a")
    disk.write_error = errno.EDQUOT
    owner.log.append_snapshot(b"s" * 1000)
    owner.log.append(b"b")
    owner.log.commit()
    disk.wait_refused(3)
    assert owner.log.durable == 1
    disk.write_error = None
    owner.wait_durable(3)
    owner.log.close()
    assert recovered(tmp_path) == [b"s" * 1000, b"b"]
    assert not list(tmp_path.glob("*.tmp"))


def test_a_process_that_ends_while_the_disk_is_full(tmp_path: Path, disk: FaultyDisk) -> None:
    owner = Owner(tmp_path)
    owner.write(b"a")
    disk.write_error = errno.ENOSPC
    owner.log.append(b"b")
    owner.log.close()
    assert owner.wait_failure().errno == errno.ENOSPC
    assert owner.durable == [1]
    disk.write_error = None
    assert recovered(tmp_path) == [b"a"]


def test_a_disk_that_was_full_when_the_first_record_came(tmp_path: Path, disk: FaultyDisk) -> None:
    owner = Owner(tmp_path / "log")
    disk.write_error = errno.ENOSPC
    owner.log.append(b"a")
    owner.log.commit()
    disk.wait_refused(2)
    again = Owner(copy_of(tmp_path / "log", tmp_path / "copy"))
    assert again.log.recovered == []
    again.log.close()
    disk.write_error = None
    owner.wait_durable(1)
    owner.log.close()
    assert recovered(tmp_path / "log") == [b"a"]


@pytest.mark.parametrize("when", ["write", "sync"])
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_a_failing_disk_stops_the_log_for_good(tmp_path: Path, disk: FaultyDisk, when: str, is_snapshot: bool) -> None:
    owner = Owner(tmp_path)
    owner.write(b"a")
    if when == "write":
        disk.write_error = errno.EIO
    else:
        disk.sync_error = errno.EIO
    (owner.log.append_snapshot if is_snapshot else owner.log.append)(b"b")
    owner.log.commit()
    assert owner.wait_failure().errno == errno.EIO
    disk.write_error = disk.sync_error = None
    assert owner.log.append(b"c") == 3
    owner.log.commit()
    owner.log.close()
    assert owner.durable == [1]
    assert owner.log.durable == 1
    assert len(owner.failures) == 1
    assert recovered(tmp_path) in ([b"a"], [b"a", b"b"])


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_space_does_not_help_after_a_sync_that_failed(tmp_path: Path, disk: FaultyDisk, is_snapshot: bool) -> None:
    owner = Owner(tmp_path)
    disk.sync_error = errno.ENOSPC
    (owner.log.append_snapshot if is_snapshot else owner.log.append)(b"a")
    owner.log.commit()
    assert owner.wait_failure().errno == errno.ENOSPC
    owner.log.close()
    assert owner.durable == []


def test_what_a_failed_sync_may_have_dropped_is_written_again(tmp_path: Path, disk: FaultyDisk) -> None:
    owner = Owner(tmp_path)
    owner.write(b"a")
    disk.sync_error = errno.EIO
    owner.log.append(b"only in the kernel's memory")
    owner.log.commit()
    owner.wait_failure()
    owner.log.close()
    disk.sync_error = None
    disk.writes.clear()
    again = Owner(tmp_path)
    assert again.log.durable == 2
    disk.wait_written(b"only in the kernel's memory")
    again.log.close()


def test_async_waits_for_space_as_well(tmp_path: Path, disk: FaultyDisk) -> None:
    owner = Owner(tmp_path, Durability.ASYNC)
    owner.log.append(b"a")
    disk.write_error = errno.ENOSPC
    owner.log.commit()
    disk.wait_refused(2)
    disk.write_error = None
    owner.log.close()
    assert owner.failures == []
    assert recovered(tmp_path) == [b"a"]


def test_what_comes_while_the_disk_is_busy_is_one_batch_and_waits_for_its_own_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: SimpleQueue[SimpleQueue[None]] = SimpleQueue()

    def sync_when_told(fd: int) -> None:
        told: SimpleQueue[None] = SimpleQueue()
        syncs.put(told)
        told.get(timeout=WAIT_S)

    owner = Owner(tmp_path)
    owner.write(b"0")
    monkeypatch.setattr(system, "_fdatasync", sync_when_told)
    for number in range(2, 12):
        owner.log.append(b"%d" % number)
        owner.log.commit()
        if number == 2:
            first_sync = syncs.get(timeout=WAIT_S)
    assert owner.durable == [1]
    first_sync.put(None)
    second_sync = syncs.get(timeout=WAIT_S)
    assert owner.durable == [1, 2]
    assert owner.log.durable == 2
    second_sync.put(None)
    owner.wait_durable(11)
    assert owner.durable == [1, 2, 11]
    monkeypatch.setattr(system, "_fdatasync", lambda fd: None)
    owner.log.close()


@pytest.mark.parametrize("segment_bytes", [1, 400, 1 << 20])
def test_a_power_failure_takes_nothing_that_was_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    folder = tmp_path / "log"
    power = PowerLoss(monkeypatch, folder)
    owner = Owner(folder, segment_bytes=segment_bytes)
    images: dict[int, Path] = {}
    owner.on_report = lambda number: images.update({number: power.image(tmp_path / f"at {number}")})
    for number in range(1, 60):
        append = owner.log.append_snapshot if number % 13 == 0 else owner.log.append
        append(b"%d" % number * 10)
        if number % 3 == 0:
            owner.log.commit()
            owner.wait_durable(number)
    owner.log.close()
    images[60] = power.image(tmp_path / "closed")
    assert len(images) > 20
    for number, image in images.items():
        again = Owner(image)
        assert again.log.durable == min(number, 59)
        start = number // 13 * 13 or 1
        assert again.log.recovered == [b"%d" % n * 10 for n in range(start, again.log.durable + 1)]
        again.log.close()


@pytest.mark.parametrize("segment_bytes", [1, 400, 1 << 20])
def test_a_power_failure_between_any_two_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    folder = tmp_path / "log"
    power = PowerLoss(monkeypatch, folder)
    owner = Owner(folder, segment_bytes=segment_bytes)
    moments: list[tuple[int, Path]] = []  # what was reported by then, and what is left

    def fail() -> None:
        moments.append((owner.durable[-1] if owner.durable else 0, power.image(tmp_path / f"{len(moments)}")))

    power.on_sync = fail
    for number in range(1, 30):
        (owner.snapshot if number % 7 == 0 else owner.write)(b"%d" % number * 10)
    power.on_sync = lambda: None
    owner.log.close()
    assert len(moments) > 30
    for reported, image in moments:
        again = Owner(image)
        last = again.log.durable
        assert last in (reported, reported + 1)
        assert again.log.recovered == [b"%d" % n * 10 for n in range(last // 7 * 7 or 1, last + 1)]
        again.log.close()


def test_a_power_failure_leaves_an_async_log_that_is_whole_up_to_some_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, power = FaultyDisk(monkeypatch), PowerLoss(monkeypatch, tmp_path / "log")
    owner = Owner(tmp_path / "log", Durability.ASYNC, segment_bytes=400)
    for number in range(1, 20):
        owner.log.append(b"%d" % number * 100)
        owner.log.commit()
        disk.wait_written(b"%d" % number * 100)  # so that there are several batches, and segments
    owner.before_snapshot = lambda: power.image(tmp_path / "image") and None
    owner.log.append_snapshot(b"")
    owner.log.close()
    found = recovered(tmp_path / "image")
    assert found == [b"%d" % number * 100 for number in range(1, len(found) + 1)]
    assert len(found) > 10


def test_a_log_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner(tmp_path)
    owner.write(b"a")
    owner.log.close()

    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(UsageError, match=r"salt: can't open the log: Input/output error"):
            Owner(tmp_path)
    assert recovered(tmp_path) == [b"a"]
