"""Whole clusters with disks that were emptied or put back: who lost its records is recognised and taken back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from amcast.core import UsageError
from amcast.net.client.async_client import connect
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan
from amcast.net.node import server
from amcast.net.node._status import status_of
from amcast.net.node._witnesses import Witnesses, write_peers
from amcast.net.node.data_folder import State, format_folder, replace_folder
from amcast.net.node.server import NodeServer
from amcast.net.wire.control import Life, Lost

from .clusters import Cluster, eventually, run, running


def data_of(cluster: Cluster, name: str) -> Path:
    return cluster.config.data_folder(name)


async def send(cluster: Cluster, first: int, count: int) -> list[bytes]:
    """At g1.p1, which keeps its disk, and so never gives a client an id that another one had."""
    payloads = [b"%d" % number for number in range(first, first + count)]
    address = cluster.config.process_named("g1.p1").address
    async with connect([address]) as client:
        for payload in payloads:
            await client.multicast(["g1"], payload, timeout=10)
    return payloads


def delivered(cluster: Cluster, name: str) -> list[bytes]:
    log = cluster.servers[name].node.deliveries
    return [message.payload for message, _ in log.read(log.first, 1 << 20)]


def empty(cluster: Cluster, copy: Path) -> None:
    shutil.rmtree(data_of(cluster, "g1.p0"))
    format_folder(cluster.config, "g1.p0")


def restore(cluster: Cluster, copy: Path) -> None:
    shutil.rmtree(data_of(cluster, "g1.p0"))
    shutil.copytree(copy, data_of(cluster, "g1.p0"))


async def lose_disk(
    cluster: Cluster, copy: Path, copy_stopped: bool, damage: Callable[[Cluster, Path], None]
) -> list[bytes]:
    """The disk of g1.p0 is emptied, or set back to a copy, while everyone is down. Returns what was acknowledged."""
    acknowledged = await send(cluster, 0, 5)
    if copy_stopped:
        await cluster.stop()
    shutil.copytree(data_of(cluster, "g1.p0"), copy)
    if copy_stopped:
        await cluster.start()
    acknowledged += await send(cluster, 5, 5)
    await cluster.stop()
    damage(cluster, copy)
    await cluster.start()
    return acknowledged + await send(cluster, 10, 3)


def all_agree(cluster: Cluster, acknowledged: list[bytes]) -> bool:
    return all(delivered(cluster, name) == acknowledged for name in cluster.servers)


LOSSES = pytest.mark.parametrize(
    ("damage", "copy_stopped"),
    [(empty, False), (restore, False), (restore, True)],
    ids=["emptied", "copied while running", "copied while stopped"],
)


@LOSSES
def test_a_lost_or_older_disk_is_recognised_and_its_process_taken_back(
    damage: Callable[[Cluster, Path], None], copy_stopped: bool, tmp_path: Path
) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, durability=Durability.SYNC) as cluster:
            acknowledged = await lose_disk(cluster, tmp_path / "copy", copy_stopped, damage)
            await eventually(lambda: all_agree(cluster, acknowledged), "all have everything, in one order")
            assert cluster.servers["g1.p0"].folder.incarnation == 1, "one loss, one incarnation"
            await eventually(lambda: cluster.servers["g1.p0"].folder.state is State.USED, "it is a member again")
            await cluster.stop("g1.p2")
            acknowledged += await send(cluster, 13, 1)  # which takes its vote
            await eventually(lambda: all_agree(cluster, acknowledged), "both have it")

    run(test)


@LOSSES
def test_a_hello_that_looks_at_nothing_believes_a_lost_disk(
    damage: Callable[[Cluster, Path], None], copy_stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant that the test above must catch, so that it is known to be able to fail."""
    monkeypatch.setattr(Witnesses, "doubt", lambda self, name, life: None)

    async def test() -> None:
        async with running(tmp_path / "c", groups=1, durability=Durability.SYNC) as cluster:
            with suppress(TimeoutError):  # some of what is sent last may be lost
                await lose_disk(cluster, tmp_path / "copy", copy_stopped, damage)
            assert cluster.servers["g1.p0"].folder.incarnation == 0, "it is believed"

    run(test)


def test_one_who_was_away_recognises_an_older_disk_later(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, durability=Durability.SYNC) as cluster:
            await send(cluster, 0, 3)
            shutil.copytree(data_of(cluster, "g1.p0"), tmp_path / "copy")
            await send(cluster, 3, 3)
            await cluster.stop()
            restore(cluster, tmp_path / "copy")
            write_peers(data_of(cluster, "g1.p1"), {})  # as if its own disk had been replaced
            await cluster.start("g1.p0", "g1.p1")
            old = cluster.servers["g1.p0"]
            await eventually(lambda: old.node.is_running, "nobody who answers knows better")
            await cluster.start("g1.p2")
            await eventually(old.failure.done, "the third one does")
            with pytest.raises(
                UsageError, match=r"its disk was lost, or is an older copy; start it again: it is taken back"
            ):
                old.failure.result()
            await cluster.stop("g1.p0")
            await cluster.start("g1.p0")
            taken_back = cluster.servers["g1.p0"]
            assert (taken_back.folder.state, taken_back.folder.incarnation) == (State.LOST, 1)

    run(test)


def test_a_log_that_vanished_is_lost_even_if_nobody_remembers_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, durability=Durability.SYNC) as cluster:
            acknowledged = await send(cluster, 0, 3)
            await cluster.stop()
            shutil.rmtree(data_of(cluster, "g1.p0") / "log-0")
            for name in ("g1.p1", "g1.p2"):
                write_peers(data_of(cluster, name), {})
            await cluster.start()
            acknowledged += await send(cluster, 3, 1)
            await eventually(lambda: all_agree(cluster, acknowledged), "all have everything")
            assert cluster.servers["g1.p0"].folder.incarnation == 1, "one loss, one incarnation"

    run(test)


def test_boots_are_counted_on_though_a_copy_of_an_older_folder_lacks_its_log(tmp_path: Path) -> None:
    """Else two boots would trace into files of the same name."""

    async def test() -> None:
        async with running(tmp_path / "c", groups=1, durability=Durability.SYNC) as cluster:
            await send(cluster, 0, 3)
            await cluster.stop("g1.p0")
            shutil.copytree(data_of(cluster, "g1.p0"), tmp_path / "copy")
            for _ in range(2):
                await cluster.start("g1.p0")
                again = cluster.servers["g1.p0"]
                await eventually(lambda server=again: not server.gate.missing, "all have seen this start")
                await cluster.stop("g1.p0")
            shutil.rmtree(tmp_path / "copy" / "log-0")
            restore(cluster, tmp_path / "copy")
            await cluster.start("g1.p0")
            server = cluster.servers["g1.p0"]
            await eventually(lambda: server.node.is_running, "it is taken back")
            assert server.folder.boot == 4

    run(test)


def test_who_is_alone_and_lost_its_disk_keeps_silent_and_says_why(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "skeen", groups=2, durability=Durability.SYNC) as cluster:
            async with connect(cluster.config) as client:
                await client.multicast(["g1", "g2"], b"before")
            await cluster.stop()
            kept = tmp_path / "kept"
            shutil.copytree(data_of(cluster, "g1.p0"), kept)
            empty(cluster, kept)
            await cluster.start()
            server = cluster.servers["g1.p0"]
            await eventually(lambda: server.start_problem is not None, "the other group remembers it")
            assert "g1.p0 is alone in its group, so only its own disk can bring it back" in str(server.start_problem)
            assert not server.node.is_running
            await cluster.stop()
            restore(cluster, kept)  # the disk was found
            await cluster.start()
            await eventually(cluster.has_leaders, "it goes on")

    run(test)


def test_status_says_that_a_process_waits_to_be_taken_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, durability=Durability.SYNC) as cluster:
            await send(cluster, 0, 3)
            await cluster.stop()
            replace_folder(cluster.config, "g1.p0")
            await cluster.start("g1.p0", "g1.p1")  # of the two that are up, one has no say: nothing can be decided

            def problem() -> str | None:
                return status_of(cluster.servers["g1.p0"]).problem

            waits = "lost its disk: waits for its group to take it back"
            await eventually(lambda: problem() == waits, "it says what it waits for")
            await cluster.start("g1.p2")
            await eventually(lambda: problem() is None, "its group has taken it back")

    run(test)


def test_while_it_asks_the_others_a_process_takes_nothing_and_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        folder = tmp_path / "c"
        config = plan(folder, "fastcast", 1, durability=Durability.SYNC)
        LocalCluster.create(folder, config)
        cluster = Cluster(config, {})
        try:
            await cluster.start("g1.p0")
            async with connect([config.process_named("g1.p0").address]) as client:
                status = await client.status(0)
                assert status.problem == "is starting: waits for g1.p1, g1.p2"
                assert not status.is_leader
                with pytest.raises(TimeoutError, match=r"g1\.p0 is starting: try another process"):
                    await client.multicast(["g1"], b"x", timeout=1)
                await cluster.start("g1.p1", "g1.p2")
                await client.multicast(["g1"], b"y", timeout=60)
                assert (await client.status(0)).problem is None
        finally:
            await cluster.stop()

    run(test)


def test_a_mark_goes_before_what_depends_on_it(tmp_path: Path) -> None:
    """Each time that a peer hears something, it knows of all records that were durable when it was said."""

    async def test() -> None:
        async with running(tmp_path / "c", groups=1, durability=Durability.SYNC) as cluster:
            await send(cluster, 0, 5)
            for name, server in cluster.servers.items():
                others = [other for each, other in cluster.servers.items() if each != name]

                def has_seen(other: NodeServer, name: str = name, records: int = server.node.records.synced) -> bool:
                    known = other.witnesses.known(name)
                    return known is not None and known.records >= records

                await eventually(lambda o=others, seen=has_seen: all(seen(each) for each in o), f"{name} is known")

    run(test)


def test_a_late_answer_to_an_earlier_incarnation_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            await cluster.stop("g1.p0")
            await cluster.start("g1.p0")
            server = cluster.servers["g1.p0"]
            await eventually(lambda: server.node.is_running, "it has started again, as incarnation 1")
            server.on_lost("g1.p1", Lost(Life(0, 1, 1, 1), "because"))
            assert (server.folder.incarnation, server.node.is_running) == (1, True)

    run(test)


def test_chance_does_not_repeat_itself_on_a_disk_that_was_lost_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a process would ask its group twice to be taken back under the same nonce, as if it were one life."""
    seeds: list[object] = []

    def remember(seed: object) -> Random:
        seeds.append(seed)
        return Random(str(seed))

    monkeypatch.setattr(server, "Random", remember)

    async def test() -> None:
        config = plan(tmp_path / "c", "fastcast", groups=1)
        LocalCluster.create(tmp_path / "c", config)
        for _ in range(2):
            replace_folder(config, "g1.p0")
            await NodeServer(config, "g1.p0").stop()

    run(test)
    assert len(set(seeds)) == len(seeds) == 2
