"""Placement and applications on objects, on a real cluster of two regions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from amcast.apps import RefusedError
from amcast.core import UsageError, encode
from amcast.net.app_loading import load_policy
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.config import ClusterConfig
from amcast.net.layout import layout_of
from amcast.net.local import LocalCluster, plan
from amcast.net.node.application import StateMachine
from amcast.protocols.geopaxos import GeoPaxos, Operation
from amcast.protocols.geopaxos.placer import ObjectPlacement
from amcast.protocols.geopaxos.spec import objects_at
from tests.apps.example_apps import load_example
from tests.net.clusters import Cluster, eventually, run

social, market = load_example("social"), load_example("market")
X = objects_at(1, 1, (1, 2))[0]  # an object of g1
NAMES = [f"g{group}.p{index}" for group in (1, 2) for index in range(3)]


def planned(folder: Path, placement: str = "affinity") -> ClusterConfig:
    """g1 is in the region east, and g2 in the west."""
    config = plan(folder, "geopaxos", 2, None, options={"placement": placement})
    regions = {"g1": "east", "g2": "west"}
    return replace(config, process=tuple(replace(each, region=regions[each.id[:2]]) for each in config.process))


@asynccontextmanager
async def regional(
    folder: Path, placement: str = "affinity", machines: dict[str, StateMachine] | None = None
) -> AsyncIterator[Cluster]:
    config = LocalCluster.create(folder, planned(folder, placement)).config
    load_policy(config)
    cluster = Cluster(config, machines or {})
    try:
        await cluster.start()
        await eventually(cluster.has_leaders, "every group has a leader")
        yield cluster
    finally:
        await cluster.stop()


def places(cluster: Cluster, name: str) -> list[ObjectPlacement]:
    found = []
    for server in cluster.servers.values():
        assert isinstance(server.node.process, GeoPaxos)
        found.append(server.node.process.placement_of(name))
    return found


async def use(client: AsyncClient, name: str, times: int) -> None:
    for _ in range(times):
        await client.multicast(client.groups, encode(Operation((name,))))


def test_an_object_moves_to_the_region_of_its_user_and_any_process_says_why(tmp_path: Path) -> None:
    async def test() -> None:
        async with regional(tmp_path / "c") as cluster, connect(cluster.config, region="west") as client:
            await use(client, X, 3)
            await eventually(lambda: {each.site for each in places(cluster, X)} == {2}, "it moved")
            for process in range(6):
                answer = await client.placement(process, X)
                assert answer.object is not None
                assert answer.object.note is not None
                assert answer.object.note.reason == "it was first used from region west"
            await use(client, X, 2)
            leader = cluster.config.ids()[cluster.leader(2)]
            answer = await client.placement(leader, X)
            assert answer.object is not None
            assert set(answer.object.recent) == {"west"}
            status = (await client.placement(leader, moves=5)).status
            assert status is not None
            assert [each.object for each in status.latest] == [X]

    run(test)


def test_moves_survive_a_restart_of_all_nodes_and_a_placer_that_is_stopped(tmp_path: Path) -> None:
    async def test() -> None:
        async with regional(tmp_path / "c") as cluster:
            async with connect(cluster.config, region="west") as client:
                await use(client, X, 2)
                await eventually(lambda: {each.site for each in places(cluster, X)} == {2}, "it moved")
                other = objects_at(1, 2, (1, 2))[1]
                await cluster.stop(cluster.leader(1))
                await use(client, other, 3)
                await eventually(lambda: {each.site for each in places(cluster, other)} == {2}, "by the next leader")
            await cluster.stop()
            await cluster.start()
            await eventually(cluster.has_leaders, "every group has a leader")
            await eventually(lambda: {each.site for each in places(cluster, X)} == {2}, "it is still there")
            assert all(each.note is not None for each in places(cluster, X))

    run(test)


POLICY = """
from amcast.protocols.geopaxos import Move, PlacementPolicy

class West(PlacementPolicy):
    def decide(self, use):
        if use.object == "bad":
            raise ValueError("no idea")
        if use.object == "far":
            yield Move("far", "g9", "there is more room")
        elif use.region != "west":
            yield Move(use.object, "g2", "all is better in the west")
"""


def test_a_policy_of_ones_own_runs_in_the_nodes_and_can_do_no_harm(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "west.py").write_text(POLICY)
        async with (
            regional(tmp_path / "c", "west.py:West") as cluster,
            connect(cluster.config, region="east") as client,
        ):
            for name in ("bad", "far", X):
                await use(client, name, 2)
            await eventually(lambda: {each.site for each in places(cluster, X)} == {2}, "it moved")
            assert [each.note.reason for each in places(cluster, X) if each.note] == ["all is better in the west"] * 6
            answers = [await client.placement(process) for process in range(6)]
            placers = [each.status.placer for each in answers if each.status is not None]
            assert sum(each.failures for each in placers) > 0
            assert "ValueError: no idea" in {each.failure for each in placers}
            words = [word for each in placers for word in each.latest_refusals]
            assert any("move far to g9: there is no such site, they are g1, g2" in word for word in words)

    run(test)


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("nonsense", "there is no placement policy 'nonsense': use one of affinity"),
        ("none.py:West", "the placement policy none.py:West can't be loaded: there is no file"),
        ("json:West", "there is no placement policy 'West' in json"),
        ("json:loads", "the placement policy json:loads can't be made: TypeError"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said_before_anything_starts(tmp_path: Path, policy: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        load_policy(planned(tmp_path, policy))


def test_placement_may_be_turned_on_later(tmp_path: Path) -> None:
    """Data on disk does not depend on it."""
    assert layout_of(planned(tmp_path / "c", "")) == layout_of(planned(tmp_path / "c"))


# -- applications


def states(machines: Iterable[Any]) -> set[bytes]:
    return {machine.snapshot() for machine in machines}


def test_the_social_network_on_a_cluster(tmp_path: Path) -> None:
    async def test() -> None:
        machines = {name: social.Social(name[:2]) for name in NAMES}
        async with (
            regional(tmp_path / "c", machines=dict(machines)) as cluster,
            connect(cluster.config, region="east") as east,
            connect(cluster.config, region="west") as west,
        ):
            assert await social.befriend(east, "bob", "ann")
            assert not await social.befriend(west, "bob", "ann")
            await asyncio.gather(
                *(social.publish(client, "ann", f"hello {n}") for n in range(4) for client in (east, west)),
                *(social.befriend(west, f"user{n}", "ann") for n in range(4)),
            )
            await cluster.stop(cluster.leader(1))
            assert await social.publish(east, "ann", "still here") == 9
            shown = await social.timeline(west, "bob")
            assert [each["number"] for each in shown] == list(range(1, 10))
            assert shown[-1] == {"by": "ann", "number": 9, "text": "still here"}
            up = [machines[name] for name in cluster.servers]
            await eventually(lambda: len(states(up)) == 1, "all replicas have the same state")
            assert social.problems(up[0].users.all()) == []

    run(test)


def test_the_market_on_a_cluster(tmp_path: Path) -> None:
    async def test() -> None:
        machines = {name: market.Market(name[:2]) for name in NAMES}
        async with (
            regional(tmp_path / "c", machines=dict(machines)) as cluster,
            connect(cluster.config, region="east") as east,
            connect(cluster.config, region="west") as west,
        ):
            await market.deposit(east, "ann", 100)
            await market.ask(west, ["goods:apples"], restock="apples", count=10)
            pay = [market.transfer(client, "ann", "eve", 5) for client in (east, west) for _ in range(4)]
            assert min(await asyncio.gather(*pay)) == 60
            assert await market.purchase(west, "eve", "ann", "apples", 3, 30) == 3
            with pytest.raises(RefusedError, match="eve has 10, and would pay 11"):
                await market.transfer(east, "eve", "ann", 11)
            with pytest.raises(RefusedError, match="there are 7 of apples left"):
                await market.purchase(west, "eve", "ann", "apples", 8, 1)
            await eventually(lambda: len(states(machines.values())) == 1, "all replicas have the same state")
            assert market.problems(machines["g1.p0"].objects.all()) == []

    run(test)
