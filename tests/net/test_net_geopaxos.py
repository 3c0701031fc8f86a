"""GeoPaxos on a real cluster: operations of clients, moves, restarts, and what is no operation."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import msgspec
import pytest

from amcast.apps.store import operation_of
from amcast.check import check_run
from amcast.core import AppMessage, UsageError, encode
from amcast.net.client._questions import QueryError
from amcast.net.client.async_client import NotInTimeError, connect
from amcast.net.client.sync_client import connect_sync
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster
from amcast.net.node.application import StateMachine
from amcast.net.node.store import StoreMachine
from amcast.net.trace.collect import collect
from amcast.protocols.geopaxos import Operation, decode_operation
from amcast.protocols.geopaxos.spec import objects_at
from amcast.trace import read_run
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


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"plain bytes", "not an operation"),
        (encode(Operation(())), "names 1 to 1024 objects, not 0"),
        (encode(Operation(("x",), site=7)), "no site g7"),
        (encode(Operation(("x" * 300,))), "at most 256 characters"),
        (encode(Operation(("x",), bytes(9_000_000))), "over the cluster's limit"),
    ],
)
def test_what_is_no_operation_is_refused_at_once_and_not_executed(tmp_path: Path, payload: bytes, told: str) -> None:
    async def test() -> None:
        machines = {f"g{group}.p{index}": Ledger() for group in (1, 2) for index in range(3)}
        async with running(tmp_path / "c", "geopaxos", machines=dict(machines)) as cluster:
            async with connect(cluster.config) as client:
                with pytest.raises(UsageError, match=told):
                    await client.call(GROUPS, payload)
                with pytest.raises(UsageError, match="addressed to all groups"):
                    await client.call("g1", encode(Operation(("x",))))
                await client.multicast(GROUPS, encode(Operation(("x",), b"right")))
            done = list(machines.values())
            await eventually(lambda: all(machine.bodies == [b"right"] for machine in done), "nothing else is executed")

    run(test)


def test_nodes_refuse_what_a_client_lets_through(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "geopaxos") as cluster, connect(cluster.config) as client:
            client._process.operations_of = None
            with pytest.raises(NotInTimeError, match="no site g7"):
                await client.multicast(GROUPS, encode(Operation(("x",), site=7)), 1)

    run(test)


# -- the store, and what a run says of it


def stores() -> dict[str, StateMachine]:
    return {f"g{group}.p{index}": StoreMachine(f"g{group}") for group in (1, 2) for index in range(3)}


def test_steps_that_make_no_sense_are_answered_with_the_reason_and_change_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", "geopaxos", machines=stores()) as cluster,
            connect(cluster.config) as client,
        ):

            async def answer(payload: bytes) -> object:
                (told,) = (await client.call(GROUPS, payload)).values()
                assert told is not None
                return msgspec.json.decode(told)

            assert await answer(operation_of([("put", "x", 1), ("add", "n", 5)])) == [None, 5]
            wrong = await answer(operation_of([("put", "x", 2), ("append", "n", 5)]))
            assert wrong == {"error": "'n' is a counter, and append is for a list"}
            unknown = await answer(encode(Operation(("x",), b'[["put", "x", 3], ["pop", "x"]]')))
            assert "there is no 'pop'" in str(unknown)
            unnamed = await answer(encode(Operation(("x",), b'[["put", "x", 3], ["put", "y", 3]]')))
            assert "does not name the object 'y'" in str(unnamed)
            assert await answer(operation_of([("get", "x"), ("total", "n")])) == [1, 5]
            told = await client.query("g2", operation_of([("get", "x")]))
            assert told == b"[1]"
            with pytest.raises(QueryError, match="a query only reads"):
                await client.query("g2", operation_of([("put", "x", 4)]))

    run(test)


def test_a_collected_run_says_what_was_touched_and_what_clients_were_answered(tmp_path: Path) -> None:
    history = tmp_path / "history"

    async def test() -> None:
        async with running(tmp_path / "c", "geopaxos", trace=True, machines=stores()) as cluster:
            async with connect(cluster.config, history=history) as one, one.session() as other:
                for n in range(12):
                    steps = [("get", f"x{n % 3}"), ("put", f"x{n % 3}", n), ("put", "y", n)]
                    await asyncio.gather(
                        one.call(GROUPS, operation_of(steps)), other.call(GROUPS, operation_of([("get", "y")]))
                    )
                await one.query("g1", operation_of([("get", "y")]))
                await other.call(GROUPS, operation_of([("append", "y", 1)]))  # refused: it is no list
            servers = list(cluster.servers.values())
            await eventually(lambda: all(each.node.process.delivered == 25 for each in servers), "all is executed")

    run(test)
    cluster = LocalCluster(tmp_path / "c")
    describe = partial(cluster.run_info, True)
    collect(cluster.trace_folder, tmp_path / "run", describe, cluster.expected, history)
    collected = read_run(tmp_path / "run")
    assert set(collected.objects.msg.tolist()) == set(collected.multicasts.msg.tolist())
    assert len(collected.operations) == 25, "24 calls and a query: what was refused did nothing"
    report = check_run(collected)
    assert report.verdict == "pass", report
    assert {"conflict-order", "linearizability"} <= set(report.properties)

    next(iter(history.glob("*"))).unlink()  # what one client did is not known
    collect(cluster.trace_folder, tmp_path / "part", describe, cluster.expected, history)
    partly = check_run(read_run(tmp_path / "part"))
    assert partly.properties["linearizability"] == "unknown"
    assert not partly.violations


def test_a_client_that_blocks_writes_down_the_same(tmp_path: Path) -> None:
    history = tmp_path / "history"

    async def test() -> None:
        async with running(tmp_path / "c", "geopaxos", machines=stores()) as cluster:

            def use() -> None:
                with connect_sync(cluster.config, wait=5.0, history=history) as client:
                    client.call(GROUPS, operation_of([("put", "x", 1)]))
                    assert client.query("g1", operation_of([("get", "x")])) == b"[1]"

            await asyncio.to_thread(use)

    run(test)
    (written,) = history.glob("*")
    lines = [msgspec.json.decode(line) for line in written.read_bytes().splitlines()]
    assert [line[0] for line in lines] == ["call", "answer", "read"]


def test_a_call_needs_one_site_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", "geopaxos", machines=stores()) as cluster,
            connect(cluster.config) as client,
        ):
            mine = objects_at(1, 1, (1, 2))[0]
            await client.call(GROUPS, operation_of([("put", mine, 1)]))
            await cluster.stop("g2.p0", "g2.p1", "g2.p2")
            told = await client.call(GROUPS, operation_of([("get", mine)]))
            assert told == {"g1": b"[1]"}

    run(test)
