"""An orderly stop: nothing that a record promised is lost, whatever the disk was doing."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from amcast.net import system
from amcast.net.client.async_client import connect
from amcast.net.disk.deliveries import DeliveryLog
from amcast.net.disk.records import Durability
from amcast.net.node import server as server_module
from amcast.net.node.server import NodeServer

from .clusters import Cluster, eventually, run, running
from .logs import WAIT_S, FaultyDisk, copy_of
from .test_net_cluster import Ledger

SNAPSHOTS: dict[str, Any] = {
    "groups": 1,
    "replicas": 1,
    "durability": Durability.SYNC,
    "options": {"paxos": {"snapshot_every": 5}, "history_max": 1},
}


class SlowDisk:
    """Syncs wait while it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        sync = system._fdatasync

        def slow(fd: int) -> None:
            assert self.may_sync.wait(WAIT_S)
            sync(fd)

        monkeypatch.setattr(system, "_fdatasync", slow)

    def go_on_when_closing(self, server: NodeServer) -> None:
        """In a while, or earlier if the node waits for its disk without the event loop."""

        def wait() -> None:
            server.node.records._writer._closing.wait(0.5)  # type: ignore[union-attr]
            self.may_sync.set()

        threading.Thread(target=wait).start()


async def take_many(cluster: Cluster, client: Any, disk: SlowDisk) -> list[asyncio.Future[None]]:
    """Twenty messages and several snapshots wait for the disk."""
    await client.multicast(["g1"], b"first")
    disk.may_sync.clear()
    futures = []
    node = cluster.servers["g1.p0"].node
    for number in range(20):
        before = node.messages_in
        futures.append(client.submit(["g1"], b"%d" % number)[1])
        await eventually(lambda b=before: node.messages_in > b, "it is taken")
    await eventually(lambda: node.barrier.undurable > 20, "records wait for the disk")
    assert node.deliveries.next == 1
    return futures


def test_a_stop_in_the_middle_of_snapshots_delivers_what_they_cover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)

    async def test() -> None:
        machine = Ledger()
        async with running(tmp_path / "c", machines={"g1.p0": machine}, **SNAPSHOTS) as cluster:
            server = cluster.servers["g1.p0"]
            async with connect(cluster.config) as client:
                futures = await take_many(cluster, client, disk)
                disk.go_on_when_closing(server)
                await cluster.stop()
                applied = len(machine.lines)
                folder = copy_of(cluster.config.data_folder("g1.p0"), tmp_path / "stopped")
                await asyncio.gather(*futures)  # they were durable, so they are delivered and acknowledged
            assert len(machine.lines) == applied == 21  # nothing is delivered after the end
            log = DeliveryLog.open(folder / "deliveries", Durability.SYNC)
            assert (log.first, log.next) == (0, 21)
            log.close()

    run(test)


def test_a_stop_on_a_full_disk_ends_and_writes_no_snapshot_of_what_was_not_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_SPACE_S", 0.3)
    disk = FaultyDisk(monkeypatch)

    async def test() -> None:
        machine = Ledger()
        async with running(tmp_path / "c", machines={"g1.p0": machine}, **SNAPSHOTS) as cluster:
            async with connect(cluster.config) as client:
                await client.multicast(["g1"], b"first")
                disk.write_error = errno.ENOSPC
                futures = [client.submit(["g1"], b"%d" % number)[1] for number in range(20)]
                node = cluster.servers["g1.p0"].node
                await eventually(lambda: node.records.waits_for_space, "the disk is full")
                await cluster.stop()
                assert len(machine.lines) == 1
                assert not any(future.done() for future in futures)
                disk.write_error = None
                machine.lines = []
                await cluster.start()
                await asyncio.gather(*futures)
            await eventually(lambda: len(machine.lines) == 21, "all are applied, once")
            assert cluster.servers["g1.p0"].node.deliveries.first == 0

    run(test)


def test_a_node_that_fails_while_a_snapshot_waits_for_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk's thread waits for deliveries that will never be performed: the snapshot is not written."""
    disk = SlowDisk(monkeypatch)

    async def test() -> None:
        machine = Ledger()
        async with running(tmp_path / "c", machines={"g1.p0": machine}, **SNAPSHOTS) as cluster:
            server = cluster.servers["g1.p0"]
            async with connect(cluster.config) as client:
                futures = await take_many(cluster, client, disk)
                server.fail(RuntimeError("as if a handler had failed"))
                server.failure.exception()  # it is seen
                disk.may_sync.set()
                await cluster.stop()
                assert len(machine.lines) == 1
                machine.lines = []
                await cluster.start()
                await asyncio.gather(*futures)
            await eventually(lambda: len(machine.lines) == 21, "all are applied, once")
            assert cluster.servers["g1.p0"].node.deliveries.first == 0

    run(test)
