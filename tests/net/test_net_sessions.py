"""Many senders on the connections of one program: each is itself, and none is in the way of another."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from amcast.core import AppMessage, encode, message_id
from amcast.core.ids import SEQ_BITS
from amcast.net.client import async_client
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.client.load import run_load
from amcast.net.client.trunk import Credentials, Trunk, _merge
from amcast.net.config import ClientLimits, Limits
from amcast.net.node._client_service import ClientService
from amcast.net.node.connection import Connection
from amcast.net.wire.control import Attach, Busy, Detach
from amcast.protocols import ClientConfig, Reply, Start
from amcast.workload import Micro

from .clusters import Cluster, eventually, run, running
from .test_net_frames import Caller, client_hello, framed, welcome

_answers: msgspec.msgpack.Decoder[Reply | Busy] = msgspec.msgpack.Decoder(Reply | Busy)


def connections_of_clients(cluster: Cluster, name: str) -> list[Connection]:
    return [each for each in cluster.servers[name].connections if each.client is not None]


def clients_at(cluster: Cluster, name: str) -> int:
    return len(cluster.servers[name].node.clients.channels)


async def delivered(client: AsyncClient, group: str, count: int) -> list[AppMessage]:
    found: list[AppMessage] = []
    async for delivery in client.deliveries(group):
        found.append(delivery.message)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("protocol", ["fastcast", "multipaxos", "oam", "sequencer"])
def test_sessions_share_connections_and_each_is_a_sender_of_its_own(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", protocol, groups=2) as cluster, connect(cluster.config) as client:
            async with client.session() as second, client.session() as third:
                senders = [client, second, third]
                ids = await asyncio.gather(
                    *[each.multicast(["g1", "g2"], b"%d" % number) for each in senders for number in range(50)]
                )
                assert len({id_ >> SEQ_BITS for id_ in ids}) == 3
                assert [id_ & ((1 << SEQ_BITS) - 1) for id_ in ids] == [*range(50)] * 3
                leader = cluster.leader(1)
                assert len(connections_of_clients(cluster, leader)) == 1
                assert clients_at(cluster, leader) == 3
                messages = await delivered(client, "g1", 150)
            assert sorted(message.id for message in messages) == sorted(ids)
            await eventually(lambda: clients_at(cluster, cluster.leader(1)) == 1, "those that left are forgotten")
            await client.multicast(["g1"], b"after")

    run(test)


def test_the_first_session_may_leave_before_the_others(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            client = connect(cluster.config)
            await client.__aenter__()
            async with client.session() as other:
                await other.multicast(["g1"], b"one")
                await client.__aexit__(None, None, None)
                await other.multicast(["g1"], b"two")
                leader = cluster.leader(1)
                (connection,) = connections_of_clients(cluster, leader)
                connection.close()  # it comes again without the one that left
                await other.multicast(["g1"], b"three")
                assert [message.payload for message in await delivered(other, "g1", 3)] == [b"one", b"two", b"three"]
            await eventually(lambda: not connections_of_clients(cluster, leader), "the last one closes the connections")

    run(test)


def test_all_sessions_go_on_after_a_connection_breaks_or_a_leader_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1) as cluster,
            connect(cluster.config) as client,
            client.session() as second,
            client.session() as third,
        ):
            senders = [client, second, third]
            await asyncio.gather(*[each.multicast(["g1"], b"first") for each in senders])
            for connection in connections_of_clients(cluster, cluster.leader(1)):
                connection.close()
            await asyncio.gather(*[each.multicast(["g1"], b"second") for each in senders])
            await cluster.stop(cluster.leader(1))
            await asyncio.gather(*[each.multicast(["g1"], b"third") for each in senders])
            messages = await delivered(client, "g1", 9)
            assert sorted(message.payload for message in messages) == [b"first"] * 3 + [b"second"] * 3 + [b"third"] * 3
            assert len({message.id for message in messages}) == 9

    run(test)


def test_a_connection_speaks_only_for_ids_that_it_has_proved(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            leader = cluster.leader(1)
            async with Caller.dial(cluster, leader) as other, Caller.dial(cluster, leader) as caller:
                stranger = await welcome(other, client_hello(name="other"))
                await welcome(caller, client_hello())
                caller.say(framed(Attach(stranger.client, stranger.ticket)))  # it was given to another name
                assert await caller.reason() == "the ticket does not prove this client id"
            async with Caller.dial(cluster, leader) as caller:
                me = await welcome(caller, client_hello())
                message = AppMessage(message_id(me.client + 1, 0), (1,), b"", 0)
                caller.say(framed(Start((message,))))
                assert await caller.reason() == "a message carries another sender's id"

    run(test)


def test_what_was_said_before_a_session_left_may_come_after(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            leader = cluster.leader(1)
            async with Caller.dial(cluster, leader) as first, Caller.dial(cluster, leader) as caller:
                gone = await welcome(first, client_hello())
                stays = await welcome(caller, client_hello())
                caller.say(framed(Attach(gone.client, gone.ticket)))
                caller.say(framed(Detach(gone.client)))
                late = AppMessage(message_id(gone.client, 0), (1,), b"late", 0)
                own = AppMessage(message_id(stays.client, 0), (1,), b"own", 0)
                caller.say(framed(Start((late, own))))
                answer = _answers.decode(await caller.hear())
                assert answer == Reply((1,), (own.id,))
                assert cluster.servers[leader].node.admission.open_messages == 0
            async with connect(cluster.config) as client:
                assert [message.payload for message in await delivered(client, "g1", 2)] == [b"late", b"own"]

    run(test)


def test_what_a_session_leaves_behind_is_not_under_way_for_ever(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster, connect(cluster.config) as client:
            leader = cluster.leader(1)
            admission = cluster.servers[leader].node.admission
            await client.multicast(["g1"], b"before")
            await cluster.stop(*[name for name in cluster.servers if name != leader])  # nothing is delivered any more
            async with client.session() as other:
                other.submit(["g1"], b"left alone")
                await eventually(lambda: admission.open_messages == 1, "it is under way")
            await eventually(lambda: clients_at(cluster, leader) == 1, "its sender has left")
            assert (admission.open_messages, admission.open_bytes) == (0, 0)

    run(test)


def test_one_connection_answers_for_all_its_sessions_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1) as cluster,
            Caller.dial(cluster, cluster.leader(1)) as caller,
            Caller.dial(cluster) as other,
        ):
            mine, another = await welcome(caller, client_hello()), await welcome(other, client_hello())
            caller.say(framed(Attach(another.client, another.ticket)))
            ids = [message_id(client, 0) for client in (mine.client, another.client)]
            caller.say(framed(Start(tuple(AppMessage(id_, (1,), b"", 0) for id_ in ids))))
            assert _answers.decode(await caller.hear()) == Reply((1,), tuple(ids))

    run(test)


def test_too_many_sessions_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, limits=Limits(clients=2)) as cluster:
            async with Caller.dial(cluster) as first, Caller.dial(cluster) as caller:
                other = await welcome(first, client_hello())
                await welcome(caller, client_hello())
                caller.say(framed(Attach(other.client, other.ticket)))
                assert await caller.reason() == "too many clients are connected: try another process"
            await eventually(lambda: clients_at(cluster, "g1.p0") == 0, "they are forgotten")
            async with Caller.dial(cluster) as caller:
                await welcome(caller, client_hello())

    run(test)


def test_a_load_of_fewer_messages_than_clients_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            result = await run_load(
                cluster.config, clients=5, messages=3, outstanding=16, workload=Micro(1, 1, 8), timeout=20
            )
            assert result.messages == 3

    run(test)


def test_a_load_begins_when_all_processes_know_all_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here each session takes its processes a while, as it does where they look at proofs."""
    attach = ClientService._on_attach

    def attach_slowly(service: ClientService, message: Attach) -> None:
        attach(service, message)
        service._connection.throttle(30_000)

    monkeypatch.setattr(ClientService, "_on_attach", attach_slowly)

    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1) as cluster,
            connect(cluster.config) as client,
            client.session(),
            client.session(),
            client.session(),
        ):
            await client._trunk.connect(20)
            assert [clients_at(cluster, name) for name in cluster.servers] == [4] * len(cluster.servers)

    run(test)


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_client_that_sends_and_leaves_in_one_turn_connects_for_nobody(is_connected: bool, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            async with connect(cluster.config) as client:
                trunk = client._trunk
                if is_connected:
                    await client.multicast("g1", b"x")
                _, future = client.submit("g1", b"y")
                asked = asyncio.create_task(client.query("g1", b"z"))
                await asyncio.sleep(0)  # it asks, and the turn has not ended
            assert isinstance(future.exception(), ConnectionError)
            with pytest.raises(ConnectionError):
                await asked
            assert trunk._tasks == []
            assert trunk._buffers == {}

    run(test)


def test_what_sessions_start_in_one_turn_leaves_in_few_frames() -> None:
    starts = [Start((AppMessage(number << SEQ_BITS, (1,), bytes(400_000), 0),)) for number in range(5)]
    joined = _merge(starts)
    assert [len(start.messages) for start in joined] == [2, 2, 1]
    assert [message for start in joined for message in start.messages] == [start.messages[0] for start in starts]
    huge = [Start((AppMessage(number << SEQ_BITS, (1,), bytes(3_000_000), 0),)) for number in range(2)]
    assert _merge(huge) == huge
    assert len(encode(joined[0])) < 1 << 20


def test_busy_is_heard_by_the_session_that_sent_too_much() -> None:
    class Listener:
        def __init__(self) -> None:
            self.busy: list[int] = []

        def end_turn(self) -> None: ...
        def on_reply(self, sender: int, reply: Reply) -> None: ...
        def on_turned_away(self, group: int, ids: list[int]) -> None:
            self.busy += ids

    async def test() -> None:
        trunk = Trunk(Credentials())
        first, second = Listener(), Listener()
        trunk.share(7, first)
        trunk.share(8, second)
        ids = tuple(message_id(sender, seq) for sender, seq in ((7, 0), (8, 5), (7, 1), (9, 0)))
        trunk._on_answer(0, None, Busy(1, ids))  # type: ignore[arg-type]
        assert first.busy == [ids[0], ids[2]]
        assert second.busy == [ids[1]]

    run(test)


@pytest.mark.parametrize("protocol", ["fastcast", "basecast"])
def test_what_a_busy_group_turned_away_needs_no_timer(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent again as the group's answers make room: here the retry timer fires after an hour."""
    patient = ClientConfig(retry_us=3_600_000_000)
    monkeypatch.setattr(async_client, "client_config", lambda network: patient)

    async def test() -> None:
        limits = Limits(open_messages=4, client=ClientLimits(open_messages=4))
        async with (
            running(tmp_path / "c", protocol, groups=2, limits=limits) as cluster,
            connect(cluster.config) as client,
        ):
            for dst in (["g1"], ["g1", "g2"]):
                async with asyncio.timeout(60):
                    await asyncio.gather(*(client.submit(dst, b"x")[1] for _ in range(200)))
            assert sum(server.node.admission.turned_away for server in cluster.servers.values()) > 100

    run(test)
