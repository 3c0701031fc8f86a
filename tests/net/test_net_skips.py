"""A message for which the application raises can be skipped, by a decision of the whole group."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amcast import NotExecutedError, UsageError
from amcast.core import AppMessage
from amcast.net.client.async_client import connect
from amcast.net.disk.records import Durability
from amcast.net.node.application import ApplicationError, StaleStateError
from amcast.net.node.server import NodeServer
from amcast.net.wire.envelope import Skip, enclose
from tests.net.clusters import Cluster, eventually, run, running
from tests.net.test_net_cluster import Ledger

DURABLE: dict[str, Any] = {"groups": 1, "durability": Durability.SYNC}


class Picky(Ledger):
    """Raises for one message, as long as it is not mended."""

    is_mended = False

    def apply(self, message: AppMessage) -> None:
        if message.payload == b"2" and not self.is_mended:
            raise ValueError("no taste")
        super().apply(message)


def picky(replicas: int = 3) -> dict[str, Any]:
    return {f"g1.p{index}": Picky() for index in range(replicas)}


async def start_on_hold(cluster: Cluster, position: int, *names: str) -> None:
    for name in names or [entry.id for entry in cluster.config.process]:
        server = NodeServer(cluster.config, name, cluster.machines.get(name), position)
        cluster.servers[name] = server
        await server.start()


def report_failures(cluster: Cluster) -> None:
    """All nodes share one loop here: what an application raised goes to its own server."""

    def report(_: object, context: dict[str, Any]) -> None:
        for server in cluster.servers.values():
            if server.host is not None and server.host._failure is context.get("exception"):
                server.on_loop_problem(context)

    asyncio.get_running_loop().set_exception_handler(report)


async def break_all(cluster: Cluster, client: Any) -> asyncio.Task[Any]:
    """Members of the group stop at position 2, until there is no majority. The call that did it still waits."""
    report_failures(cluster)
    for payload in (b"0", b"1"):
        await client.call("g1", payload)
    waiting = asyncio.create_task(client.call("g1", b"2", 120))
    servers = list(cluster.servers.values())
    await eventually(lambda: sum(server.failure.done() for server in servers) > len(servers) // 2, "a majority stops")
    for server in servers:
        if server.failure.done():
            with pytest.raises(ApplicationError, match="at position 2: ValueError: no taste"):
                server.failure.result()
    await cluster.stop()
    for machine in cluster.machines.values():
        machine.lines = []  # type: ignore[attr-defined]
    return waiting


@pytest.mark.parametrize("protocol", ["fastcast", "multipaxos", "oam"])
def test_a_group_skips_what_its_application_can_not_digest(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        machines = picky()
        async with (
            running(tmp_path / "c", protocol, machines=machines, **DURABLE) as cluster,
            connect(cluster.config) as client,
        ):
            waiting = await break_all(cluster, client)
            await start_on_hold(cluster, 2, "g1.p0", "g1.p1")  # one is away, and follows later
            await eventually(cluster.has_leaders, "leaders")
            host = cluster.servers["g1.p0"].host
            assert host is not None
            await eventually(lambda: host.held_at == 2, "it holds")
            assert "on hold at position 2" in (host.problem or "")
            for position in (1, 5):
                with pytest.raises(UsageError, match=f"(has executed|holds its application at position {position})"):
                    await client.skip("g1", position)
            await client.skip("g1", 2)
            with pytest.raises(NotExecutedError, match="g1: this message was skipped by a decision of the operator"):
                await waiting
            await client.call("g1", b"3", 60)
            await start_on_hold(cluster, 2, "g1.p2")
            for machine in machines.values():
                await eventually(lambda machine=machine: machine.lines == [b"0", b"1", b"3"], "it follows the decision")

    run(test)


def test_the_decision_holds_after_restarts_also_for_a_mended_application(tmp_path: Path) -> None:
    async def test() -> None:
        machines = picky(1)
        async with running(tmp_path / "c", replicas=1, machines=machines, **DURABLE) as cluster:
            async with connect(cluster.config) as client:
                waiting = await break_all(cluster, client)
                await start_on_hold(cluster, 2)
                await eventually(cluster.has_leaders, "leaders")
                await client.skip("g1", 2)
                await asyncio.gather(waiting, return_exceptions=True)
            for server in cluster.servers.values():  # killed: nothing is saved
                server.node.halt()
                server.failure.set_exception(RuntimeError("killed"))
                server.failure.exception()
            await cluster.stop()
            for machine in machines.values():
                machine.lines, machine.is_mended = [], True
            await cluster.start()
            for machine in machines.values():
                await eventually(lambda machine=machine: machine.lines == [b"0", b"1"], "without the skipped one")

    run(test)


def test_a_replica_that_executed_it_builds_its_state_anew(tmp_path: Path) -> None:
    """Its application was mended before the group decided."""

    async def test() -> None:
        machines = picky()
        async with running(tmp_path / "c", machines=machines, **DURABLE) as cluster:  # noqa: SIM117
            async with connect(cluster.config) as client:
                waiting = await break_all(cluster, client)
                await start_on_hold(cluster, 2, "g1.p0", "g1.p1")
                machines["g1.p2"].is_mended = True
                server = NodeServer(cluster.config, "g1.p2", machines["g1.p2"])
                cluster.servers["g1.p2"] = server
                await server.start()
                await eventually(lambda: machines["g1.p2"].lines == [b"0", b"1", b"2"], "it has executed it")
                with pytest.raises(UsageError, match=r"g1\.p2 has executed the message at position 2"):
                    await client.skip("g1", 2)
                _, answer = client._submit_call("g1", enclose(Skip(2)), 60)  # the operator could not see it
                await answer
                with pytest.raises(StaleStateError, match="decided to skip the message at position 2"):
                    await asyncio.shield(server.failure)
                await asyncio.gather(waiting, return_exceptions=True)  # who answered first decides
                await cluster.stop("g1.p2")
                machines["g1.p2"].lines = []
                await cluster.start_and_wait("g1.p2")
                await eventually(lambda: machines["g1.p2"].lines == [b"0", b"1"], "without the skipped one")

    run(test)


def test_nobody_skips_without_a_hold_or_a_right(tmp_path: Path) -> None:
    async def test() -> None:
        machines = picky(1)
        async with running(tmp_path / "c", "skeen", machines=machines, **DURABLE) as cluster:
            async with connect(cluster.config) as client:
                await client.call("g1", b"0")
                with pytest.raises(TimeoutError, match=r"g1\.p0 does not hold its application at position 0"):
                    await client._submit_call("g1", enclose(Skip(0)), 3)[1]
            async with connect(cluster.config) as client:
                assert machines["g1.p0"].lines == [b"0"]
                await client.call("g1", b"1")
            await cluster.stop()
            server = NodeServer(cluster.config, "g1.p0", machines["g1.p0"], 1)
            cluster.servers["g1.p0"] = server
            await server.start()
            with pytest.raises(UsageError, match="can't be held at position 1: its saved state is of 2"):
                await asyncio.shield(server.failure)

    run(test)
