"""A node whose disk is full or slow stays bounded in memory, answers questions, and goes on when there is space."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from amcast.net import system
from amcast.net.client.async_client import connect
from amcast.net.config import Limits
from amcast.net.disk import _writer
from amcast.net.disk.records import Durability
from amcast.net.node.server import NodeServer

from .clusters import Cluster, eventually, run, running
from .test_net_backfill import FORGETFUL
from .test_net_cluster import ledgers

LIMIT = 1 << 20


class FullFolder:
    """No space is left in some folders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
        self.is_full = False
        self._folders = tuple(map(str, folders))
        real = system.System.pwrite

        def pwrite(calls: system.System, fd: int, data: bytes | memoryview, offset: int) -> int:
            if self.is_full and os.readlink(f"/proc/self/fd/{fd}").startswith(self._folders):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(calls, fd, data, offset)

        monkeypatch.setattr(system.System, "pwrite", pwrite)
        monkeypatch.setattr(_writer, "_PAUSE_S", 0.001)


def logs_of(cluster: Cluster, name: str) -> list[Path]:
    return [cluster.config.data_folder(name) / log for log in ("log", "deliveries")]


def waiting(cluster: Cluster, name: str) -> int:
    node = cluster.servers[name].node
    return node.barrier.waiting_bytes + node.deliveries.unflushed_bytes


@pytest.mark.parametrize("durability", [Durability.SYNC, Durability.ASYNC])
def test_a_follower_with_a_full_disk_stays_bounded_and_goes_on(
    durability: Durability, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        machines = ledgers(groups=1)
        # Room for the lag: what the follower does not read waits at its peers, which drop what is too much.
        limits = Limits(undurable_bytes=LIMIT, link_bytes=LIMIT)
        settings = {"durability": durability, "limits": limits, "options": {"paxos": {"lag_max": 100_000}}}
        async with (
            running(tmp_path / "c", groups=1, machines=dict(machines), **settings) as cluster,
            connect(cluster.config) as client,
        ):
            leader = cluster.leader(1)
            name = next(each for each in cluster.servers if each != leader)
            disk = FullFolder(monkeypatch, *logs_of(cluster, name))
            node = cluster.servers[name].node
            disk.is_full = True
            largest = 0
            for number in range(40):
                await client.multicast(["g1"], b"%d" % number + bytes(256 << 10))
                largest = max(largest, waiting(cluster, name))
            await eventually(lambda: not node.takes_input, "it takes no more")
            assert largest < 4 * LIMIT  # of the ten megabytes that were sent, and of each several copies
            before = node.messages_in
            await client.multicast(["g1"], b"on")
            status = await client.status(node.id)
            assert status.problem is not None
            assert "full" in status.problem
            assert node.messages_in == before  # nothing was read from its peers meanwhile
            disk.is_full = False
            await eventually(lambda: node.takes_input, "there is space")
            await eventually(lambda: len(machines[name].lines) == 41, "it catches up")
            assert machines[name].lines == machines[leader].lines

    run(test)


def test_a_client_waits_for_a_node_with_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        settings = {"durability": Durability.SYNC, "limits": Limits(undurable_bytes=LIMIT)}
        async with (
            running(tmp_path / "c", groups=1, replicas=1, **settings) as cluster,
            connect(cluster.config) as client,
        ):
            node = cluster.servers["g1.p0"].node
            disk = FullFolder(monkeypatch, *logs_of(cluster, "g1.p0"))
            await client.multicast(["g1"], b"before")
            disk.is_full = True
            futures = [client.submit(["g1"], bytes(64 << 10))[1] for _ in range(100)]
            await eventually(lambda: not node.takes_input, "it takes no more")
            await eventually(lambda: node.deliveries.next == 1, "nothing is delivered")
            assert waiting(cluster, "g1.p0") < 16 * LIMIT
            assert (await client.status(0)).problem is not None
            disk.is_full = False
            await asyncio.gather(*futures)
            await eventually(lambda: node.takes_input, "there is space")

    run(test)


def test_deliveries_that_a_full_disk_does_not_take_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records may still fit: they overwrite old files. Then only the delivery log waits for space."""

    async def test() -> None:
        settings = {"durability": Durability.SYNC, "limits": Limits(undurable_bytes=LIMIT)}
        async with (
            running(tmp_path / "c", groups=1, replicas=1, **settings) as cluster,
            connect(cluster.config) as client,
        ):
            node = cluster.servers["g1.p0"].node
            disk = FullFolder(monkeypatch, cluster.config.data_folder("g1.p0") / "deliveries")
            disk.is_full = True
            futures = [client.submit(["g1"], bytes(64 << 10))[1] for _ in range(100)]
            await eventually(lambda: not node.takes_input, "it takes no more")
            disk.is_full = False
            await asyncio.gather(*futures)
            await eventually(lambda: node.takes_input, "there is space")
            assert node.deliveries.unflushed_bytes == 0

    run(test)


def test_a_state_that_comes_while_the_disk_is_full_waits_for_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delivery log must note where it goes on, and can't."""

    async def test() -> None:
        machines = ledgers(groups=1)
        async with (
            running(tmp_path / "c", machines=dict(machines), **FORGETFUL) as cluster,
            connect(cluster.config) as client,
        ):
            for number in range(5):
                await client.multicast(["g1"], b"%d" % number)
            await cluster.stop("g1.p2")
            for number in range(5, 50):
                await client.multicast(["g1"], b"%d" % number)
            disk = FullFolder(monkeypatch, cluster.config.data_folder("g1.p2") / "deliveries")
            machines["g1.p2"].lines = []
            server = cluster.servers["g1.p2"] = NodeServer(cluster.config, "g1.p2", machines["g1.p2"])
            disk.is_full = True
            await server.start()
            await eventually(lambda: server.node.waits_for_space, "a state came")
            assert server.node.deliveries.next <= 5
            assert "full" in ((await client.status(server.node.id)).problem or "")
            for number in range(50, 70):
                await client.multicast(["g1"], b"%d" % number)
            await eventually(lambda: server.node.records.waits_for_space, "no snapshot replaces what is not delivered")
            assert not server.failure.done()
            disk.is_full = False
            await eventually(lambda: len(machines["g1.p2"].lines) == 70, "it catches up")
            assert machines["g1.p2"].lines == machines["g1.p0"].lines

    run(test)
