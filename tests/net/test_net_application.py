"""Applications in nodes: one that fails stops its node, and each position is applied once whatever happens."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast.core import AppMessage, message_id, pack
from amcast.net import system
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.config import Limits
from amcast.net.disk.deliveries import DeliveryLog
from amcast.net.disk.records import Durability
from amcast.net.node import _keeper, _reader_service
from amcast.net.node._application_state import read_snapshot, write_snapshot
from amcast.net.node._backfill import Backfill
from amcast.net.node._keeper import Keeper
from amcast.net.node._members import Address, BadAnswerError
from amcast.net.node._reader_service import DumpedState
from amcast.net.node.application import ApplicationError, Host
from amcast.net.wire.control import AppStatePart

from .clusters import Cluster, eventually, run, running
from .logs import PowerLoss
from .test_net_cluster import Ledger, ledgers
from .test_net_deliveries import deliver, open_log

DURABLE: dict[str, Any] = {"groups": 1, "replicas": 1, "durability": Durability.SYNC}


class Failing(Ledger):
    """Raises at one position, as long as it is told to."""

    def __init__(self, position: int, error: Exception | None) -> None:
        super().__init__()
        self.position = position
        self.error = error

    def apply(self, message: AppMessage) -> None:
        if len(self.lines) == self.position and self.error is not None:
            raise self.error
        super().apply(message)


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


def test_an_application_that_has_raised_is_not_used_again(tmp_path: Path) -> None:
    """It may have changed half of its state: neither the next message nor a snapshot may meet that."""
    log = open_log(tmp_path)
    deliver(log, 0, 3)
    machine = Failing(1, TimeoutError("late"))
    host = Host(machine, log, tmp_path, snapshot_every=1)
    with pytest.raises(ApplicationError, match="apply a message at position 1: TimeoutError: late"):
        host.catch_up()
    machine.error = None
    for again in (host.catch_up, host.dump, host.save, lambda: host.take_over(9, b"[]")):
        with pytest.raises(ApplicationError, match="at position 1"):
            again()
    assert host.position == 1
    assert read_snapshot(tmp_path / "application.state") is None
    log.close()


def test_an_application_that_raises_inside_a_batch_tells_nobody(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    told: list[object] = []
    host = Host(Failing(1, TimeoutError("late")), log, tmp_path, snapshot_every=1)
    host.on_results = lambda messages, results: told.append(results)
    batch = pack([AppMessage(message_id(7, seq), (1,), b"%d" % seq) for seq in range(3)])
    with pytest.raises(ApplicationError, match="apply a message at position 1: TimeoutError: late"):
        host.deliver_batch(0, batch)
    with pytest.raises(ApplicationError, match="at position 1"):
        host.deliver_batch(1, batch)
    assert (host.position, told) == (1, [])
    log.close()


def test_a_batch_that_is_partly_known_is_applied_from_there(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    machine = Failing(9, TimeoutError("late"))
    host = Host(machine, log, tmp_path, snapshot_every=1)
    host.deliver_batch(0, AppMessage(message_id(7, 0), (1,), b"0"))
    host.deliver_batch(0, pack([AppMessage(message_id(7, seq), (1,), b"%d" % seq) for seq in range(3)]))
    assert (host.position, machine.lines) == (3, [b"0", b"1", b"2"])
    log.close()


def test_a_broken_connection_is_no_failure_of_ours(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, replicas=1) as cluster:
            server = cluster.servers["g1.p0"]
            server.on_loop_problem({"message": "broken", "exception": ConnectionError(), "transport": object()})
            server.on_loop_problem({"message": "too many files", "exception": OSError(), "socket": object()})
            server.on_loop_problem({"message": "a word of the loop"})
            abandoned = server.loop.create_future()
            server.on_loop_problem({"message": "never retrieved", "exception": OSError(), "future": abandoned})
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


# -- snapshots


class Restored(Ledger):
    """Knows how it came to its state: each position is applied once in a life."""

    def __init__(self) -> None:
        super().__init__()
        self.restored: list[int] = []  # how many lines there were

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self.restored.append(len(self.lines))


async def send(client: AsyncClient, start: int, stop: int) -> None:
    for number in range(start, stop):
        await client.multicast(["g1"], b"%d" % number)


def lines(stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(stop)]


async def restart(cluster: Cluster, name: str, is_orderly: bool) -> Restored:
    """With a machine that knows nothing. A node that fails saves nothing, as one that is killed."""
    if not is_orderly:
        cluster.servers[name].fail(RuntimeError("killed"))
        cluster.servers[name].failure.exception()
    await cluster.stop(name)
    machine = cluster.machines[name] = Restored()
    await cluster.start_and_wait(name)
    return machine


def test_a_stop_saves_the_state(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", machines={"g1.p0": Restored()}, **DURABLE) as cluster:
            async with connect(cluster.config) as client:
                await send(client, 0, 10)
                machine = await restart(cluster, "g1.p0", is_orderly=True)
                assert machine.restored == [10]
                await send(client, 10, 20)
            await eventually(lambda: machine.lines == lines(20), "it goes on without a gap or a repetition")

    run(test)


def test_nothing_is_dropped_that_came_since_the_last_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {**DURABLE, "limits": Limits(snapshot_messages=40, segment_bytes=100), "keep_messages": 5}
        machines: dict[str, Any] = {"g1.p0": Restored()}
        async with (
            running(tmp_path / "c", machines=machines, **settings) as cluster,
            connect(cluster.config) as client,
        ):
            await send(client, 0, 30)
            log = cluster.servers["g1.p0"].node.deliveries
            assert (log.first, log.keep_from) == (0, 0)
            machine = await restart(cluster, "g1.p0", is_orderly=False)
            await eventually(lambda: machine.lines == lines(30), "there is no snapshot: all is applied again")
            await send(client, 30, 45)
            log = cluster.servers["g1.p0"].node.deliveries
            await eventually(lambda: (log.keep_from or 0) >= 40, "a snapshot is durable")
            saved = log.keep_from
            await send(client, 45, 60)
            assert 30 < log.first <= saved  # what came before may go, what came since may not
            machine = await restart(cluster, "g1.p0", is_orderly=False)
            await eventually(lambda: machine.lines == lines(60), "it goes on from the snapshot")
            assert machine.restored == [saved]

    run(test)


DAMAGES = {
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "torn": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "flipped": lambda data: data[:12] + bytes([data[12] ^ 1]) + data[13:],
    "one byte": lambda data: b"a",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_recognised(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "application.state"
    assert read_snapshot(path) is None
    for state in (b"", b"the state"):
        write_snapshot(path, 7, state)
        assert read_snapshot(path) == (7, state)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert read_snapshot(path) is None


def test_a_power_failure_leaves_an_old_or_a_new_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    power = PowerLoss(monkeypatch, tmp_path / "node")
    (tmp_path / "node").mkdir()
    path = tmp_path / "node" / "application.state"
    write_snapshot(path, 1, b"old")
    images: list[Path] = []
    power.on_sync = lambda: images.append(power.image(tmp_path / f"image {len(images)}"))
    write_snapshot(path, 2, b"new")
    found = [read_snapshot(image / path.name) for image in images]
    assert found == [(1, b"old"), (2, b"new")]


@pytest.mark.parametrize("damage", ["empty", "flipped"])
def test_a_node_with_a_damaged_snapshot_applies_its_log_again(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", machines={"g1.p0": Restored()}, **DURABLE) as cluster:
            async with connect(cluster.config) as client:
                await send(client, 0, 10)
                await cluster.stop()
                path = cluster.config.data_folder("g1.p0") / "application.state"
                path.write_bytes(DAMAGES[damage](path.read_bytes()))
                machine = cluster.machines["g1.p0"] = Restored()
                await cluster.start()
                await eventually(lambda: machine.lines == lines(10), "the log is replayed")
            assert machine.restored == []
            assert "is damaged" in caplog.text

    run(test)


def test_a_node_with_a_damaged_snapshot_takes_over_the_state_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log does not begin at 0 any more, and nor do those of the others. The state comes in many parts."""
    monkeypatch.setattr(_reader_service, "_CHUNK_BYTES", 20)

    async def test() -> None:
        machines: dict[str, Any] = {f"g1.p{number}": Restored() for number in range(3)}
        limits = Limits(snapshot_messages=10, segment_bytes=100)
        settings = {"groups": 1, "durability": Durability.SYNC, "limits": limits, "keep_messages": 5}
        async with (
            running(tmp_path / "c", machines=machines, **settings) as cluster,
            connect(cluster.config) as client,
        ):
            await send(client, 0, 60)
            logs = [server.node.deliveries for server in cluster.servers.values()]
            await eventually(lambda: all((log.keep_from or 0) >= 50 for log in logs), "snapshots are durable")
            await send(client, 60, 70)
            await eventually(lambda: all(log.first > 0 for log in logs), "old messages are dropped")
            await cluster.stop("g1.p2")
            path = cluster.config.data_folder("g1.p2") / "application.state"
            path.write_bytes(b"")
            machine = cluster.machines["g1.p2"] = Restored()
            await cluster.start("g1.p2")
            await eventually(lambda: machine.lines == lines(70), "it has the state")
            assert len(machine.restored) == 1
            await send(client, 70, 80)
            await eventually(lambda: machine.lines == lines(80), "it goes on")
            await eventually(lambda: read_snapshot(path) is not None, "the state is saved")

    run(test)


class FullFor:
    """One file can't be written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.number: int | None = None
        real = system.System.pwrite

        def pwrite(calls: system.System, fd: int, data: bytes | memoryview, offset: int) -> int:
            if self.number is not None and name in os.readlink(f"/proc/self/fd/{fd}"):
                raise OSError(self.number, os.strerror(self.number))
            return real(calls, fd, data, offset)

        monkeypatch.setattr(system.System, "pwrite", pwrite)


def test_a_full_disk_under_a_snapshot_is_no_reason_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_keeper, "_SPACE_S", 0.01)
    disk = FullFor(monkeypatch, "application")

    async def test() -> None:
        settings = {**DURABLE, "limits": Limits(snapshot_messages=5)}
        async with running(tmp_path / "c", machines={"g1.p0": Restored()}, **settings) as cluster:
            server = cluster.servers["g1.p0"]
            path = cluster.config.data_folder("g1.p0") / "application.state"
            async with connect(cluster.config) as client:
                await send(client, 0, 6)
                await eventually(lambda: server.node.deliveries.keep_from >= 5, "a snapshot is durable")
                old = path.read_bytes()
                disk.number = errno.ENOSPC
                await send(client, 6, 20)
                await eventually(lambda: server.host.problem is not None, "it can't be saved")
                assert "full" in ((await client.status(0)).problem or "")
                assert path.read_bytes() == old
                assert server.node.deliveries.keep_from <= 6
                disk.number = None
                await eventually(lambda: server.node.deliveries.keep_from == 20, "it is saved later")
                assert server.host.problem is None
                disk.number = errno.EIO
                for number in range(20, 30):
                    client.submit(["g1"], b"%d" % number)
                with pytest.raises(OSError, match="Input/output error"):
                    await asyncio.shield(server.failure)

    run(test)


# -- a state in parts


class StateOnly:
    """A member that hands out its state, and breaks off after some parts if it is told to."""

    def __init__(self, host: Host) -> None:
        self._dumped = DumpedState(host)
        self.parts = 0
        self.breaks_after = 1 << 30
        self.spoils = False

    async def ask(self, question: Any, timeout: float) -> Any:
        if self.parts >= self.breaks_after:
            self.breaks_after = 1 << 30
            raise ConnectionError("broken")
        self.parts += 1
        answer = self._dumped.part(question)
        if self.spoils and isinstance(answer, AppStatePart):
            answer = msgspec.structs.replace(answer, data=bytes(len(answer.data)))
        return answer


class FakeMembers:
    def __init__(self, *members: StateOnly) -> None:
        self._members = members
        self.all = [Address(str(number), ("host", number)) for number in range(len(members))]

    @asynccontextmanager
    async def converse(self, member: Address) -> AsyncIterator[Any]:
        yield self._members[member.address[1]]


def host_at(folder: Path, position: int) -> Host:
    log = open_log(folder)
    deliver(log, 0, position)
    host = Host(Restored(), log, None, 1)
    while host.catch_up():
        pass
    assert host.position == position
    log.close()
    return host


def newcomer(folder: Path, members: Any) -> tuple[Keeper, Host, Restored]:
    log = DeliveryLog.open(folder, Durability.MEMORY)
    log.skip_to(50)
    machine = Restored()
    host = Host(machine, log, None, 1)
    return Keeper(host, log, Backfill(1, False, log, members), members), host, machine


def test_a_transfer_goes_on_where_it_broke_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reader_service, "_CHUNK_BYTES", 10)

    async def test() -> None:
        source = host_at(tmp_path / "a", 60)
        parts = -(-len(source.dump()[1]) // 10)
        member = StateOnly(source)
        member.breaks_after = parts // 2
        keeper, host, machine = newcomer(tmp_path / "b", FakeMembers(member))
        assert not await keeper._take_over(50)
        assert await keeper._take_over(50)
        assert (host.position, machine.restored) == (60, [60])
        assert member.parts == parts  # none was sent twice

    run(test)


def test_a_transfer_begins_again_at_another_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reader_service, "_CHUNK_BYTES", 10)

    async def test() -> None:
        behind, broken, good = (StateOnly(host_at(tmp_path / str(at), at)) for at in (40, 60, 70))
        broken.breaks_after = 3
        keeper, host, machine = newcomer(tmp_path / "b", FakeMembers(behind, broken, good))
        assert await keeper._take_over(50)
        assert (behind.parts, broken.parts) == (1, 3)
        assert (host.position, machine.restored) == (70, [70])

    run(test)


def test_a_state_that_is_not_what_was_sent_is_not_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reader_service, "_CHUNK_BYTES", 10)

    async def test() -> None:
        member = StateOnly(host_at(tmp_path / "a", 60))
        member.spoils = True
        keeper, _, machine = newcomer(tmp_path / "b", FakeMembers(member))
        with pytest.raises(BadAnswerError, match="checksum"):
            await keeper._fetch(keeper._members.all[0], 50)
        assert not await keeper._take_over(50)
        assert machine.restored == []
        member.spoils = False
        assert await keeper._take_over(50)

    run(test)


def test_a_state_over_the_limit_of_a_frame_is_transferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        machines = ledgers(groups=1)
        monkeypatch.setattr("amcast.net.wire.dialer._ANSWER_LIMIT", 3 << 20)
        paxos = {"tick_us": 20_000, "snapshot_every": 5, "lag_max": 5}
        settings = {"groups": 1, "options": {"paxos": paxos, "history_max": 2}}
        async with (
            running(tmp_path / "c", machines=dict(machines), **settings) as cluster,
            connect(cluster.config) as client,
        ):
            await cluster.stop("g1.p2")
            for number in range(20):
                await client.multicast(["g1"], b"%d" % number * (300 << 10))
            machines["g1.p2"].lines = []
            await cluster.start("g1.p2")
            await eventually(lambda: len(machines["g1.p2"].lines) == 20, "it has the state")
            assert machines["g1.p2"].lines == machines["g1.p0"].lines

    run(test)
