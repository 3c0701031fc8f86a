"""What a client may have of a node: sessions, ids, followers, messages a second, and answers that it has not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from amcast.core import AppMessage, UsageError, message_id, pack
from amcast.net.client.async_client import connect
from amcast.net.client.observer import observe
from amcast.net.config import ClientLimits, ClusterConfig, Limits, load_config
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan
from amcast.net.node._accounts import Account, Accounts
from amcast.net.node._refusals import Cause
from amcast.net.security.access import Access, add_token
from amcast.net.wire.control import Attach, Busy, Delivered, Follow, StatusQuery, to_client_decoder
from amcast.protocols import Reply, Start

from .clusters import Cluster, eventually, run, running
from .test_net_frames import Caller, client_hello, framed, welcome

CHUNK = 256 << 10


# -- accounts


def test_ids_are_had_as_fast_as_sessions_and_then_slowly() -> None:
    account = Account("a", ClientLimits(sessions=3))
    assert [account.take_id(1_000_000) for _ in range(5)] == [True, True, True, False, False]
    assert not account.take_id(1_099_000)
    assert account.take_id(1_100_000)
    assert not account.take_id(1_100_000)
    assert [account.take_id(60_000_000) for _ in range(4)] == [True, True, True, False]


def test_a_rate_holds_on_average_and_allows_a_burst() -> None:
    account = Account("a", ClientLimits(messages_per_second=1_000))
    assert account.take_messages(1_000, 5_000_000) == 0, "nothing came before"
    assert account.take_messages(500, 5_000_000) == 500_000
    assert account.take_messages(1, 5_500_000) == 1_000
    assert account.take_messages(1_000, 90_000_000) == 0
    assert account.take_messages(1, 89_000_000) == 1_001_000, "a clock that goes back lets nobody in"


def test_an_account_outlives_its_connections_and_takes_the_newest_limits() -> None:
    accounts = Accounts()
    first = accounts.open("token a", ClientLimits(sessions=1))
    assert first.take_id(0)
    accounts.close(first)
    again = accounts.open("token a", ClientLimits(sessions=1, followers=5))
    assert again is first
    assert not again.take_id(0), "who comes again has what it had"
    assert again.limits.followers == 5
    for number in range(20_000):
        accounts.close(accounts.open(f"address {number}", ClientLimits()))
    assert len(accounts._accounts) <= 10_000
    assert accounts.open("token a", ClientLimits()) is first, "it is connected"


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ("3", "limits must be a table"),
        ("{ sesions = 3 }", "unknown field 'sesions': there are sessions, followers"),
        ('{ sessions = "3" }', "sessions must be a number"),
        ("{ sessions = -1 }", "sessions must be a number"),
        ("{ sessions = true }", "sessions must be a number"),
    ],
)
def test_limits_of_a_token_are_checked(limits: str, problem: str) -> None:
    entry = f'[[token]]\nname = "a"\nsha256 = "{"0" * 64}"\nlimits = {limits}\n'
    with pytest.raises(UsageError, match=problem):
        Access.parse(entry.encode(), "tokens")


def test_limits_of_clients_are_read_and_written(tmp_path: Path) -> None:
    limits = Limits(connections=9, client=ClientLimits(sessions=3))
    config = plan(tmp_path / "c", "fastcast", limits=limits)
    LocalCluster.create(tmp_path / "c", config)
    assert load_config(tmp_path / "c" / "cluster.toml").limits == limits


# -- tokens


def config_with_token(folder: Path, send: list[str], follow: list[str], limits: str) -> tuple[ClusterConfig, str]:
    folder.mkdir()
    token = add_token(folder / "tokens.toml", "alice", send, follow)
    with (folder / "tokens.toml").open("a") as file:
        file.write(f"limits = {limits}\n")
    config = plan(folder, "fastcast", 1, durability=Durability.MEMORY, tls=True)
    return msgspec.structs.replace(config, tokens="tokens.toml"), token


@asynccontextmanager
async def running_with_token(
    folder: Path, send: list[str], follow: list[str], limits: str = "{}"
) -> AsyncIterator[tuple[Cluster, str]]:
    config, token = config_with_token(folder, send, follow, limits)
    LocalCluster.create(folder, config)
    cluster = Cluster(config, {})
    try:
        await cluster.start()
        await eventually(cluster.has_leaders, "leaders")
        yield cluster, token
    finally:
        await cluster.stop()


def test_who_may_send_nothing_gets_no_id(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_with_token(tmp_path / "c", [], ["*"]) as (cluster, token):
            with pytest.raises(UsageError, match="may send to no group, so it gets no id"):
                async with connect(cluster.config, token=token):
                    pass
            assert not any(server.client_ids._taken for server in cluster.servers.values())
            async with observe(cluster.config, token=token) as observer:
                assert (await observer.status(0)).refused == {"hello": 1}

    run(test)


def test_a_client_has_as_many_sessions_as_its_token_says(tmp_path: Path) -> None:
    async def test() -> None:
        folder = tmp_path / "c"
        async with (
            running_with_token(folder, ["*"], ["*"], "{ sessions = 2 }") as (cluster, token),
            Caller.dial(cluster, tls=True) as first,
            Caller.dial(cluster, tls=True) as second,
            Caller.dial(cluster, tls=True) as third,
        ):
            node = cluster.servers["g1.p0"].node
            mine = await welcome(first, client_hello(token=token, name="client"))
            await welcome(second, client_hello(token=token, name="client"))
            third.say(framed(client_hello(token=token, name="client")))
            assert "as many as it may: try another process" in await third.reason()
            second.say(framed(Attach(5, b"")))  # the ticket is looked at first
            assert "does not prove" in await second.reason()
            await eventually(lambda: len(node.clients.channels) == 1, "the second has left")
            async with Caller.dial(cluster, tls=True) as fourth:
                await welcome(fourth, client_hello(token=token, name="client", client=mine.client, ticket=mine.ticket))
                assert await first.hear() == b"", "the same session on another connection"
            await eventually(lambda: not node.clients.channels, "all have left")
            account = cluster.servers["g1.p0"].accounts._accounts["token alice"]
            assert (account.sessions, account.connections) == (0, 0)

    run(test)


def test_ids_run_out_for_one_client_and_not_for_all(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(client=ClientLimits(sessions=2))
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster:
            reasons = set()
            for _ in range(20):
                async with Caller.dial(cluster) as caller:
                    caller.say(framed(client_hello()))
                    reasons.add(b"too many ids were given to this client" in await caller.hear())
                node = cluster.servers["g1.p0"].node
                await eventually(lambda node=node: not node.clients.channels, "it has left")
            assert reasons == {False, True}

    run(test)


def test_a_client_that_sends_too_fast_is_read_later(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(client=ClientLimits(messages_per_second=5))
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster:
            server = cluster.servers[cluster.leader(1)]
            async with Caller.dial(cluster, server.node.name) as caller:
                me = (await welcome(caller, client_hello())).client
                messages = [AppMessage(message_id(me, seq), (1,), b"x", 0) for seq in range(8)]
                caller.say(framed(Start(tuple(messages))))
                (connection,) = [each for each in server.connections if each.is_client]
                await eventually(lambda: not connection._is_reading, "it has to wait")
                replies = to_client_decoder.decode(await caller.hear())
                assert replies == Reply((1,), tuple(message.id for message in messages)), "what came was taken"
                await eventually(lambda: connection._is_reading, "it may go on")
                caller.say(framed(StatusQuery()))
                assert b"g1.p" in await caller.hear()

    run(test)


# -- messages at members that do not lead


def test_what_followers_pass_on_is_bounded(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(forwarded_bytes=100_000)
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster:
            leader = cluster.leader(1)
            name = next(each for each in cluster.servers if each != leader)
            node = cluster.servers[name].node
            await cluster.stop(*[each for each in cluster.servers if each != name])  # nothing is delivered any more
            async with Caller.dial(cluster, name) as caller:
                me = (await welcome(caller, client_hello())).client
                busy: set[int] = set()
                for seq in range(20):
                    caller.say(framed(Start((AppMessage(message_id(me, seq), (1,), bytes(10_000), 0),))))
                while len(busy) < 10:
                    answer = to_client_decoder.decode(await caller.hear())
                    assert isinstance(answer, Busy)
                    busy.update(answer.ids)
                assert busy == {message_id(me, seq) for seq in range(10, 20)}
                assert node.admission.forwarded.bytes == 100_000

    run(test)


# -- followers


async def fill(cluster: Cluster, count: int, size: int) -> None:
    async with connect(cluster.config) as client:
        await asyncio.gather(*[client.multicast(["g1"], bytes(size)) for _ in range(count)])


def test_followers_have_a_limit_in_all_and_for_each_client(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(followers=3, client=ClientLimits(followers=2))
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster, AsyncExitStack() as stack:
            server = cluster.servers["g1.p0"]
            callers = [await stack.enter_async_context(Caller.dial(cluster)) for _ in range(3)]
            for caller in callers:
                await welcome(caller, client_hello(kind="observer"))
                for _ in range(3):  # once more on the same connection is no other follower
                    caller.say(framed(Follow(1, 0)))
            assert "too many follow already" in await callers[2].reason()
            (account,) = server.accounts._accounts.values()
            assert (len(server.followers), account.followers) == (2, 2)
            account.limits = ClientLimits()
            for _ in range(2):
                callers.append(await stack.enter_async_context(Caller.dial(cluster)))
                await welcome(callers[-1], client_hello(kind="observer"))
                callers[-1].say(framed(Follow(1, 0)))
            assert "too many follow already" in await callers[-1].reason()
            await stack.aclose()
            await eventually(lambda: not len(server.followers), "all have left")
            assert account.followers == 0

    run(test)


def test_a_follower_that_does_not_read_costs_little_and_is_cut_off(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(slow_ms=400)
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster:
            await fill(cluster, 150, 100_000)
            server = cluster.servers["g1.p0"]
            async with Caller.dial(cluster) as caller:
                await welcome(caller, client_hello(kind="observer"))
                caller.say(framed(Follow(1, 0)))
                await eventually(lambda: len(server.followers) == 1, "it follows")
                (connection,) = [each for each in server.connections if each.is_client]
                most = 0
                while connection._transport is not None and not server.refusals.counts[Cause.SLOW]:
                    most = max(most, connection.waiting_bytes)
                    await asyncio.sleep(0.01)
                assert CHUNK // 2 < most < 2.5 * CHUNK
                await eventually(lambda: not len(server.followers), "it is gone")
                assert server.refusals.counts[Cause.SLOW] == 1

    run(test)


def test_a_slow_follower_goes_on_where_it_was(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(slow_ms=100)
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster:
            await fill(cluster, 150, 100_000)
            servers = list(cluster.servers.values())
            async with observe(cluster.config) as observer:
                positions = []
                async for delivery in observer.deliveries("g1"):
                    positions.append(delivery.position)
                    if len(positions) == 10:
                        await eventually(lambda: any(s.refusals.counts[Cause.SLOW] for s in servers), "it is cut off")
                    if len(positions) == 150:
                        break
            assert positions == list(range(150))

    run(test)


def test_those_for_whom_most_waits_are_cut_off_when_all_together_are_too_many(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(slow_ms=1_000_000, clients_bytes=3 * CHUNK)
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster, AsyncExitStack() as stack:
            await fill(cluster, 150, 100_000)
            server = cluster.servers["g1.p0"]
            for _ in range(4):
                caller = await stack.enter_async_context(Caller.dial(cluster))
                await welcome(caller, client_hello(kind="observer"))
                caller.say(framed(Follow(1, 0)))
            readers = [each for each in server.connections if each.is_client]
            await eventually(lambda: all(each.waiting_bytes > CHUNK for each in readers), "much waits for each")
            server._slow_readers.look()
            left = [each for each in readers if not each._transport.is_closing()]
            assert server.refusals.counts[Cause.SLOW] == 4 - len(left) > 0
            assert sum(each.waiting_bytes for each in left) <= 3 * CHUNK

    run(test)


def test_no_position_is_lost_however_large_the_batches_are(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(client_bytes=100_000)
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster:
            leader = cluster.leader(1)
            count = 40
            async with Caller.dial(cluster, leader) as caller:
                me = (await welcome(caller, client_hello())).client
                for batch in range(5):
                    numbers = range(batch * count, (batch + 1) * count)
                    parts = [AppMessage(message_id(me, seq), (1,), bytes(100_000), 0) for seq in numbers]
                    caller.say(framed(Start((pack(parts),))))
                await eventually(lambda: cluster.servers[leader].node.deliveries.next == 5 * count, "all delivered")
            async with Caller.dial(cluster, leader) as caller:
                await welcome(caller, client_hello(kind="observer"))
                caller.say(framed(Follow(1, 0)))
                seen: list[int] = []
                while len(seen) < 5 * count:
                    data = await caller.hear()
                    assert len(data) < 2 * CHUNK, "a batch of 4 MB comes in chunks"
                    chunk = to_client_decoder.decode(data)
                    assert isinstance(chunk, Delivered)
                    assert chunk.first == len(seen)
                    seen += [message.id for message, _ in chunk.messages]
            assert seen == [message_id(me, seq) for seq in range(5 * count)]

    run(test)
