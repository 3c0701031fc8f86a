"""A cluster on loopback: what a client can rely on."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from amcast.check import check_run
from amcast.core import AppMessage, UsageError
from amcast.net.client.async_client import BusyError, connect
from amcast.net.client.observer import observe
from amcast.net.config import Limits
from amcast.net.disk.records import Durability
from amcast.net.local import _RESERVED_MAX, LocalCluster, _reserved, free_ports
from amcast.net.node.application import StateMachine
from amcast.net.node.data_folder import format_folder
from amcast.protocols import MULTICAST_PROTOCOLS, PROTOCOLS
from amcast.trace import read_run

from .clusters import Cluster, eventually, run, running


class Ledger(StateMachine):
    """An application whose state shows what was applied, and in which order."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def apply(self, message: AppMessage) -> None:
        self.lines.append(message.payload)

    def snapshot(self) -> bytes:
        return b"\n".join(self.lines)

    def restore(self, state: bytes) -> None:
        self.lines = state.split(b"\n") if state else []


def ledgers(groups: int = 2, replicas: int = 3) -> dict[str, Ledger]:
    return {f"g{g}.p{p}": Ledger() for g in range(1, groups + 1) for p in range(replicas)}


@pytest.mark.parametrize("protocol", MULTICAST_PROTOCOLS)
def test_every_replica_applies_what_was_acknowledged_in_one_order(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        replicas = PROTOCOLS[protocol].replicas
        machines = ledgers(replicas=replicas)
        async with running(tmp_path / "c", protocol, machines=dict(machines)) as cluster:
            async with connect(cluster.config) as client:
                payloads = [b"%d" % number for number in range(60)]
                targets = [("g1",), ("g2",), ("g1", "g2")]
                await asyncio.gather(*(client.multicast(targets[i % 3], p) for i, p in enumerate(payloads)))
            for group in (1, 2):
                expected = {p for i, p in enumerate(payloads) if f"g{group}" in targets[i % 3]}
                members = [machines[f"g{group}.p{p}"] for p in range(replicas)]
                await eventually(lambda m=members: all(len(each.lines) == 40 for each in m), "all replicas catch up")
                assert set(members[0].lines) == expected
                assert all(member.lines == members[0].lines for member in members)
            shared = [set(payloads[2::3])] * 2
            orders = [[p for p in machines[f"g{g}.p0"].lines if p in shared[0]] for g in (1, 2)]
            assert orders[0] == orders[1]

    run(test)


def test_a_group_is_followed_from_any_position_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c") as cluster, connect(cluster.config) as client:
            for number in range(5):
                await client.multicast(["g1"], b"%d" % number)
            seen = []
            async for delivery in client.deliveries("g1", position=2):
                seen.append((delivery.position, delivery.payload))
                if len(seen) == 3:
                    await client.multicast(["g1", "g2"], b"later")
                if delivery.payload == b"later":
                    break
            assert seen == [(2, b"2"), (3, b"3"), (4, b"4"), (5, b"later")]

    run(test)


def test_a_follower_goes_on_where_it_was_when_its_process_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster, connect(cluster.config) as client:
            await client.multicast(["g1"], b"0")
            stream = client.deliveries("g1")
            assert (await anext(stream)).payload == b"0"
            await cluster.stop("g1.p0")
            await client.multicast(["g1"], b"1")
            following = await anext(stream)
            assert (following.position, following.payload) == (1, b"1")
            await stream.aclose()

    run(test)


def test_a_leader_that_ends_is_replaced_and_nothing_is_delivered_twice(tmp_path: Path) -> None:
    async def test() -> None:
        machines = ledgers()
        async with running(tmp_path / "c", machines=dict(machines)) as cluster, connect(cluster.config) as client:
            payloads = [b"%d" % number for number in range(200)]

            async def send_all() -> None:
                for payload in payloads:
                    await client.multicast(["g1", "g2"], payload, timeout=60)

            sending = asyncio.create_task(send_all())
            await eventually(lambda: len(machines["g1.p1"].lines) > 20, "messages flow")
            await cluster.stop(cluster.leader(1))
            await sending
            for name in cluster.servers:
                await eventually(lambda n=name: len(machines[n].lines) == 200, f"{name} catches up")
                assert machines[name].lines == payloads

    run(test)


@pytest.mark.parametrize("durability", [Durability.SYNC, Durability.ASYNC, Durability.MEMORY])
def test_a_process_that_was_away_catches_up(durability: Durability, tmp_path: Path) -> None:
    async def test() -> None:
        machines = ledgers(groups=1)
        async with (
            running(tmp_path / "c", groups=1, durability=durability, machines=dict(machines)) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast(["g1"], b"before")
            await cluster.stop("g1.p2")
            for number in range(50):
                await client.multicast(["g1"], b"%d" % number)
            machines["g1.p2"].lines = []
            await cluster.start("g1.p2")
            await eventually(lambda: len(machines["g1.p2"].lines) == 51, "it catches up")
            assert machines["g1.p2"].lines == machines["g1.p0"].lines

    run(test)


@pytest.mark.parametrize("durability", [Durability.SYNC, Durability.MEMORY])
def test_a_process_that_was_away_too_long_gets_state_instead_of_messages(
    durability: Durability, tmp_path: Path
) -> None:
    async def test() -> None:
        machines = ledgers(groups=1)
        paxos = {"tick_us": 20_000, "snapshot_every": 5, "lag_max": 5}
        settings = {"durability": durability, "options": {"paxos": paxos, "history_max": 2}}
        async with (
            running(tmp_path / "c", groups=1, machines=dict(machines), **settings) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast(["g1"], b"before")
            await cluster.stop("g1.p2")
            for number in range(50):
                await client.multicast(["g1"], b"%d" % number)
            machines["g1.p2"].lines = []
            await cluster.start("g1.p2")
            await eventually(lambda: len(machines["g1.p2"].lines) == 51, "it catches up")
            deliveries = cluster.servers["g1.p2"].node.deliveries
            if durability is Durability.MEMORY:
                assert deliveries.first > 0  # it never had the messages themselves
            else:
                assert deliveries.gaps() == []  # the others gave it the messages that it missed
            await client.multicast(["g1"], b"after")
            await eventually(lambda: len(machines["g1.p2"].lines) == 52, "it goes on")
            assert machines["g1.p2"].lines == machines["g1.p0"].lines

    run(test)


def test_a_whole_cluster_comes_back_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    async def test() -> None:
        machines = ledgers()
        async with running(tmp_path / "c", durability=Durability.SYNC, machines=dict(machines)) as cluster:
            async with connect(cluster.config) as client:
                for number in range(20):
                    await client.multicast(["g1", "g2"], b"%d" % number)
            before = list(machines["g1.p0"].lines)
            await cluster.stop()
            machines = ledgers()
            cluster.machines = dict(machines)
            await cluster.start()
            await eventually(cluster.has_leaders, "leaders are elected again")
            async with connect(cluster.config) as client:
                await client.multicast(["g1", "g2"], b"after")
            for name in machines:
                await eventually(lambda n=name: len(machines[n].lines) == 21, f"{name} has everything")
                assert machines[name].lines == [*before, b"after"]

    run(test)


def test_without_a_majority_nothing_is_answered_until_it_is_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1, durability=Durability.SYNC) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast(["g1"], b"1")
            await cluster.stop("g1.p1", "g1.p2")
            with pytest.raises(TimeoutError, match="not delivered everywhere within"):
                await client.multicast(["g1"], b"2", timeout=0.5)
            await cluster.start("g1.p1")
            await client.multicast(["g1"], b"3", timeout=60)
            seen = []
            async for delivery in client.deliveries("g1"):
                seen.append(delivery.payload)
                if len(seen) == 3:
                    break
            assert seen == [b"1", b"2", b"3"]  # the one that timed out was only late

    run(test)


def test_messages_that_are_ordered_as_one_are_delivered_one_by_one(tmp_path: Path) -> None:
    """Batches survive a restart of a replica, followers get their messages, and the trace has a row for each."""

    async def test() -> None:
        durability = Durability.SYNC
        machines = ledgers()
        async with running(tmp_path / "c", durability=durability, trace=True, machines=dict(machines)) as cluster:
            async with connect(cluster.config) as client:

                async def send(first: int) -> None:
                    targets = [("g1",), ("g1", "g2")]
                    many = [client.submit(targets[i % 2], b"%d" % (first + i))[1] for i in range(700)]
                    await asyncio.gather(*many)

                await send(0)
                node = cluster.servers["g1.p1"].node
                assert node.messages_in < 500, "messages in batches, not one by one"
                await cluster.stop("g1.p1")
                await send(700)
                machines["g1.p1"].lines.clear()
                await cluster.start("g1.p1")
                await eventually(lambda: len(machines["g1.p1"].lines) == 1_400, "the replica catches up")
                assert machines["g1.p1"].lines == machines["g1.p0"].lines
                followed = []
                async for delivery in client.deliveries("g2", 3):
                    followed.append(delivery)
                    if len(followed) == 697:
                        break
            assert [each.position for each in followed] == list(range(3, 700))
            assert [each.payload for each in followed] == machines["g2.p2"].lines[3:]
            stamps = [each.ts for each in followed if each.ts is not None]
            assert stamps == sorted(set(stamps))
            assert len(stamps) == len(followed)
        LocalCluster(tmp_path / "c").collect(tmp_path / "run", complete=True)
        traced = read_run(tmp_path / "run")
        assert (len(traced.multicasts), len(traced.deliveries)) == (1_400, 3 * 1_400 + 3 * 700)
        assert not check_run(traced).violations

    run(test)


@pytest.mark.parametrize("protocol", ["fastcast", "basecast", "oam"])
def test_more_than_a_link_takes_at_a_time_is_delivered_all_the_same(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"limits": Limits(link_bytes=300_000), "options": {"paxos": {"value_bytes": 1 << 30}}}
        async with running(tmp_path / "c", protocol, **settings) as cluster, connect(cluster.config) as client:
            payloads = [b"%d" % number + bytes(100_000) for number in range(30)]
            await asyncio.gather(*(client.multicast(["g1", "g2"], payload) for payload in payloads))
            seen = []
            async for delivery in client.deliveries("g1"):
                seen.append(delivery.payload)
                if len(seen) == len(payloads):
                    break
            assert sorted(seen) == sorted(payloads)

    run(test)


def test_a_client_that_sends_too_much_hears_that_the_cluster_is_busy(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(open_messages=10)
        durability = Durability.SYNC
        async with (
            running(tmp_path / "c", groups=1, limits=limits, durability=durability) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast(["g1"], b"warm")
            await cluster.stop("g1.p1", "g1.p2")  # what is sent now stays open
            waiting = []
            for _ in range(30):
                waiting.append(asyncio.create_task(client.multicast(["g1"], b"x", timeout=1.0)))
                for _ in range(3):  # turns of the loop, so that each is sent by itself
                    await asyncio.sleep(0)
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert sum(isinstance(result, BusyError) for result in results) == 20
            assert sum(isinstance(result, TimeoutError) for result in results) == 10
            assert cluster.servers["g1.p0"].node.admission.open_messages <= 10
            await cluster.start("g1.p1", "g1.p2")
            await client.multicast(["g1"], b"after", timeout=60)

    run(test)


def test_what_a_client_may_not_ask_for_is_an_error_of_one_line(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c") as cluster, connect(cluster.config) as client:
            with pytest.raises(UsageError, match="there is no group 'g9': this cluster has g1, g2"):
                await client.multicast(["g9"], b"x")
            with pytest.raises(UsageError, match="over the cluster's limit of 1048576"):
                await client.multicast(["g1"], bytes(100 << 20))
            with pytest.raises(UsageError, match="at least one destination"):
                await client.multicast([], b"x")
            with pytest.raises(UsageError, match=r"a payload is bytes, not str: encode it, as in text\.encode\(\)"):
                await client.multicast(["g1"], "x")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="a payload is bytes, not dict"):
                await client.multicast(["g1"], {})  # type: ignore[arg-type]
            await client.multicast(["g1"], b"and the cluster goes on")
            await client.multicast("g1", b"one name is one group")
            payload = bytearray(b"before")
            _, future = client.submit({"g1"}, payload)
            payload[:] = b"after."
            await future
            delivered = client.deliveries("g1")
            assert [(await anext(delivered)).message.payload for _ in range(3)][-1] == b"before"
            await delivered.aclose()

    run(test)


def test_nobody_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            config = cluster.config
        with pytest.raises(UsageError, match=r"no process of the cluster answers: 127\.0\.0\.1"):
            async with connect(config):
                pass

    run(test)


def test_a_client_waits_for_a_cluster_that_is_starting(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            await cluster.stop()
            opening = [asyncio.create_task(each(cluster.config, wait=30).__aenter__()) for each in (connect, observe)]
            for _ in range(5):
                await asyncio.sleep(0)
            await cluster.start()
            client, observer = await asyncio.gather(*opening)
            assert client.groups == observer.groups == ["g1"]
            await client.__aexit__(None, None, None)

    run(test)


def test_two_nodes_with_one_id(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            with pytest.raises(UsageError, match=r"g1\.p0 is running already: another process holds"):
                await Cluster(cluster.config, {}).start("g1.p0")

    run(test)


def test_a_port_in_use(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "a", groups=1) as cluster:
            from msgspec.structs import replace

            elsewhere = replace(cluster.config, folder=str(tmp_path / "b"))
            format_folder(elsewhere, "g1.p0")
            with pytest.raises(UsageError, match=r"g1\.p0 can't listen on 127\.0\.0\.1:\d+: .*in use"):
                await Cluster(elsewhere, {}).start("g1.p0")
            async with connect(cluster.config) as client:
                await client.multicast(["g1"], b"the first one goes on")

    run(test)


@pytest.mark.skipif(not _RESERVED_MAX, reason="nobody else can listen here on a port that is bound")
def test_ports_that_were_found_are_given_to_nobody_else() -> None:
    for port in free_ports(8):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)):
            socket.create_connection(("127.0.0.1", port)).close()
    free_ports(_RESERVED_MAX + 1)
    assert len(_reserved) == _RESERVED_MAX
