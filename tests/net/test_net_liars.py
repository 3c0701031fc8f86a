"""Clusters whose members may lie, on real sockets: what clients believe, and what they do not."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast import NotInTimeError, UsageError
from amcast.core import AppMessage, ProcessId, Wire
from amcast.net.client._questions import Sheet
from amcast.net.client.async_client import connect
from amcast.net.node.application import StateMachine
from amcast.net.node.data_folder import replace_folder
from amcast.protocols import Reply

from .clusters import Cluster, eventually, run, running


class Register(StateMachine):
    """Appends each payload, and answers with all of them, to queries as well."""

    def __init__(self, lie: bytes = b"") -> None:
        self.text = b""
        self._lie = lie

    def apply(self, message: AppMessage) -> bytes:
        self.text += message.payload
        return self._lie or self.text

    def query(self, payload: bytes) -> bytes:
        return self._lie or self.text

    def snapshot(self) -> bytes:
        return self.text

    def restore(self, state: bytes) -> None:
        self.text = state


def registers(groups: int = 2, *liars: str) -> dict[str, StateMachine]:
    names = [f"g{group}.p{index}" for group in range(1, groups + 1) for index in range(4)]
    return {name: Register(b"a lie" if name in liars else b"") for name in names}


@pytest.mark.parametrize("protocol", ["byzcast", "bft"])
def test_messages_are_called_and_read(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", protocol, machines=registers()) as cluster,
            connect(cluster.config) as client,
        ):
            assert await client.call("g1", b"a") == {"g1": b"a"}
            assert await client.call({"g2", "g1"}, b"b") == {"g1": b"ab", "g2": b"b"}
            assert await client.query("g1", b"") == b"ab"
            many = await asyncio.gather(*(client.call("g2", b"x") for _ in range(20)))
            assert sorted(len(each["g2"] or b"") for each in many) == list(range(2, 22)), "each has its own answer"
            async with client.session() as other:
                assert await other.call("g1", b"c") == {"g1": b"abc"}

    run(test)


@pytest.mark.parametrize("liar", ["g1.p0", "g1.p2"])
def test_one_that_lies_about_results_is_not_believed(liar: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", "byzcast", 1, machines=registers(1, liar)) as cluster,
            connect(cluster.config) as client,
        ):
            assert await client.call("g1", b"a") == {"g1": b"a"}
            assert await client.query("g1", b"") == b"a"
            assert await client.query("g1", b"", consistency="local", max_age=30.0) in (b"", b"a")

    run(test)


def silence(cluster: Cluster, name: str, change: Callable[[Reply], Reply | None]) -> None:
    """Has a process tell clients something else, or nothing, for each reply."""
    node = cluster.servers[name].node
    honest: Callable[[ProcessId, Reply], None] = node._reply

    def reply(client: ProcessId, reply: Reply) -> None:
        changed = change(reply)
        if changed is not None:
            honest(client, changed)

    node._reply = reply  # type: ignore[method-assign]


def test_one_reply_does_not_settle_a_message(tmp_path: Path) -> None:
    """All but one member say nothing: the message is delivered, and nobody may believe it yet."""

    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster, connect(cluster.config) as client:
            for name in ("g1.p1", "g1.p2", "g1.p3"):
                silence(cluster, name, lambda _: None)
            with pytest.raises(NotInTimeError):
                await client.multicast("g1", b"a", timeout=1.5)
            assert cluster.servers["g1.p0"].node.deliveries.next == 1

    run(test)


def test_one_silent_member_of_each_group_is_missed_by_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "byzcast") as cluster, connect(cluster.config) as client:
            for name in ("g1.p3", "g2.p1"):
                silence(cluster, name, lambda _: None)
            await client.multicast({"g1", "g2"}, b"a", timeout=30)

    run(test)


def test_a_silent_leader_is_replaced(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster, connect(cluster.config) as client:
            node = cluster.servers[cluster.leader(1)].node
            node._transmit = lambda to, data: None  # type: ignore[method-assign]
            await client.multicast("g1", b"a", timeout=60)

    run(test)


def test_a_member_that_is_stopped_and_started_catches_up(tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(1)
        async with (
            running(tmp_path / "c", "byzcast", 1, machines=machines, durability="sync") as cluster,
            connect(cluster.config) as client,
        ):
            await client.multicast("g1", b"a")
            await cluster.stop("g1.p2")
            for payload in (b"b", b"c", b"d"):
                await client.multicast("g1", payload)
            cluster.machines["g1.p2"] = again = Register()
            await cluster.start_and_wait("g1.p2")
            await client.multicast("g1", b"e")
            await eventually(lambda: again.text == b"abcde", "it has all")

    run(test)


def test_a_leader_that_lost_its_disk_is_taken_back_though_nothing_is_sent(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1, durability="sync") as cluster:
            async with connect(cluster.config) as client:
                await client.multicast("g1", b"a")
            leader = cluster.leader(1)
            await cluster.stop(leader)
            shutil.rmtree(cluster.config.data_folder(leader))
            replace_folder(cluster.config, leader)
            await cluster.start(leader)
            node = cluster.servers[leader].node
            await eventually(lambda: node.is_running and not node.process.is_silent, "it is taken back", 60)

    run(test)


def test_a_message_that_its_client_did_not_sign_is_not_delivered(tmp_path: Path) -> None:
    """A member takes a client's message, alters it, and hands it to the others."""

    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1, machines=registers(1)) as cluster:
            leader = cluster.servers[cluster.leader(1)].node
            honest = leader.process.on_message

            def on_message(sender: ProcessId, message: Wire, out: Any) -> None:
                if hasattr(message, "messages"):
                    altered = [msgspec.structs.replace(each, payload=b"altered") for each in message.messages]
                    message = msgspec.structs.replace(message, messages=tuple(altered))
                honest(sender, message, out)

            leader.process.on_message = on_message  # type: ignore[method-assign]
            async with connect(cluster.config) as client:
                assert await client.call("g1", b"mine", timeout=60) == {"g1": b"mine"}

    run(test)


def test_addresses_alone_are_not_enough(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster:
            with pytest.raises(UsageError, match=r"connect with the cluster\.toml"):
                async with connect(cluster.config.process[0].address):
                    raise AssertionError("it connected")

    run(test)


def test_a_client_uses_an_id_that_is_its_own(tmp_path: Path) -> None:
    """A ticket that was signed with another key does not prove the id."""

    async def test() -> None:
        async with running(tmp_path / "c", "byzcast", 1) as cluster, connect(cluster.config) as client:
            await client.multicast("g1", b"a")
            tickets = cluster.servers["g1.p0"].security.tickets
            stolen = next(iter(cluster.servers["g1.p0"].node.clients.channels))
            assert tickets.problem_with(stolen, "client", b"x" * 96) is not None

    run(test)


def test_members_that_answer_differently_are_asked_again() -> None:
    """The state changes while they answer: all tell the truth, and no two have said the same yet."""

    async def test() -> None:
        sheet = Sheet(1, (0, 1, 2, 3), 0, liars=1)
        sheet.add(b"", asyncio.get_running_loop().create_future())
        assert not sheet.hear(0, 0, b"1")
        assert not sheet.hear(0, 1, b"2")
        assert not sheet.is_at_odds(0)
        assert not sheet.hear(0, 2, b"3")
        assert sheet.is_at_odds(0)
        assert not sheet.hear(0, 9, b"1"), "no member of the group"
        assert sheet.hear(0, 3, b"1")
        assert sheet.answers[0].result() == b"1"

    run(test)
