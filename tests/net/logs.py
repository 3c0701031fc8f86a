"""A record log with an owner that keeps what was reported, and copies of its folder as a crash would leave it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from amcast.net import system
from amcast.net.disk import _writer
from amcast.net.disk.records import Durability, RecordLog

WAIT_S = 60  # only a hang takes that long


class Owner:
    """Waits for reports instead of sleeping."""

    def __init__(self, folder: Path, durability: Durability = Durability.SYNC, segment_bytes: int = 64 << 20) -> None:
        self.durable: list[int] = []
        self.failures: list[OSError] = []
        self.on_report: Callable[[int], None] = lambda number: None  # in the writer's thread
        self.before_snapshot: Callable[[], None] = lambda: None
        self.before_first: Callable[[], None] = lambda: None
        self._changed = threading.Condition()
        self.log = RecordLog.open(
            folder,
            durability,
            self._on_durable,
            self._on_failure,
            lambda: self.before_snapshot(),
            segment_bytes,
            lambda: self.before_first(),
        )

    def _on_durable(self, number: int) -> None:
        self.on_report(number)
        with self._changed:
            self.durable.append(number)
            self._changed.notify_all()

    def _on_failure(self, error: OSError) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def wait_durable(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.durable and self.durable[-1] >= number, WAIT_S)

    def wait_failure(self) -> OSError:
        with self._changed:
            assert self._changed.wait_for(lambda: self.failures, WAIT_S)
        return self.failures[0]

    def write(self, *records: bytes) -> None:
        """One batch, durable."""
        for record in records:
            number = self.log.append(record)
        self.log.commit()
        self.wait_durable(number)

    def snapshot(self, record: bytes) -> None:
        number = self.log.append_snapshot(record)
        self.log.commit()
        self.wait_durable(number)


class FaultyDisk:
    """Records what is written, and fails when told to: a full disk writes half of the bytes, then nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.write_error: int | None = None
        self.sync_error: int | None = None
        self.refused = 0  # attempts
        self.writes: list[bytes] = []
        self._changed = threading.Condition()
        self._pwrite = os.pwrite
        self._sync = system._fdatasync
        monkeypatch.setattr(os, "pwrite", self._write_some)
        monkeypatch.setattr(system, "_fdatasync", self._sync_some)
        monkeypatch.setattr(_writer, "_PAUSE_S", 0.001)

    def _write_some(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        with self._changed:
            self.writes.append(bytes(data))
            self._changed.notify_all()
            if self.write_error is None:
                return self._pwrite(fd, data, offset)
            if len(data) > 1:
                return self._pwrite(fd, data[: len(data) // 2], offset)
            self.refused += 1
            raise OSError(self.write_error, os.strerror(self.write_error))

    def _sync_some(self, fd: int) -> None:
        if self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        self._sync(fd)

    def wait_written(self, data: bytes) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: any(data in write for write in self.writes), WAIT_S)

    def wait_refused(self, attempts: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.refused >= attempts, WAIT_S)


class PowerLoss:
    """Keeps what a folder would hold if the machine stopped now: names and bytes as of their last sync, no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, int] = {}  # to inodes
        self._contents: dict[int, bytes] = {}
        self.on_sync: Callable[[], object] = lambda: None  # after each, of a file or of the folder
        monkeypatch.setattr(system, "_fdatasync", self._sync_file)
        monkeypatch.setattr(os, "fsync", self._sync_folder)

    def _sync_file(self, fd: int) -> None:
        self._contents[os.fstat(fd).st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()
        self.on_sync()

    def _sync_folder(self, fd: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{fd}")) == self._folder:
            self._names = {path.name: path.stat().st_ino for path in self._folder.iterdir()}
            # The inode of a deleted file may be given to a new one, which must not inherit its content.
            self._contents = {inode: data for inode, data in self._contents.items() if inode in self._names.values()}
            self.on_sync()

    def image(self, target: Path) -> Path:
        names, contents = dict(self._names), dict(self._contents)
        if target.exists():
            shutil.rmtree(target)
        target.mkdir()
        for name, inode in names.items():
            (target / name).write_bytes(contents.get(inode, b""))
        return target


def recovered(folder: Path) -> list[bytes]:
    owner = Owner(folder)
    owner.log.close()
    assert owner.failures == []
    return owner.log.recovered


def copy_of(folder: Path, target: Path) -> Path:
    """The folder as another process would find it after a kill: locks are not copied."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(folder, target)
    return target


def only_segment(folder: Path) -> Path:
    (path,) = folder.glob("log-*")
    return path
