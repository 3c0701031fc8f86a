"""Connections of strangers: what they cost, how long they last, how many there may be; and what they can't do."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

import pytest

from amcast.net.client.async_client import connect
from amcast.net.config import Limits
from amcast.net.node._connection_budget import ConnectionBudget, address_of
from amcast.net.node._refusals import Cause
from amcast.net.node.connection import Connection
from amcast.net.wire import acceptor as wire
from amcast.net.wire.dialer import Channel

from .clusters import eventually, run, running
from .test_net_frames import Caller, client_hello, framed, welcome


@contextmanager
def without_collector() -> Iterator[None]:
    """What goes now goes because nothing refers to it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def noted(monkeypatch: pytest.MonkeyPatch, kind: type[object]) -> WeakSet[object]:
    """All objects of this kind that are alive, of those that are made from now on."""
    alive: WeakSet[object] = WeakSet()
    init = kind.__init__

    def noting_init(self: object, *args: object) -> None:
        init(self, *args)
        alive.add(self)

    monkeypatch.setattr(kind, "__init__", noting_init)
    return alive


# -- memory


@pytest.mark.parametrize("has_tls", [False, True])
def test_nothing_is_left_of_a_connection_that_has_ended(
    has_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, dialed = noted(monkeypatch, Connection), noted(monkeypatch, Channel)

    async def test() -> None:
        async with running(tmp_path / "c", groups=1, tls=has_tls) as cluster:
            (host, port), *_ = cluster.config.addresses().values()
            with without_collector():
                before, dialed_before = len(alive), len(dialed)
                for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\5hello", framed(client_hello(version=7))):
                    for _ in range(5):
                        reader, writer = await asyncio.open_connection(host, port)
                        writer.write(said)
                        writer.write_eof()
                        async with asyncio.timeout(10):
                            await reader.read()
                        writer.transport.abort()
                for _ in range(5):
                    async with connect(cluster.config) as client:
                        await client.multicast(["g1"], b"x")
                        await anext(client.deliveries("g1"))
                await eventually(lambda: len(alive) == before, "connections are gone")
                await eventually(lambda: len(dialed) == dialed_before, "and their other ends")

    run(test)


@pytest.mark.parametrize("has_tls", [False, True])
def test_nothing_is_left_of_strangers_that_gave_way_or_were_too_late(
    has_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = noted(monkeypatch, Connection)

    async def test() -> None:
        limits = Limits(strangers=8, hello_ms=300)
        async with running(tmp_path / "c", groups=1, tls=has_tls, limits=limits) as cluster:
            server = cluster.servers["g1.p0"]
            await eventually(lambda: server.budget.total == 2, "both others are connected")
            (host, port), *_ = cluster.config.addresses().values()
            with without_collector():
                before = len(alive)
                # All at once, so that some give way before anything is made for them.
                callers = await asyncio.gather(*[asyncio.open_connection(host, port) for _ in range(200)])
                counts = server.refusals.counts
                await eventually(lambda: counts[Cause.STRANGERS] + counts[Cause.DEADLINE] == 200, "all are closed")
                async with asyncio.timeout(10):  # the node has closed all of them, and holds no descriptor
                    for reader, writer in callers:
                        with suppress(ConnectionError):
                            await reader.read()
                        writer.transport.abort()
                await eventually(lambda: len(alive) == before, "nothing is left")
                assert server.budget.total == 2

    run(test)


# -- deadlines


@pytest.mark.parametrize("has_tls", [False, True])
def test_whoever_says_nothing_is_closed(has_tls: bool, tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(hello_ms=300)
        async with running(tmp_path / "c", groups=1, tls=has_tls, limits=limits) as cluster:
            (host, port), *_ = cluster.config.addresses().values()
            server = cluster.servers["g1.p0"]
            callers = [await asyncio.open_connection(host, port) for _ in range(10)]
            slow = callers[0][1]
            slow.write(b"\x16\x03\x01\x02\x00" if has_tls else b"\0\0\1\0")  # the beginning of something
            async with asyncio.timeout(20):
                for reader, writer in callers:
                    await reader.read()
                    writer.transport.abort()
            await eventually(lambda: server.budget.strangers == 0, "they are gone")
            assert server.refusals.counts[Cause.DEADLINE] == 10
            async with connect(cluster.config) as client:
                assert (await client.status(0)).refused == {"deadline": 10}

    run(test)


# -- how many


class Guest:
    def __init__(self) -> None:
        self.address, self.number, self.is_cut = "", -1, False

    def cut(self) -> None:
        self.is_cut = True


def guests(budget: ConnectionBudget, host: str, count: int) -> list[Guest]:
    made = [Guest() for _ in range(count)]
    for each in made:
        budget.enter(each, host)
    return made


def test_connections_are_counted_in_all_by_address_and_while_nobody_knows_who_they_are() -> None:
    limits = Limits(connections=12, connections_per_address=10, strangers=8)
    budget = ConnectionBudget(limits, 20_000, 3)
    assert budget.problem_at_door("10.0.0.1") is None
    first = guests(budget, "10.0.0.1", 8)
    assert budget.problem_at_door("10.0.0.2") is Cause.STRANGERS
    for each in first:
        budget.introduce(each)
    second = guests(budget, "10.0.0.1", 2)
    assert budget.problem_at_door("10.0.0.1") is Cause.ADDRESS
    assert budget.problem_at_door("10.0.0.2") is None
    third = guests(budget, "10.0.0.2", 2)
    assert budget.problem_at_door("10.0.0.3") is Cause.CONNECTIONS
    assert (budget.total, budget.strangers) == (12, 4)
    for each in (*first, *second, *third, *third):  # one may be told twice
        budget.leave(each)
    assert (budget.total, budget.strangers, budget._by_address) == (0, 0, {})
    assert not any(each.is_cut for each in first)


def test_from_where_processes_are_somebody_always_gets_in() -> None:
    limits = Limits(connections=10, connections_per_address=8, strangers=8)
    budget = ConnectionBudget(limits, 20_000, 3)
    budget.expect_processes(["10.0.0.7"])
    clients = guests(budget, "10.0.0.7", 8)
    for each in clients:
        budget.introduce(each)
    strangers = guests(budget, "10.0.0.1", 8)
    assert budget.problem_at_door("10.0.0.1") is Cause.CONNECTIONS
    assert budget.problem_at_door("10.0.0.7") is None
    (late,) = guests(budget, "10.0.0.7", 1)
    assert sum(each.is_cut for each in strangers) == 1, "a stranger gives way"
    assert not any(each.is_cut for each in clients)
    assert budget.strangers == 8
    assert budget.problem_of_client(late) is Cause.CONNECTIONS, "if it is no process, it is one too many"


@pytest.mark.parametrize(
    ("host", "same"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"),
        ("fe80::1%eth0", "fe80::2"),
        ("g1.p0", "g1.p0"),
    ],
)
def test_addresses_that_are_one_callers_count_as_one(host: str, same: str) -> None:
    assert address_of(host) == address_of(same)
    assert address_of(host) != address_of("10.0.0.2") != address_of("2001:db8:1:3::1")


def test_descriptors_are_kept_for_files_and_processes() -> None:
    roomy = ConnectionBudget(Limits(), 16_384, 6)
    assert (roomy.max, roomy.strangers_max) == (Limits().connections, Limits().strangers)
    tight = ConnectionBudget(Limits(), 1_024, 6)
    assert tight.max + tight.strangers_max + 6 * 4 + 64 <= 1_024
    assert tight.max > 600


@pytest.mark.parametrize("has_tls", [False, True])
def test_processes_and_clients_get_in_while_strangers_crowd_the_door(has_tls: bool, tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(strangers=8, hello_ms=60_000)
        async with running(tmp_path / "c", groups=1, tls=has_tls, limits=limits) as cluster, AsyncExitStack() as stack:
            server = cluster.servers["g1.p0"]
            await cluster.stop("g1.p1")
            for _ in range(40):
                await stack.enter_async_context(Caller.dial(cluster))
            await eventually(lambda: server.refusals.counts[Cause.STRANGERS] >= 30, "the door is crowded")
            assert server.budget.strangers <= 8
            await cluster.start_and_wait("g1.p1")
            await eventually(lambda: len(server.peers) == 2, "both others are connected")
            async with connect(cluster.config) as client:
                await client.multicast(["g1"], b"x")

    run(test)


def test_a_client_over_the_limit_is_told_so_and_a_process_is_not(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(connections=10)
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster, AsyncExitStack() as stack:
            server = cluster.servers["g1.p0"]
            await cluster.stop("g1.p1")
            await eventually(lambda: len(server.peers) == 1, "one other is left")
            for _ in range(9):
                caller = await stack.enter_async_context(Caller.dial(cluster))
                await welcome(caller, client_hello(kind="observer"))
            last = await stack.enter_async_context(Caller.dial(cluster))
            last.say(framed(client_hello(kind="observer")))
            assert "too many clients are connected: try another process" in await last.reason()
            assert server.refusals.counts[Cause.CONNECTIONS] == 1
            await cluster.start_and_wait("g1.p1")
            await eventually(lambda: len(server.peers) == 2, "both others are connected")

    run(test)


class Exhausted(socket.socket):
    """There are no descriptors for the first callers."""

    failures = 2

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


class Quiet(asyncio.Protocol, wire.Caller):
    pass


def test_a_node_without_descriptors_takes_its_callers_later() -> None:
    class Doorkeeper:
        def __init__(self) -> None:
            self.problems: list[str] = []
            self.admitted: list[Quiet] = []

        def admit(self, host: str) -> Quiet | None:
            self.admitted.append(Quiet())
            return self.admitted[-1]

        def on_exhausted(self, error: OSError) -> None:
            self.problems.append(error.strerror)

    async def test() -> None:
        listening = Exhausted()
        listening.setblocking(False)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        doorkeeper = Doorkeeper()
        acceptor = wire.Acceptor([listening], doorkeeper, None, 1.0)
        _, writer = await asyncio.open_connection(*listening.getsockname())
        await eventually(lambda: bool(doorkeeper.admitted), "it is accepted in the end")
        assert doorkeeper.problems == ["Too many open files"] * 2
        writer.transport.abort()
        await acceptor.close()

    run(test)


def test_few_may_ask_for_figures_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, metrics=True) as cluster, AsyncExitStack() as stack:
            port = cluster.config.process_named("g1.p0").metrics
            metrics = cluster.servers["g1.p0"]._metrics
            assert metrics is not None
            callers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            for _, writer in callers:
                stack.callback(writer.transport.abort)
            await eventually(lambda: len(metrics.callers) == 16, "no more are let in")
            await stack.aclose()
            await eventually(lambda: not metrics.callers, "all have left")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n")
            writer.write(b"\r\n")
            page = (await reader.read()).decode()
            writer.close()
            assert 'amcast_refused_total{cause="slow"} 0\n' in page
            assert "amcast_connections 2\n" in page

    run(test)
