"""Calls: what an application answers reaches the client, once, the same through retries, fail-over and restarts."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

from amcast import RetryableError, UsageError
from amcast.core import AppMessage, message_id
from amcast.core.ids import SEQ_BITS
from amcast.net.client.async_client import WaitingClient, connect
from amcast.net.client.sync_client import connect_sync
from amcast.net.disk.records import Durability
from amcast.net.node._application_state import Kept, read_snapshot, split_state
from amcast.net.node._client_service import ClientService
from amcast.net.node.application import ApplicationError, StateMachine
from amcast.net.node.node import Node
from amcast.net.node.results import RESULT_LIMIT, Results
from amcast.net.wire.control import Result, ResultsQuery
from amcast.net.wire.control import Results as ToldResults
from tests.net.clusters import Cluster, eventually, run, running


class Register(StateMachine):
    """Appends each payload, and answers with all of them. It says nothing to an empty payload."""

    def __init__(self) -> None:
        self.text = b""
        self.applied = 0

    def apply(self, message: AppMessage) -> bytes | None:
        self.applied += 1
        self.text += message.payload
        return self.text if message.payload else None

    def snapshot(self) -> bytes:
        return self.text

    def restore(self, state: bytes) -> None:
        self.text = state


def registers(groups: int = 2, replicas: int = 3) -> dict[str, StateMachine]:
    return {f"g{group}.p{index}": Register() for group in range(1, groups + 1) for index in range(replicas)}


@pytest.mark.parametrize("protocol", ["fastcast", "multipaxos", "oam", "flexcast", "sequencer", "skeen", "tree"])
def test_each_group_answers(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(replicas=3)
        async with (
            running(tmp_path / "c", protocol, machines=machines) as cluster,
            connect(cluster.config) as client,
        ):
            assert await client.call("g1", b"a") == {"g1": b"a"}
            assert await client.call({"g2", "g1"}, b"b") == {"g1": b"ab", "g2": b"b"}
            assert await client.call(["g2"], b"") == {"g2": None}
            many = await asyncio.gather(*(client.call("g1", b"x") for _ in range(20)))
            assert sorted(len(each["g1"] or b"") for each in many) == list(range(3, 23)), "each has its own answer"

    run(test)


def test_the_results_of_a_batch_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    taken: list[int] = []
    tell, take = ClientService.results, WaitingClient.take_results

    def count_told(service: ClientService, ids: Sequence[int], results: Sequence[Result]) -> bool:
        told.append(len(ids))
        return tell(service, ids, results)

    def count_taken(client: WaitingClient, sender: int, group: int, ids: Sequence[int], *rest: Any) -> None:
        taken.append(len(ids))
        take(client, sender, group, ids, *rest)

    monkeypatch.setattr(ClientService, "results", count_told)
    monkeypatch.setattr(WaitingClient, "take_results", count_taken)

    async def test() -> None:
        machines = registers(groups=1)
        async with running(tmp_path / "c", groups=1, machines=machines) as cluster, connect(cluster.config) as client:
            await client.call("g1", b"")
            told.clear()
            taken.clear()
            answers = await asyncio.gather(*(client.call("g1", b"x") for _ in range(200)))
            assert [each["g1"] for each in answers] == [b"x" * count for count in range(1, 201)]
            assert sum(told) == sum(taken) == 200, "by the leader alone"
            assert max(len(told), len(taken)) <= 4, "it took one batch, or a few"

    run(test)


def test_sessions_on_one_connection_get_their_own_results(tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(groups=1)
        async with (
            running(tmp_path / "c", groups=1, machines=machines) as cluster,
            connect(cluster.config) as client,
            client.session() as other,
        ):
            many = [each.call("g1", b"x") for _ in range(20) for each in (client, other)]
            answers = await asyncio.gather(*many)
            assert sorted(len(each["g1"] or b"") for each in answers) == list(range(1, 41)), "each has its own answer"
            id_, answer = other.submit_call("g1", b"y")
            client._trunk._on_results(0, ToldResults(1, (id_,), ()))  # an id, and no result of it
            assert await answer == {"g1": b"x" * 40 + b"y"}

    run(test)


def test_a_result_that_nobody_told_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a fail-over: the leader that executed the message tells nobody. Any member knows the result."""
    monkeypatch.setattr(Node, "on_results", lambda *_: None)

    async def test() -> None:
        machines = registers(groups=1)
        async with running(tmp_path / "c", groups=1, machines=machines) as cluster, connect(cluster.config) as client:
            assert await client.call("g1", b"a") == {"g1": b"a"}
            assert await client.call("g1", b"b") == {"g1": b"ab"}
            await eventually(lambda: all(each.applied == 2 for each in machines.values()), "all")  # type: ignore[attr-defined]

    run(test)


def test_a_call_that_waits_for_its_results_ends_with_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and not that the client was never opened."""
    monkeypatch.setattr(WaitingClient, "take_results", lambda *_: None)

    async def test() -> None:
        async with running(tmp_path / "c", groups=1, machines=registers(groups=1)) as cluster:
            async with connect(cluster.config) as client:
                call = asyncio.create_task(client.call("g1", b"a"))
                await eventually(lambda: bool(client._process.calls), "the message is on its way")
                await eventually(lambda: not client._process.waiting, "it is delivered")
            with pytest.raises(ConnectionError, match="was closed before all groups had answered"):
                await call

    run(test)


def test_a_call_goes_on_at_the_next_leader(tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(groups=1)
        async with running(tmp_path / "c", groups=1, machines=machines) as cluster, connect(cluster.config) as client:
            await client.call("g1", b"a")
            await cluster.stop(cluster.leader(1))
            assert await client.call("g1", b"b", timeout=60) == {"g1": b"ab"}

    run(test)


def test_results_are_kept_until_they_are_settled_and_no_longer(tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(groups=1)
        async with running(tmp_path / "c", groups=1, machines=machines) as cluster, connect(cluster.config) as client:
            for _ in range(200):
                await client.call("g1", b"a")
            host = cluster.servers["g1.p0"].node.application
            assert host is not None
            assert all(len(known.results) < 50 for known in host.results._senders.values())
            assert client._process._delivered == {}

    run(test)


def test_a_call_is_settled_as_soon_as_its_results_are_here(tmp_path: Path) -> None:
    """With the reply, like a multicast: the next message says so, also if nobody has looked at the results yet."""

    async def test() -> None:
        machines = registers(groups=1)
        async with running(tmp_path / "c", groups=1, machines=machines) as cluster, connect(cluster.config) as client:
            id_, answer = client.submit_call("g1", b"a")
            await eventually(lambda: not client._process.waiting, "it is delivered")
            assert client._process.calls == {}
            assert client._process._delivered == {}
            assert client._process.settled_of(id_ >> SEQ_BITS) == 1
            assert await answer == {"g1": b"a"}

    run(test)


def test_a_message_is_not_settled_before_its_result_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "on_results", lambda *_: None)

    async def test() -> None:
        machines = registers(groups=1)
        async with running(tmp_path / "c", groups=1, machines=machines) as cluster, connect(cluster.config) as client:
            monkeypatch.setattr(client, "_ask_for_results", lambda *_: asyncio.sleep(3_600))
            id_, answer = client.submit_call("g1", b"a")
            waiting = asyncio.create_task(answer)
            for _ in range(100):
                await client.multicast("g1", b"b")
            host = cluster.servers["g1.p0"].node.application
            assert host is not None
            assert host.results.find(id_) == (True, b"a"), "the client has not got it yet"
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            for _ in range(100):
                await client.multicast("g1", b"b")
            assert host.results.find(id_) == (False, None), "nobody wants it any more"

    run(test)


def test_without_an_application_a_call_is_an_error(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster, connect(cluster.config) as client:
            with pytest.raises(UsageError, match="g1 has no application: nothing there answers a call"):
                await client.call("g1", b"a")
            await client.multicast("g1", b"goes on")

    run(test)


def test_a_call_that_gets_no_answer_can_be_retried(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"groups": 1, "machines": registers(groups=1), "durability": Durability.SYNC}
        async with (
            running(tmp_path / "c", **settings) as cluster,  # type: ignore[arg-type]
            connect(cluster.config) as client,
        ):
            await cluster.stop("g1.p0", "g1.p1")
            with pytest.raises(RetryableError, match=r"not delivered everywhere within 0\.3 s"):
                await client.call("g1", b"a", timeout=0.3)
            await cluster.start("g1.p0", "g1.p1")
            answer = await client.call("g1", b"b", timeout=60)
            assert answer in ({"g1": b"ab"}, {"g1": b"b"}, {"g1": b"ba"}), "the first one may still be executed, once"

    run(test)


def test_results_of_others_are_not_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1, machines=registers(groups=1)) as cluster,
            connect(cluster.config) as client,
            connect(cluster.config) as other,
        ):
            id_, answer = client.submit_call("g1", b"secret")
            await answer
            await other.multicast("g1", b"x")
            channel = next(iter(other._trunk._channels.values()))
            channel.say(ResultsQuery((id_,)))
            await eventually(lambda: channel.is_lost.is_set(), "the connection is refused")

    run(test)


def test_a_question_gets_a_bounded_answer(tmp_path: Path) -> None:
    class Large(Register):
        def apply(self, message: AppMessage) -> bytes:
            return bytes(300_000)

    async def test() -> None:
        machines: dict[str, StateMachine] = {"g1.p0": Large()}
        async with (
            running(tmp_path / "c", "skeen", groups=1, machines=machines) as cluster,
            connect(cluster.config) as client,
        ):
            sent = [client.submit_call("g1", b"x") for _ in range(20)]
            answers = await asyncio.gather(*(answer for _, answer in sent))
            assert all(answer == {"g1": bytes(300_000)} for answer in answers), "however many there are"
            (service,) = {each.client for each in cluster.servers["g1.p0"].connections if each.client is not None}
            told: list[int] = []
            service._send_results = lambda results: told.append(len(results))  # type: ignore[method-assign]
            service._on_results_query(ResultsQuery(tuple(id_ for id_, _ in sent)))
            assert told == [4], "a megabyte, about"

    run(test)


def test_a_result_is_bytes_of_a_moderate_size(tmp_path: Path) -> None:
    class Wrong(Register):
        def apply(self, message: AppMessage) -> bytes | None:
            return "text" if message.payload == b"t" else bytes(RESULT_LIMIT + 1)  # type: ignore[return-value]

    for payload, problem in ((b"t", "a result is bytes or None, not str"), (b"l", "is over the limit of 1048576")):

        async def test(payload: bytes = payload, problem: str = problem) -> None:
            machines: dict[str, StateMachine] = {"g1.p0": Wrong()}
            folder = tmp_path / payload.decode()
            async with running(folder, "skeen", groups=1, machines=machines) as cluster:  # noqa: SIM117
                async with connect(cluster.config) as client:
                    client.submit("g1", payload)
                    with pytest.raises(ApplicationError, match=problem):
                        async with asyncio.timeout(20):
                            await cluster.servers["g1.p0"].failure

        run(test)


def test_results_survive_restarts(tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(groups=1)
        settings = {"groups": 1, "machines": machines, "durability": Durability.SYNC}
        async with running(tmp_path / "c", **settings) as cluster:  # type: ignore[arg-type]
            async with connect(cluster.config) as client:
                id_, answer = client.submit_call("g1", b"a")
                await answer
            for name in list(cluster.servers):
                await cluster.stop(name)
            machines.update(registers(groups=1))
            await cluster.start()
            await eventually(cluster.has_leaders, "leaders")
            for server in cluster.servers.values():
                host = server.node.application
                assert host is not None
                await eventually(lambda host=host: host.position == 1, "it has caught up")
                assert host.results.find(id_) == (True, b"a")
                machine = machines[server.node.name]
                assert isinstance(machine, Register)
                assert machine.applied == 0, "it was restored, and executed nothing again"

    run(test)


# -- the store


def message(seq: int, settled: int = 0, sender: int = 7) -> AppMessage:
    return AppMessage(message_id(sender, seq), (1,), b"", settled)


def test_results_go_into_a_snapshot_and_come_back() -> None:
    results = Results(1 << 20)
    results.add_all([message(0)], [b"zero"])
    results.add_all([message(1)], [None])
    results.add_all([message(0, sender=8)], [b"other"])
    copy = Results(1 << 20)
    copy.load(results.dump())
    assert copy.dump() == results.dump()
    assert copy.find(message(0).id) == (True, b"zero")
    assert copy.find(message(1).id) == (True, None)
    assert copy.find(message(2).id) == (False, None)


def test_the_quietest_sender_is_forgotten_when_there_is_no_room() -> None:
    results = Results(10_000)
    results.add_all([message(0, sender=1)], [b"x" * 3_000])
    results.add_all([message(0, sender=2)], [b"x" * 3_000])
    results.add_all([message(1, sender=1)], [b"x" * 3_000])
    results.add_all([message(0, sender=3)], [b"x" * 3_000])
    assert results.find(message(0, sender=2).id) == (False, None)
    assert results.find(message(0, sender=1).id)[0]
    results.add_all([message(2, sender=1)], [b"x" * 20_000])
    assert results.find(message(2, sender=1).id)[0], "the last one stays whatever its size"


@pytest.mark.parametrize("is_exact", [True, False])
def test_the_results_of_a_batch_are_kept_as_if_each_came_alone(is_exact: bool) -> None:
    """Replicas that restart execute the messages of a batch one by one, and their states are the same bytes."""
    rng = Random(7)
    together, alone = Results(5_000, is_exact), Results(5_000, is_exact)
    next_seq = [0] * 5
    for _ in range(300):
        sender, count = rng.randrange(5), rng.randint(1, 20)
        first = next_seq[sender]
        next_seq[sender] += count
        settled = max(0, first + rng.randint(-30, 5))
        messages = [message(seq, settled, sender) for seq in range(first, first + count)]
        results = [rng.choice((None, b"", b"x" * rng.randrange(200))) for _ in messages]
        together.add_all(messages, results)
        for each, result in zip(messages, results, strict=True):
            alone.add_all([each], [result])
        assert together.dump() == alone.dump()


def test_a_settled_mark_never_covers_its_own_message() -> None:
    results = Results(1 << 20)
    for seq in range(100):
        results.add_all([message(seq, settled=1 << 40)], [b"x"])
        assert results.find(message(seq).id)[0]
    assert not results.find(message(50).id)[0]


def test_a_snapshot_of_an_earlier_version_has_results_alone(tmp_path: Path) -> None:
    results, path = Results(1 << 20), tmp_path / "application.state"
    results.add_all([message(0)], [b"zero"])
    state = len(results.dump()).to_bytes(8, "little") + results.dump() + b"the machine's state"
    header = struct.pack("<7sBQQ", b"amc-app", 2, 5, len(state))
    path.write_bytes(header + crc32(state, crc32(header)).to_bytes(4, "little") + state)
    found = read_snapshot(path)
    assert found is not None
    position, joined = found
    kept, machine_state = split_state(joined)
    assert (position, machine_state) == (5, b"the machine's state")
    assert kept == Kept(results.dump())


def test_calls_without_an_event_loop(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, machines=registers(groups=1)) as cluster:

            def use(cluster: Cluster = cluster) -> object:
                with connect_sync(cluster.config) as client:
                    assert client.groups == ["g1"]
                    first = client.call("g1", b"a")
                    with client.session() as other:
                        second = other.call_nowait("g1", b"b").result()
                    assert client.status(0).delivered == 2
                    return first, second

            assert await asyncio.to_thread(use) == ({"g1": b"a"}, {"g1": b"ab"})

    run(test)
