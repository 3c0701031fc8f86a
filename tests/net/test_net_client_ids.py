"""Ids of clients: never given twice, whatever becomes of the disk, and taken only by those that multicast."""

from __future__ import annotations

import asyncio
import errno
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import pytest

from amcast.core import AppMessage, UsageError, message_id
from amcast.core.ids import CLIENT_ID_LIMIT, PROCESS_ID_LIMIT, SEQ_BITS
from amcast.net.client.async_client import connect
from amcast.net.client.load import run_load
from amcast.net.client.observer import observe
from amcast.net.config import ClusterConfig, Limits, ProcessConfig
from amcast.net.local import LocalCluster
from amcast.net.node import _client_ids
from amcast.net.node._client_ids import ClientIds
from amcast.net.security.access import Access
from amcast.net.system import System, use
from amcast.net.wire.control import Attach, Follow, StatusQuery
from amcast.protocols import Start, _client
from amcast.workload import Micro

from .clusters import Cluster, eventually, run, running
from .test_net_frames import Caller, client_hello, framed, welcome

SHARE = range(PROCESS_ID_LIMIT, CLIENT_ID_LIMIT // 3)
FILE = "client-ids"


class Chance(System):
    """A system with dice of its own."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def random_bits(self, count: int) -> int:
        return self._rng.getrandbits(count)


# -- the ids of one process


@pytest.mark.parametrize("seed", range(200))
def test_ids_never_repeat_when_the_counter_is_lost_restored_or_damaged(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    given: list[int] = []
    copies: list[bytes] = []
    with use(Chance(seed)):
        for _ in range(10):
            ids = ClientIds(tmp_path, SHARE)
            for _ in range(rng.choice((0, 1, 5, 300))):
                id_ = ids.next()
                assert id_ is not None
                given.append(id_)
            file = tmp_path / FILE
            if file.exists() and file.stat().st_size:
                copies.append(file.read_bytes())
            match rng.choice(("stop", "lose", "restore", "damage", "empty")):
                case "lose":
                    file.unlink(missing_ok=True)
                case "restore" if copies:
                    file.write_bytes(rng.choice(copies))
                case "damage" if copies:
                    content = bytearray(rng.choice(copies))
                    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                    file.write_bytes(content)
                case "empty":
                    file.write_bytes(b"")
    assert len(set(given)) == len(given)
    assert all(id_ in SHARE for id_ in given)


def test_an_id_is_durable_before_it_is_given_out(tmp_path: Path) -> None:
    done: list[str] = []

    class Watched(Chance):
        def fdatasync(self, fd: int) -> None:
            done.append("data")

        def rename(self, old: Path, new: Path) -> None:
            done.append("name")
            super().rename(old, new)

        def sync_folder(self, folder: Path) -> None:
            done.append("folder")

    with use(Watched(1)):
        ids = ClientIds(tmp_path, SHARE)
        assert done == []  # a start without clients writes nothing
        first = ids.next()
        assert done == ["data", "name", "folder"]
        assert first is not None
        for expected in range(first + 1, first + _client_ids._BLOCK):
            assert ids.next() == expected
        assert len(done) == 3
        assert ids.next() == first + _client_ids._BLOCK
        assert len(done) == 6


def test_no_id_is_given_while_the_disk_takes_no_counter(tmp_path: Path) -> None:
    class Full(Chance):
        is_full = True

        def fdatasync(self, fd: int) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")

    with use(full := Full(1)):
        ids = ClientIds(tmp_path, SHARE)
        assert ids.next() is None
        assert not (tmp_path / FILE).exists()
        full.is_full = False
        assert ids.next() in SHARE


def test_a_share_is_used_up_to_its_last_block_and_stays_used_up(tmp_path: Path) -> None:
    share = range(1 << 24, (1 << 24) + 40 * _client_ids._BLOCK + 7)
    given: list[int] = []
    for seed in range(50):
        with use(Chance(seed)):
            ids = ClientIds(tmp_path, share)
            given += [id_ for _ in range(300) if (id_ := ids.next()) is not None]
    assert len(set(given)) == len(given)
    assert {(id_ - share.start) // _client_ids._BLOCK for id_ in given} == set(range(40))
    assert ClientIds(tmp_path, share).next() is None


def test_a_client_for_each_start_leaves_one_run_for_each_start(tmp_path: Path) -> None:
    for seed in range(30):
        with use(Chance(seed)):
            ids = ClientIds(tmp_path, SHARE)
            assert all(ids.next() is not None for _ in range(3 * _client_ids._BLOCK))
    assert len(ids._taken) == 30
    assert sum(stop - first for first, stop in ids._taken) == 30 * 3 * _client_ids._BLOCK


def test_a_damaged_counter_is_a_warning_without_advice_to_delete_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text("12")
    assert ClientIds(tmp_path, SHARE).next() in SHARE
    assert "it is damaged: client ids begin at a new random place" in caplog.text
    assert "remove" not in caplog.text


@pytest.mark.parametrize("count", [1, 3, 6, 1_023])
def test_the_processes_of_a_cluster_share_all_ids_evenly(count: int) -> None:
    processes = tuple(ProcessConfig(f"g{number + 1}.p0", f"h:{number + 1}") for number in range(count))
    config = ClusterConfig(cluster="c", protocol="fastcast", process=processes)
    shares = [config.client_ids(process) for process in config.ids().values()]
    assert shares[0].start == PROCESS_ID_LIMIT
    assert all(one.stop == other.start for one, other in pairwise(shares))
    assert CLIENT_ID_LIMIT - count < shares[-1].stop <= CLIENT_ID_LIMIT
    assert len(shares[0]) // _client_ids._BLOCK > 500_000  # so many starts use it up, at least


# -- who takes one


def ids_given(cluster: Cluster) -> list[int]:
    """How many ids each node has given out."""
    all_ids = [server.client_ids for server in cluster.servers.values()]
    return [sum(stop - first for first, stop in ids._taken) - (ids._stop - ids._next) for ids in all_ids]


def test_status_and_followers_take_no_id(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            async with connect(cluster.config) as client:
                await client.multicast(["g1"], b"one")
                before = ids_given(cluster)
                assert sum(before) == 1
                assert (await anext(client.deliveries("g1"))).payload == b"one"
                assert (await client.status(0)).clients == 1  # the one that multicast; nobody else counts
            async with observe(cluster.config) as observer:
                assert observer.groups == ["g1"]
                assert (await anext(observer.deliveries("g1"))).payload == b"one"
                assert (await observer.status(1)).name == "g1.p1"
            statuses = await LocalCluster(tmp_path / "c").statuses()
            assert all(status is not None for status in statuses.values())
            assert ids_given(cluster) == before
            nodes = list(cluster.servers.values())
            await eventually(lambda: not any(each.is_client for node in nodes for each in node.connections), "all left")

    run(test)


@pytest.mark.parametrize(
    "request_",
    [Start((AppMessage(message_id(1 << 24, 0), (1,), b""),)), Attach(1 << 24, b""), Follow(2, 0), Follow(1, -1)],
)
def test_an_observer_may_only_ask_and_follow(request_: msgspec.Struct, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster, Caller.dial(cluster) as caller:
            answer = await welcome(caller, client_hello(kind="observer"))
            assert (answer.client, answer.ticket) == (0, b"")
            caller.say(framed(request_))
            assert await caller.reason()
            assert sum(ids_given(cluster)) == 0

    run(test)


def test_an_observer_is_answered_when_there_is_no_room_for_clients(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1, limits=Limits(clients=1)) as cluster,
            connect(cluster.config) as client,
            Caller.dial(cluster) as caller,
        ):
            await client.multicast(["g1"], b"one")
            await welcome(caller, client_hello(kind="observer"))
            caller.say(framed(StatusQuery()))
            assert b"g1.p0" in await caller.hear()

    run(test)


# -- a process that can't give ids


def give_none(cluster: Cluster, *names: str) -> None:
    for name in names:
        ids = cluster.servers[name].client_ids
        ids._share, ids._next = range(0), ids._stop


def test_a_client_gets_its_id_from_a_process_that_has_some(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            give_none(cluster, "g1.p0", "g1.p1")
            one = [entry.address for entry in cluster.config.process if entry.id == "g1.p0"]
            for where in (cluster.config, one):  # it need not know the others before
                async with connect(where) as client:
                    id_ = await client.multicast(["g1"], b"one")
                    assert id_ >> SEQ_BITS in cluster.config.client_ids(2)
            give_none(cluster, "g1.p2")
            with pytest.raises(
                UsageError, match=r"no process of the cluster takes this client: .*g1\.p0 can't give out"
            ):
                async with connect(cluster.config):
                    pass

    run(test)


def test_a_client_that_finds_a_process_full_goes_to_another(tmp_path: Path) -> None:
    async def test() -> None:
        limits = Limits(clients=1)
        async with running(tmp_path / "c", groups=1, limits=limits) as cluster, Caller.dial(cluster) as caller:
            await welcome(caller, client_hello())
            async with connect(cluster.config) as client:
                assert client._open._ids[0] in cluster.config.client_ids(1)

    run(test)


def test_a_refusal_for_good_ends_the_attempt_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            cluster.servers["g1.p0"].security.access = Access.parse(b"", "no tokens")
            with pytest.raises(UsageError, match="refuses this client: this token is not known here"):
                async with connect(cluster.config):
                    pass
            assert [server.refusals.total for server in cluster.servers.values()] == [1, 0, 0]

    run(test)


# -- sequence numbers that run out


@pytest.fixture
def few_numbers(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(_client, "ID_MESSAGES", 40)
    return 40


@pytest.mark.parametrize("protocol", ["fastcast", "multipaxos", "oam", "sequencer"])
@pytest.mark.parametrize("at_once", [1, 4])
def test_a_client_goes_on_under_new_ids_and_nobody_notices(
    protocol: str, at_once: int, few_numbers: int, tmp_path: Path
) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", protocol, groups=2) as cluster, connect(cluster.config) as client:
            payloads = [b"%d" % number for number in range(5 * few_numbers)]
            ids: list[int] = []

            async def send(own: list[bytes]) -> None:
                for payload in own:
                    ids.append(await client.multicast(["g1", "g2"], payload))

            await asyncio.gather(*[send(payloads[first::at_once]) for first in range(at_once)])
            assert len({id_ >> SEQ_BITS for id_ in ids}) >= 5
            found = []
            async for delivery in client.deliveries("g2"):
                found.append(delivery.payload)
                if len(found) == len(payloads):
                    break
            assert sorted(found) == sorted(payloads)
            if at_once == 1:
                assert found == payloads
            leader = cluster.servers[cluster.leader(1)].node
            await eventually(lambda: len(leader.clients.channels) <= 2, "ids that were used up are given up")
            assert len(client._open._ids) <= 2

    run(test)


def test_without_a_new_id_new_messages_are_refused_and_old_ones_go_on(
    few_numbers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amcast.net.client.driver._ASK_AGAIN_S", 0.01)

    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster, connect(cluster.config) as client:
            await client.multicast(["g1"], b"first")
            give_none(cluster, *cluster.servers)
            futures = [client.submit(["g1"], b"%d" % number)[1] for number in range(few_numbers - 1)]
            await asyncio.gather(*futures)
            await eventually(lambda: "can't give out" in client._process.no_id, "the reason is known")
            with pytest.raises(UsageError, match=r"used up the 40 numbers of its id.*can't give out client ids"):
                client.submit(["g1"], b"one too many")
            for server in cluster.servers.values():
                server.client_ids._share = SHARE
            await eventually(lambda: client._process._spare_id is not None, "it gets one as soon as there is one")
            await client.multicast(["g1"], b"again")

    run(test)


def test_a_load_of_more_messages_than_an_id_has_numbers(few_numbers: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=2) as cluster:
            workload = Micro(dst_min=2)
            settings = {"clients": 2, "outstanding": 3, "workload": workload}
            result = await run_load(cluster.config, messages=10 * few_numbers, **settings)  # type: ignore[arg-type]
            assert result.messages == 10 * few_numbers
            assert 0 < result.latency_us["p50"] < result.latency_us["max"] < 60e6

    run(test)


def test_a_load_without_a_new_id_ends_with_the_reason(few_numbers: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            give_none(cluster, *cluster.servers)
            ids = cluster.servers["g1.p0"].client_ids
            ids._next, ids._stop = SHARE.start, SHARE.start + 1  # one is left there
            with pytest.raises(UsageError, match="used up the 40 numbers of its id"):
                await run_load(cluster.config, messages=400, clients=1, outstanding=3, workload=Micro(dst_max=1))

    run(test)
