"""What a node writes is closed to other users of its machine, whatever the umask says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from amcast.net.client.async_client import connect
from amcast.net.disk.records import Durability
from amcast.net.node.application import StateMachine

from .clusters import run, running


class Counter(StateMachine):
    def __init__(self) -> None:
        self.count = 0

    def apply(self, message: object) -> None:
        self.count += 1

    def snapshot(self) -> bytes:
        return b"%d" % self.count

    def restore(self, state: bytes) -> None:
        self.count = int(state)


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    found = [folder, *folder.rglob("*")]
    return [f"{path.relative_to(folder)} {path.stat().st_mode:o}" for path in found if path.stat().st_mode & 0o077]


def test_data_folders_and_all_files_in_them_are_private(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(
                tmp_path / "c", groups=1, machines={"g1.p0": Counter()}, durability=Durability.SYNC, trace=True
            ) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast(["g1"], b"one")
        for name in ("g1.p0", "g1.p1", "trace"):
            assert open_to_others(cluster.config.data_folder(name)) == []
        assert (cluster.config.data_folder("g1.p0") / "application.state").exists()

    run(test)


def test_a_folder_that_was_open_to_others_is_closed_at_the_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "skeen", groups=1, replicas=1, durability=Durability.SYNC) as cluster:
            folder = cluster.config.data_folder("g1.p0")
            await cluster.stop("g1.p0")
            folder.chmod(0o755)
            await cluster.start_and_wait("g1.p0")
            assert folder.stat().st_mode & 0o777 == 0o700

    run(test)
