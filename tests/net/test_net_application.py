"""Applications in nodes: one that fails stops its node, and each position is applied once whatever happens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amcast.core import AppMessage
from amcast.net.client.async_client import connect
from amcast.net.disk.records import Durability
from amcast.net.node.application import ApplicationError

from .clusters import Cluster, eventually, run, running
from .test_net_cluster import Ledger

DURABLE: dict[str, Any] = {"groups": 1, "replicas": 1, "durability": Durability.SYNC}


class Failing(Ledger):
    """Raises at one position, as long as it is told to."""

    def __init__(self, position: int, error: Exception | None) -> None:
        super().__init__()
        self.position = position
        self.error = error

    def apply(self, position: int, message: AppMessage) -> None:
        if position == self.position and self.error is not None:
            raise self.error
        super().apply(position, message)


def report_problems(cluster: Cluster, name: str) -> None:
    """As `serve` does: what no handler catches goes to the server."""
    server = cluster.servers[name]
    server.loop.set_exception_handler(lambda _, context: server.on_loop_problem(context))


@pytest.mark.parametrize("durability", [Durability.SYNC, Durability.MEMORY])
@pytest.mark.parametrize("error", [OSError("no route"), ConnectionError("reset"), TimeoutError("late"), KeyError("k")])
def test_an_application_that_raises_stops_its_node(durability: Durability, error: Exception, tmp_path: Path) -> None:
    async def test() -> None:
        machine = Failing(3, error)
        settings = {**DURABLE, "durability": durability}
        async with running(tmp_path / "c", machines={"g1.p0": machine}, **settings) as cluster:
            report_problems(cluster, "g1.p0")
            server = cluster.servers["g1.p0"]
            async with connect(cluster.config) as client:
                futures = [client.submit(["g1"], b"%d" % number)[1] for number in range(10)]
                with pytest.raises(ApplicationError, match=f"at position 3: {type(error).__name__}"):
                    await asyncio.shield(server.failure)
                assert machine.lines == [b"0", b"1", b"2"]  # the rest of the batch is not applied
                await cluster.stop()
                assert not any(future.done() for future in futures[3:])  # nothing more was acknowledged
                assert machine.lines == [b"0", b"1", b"2"]
                if durability is Durability.MEMORY:
                    return
                machine.error = None  # the cause is mended: the application goes on where it was
                machine.lines = []
                await cluster.start()
                await asyncio.gather(*futures)
            assert machine.lines == [b"%d" % number for number in range(10)]

    run(test)


def test_a_broken_connection_is_no_failure_of_ours(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, replicas=1) as cluster:
            server = cluster.servers["g1.p0"]
            server.on_loop_problem({"message": "broken", "exception": ConnectionError(), "transport": object()})
            server.on_loop_problem({"message": "too many files", "exception": OSError(), "socket": object()})
            server.on_loop_problem({"message": "a word of the loop"})
            assert not server.failure.done()
            server.on_loop_problem({"message": "a handler failed", "exception": OSError("disk"), "handle": object()})
            with pytest.raises(OSError, match="disk"):
                server.failure.result()

    run(test)


def test_status_shows_where_the_application_is(tmp_path: Path) -> None:
    async def test() -> None:
        machine = Ledger()
        async with (
            running(tmp_path / "c", machines={"g1.p0": machine}, **DURABLE) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast(["g1"], b"one")
            await eventually(lambda: len(machine.lines) == 1, "it is applied")
            assert (await client.status(0)).application == 1

    run(test)
