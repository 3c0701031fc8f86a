"""GeoPaxos on a real cluster: operations of clients, moves, restarts, and what is no operation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from amcast.core import AppMessage, encode
from amcast.net.client.async_client import NotInTimeError, connect
from amcast.net.disk.records import Durability
from amcast.net.node.application import StateMachine
from amcast.protocols.geopaxos import Operation, decode_operation
from tests.net.clusters import eventually, run, running

GROUPS = ("g1", "g2")


class Ledger(StateMachine):
    """What was executed, in its order."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def apply(self, message: AppMessage) -> None:
        self.bodies.append(decode_operation(message.payload).body)

    def snapshot(self) -> bytes:
        return encode(self.bodies)

    def restore(self, state: bytes) -> None:
        self.bodies = msgspec.msgpack.decode(state, type=list[bytes])


def operations(count: int) -> list[Operation]:
    """On four objects, alone or two at a time; every seventh moves its objects."""
    names = [f"x{number}" for number in range(4)]
    return [
        Operation(
            (names[n % 4],) if n % 3 else (names[n % 4], names[(n + 1) % 4]),
            b"%d" % n,
            1 + n % 2 if n % 7 == 6 else 0,
        )
        for n in range(count)
    ]


def touching(machine: Ledger, wanted: list[Operation], name: str) -> list[bytes]:
    mine = {operation.body for operation in wanted if name in operation.objects}
    return [body for body in machine.bodies if body in mine]


def test_every_replica_executes_every_operation_and_conflicts_in_one_order(tmp_path: Path) -> None:
    async def test() -> None:
        machines = {f"g{group}.p{index}": Ledger() for group in (1, 2) for index in range(3)}
        wanted = operations(60)
        async with running(tmp_path / "c", "geopaxos", machines=dict(machines)) as cluster:
            async with connect(cluster.config) as client:
                await asyncio.gather(*(client.multicast(GROUPS, encode(operation)) for operation in wanted))
            done = list(machines.values())
            await eventually(lambda: all(len(machine.bodies) == 60 for machine in done), "all replicas execute all")
            for machine in done:
                assert sorted(machine.bodies) == sorted(operation.body for operation in wanted)
                for name in ("x0", "x1", "x2", "x3"):
                    assert touching(machine, wanted, name) == touching(done[0], wanted, name)
            for group in (1, 2):
                assert len({tuple(machines[f"g{group}.p{index}"].bodies) for index in range(3)}) == 1

    run(test)


def test_a_replica_that_was_away_catches_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", "geopaxos", durability=Durability.ASYNC) as cluster,
            connect(cluster.config) as client,
        ):
            first, second = operations(40)[:20], operations(40)[20:]
            await asyncio.gather(*(client.multicast(GROUPS, encode(operation)) for operation in first))
            await cluster.stop("g2.p1")
            await asyncio.gather(*(client.multicast(GROUPS, encode(operation)) for operation in second))
            await cluster.start_and_wait("g2.p1")
            server = cluster.servers["g2.p1"]
            await eventually(lambda: server.node.process.delivered == 40, "it has executed everything")

    run(test)


def test_what_is_no_operation_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "geopaxos") as cluster, connect(cluster.config) as client:
            with pytest.raises(NotInTimeError, match="not an operation"):
                await client.multicast(GROUPS, b"plain bytes", 1)

    run(test)
