"""Whole nodes of which one lies, and the others believe what two members say.

The groups run a protocol that does not survive liars: only what nodes say besides the protocol's messages is a lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast.core import ProcessId
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.config import Limits
from amcast.net.disk.records import Durability
from amcast.net.node import _backfill, _reader_service, _shared_states
from amcast.net.node._exchange import _HEAD
from amcast.net.node._status import status_of
from amcast.net.node.server import NodeServer
from amcast.net.wire.control import EXCHANGE_HEAD, VERSION, Hello, StoredDeliveries, Told, exchange_decoder

from .clusters import Cluster, eventually, run, running
from .test_net_application import Restored, lines, send
from .test_net_backfill import FORGETFUL
from .test_net_deliveries import read_all
from .test_net_exchange import Purse, purses
from .test_net_frames import Caller, framed

LIAR = "g1.p0"


@pytest.fixture
def believe_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeServer, "_needed", lambda self, group: 2)


def lie_about_deliveries(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = cluster.servers[LIAR]
    tell = _reader_service.ReaderService._deliveries

    def deliveries(self: _reader_service.ReaderService, position: int) -> Any:
        answer = tell(self, position)
        if self._server is not liar or not isinstance(answer, StoredDeliveries):
            return answer
        lies = [(msgspec.structs.replace(message, payload=b"a lie"), ts) for message, ts in answer.messages]
        return StoredDeliveries(answer.first, tuple(lies))

    monkeypatch.setattr(_reader_service.ReaderService, "_deliveries", deliveries)


@pytest.mark.parametrize("lies", [False, True], ids=["honest", "a liar"])
def test_a_replica_that_was_away_fills_its_log(
    lies: bool, believe_two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_backfill, "_DOUBT_S", 0.1)

    async def test() -> None:
        async with (
            running(tmp_path / "c", replicas=5, **FORGETFUL) as cluster,
            connect(cluster.config) as client,
        ):
            if lies:
                lie_about_deliveries(cluster, monkeypatch)
            await send(client, 0, 20)
            await cluster.stop("g1.p4")
            await send(client, 20, 50)
            await cluster.start("g1.p4")
            log = cluster.servers["g1.p4"].node.deliveries
            await eventually(lambda: log.next == 50 and not log.gaps(), "it has all")
            assert [message.payload for message, _ in read_all(log)] == lines(50)
            assert (f"{LIAR} is not asked for deliveries any more" in caplog.text) == lies

    run(test)


@pytest.mark.parametrize("lies", [False, True], ids=["honest", "a liar"])
def test_a_replica_without_a_state_takes_over_the_one_that_others_vouch_for(
    lies: bool, believe_two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_shared_states, "_EVERY_S", 0.1)
    monkeypatch.setattr(_shared_states, "_PART_BYTES", 50)

    async def test() -> None:
        machines: dict[str, Any] = {f"g1.p{number}": Restored() for number in range(5)}
        limits = Limits(snapshot_messages=10, segment_bytes=100)
        settings = {"groups": 1, "replicas": 5, "durability": Durability.SYNC, "limits": limits, "keep_messages": 5}
        async with (
            running(tmp_path / "c", machines=machines, **settings) as cluster,
            connect(cluster.config) as client,
        ):
            if lies:
                machine = cluster.servers[LIAR].host
                assert machine is not None
                monkeypatch.setattr(machine._machine, "snapshot", lambda: b'["YSBsaWU="]')
            await send(client, 0, 70)
            logs = [server.node.deliveries for server in cluster.servers.values()]
            await eventually(lambda: all(log.first > 0 for log in logs), "old messages are dropped")
            newcomer = await forget_state(cluster, "g1.p4")
            await eventually(lambda: newcomer.lines == lines(70), "it has the state")
            assert len(newcomer.restored) == 1
            await send_until(client, newcomer)

    run(test)


async def forget_state(cluster: Cluster, name: str) -> Restored:
    await cluster.stop(name)
    (cluster.config.data_folder(name) / "application.state").write_bytes(b"")
    machine = cluster.machines[name] = Restored()
    await cluster.start(name)
    return machine


async def send_until(client: AsyncClient, machine: Restored) -> None:
    await send(client, 70, 80)
    await eventually(lambda: machine.lines == lines(80), "it goes on")


@pytest.mark.parametrize("lies", [False, True], ids=["honest", "a liar"])
def test_groups_execute_with_what_two_members_told(lies: bool, believe_two: None, tmp_path: Path) -> None:
    async def test() -> None:
        machines = purses()
        async with running(tmp_path / "c", machines=machines) as cluster, connect(cluster.config) as client:
            if lies:
                lie_to_groups(cluster.servers[LIAR])
            for _ in range(3):
                await client.call({"g1", "g2"}, b"give 3 1")
            assert await client.call({"g1", "g2"}, b"give 3 1") == {"g1": b"too little", "g2": b"too little"}
            for name, machine in machines.items():
                assert isinstance(machine, Purse)
                money = 1 if name.startswith("g1") else 19
                await eventually(lambda machine=machine, money=money: machine.money == money, f"{name} is done")

    run(test)


def lie_to_groups(liar: NodeServer) -> None:
    """It says that its group has a lot of money."""
    assert liar.host is not None
    assert liar.host.exchange is not None
    say = liar.host.exchange._send

    def send(to: Sequence[ProcessId], data: bytes) -> None:
        message = exchange_decoder.decode(data[EXCHANGE_HEAD:])
        if isinstance(message, Told):
            lies = Told(message.first, (b"1000000",) * len(message.values), message.kept_from)
            data = _HEAD + msgspec.msgpack.encode(lies)
        say(to, data)

    liar.host.exchange._send = send


def test_a_process_keeps_its_disk_though_one_member_says_that_it_is_lost(
    believe_two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        settings = {"groups": 1, "durability": Durability.SYNC}
        async with running(tmp_path / "c", **settings) as cluster, connect(cluster.config) as client:
            await send(client, 0, 5)
            await cluster.stop("g1.p1")
            witnesses = cluster.servers[LIAR].witnesses
            monkeypatch.setattr(witnesses, "doubt", lambda name, life: "a lie" if name == "g1.p1" else None)
            await cluster.start_and_wait("g1.p1")
            server = cluster.servers["g1.p1"]
            await eventually(lambda: bool(server.gate.doubts), "the liar has answered")
            assert server.folder.incarnation == 0
            (warning,) = [each for each in status_of(server).warnings if "lost" in each]
            assert warning.startswith(f"{LIAR} says that the disk of this process is lost, and is not believed")
            assert not server.failure.done()
            monkeypatch.undo()

    run(test)


def test_a_process_whose_disk_two_members_call_lost_begins_anew(
    believe_two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        settings = {"groups": 1, "durability": Durability.SYNC}
        async with running(tmp_path / "c", **settings) as cluster, connect(cluster.config) as client:
            await send(client, 0, 5)
            await cluster.stop("g1.p1")
            for name in (LIAR, "g1.p2"):
                witnesses = cluster.servers[name].witnesses
                known = witnesses.known("g1.p1")
                assert known is not None
                known.boot += 3
            await cluster.start_and_wait("g1.p1")
            assert cluster.servers["g1.p1"].folder.incarnation == 1
            assert cluster.servers["g1.p1"].gate.doubts == []

    run(test)


def test_only_members_of_a_group_read_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=2, replicas=1) as cluster:
            server = cluster.servers["g1.p0"]
            spec = type("Spec", (), {"survives_liars": True})
            with monkeypatch.context() as patched:
                patched.setattr(type(server.config), "spec", lambda self: spec)
                async with Caller.dial(cluster, "g1.p0") as caller:
                    caller.say(framed(Hello(VERSION, cluster.config.cluster, "reader", "g2.p0")))
                    assert await caller.reason() == "g2.p0 is no member of this group"

    run(test)
