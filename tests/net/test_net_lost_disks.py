"""Real processes whose disks are emptied, set back, damaged or misconfigured between two starts of the cluster."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from amcast.check import check_run
from amcast.net.client.async_client import connect
from amcast.net.config import format_config
from amcast.net.disk.deliveries import DeliveryLog
from amcast.net.local import CONFIG, LocalCluster, plan
from amcast.trace import read_run

MAIN = [sys.executable, "-c", "from amcast.cli import main; main()"]
VICTIM = "g1.p0"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    folder = tmp_path / "c"
    made = LocalCluster.create(folder, plan(folder, "fastcast", 1, 3, trace=True))
    yield made
    made.stop()


def start(cluster: LocalCluster) -> None:
    cluster.start()
    asyncio.run(cluster.wait_until_ready(60))


def send(cluster: LocalCluster, count: int) -> list[int]:
    """At g1.p1, which keeps its disk, and so never gives a client an id that another one had."""

    async def multicast() -> list[int]:
        async with connect([cluster.config.process_named("g1.p1").address]) as client:
            return [await client.multicast(["g1"], b"%d" % number, timeout=60) for number in range(count)]

    return asyncio.run(multicast())


def amcast(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAIN, *words], capture_output=True, text=True, timeout=120)


def delivered(cluster: LocalCluster, name: str) -> list[int]:
    log = DeliveryLog.open(cluster.config.data_folder(name) / "deliveries", cluster.config.durability, has_batches=True)
    try:
        return [message.id for message, _ in log.read(log.first, 1 << 20)]
    finally:
        log.close()


def empty(cluster: LocalCluster, copy: Path) -> None:
    shutil.rmtree(cluster.config.data_folder(VICTIM))
    done = amcast("init", "--config", str(cluster.folder / CONFIG), "--id", VICTIM)
    assert done.returncode == 0, done.stderr


def restore(cluster: LocalCluster, copy: Path) -> None:
    shutil.rmtree(cluster.config.data_folder(VICTIM))
    shutil.copytree(copy, cluster.config.data_folder(VICTIM))


def damage(cluster: LocalCluster, copy: Path) -> None:
    (segment,) = cluster.config.data_folder(VICTIM).glob("log-0/log-*")
    content = segment.read_bytes()
    segment.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    words = ("node", "--config", str(cluster.folder / CONFIG), "--id", VICTIM)
    done = amcast(*words)
    assert done.returncode == 2
    assert "run `amcast replace` for this process" in done.stderr
    done = amcast("replace", VICTIM, "--dir", str(cluster.folder))
    assert done.returncode == 0, done.stderr
    assert "replaced-1" in done.stdout


@pytest.mark.parametrize(
    ("lose", "copy_stopped"),
    [(empty, False), (restore, False), (restore, True), (damage, False)],
    ids=["emptied", "copied while running", "copied while stopped", "damaged and replaced"],
)
def test_nothing_that_was_acknowledged_is_lost_with_a_disk(
    lose: Callable[[LocalCluster, Path], None], copy_stopped: bool, cluster: LocalCluster, tmp_path: Path
) -> None:
    start(cluster)
    acknowledged = send(cluster, 5)
    if copy_stopped:
        cluster.stop()
    shutil.copytree(cluster.config.data_folder(VICTIM), tmp_path / "copy")
    if copy_stopped:
        start(cluster)
    acknowledged += send(cluster, 5)
    cluster.stop()
    lose(cluster, tmp_path / "copy")
    start(cluster)
    acknowledged += send(cluster, 3)
    assert asyncio.run(cluster.drain(60))
    statuses = asyncio.run(cluster.statuses())
    assert {name: status.incarnation for name, status in statuses.items() if status} == {
        VICTIM: 1,
        "g1.p1": 0,
        "g1.p2": 0,
    }
    cluster.stop()
    assert {name: delivered(cluster, name) for name in cluster.names} == dict.fromkeys(cluster.names, acknowledged)
    cluster.collect(tmp_path / "run", complete=True)
    assert check_run(read_run(tmp_path / "run")).verdict == "pass"


def refusal(cluster: LocalCluster) -> str:
    """What a process says that does not start."""
    command = [sys.executable, "-m", "amcast.net", str(cluster.folder / CONFIG), VICTIM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_group_that_grew_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    start(cluster)
    send(cluster, 1)
    cluster.stop()
    five = plan(tmp_path / "c", "fastcast", 1, 5)
    grown = replace(cluster.config, process=(*cluster.config.process, *five.process[3:]))
    (cluster.folder / CONFIG).write_text(format_config(grown))
    assert "group g1 has 5 members in cluster.toml and 3 in this folder: p3 and p4 are new" in refusal(cluster)
    (cluster.folder / CONFIG).write_text(format_config(cluster.config))
    start(cluster)
    send(cluster, 1)


def test_another_overlay_on_old_data_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    cluster = LocalCluster.create(folder, plan(folder, "flexcast", 2, 1))
    try:
        start(cluster)
    finally:
        cluster.stop()
    turned = replace(cluster.config, options={"overlay": [2, 1]})
    (folder / CONFIG).write_text(format_config(turned))
    assert "the option overlay is [2, 1] in cluster.toml and [] in this folder" in refusal(cluster)
