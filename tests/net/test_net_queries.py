"""Queries: an application is asked for its state, nothing is ordered, and the answer is never older than it may be."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast import BusyError, NotInTimeError, QueryError, UsageError
from amcast.net.client.async_client import connect
from amcast.net.client.sync_client import connect_sync
from amcast.net.config import ClientLimits, Limits
from amcast.net.disk.records import Durability
from amcast.net.node.application import StateMachine
from amcast.net.node.node import Node
from amcast.net.security.access import Rights
from amcast.net.system import system
from amcast.net.wire.control import Answers, Query, Unanswered
from tests.net.clusters import Cluster, eventually, run, running

PROTOCOLS = [
    "skeen",
    "basecast",
    "fastcast",
    "multipaxos",
    "flexcast",
    "tree",
    "oam-baseline",
    "oam",
    "sequencer",
]


class Register(StateMachine):
    """Appends each payload, and shows all of them to whoever asks."""

    def __init__(self) -> None:
        self.text = b""
        self.asked = 0

    def apply(self, *given: Any) -> bytes | None:
        self.text += given[-1].payload
        return None

    def query(self, payload: bytes) -> Any:
        self.asked += 1
        match payload:
            case b"raise":
                raise KeyError("no such thing")
            case b"text":
                return "no bytes"
            case b"large":
                return bytes(1 << 19)
            case b"too large":
                return bytes((1 << 20) + 1)
            case b"none":
                return None
        return payload + self.text

    def snapshot(self) -> bytes:
        return self.text

    def restore(self, state: bytes) -> None:
        self.text = state


def registers(groups: int = 1, replicas: int = 3) -> dict[str, StateMachine]:
    return {f"g{group}.p{index}": Register() for group in range(1, groups + 1) for index in range(replicas)}


def log_ends(cluster: Cluster) -> list[int]:
    return [server.node.records.synced for server in cluster.servers.values()]


# -- what they see


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_query_sees_what_was_acknowledged(protocol: str, replicas: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", protocol, replicas=replicas, machines=registers(2, replicas)) as cluster,
            connect(cluster.config) as client,
            connect(cluster.config) as other,
        ):
            assert await client.query("g1", b":") == b":"
            text = b""
            for letter in (b"a", b"b", b"c"):
                await client.multicast({"g1", "g2"}, letter)
                text += letter
                assert await other.query("g1", b"") == text
                assert await other.query("g2", b"") == text
            await client.multicast("g2", b"x")
            assert await other.query("g2", b"?") == b"?abcx"
            assert await other.query("g1", b"none") is None

    run(test)


@pytest.mark.parametrize("protocol", ["fastcast", "multipaxos", "oam-baseline"])
def test_any_member_answers_with_the_newest_state(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(2)
        async with (
            running(tmp_path / "c", protocol, machines=machines) as cluster,
            connect(cluster.config) as client,
        ):
            questions = client._trunk.questions
            for number, member in enumerate(cluster.config.topology().members(2)):
                await client.multicast({"g1", "g2"}, b"%d" % number)
                questions.leaders[2] = member
                assert await client.query("g2", b"") == b"012"[: number + 1]
            assert sum(each.asked for name, each in machines.items() if name[:2] == "g2") == 3  # type: ignore[attr-defined]

    run(test)


def test_a_query_writes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers()
        async with (
            running(tmp_path / "c", groups=1, machines=machines, durability=Durability.SYNC) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast("g1", b"a")
            await eventually(lambda: all(each.text == b"a" for each in machines.values()), "all have it")  # type: ignore[attr-defined]
            await eventually(lambda: all(each.node.is_settled for each in cluster.servers.values()), "all is written")
            before = log_ends(cluster), [each.node.deliveries.next for each in cluster.servers.values()]
            answers = await asyncio.gather(*(client.query("g1", b"%d" % number) for number in range(100)))
            assert answers == [b"%da" % number for number in range(100)]
            assert (log_ends(cluster), [each.node.deliveries.next for each in cluster.servers.values()]) == before

    run(test)


def test_queries_go_on_at_the_next_leader(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1, machines=registers()) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast("g1", b"a")
            assert await client.query("g1", b"") == b"a"
            await cluster.stop(cluster.leader(1))
            assert await client.query("g1", b"", timeout=60) == b"a"
            await client.multicast("g1", b"b")
            assert await client.query("g1", b"") == b"ab"

    run(test)


def test_a_query_waits_for_an_application_that_lags(tmp_path: Path) -> None:
    """What is delivered is acknowledged. The application may be on its way to it."""

    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1, machines=registers()) as cluster,
            connect(cluster.config) as client,
        ):
            hosts = [server.host for server in cluster.servers.values() if server.host is not None]
            with pytest.MonkeyPatch.context() as patch:
                for host in hosts:
                    patch.setattr(host, "deliver_batch", lambda *_: None)
                    patch.setattr(host, "catch_up", lambda: False)
                await client.multicast("g1", b"a")
                asked = asyncio.create_task(client.query("g1", b"", timeout=60))
                queries = cluster.servers[cluster.leader(1)].queries
                await eventually(lambda: len(queries._readable) == 1, "its read is done")
                assert not asked.done()
            assert await asked == b"a"

    run(test)


def test_without_a_majority_nothing_new_is_shown(tmp_path: Path) -> None:
    """The leader that is left can't know whether the others have elected another one. Its own state it may show."""

    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1, machines=registers()) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast("g1", b"a")
            leader = cluster.leader(1)
            node = cluster.servers[leader].node
            await eventually(lambda: node.fresh_s is not None, "the others have answered it")
            await cluster.stop(*[name for name in cluster.servers if name != leader])
            with pytest.raises(NotInTimeError, match=r"no answer to a query within 0\.5 s"):
                await client.query("g1", b"", timeout=0.5)
            assert await client.query("g1", b"", consistency="local", max_age=3600) == b"a"

    run(test)


# -- what they may be told instead


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"raise", "KeyError: 'no such thing'"),
        (b"text", "TypeError: a result is bytes or None, not str"),
        (b"too large", "over the limit of 1048576"),
    ],
)
def test_an_error_of_the_application_goes_to_its_client_alone(payload: bytes, text: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1, machines=registers()) as cluster,
            connect(cluster.config) as client,
        ):
            good, bad = await asyncio.gather(
                client.query("g1", b"good"), client.query("g1", payload), return_exceptions=True
            )
            assert good == b"good"
            assert isinstance(bad, QueryError)
            assert text in str(bad)
            await client.multicast("g1", b"a")
            assert await client.query("g1", b"") == b"a", "the node goes on"
            assert not any(server.failure.done() for server in cluster.servers.values())

    run(test)


def test_a_machine_without_queries_says_so(tmp_path: Path) -> None:
    class Mute(Register):
        query = StateMachine.query

    async def test() -> None:
        machines: dict[str, StateMachine] = {"g1.p0": Mute()}
        async with (
            running(tmp_path / "c", "skeen", groups=2, replicas=1, machines=machines) as cluster,
            connect(cluster.config) as client,
        ):
            with pytest.raises(QueryError, match=r"Mute answers no queries: it has no method `query\(payload\)`"):
                await client.query("g1", b"")
            with pytest.raises(UsageError, match="g2 has no application: nothing there answers a query"):
                await client.query("g2", b"")

    run(test)


def test_bad_queries_are_refused_before_they_leave(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(message_bytes=10)
        async with (
            running(tmp_path / "c", groups=1, machines=registers(), limits=limits) as cluster,
            connect(cluster.config) as client,
        ):
            for wrong, text in (
                (partial(client.query, "g1", "a"), "a payload is bytes, not str"),
                (partial(client.query, "g7", b""), "there is no group 'g7'"),
                (partial(client.query, ["g1"], b""), "there is no group '['g1']'"),  # type: ignore[list-item]
                (partial(client.query, "g1", bytes(11)), "a query of 11 bytes is over the cluster's limit of 10"),
                (partial(client.query, "g1", b"", consistency="weak"), "linearizable or local, not 'weak'"),
                (partial(client.query, "g1", b"", consistency="local", max_age=0), "never 0 s old"),
            ):
                with pytest.raises(UsageError, match=re.escape(text)):
                    await wrong()  # type: ignore[operator]
            assert await client.query("g1", bytes(10)) == bytes(10)

    run(test)


def test_only_whoever_may_follow_a_group_may_query_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        machines = registers(2, 1)
        async with running(tmp_path / "c", "skeen", replicas=1, machines=machines) as cluster:
            rights = Rights("partly", None, frozenset({1}))
            for server in cluster.servers.values():
                monkeypatch.setattr(server.security.access, "check", lambda token: rights)
            async with connect(cluster.config) as client:
                assert await client.query("g1", b"1") == b"1"
                with pytest.raises(UsageError, match="no right to follow g2, and so none to query it"):
                    await client.query("g2", b"2")
                assert not machines["g2.p0"].asked  # type: ignore[attr-defined]

    run(test)


# -- budgets


@pytest.mark.parametrize(
    "limits", [Limits(queries=3), Limits(queries_bytes=30), Limits(client=ClientLimits(open_messages=3))]
)
def test_too_many_queries_hear_busy(limits: Limits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their reads are never done. What waits is bounded, and given back after a while."""
    monkeypatch.setattr(Node, "readable", lambda *_: None)
    monkeypatch.setattr("amcast.net.node._queries._PATIENCE_S", 0.5)

    async def test() -> None:
        async with (
            running(tmp_path / "c", "skeen", groups=1, replicas=1, machines=registers(1, 1), limits=limits) as cluster,
            connect(cluster.config) as client,
        ):
            waiting = [asyncio.create_task(client.query("g1", bytes(10), timeout=0.4)) for _ in range(3)]
            queries = cluster.servers["g1.p0"].queries
            await eventually(lambda: queries.count == 3, "all wait")
            with pytest.raises(BusyError, match="busy all the time: ask less, or wait longer"):
                await client.query("g1", bytes(10), timeout=0.3)
            assert (queries.count, queries.bytes) == (3, 30)
            for task in waiting:
                with pytest.raises(NotInTimeError):
                    await task
            await eventually(lambda: (queries.count, queries.bytes) == (0, 0), "they are given back")

    run(test)


def test_queries_of_a_connection_that_is_lost_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "readable", lambda *_: None)
    monkeypatch.setattr("amcast.net.node._queries._PATIENCE_S", 3600.0)

    async def test() -> None:
        machines = registers(1, 1)
        async with running(tmp_path / "c", "skeen", groups=1, replicas=1, machines=machines) as cluster:
            queries = cluster.servers["g1.p0"].queries
            async with connect(cluster.config) as client:
                waiting = asyncio.create_task(client.query("g1", bytes(10), timeout=60))
                await eventually(lambda: queries.count == 1, "it waits")
            with pytest.raises(ConnectionError, match="closed before the query was answered"):
                await waiting
            await eventually(lambda: (queries.count, queries.bytes) == (0, 0), "nobody waits")

    run(test)


def test_a_client_that_does_not_read_costs_no_more_than_its_buffer(tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(1, 1)
        limits = Limits(client_bytes=1 << 20)
        async with (
            running(tmp_path / "c", "skeen", groups=1, replicas=1, machines=machines, limits=limits) as cluster,
            connect(cluster.config) as client,
        ):
            channel = await client._trunk.dial(0, lambda channel, message: None)
            channel.pause_reading()
            for first in range(0, 2_000, 100):
                channel.say(Query(1, 0, tuple(range(first, first + 100)), (b"large",) * 100))
            queries = cluster.servers["g1.p0"].queries
            await eventually(lambda: queries.count > 0, "they wait")
            waiting = [each.waiting_bytes for each in cluster.servers["g1.p0"].connections]
            assert max(waiting) < 4 << 20
            assert await client.query("g1", b"x") == b"x", "others are served meanwhile"
            channel.abort()
            await eventually(lambda: queries.count == 0, "nobody waits")

    run(test)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (Query(1, 0, (), ()), "it has payloads"),
        (Query(1, 0, (1, 2), (b"",)), "a number for each payload"),
        (Query(1, -1, (1,), (b"",)), "an age of 0 or more"),
        (Query(1, 0, (1,), (bytes(100),)), "a query of 100 bytes is over the limit of 50"),
        (Query(1, 0, tuple(range(1_001)), (b"",) * 1_001), "not a request of an observer"),
    ],
)
def test_whoever_breaks_a_rule_is_told_which(query: Query, reason: str, tmp_path: Path) -> None:
    async def test() -> None:
        machines, limits = registers(1, 1), Limits(message_bytes=50)
        async with (
            running(tmp_path / "c", "skeen", groups=1, replicas=1, machines=machines, limits=limits) as cluster,
            connect(cluster.config) as client,
        ):
            heard: list[Any] = []
            channel = await client._trunk.dial(0, lambda channel, message: heard.append(message))
            channel.say(query)
            await eventually(lambda: bool(heard), "an answer")
            assert reason in heard[0].reason
            assert await client.query("g1", b"x") == b"x"

    run(test)


def test_an_observer_may_query_with_small_frames(tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(1, 1)
        async with (
            running(tmp_path / "c", "skeen", groups=1, replicas=1, machines=machines) as cluster,
            connect(cluster.config) as client,
        ):
            heard: list[Any] = []
            channel = await client._trunk.dial(0, lambda channel, message: heard.append(message))
            channel.say(Query(1, 0, (7, 8), (b"a", b"raise")))
            await eventually(lambda: len(heard) == 2, "two answers")
            channel.abort()
            assert Answers(1, 0, (7,), (b"a",)) in heard
            assert Unanswered(1, (8,), "failed", "KeyError: 'no such thing'") in heard

    run(test)


# -- local ones


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_local_query_is_answered_by_any_member(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(2)
        async with (
            running(tmp_path / "c", protocol, replicas=3, machines=machines) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast({"g1", "g2"}, b"a")
            await eventually(lambda: all(each.text == b"a" for each in machines.values()), "all have it")  # type: ignore[attr-defined]
            # One that has not heard from its leader yet does not answer.
            while not all(each.asked for each in machines.values()):  # type: ignore[attr-defined]
                assert await client.query("g1", b"", consistency="local") == b"a"
                assert await client.query("g2", b"", consistency="local") == b"a"

    run(test)


def test_a_member_that_is_cut_off_does_not_answer_for_long(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", "basecast", groups=1, machines=registers()) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast("g1", b"a")
            assert await client.query("g1", b"", consistency="local", max_age=0.5) == b"a"
            leader = cluster.leader(1)
            follower = next(name for name in cluster.servers if name != leader)
            await cluster.stop(*[name for name in cluster.servers if name != follower])
            node = cluster.servers[follower].node
            await eventually(lambda: system().monotonic_s() - (node.fresh_s or 0) > 0.3, "its state is old")
            # The other two are asked first if it so happens, for 0.9 s in all.
            with pytest.raises(NotInTimeError, match=rf"the state of {follower} may be \d+ ms old"):
                await client.query("g1", b"", consistency="local", max_age=0.2, timeout=3.0)

    run(test)


# -- the client


def test_queries_block_for_programs_without_an_event_loop(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, machines=registers()) as cluster:

            def work() -> list[bytes | None]:
                with connect_sync(cluster.config) as client:
                    client.multicast("g1", b"a")
                    later = client.query_nowait("g1", b"2", consistency="local", max_age=60)
                    return [client.query("g1", b"1"), later.result()]

            assert await asyncio.to_thread(work) == [b"1a", b"2a"]

    run(test)


def test_a_query_whose_answer_is_lost_is_asked_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1, machines=registers()) as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast("g1", b"a")
            leader = cluster.servers[cluster.leader(1)]
            monkeypatch.setattr(leader.queries, "_send", lambda *_: None)
            assert await client.query("g1", b"") == b"a"

    run(test)


def test_a_query_crosses_the_wire_in_few_frames(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", "skeen", groups=1, replicas=1, machines=registers(1, 1)) as cluster,
            connect(cluster.config) as client,
        ):
            await client.query("g1", b"")
            sent: list[int] = []
            questions = client._trunk.questions
            send = questions._send
            questions._send = lambda to, framed: (sent.append(len(framed)), send(to, framed))[1]  # type: ignore[func-returns-value]
            answers = await asyncio.gather(*(client.query("g1", b"%d" % number) for number in range(2_500)))
            assert answers == [b"%d" % number for number in range(2_500)]
            assert len(sent) == 3, "a thousand fit in a frame"

    run(test)


def test_the_frames_of_queries_are_as_they_were() -> None:
    """Programs in other versions rely on them."""
    encoded = msgspec.msgpack.decode(msgspec.msgpack.encode(Query(1, 250, (7,), (b"p",))))
    assert encoded == ["query", 1, 250, [7], [b"p"]]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Answers(1, None, (7,), (b"a",)))) == [
        "answers",
        1,
        None,
        [7],
        [b"a"],
    ]
