"""Real processes with an application: restarted in turn by SIGTERM and SIGKILL, they lose and repeat nothing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.config import ClusterConfig
from amcast.net.disk.deliveries import DeliveryLog
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan
from amcast.net.node._application_state import read_snapshot, split_state

from .clusters import eventually, run
from .test_net_backfill import FORGETFUL
from .test_net_deliveries import read_all

ROOT = Path(__file__).parents[2]
NODE = """
import sys
import time
from pathlib import Path
from amcast.core import UsageError
from amcast.net import system
from amcast.net.config import load_config
from amcast.net.run import run_node
from tests.net.test_net_cluster import Ledger

class Machine(Ledger):
    def apply(self, message):
        if message.payload == b"no route":
            raise ConnectionError("no route to host")
        super().apply(message)

if len(sys.argv) > 3:  # the disk takes so long for a sync
    fdatasync = system._fdatasync
    def slow(fd):
        time.sleep(float(sys.argv[3]))
        fdatasync(fd)
    system._fdatasync = slow
try:
    run_node(load_config(Path(sys.argv[1])), sys.argv[2], Machine())
except UsageError as error:
    sys.exit(f"amcast: {error}")
"""


class Processes:
    def __init__(self, folder: Path, **settings: Any) -> None:
        self.config: ClusterConfig = plan(folder, "fastcast", **settings)
        self.file = LocalCluster.create(folder, self.config).config.file
        self._logs = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *options: str) -> None:
        with (self._logs / f"{name}.txt").open("ab") as log:
            command = [sys.executable, "-c", NODE, str(self.file), name, *options]
            self._running[name] = subprocess.Popen(command, cwd=ROOT, stderr=log)

    def signal(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def log_of(self, name: str) -> str:
        return (self._logs / f"{name}.txt").read_text()

    async def end(self, name: str, number: signal.Signals | None = None) -> int:
        """Waits for its end, after a signal if there is one."""
        process = self._running.pop(name)
        if number is not None:
            process.send_signal(number)
        return await asyncio.to_thread(process.wait, 60)

    def kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


def saved_state(folder: Path) -> tuple[int, bytes]:
    """The position of the application's snapshot, and the machine's state in it."""
    found = read_snapshot(folder / "application.state")
    assert found is not None
    return found[0], split_state(found[1])[1]


async def until_delivered(client: AsyncClient, process: int, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                status = await client.status(process)
            except (OSError, TimeoutError):
                status = None
            if status is not None and status.delivered == status.application == count:
                return
            await asyncio.sleep(0.05)


async def send(client: AsyncClient, start: int, stop: int) -> None:
    for number in range(start, stop):
        await client.multicast(["g1"], b"%d" % number, timeout=60)


async def opened(config: ClusterConfig) -> AsyncClient:
    async with asyncio.timeout(60):
        while True:
            try:
                return await connect(config).__aenter__()
            except Exception:
                await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_restarts_in_turn_lose_nothing(tmp_path: Path, number: signal.Signals) -> None:
    names = ["g1.p0", "g1.p1", "g1.p2"]

    async def test() -> None:
        processes = Processes(tmp_path / "c", **FORGETFUL)
        try:
            for name in names:
                processes.start(name)
            client = await opened(processes.config)
            await send(client, 0, 20)
            sent = 20
            for index, name in enumerate(names):
                code = await processes.end(name, number)
                assert code == (0 if number is signal.SIGTERM else -number)
                await send(client, sent, sent + 30)
                sent += 30
                processes.start(name)
                await until_delivered(client, index, sent)
            await client.__aexit__(None, None, None)
            for name in names:
                assert await processes.end(name, signal.SIGTERM) == 0, processes.log_of(name)
            expected = [b"%d" % each for each in range(sent)]
            for name in names:
                folder = processes.config.data_folder(name)
                log = DeliveryLog.open(folder / "deliveries", Durability.SYNC)
                assert log.gaps() == []
                assert [message.payload for message, _ in read_all(log)] == expected
                log.close()
                assert saved_state(folder) == (sent, b"\n".join(expected))
        finally:
            processes.kill_all()

    run(test)


@pytest.mark.slow
@pytest.mark.parametrize("kill_after_s", [0.02, 0.2, None])
def test_a_stop_in_the_middle_of_snapshots_loses_nothing(tmp_path: Path, kill_after_s: float | None) -> None:
    """On a slow disk, with SIGKILL soon after SIGTERM or without."""

    async def test() -> None:
        options = {"paxos": {"snapshot_every": 5}, "history_max": 1}
        processes = Processes(tmp_path / "c", groups=1, replicas=1, durability=Durability.SYNC, options=options)
        acknowledged: list[bytes] = []

        async def send_for_ever(client: AsyncClient, sender: int) -> None:
            for number in range(1_000_000):
                payload = b"%d of %d" % (number, sender)
                await client.multicast(["g1"], payload, timeout=60)
                acknowledged.append(payload)

        try:
            processes.start("g1.p0", "0.03")
            client = await opened(processes.config)
            senders = [asyncio.create_task(send_for_ever(client, sender)) for sender in range(8)]
            await eventually(lambda: len(acknowledged) > 40, "messages flow", timeout=60)
            processes.signal("g1.p0", signal.SIGTERM)
            if kill_after_s is not None:
                await asyncio.sleep(kill_after_s)
                processes.signal("g1.p0", signal.SIGKILL)
            await processes.end("g1.p0")
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
            await client.__aexit__(None, None, None)
            processes.start("g1.p0")
            client = await opened(processes.config)
            await client.multicast(["g1"], b"last", timeout=60)
            await client.__aexit__(None, None, None)
            assert await processes.end("g1.p0", signal.SIGTERM) == 0
            folder = processes.config.data_folder("g1.p0")
            log = DeliveryLog.open(folder / "deliveries", Durability.SYNC)
            delivered = [message.payload for message, _ in read_all(log)]
            log.close()
            assert set(acknowledged) <= set(delivered)
            assert len(set(delivered)) == len(delivered)
            assert saved_state(folder) == (len(delivered), b"\n".join(delivered))
        finally:
            processes.kill_all()

    run(test)


def test_a_process_whose_application_raises_ends(tmp_path: Path) -> None:
    async def test() -> None:
        processes = Processes(tmp_path / "c", groups=1, replicas=1, durability=Durability.SYNC)
        try:
            processes.start("g1.p0")
            client = await opened(processes.config)
            await send(client, 0, 3)
            _, future = client.submit(["g1"], b"no route")
            assert await processes.end("g1.p0") != 0
            assert not future.done()
            problem = "failed to apply a message at position 3: ConnectionError: no route to host"
            assert f"amcast: g1.p0 can't go on: the application {problem}" in processes.log_of("g1.p0")
            await client.__aexit__(None, None, None)
        finally:
            processes.kill_all()

    run(test)
