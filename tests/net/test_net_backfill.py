"""Gaps of a delivery log are filled from the logs of the other members, and followers do not notice them."""

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

from amcast.core import AppMessage, StampedMessage
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.disk import files
from amcast.net.disk.deliveries import DeliveryLog
from amcast.net.disk.records import CorruptLogError, Durability
from amcast.net.node import _backfill, _reader_service
from amcast.net.node._backfill import Backfill, DiskFailedError
from amcast.net.node._members import Address
from amcast.net.node._reader_service import ReaderService
from amcast.net.node._status import status_of
from amcast.net.wire.control import Gone, StoredDeliveries, to_client_decoder

from .clusters import Cluster, eventually, run, running
from .logs import PowerLoss, copy_of
from .test_net_deliveries import batch_at, deliver, message_at, open_log, read_all

# A replica that was away for a few messages gets a state instead of them.
FORGETFUL: dict[str, Any] = {
    "groups": 1,
    "durability": Durability.SYNC,
    "options": {"paxos": {"tick_us": 20_000, "snapshot_every": 5, "lag_max": 5}, "history_max": 2},
}


async def send(client: AsyncClient, start: int, stop: int) -> None:
    for number in range(start, stop):
        await client.multicast(["g1"], b"%d" % number)


async def restart_in_turn(cluster: Cluster, client: AsyncClient) -> int:
    """Each replica is away for thirty messages. Returns how many messages there are."""
    await send(client, 0, 20)
    sent = 20
    for name in list(cluster.servers):
        await cluster.stop(name)
        await send(client, sent, sent + 30)
        sent += 30
        await cluster.start(name)
        log = cluster.servers[name].node.deliveries
        await eventually(lambda log=log, sent=sent: log.next == sent, f"{name} is back")
    return sent


def test_a_rolling_restart_leaves_every_log_whole(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", **FORGETFUL) as cluster, connect(cluster.config) as client:
            sent = await restart_in_turn(cluster, client)
            for server in cluster.servers.values():
                log = server.node.deliveries
                await eventually(lambda log=log: log.gaps() == [], "all gaps are filled")
                assert [message.payload for message, _ in read_all(log)] == [b"%d" % n for n in range(sent)]
            await cluster.stop()
            for name in ("g1.p0", "g1.p1", "g1.p2"):
                log = DeliveryLog.open(cluster.config.data_folder(name) / "deliveries", Durability.SYNC)
                assert (log.first, log.next, log.gaps()) == (0, sent, [])
                log.close()

    run(test)


def test_a_follower_goes_on_at_a_member_without_the_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Backfill) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Backfill, "run", never)

    async def test() -> None:
        async with running(tmp_path / "c", **FORGETFUL) as cluster, connect(cluster.config) as client:
            sent = await restart_in_turn(cluster, client)
            for server in cluster.servers.values():
                assert server.node.deliveries.gaps()
                assert "replace none of their disks now" in str(status_of(server).problem)
            seen = []
            async for delivery in client.deliveries("g1"):
                seen.append((delivery.position, delivery.payload))
                if len(seen) == sent:
                    break
            assert seen == [(n, b"%d" % n) for n in range(sent)]

    run(test)


def test_a_follower_goes_on_at_another_member_if_a_log_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(position: int, limit_bytes: int) -> None:
        raise CorruptLogError(tmp_path / "delivered-0.amc", "frame 1 is damaged")

    async def test() -> None:
        async with running(tmp_path / "c", groups=1, durability=Durability.SYNC) as cluster:
            first = cluster.servers["g1.p0"]  # the one that followers ask first
            async with connect(cluster.config) as client:
                await send(client, 0, 3)
                monkeypatch.setattr(first.node.deliveries, "read", damaged)
                stream = client.deliveries("g1")
                assert [(await anext(stream)).payload for _ in range(3)] == [b"0", b"1", b"2"]
                await stream.aclose()
            assert "run `amcast replace`" in str(status_of(first).problem)

    run(test)


# -- one log, and members that are only logs


class Answers:
    """As a node's: what it would say on a connection is the answer."""

    def __init__(self, log: DeliveryLog) -> None:
        self.node = self
        self.deliveries = log
        self._service = ReaderService(self, self)  # type: ignore[arg-type]
        self._said: Any = None

    def say(self, message: msgspec.Struct) -> None:
        self._said = message

    async def ask(self, question: msgspec.Struct, timeout: float) -> Any:
        self._service.on_frame(memoryview(msgspec.msgpack.encode(question)))
        return to_client_decoder.decode(msgspec.msgpack.encode(self._said))


class Says:
    """Answers the same to every question."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def ask(self, question: msgspec.Struct, timeout: float) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class FakeMembers:
    def __init__(self, *members: Any) -> None:
        self._members = members
        self.all = [Address(str(number), ("host", number)) for number in range(len(members))]

    @asynccontextmanager
    async def converse(self, member: Address) -> AsyncIterator[Any]:
        yield self._members[member.address[1]]


def backfill(log: DeliveryLog, *members: Any, has_batches: bool = False) -> Backfill:
    return Backfill(1, has_batches, log, FakeMembers(*members))  # type: ignore[arg-type]


async def fill_all(filling: Backfill) -> None:
    while (target := filling._target()) is not None:
        assert await filling._fill(target)


def log_of(folder: Path, start: int, stop: int, keep: int = 10_000_000) -> DeliveryLog:
    log = open_log(folder, keep, segment_bytes=500)
    log.skip_to(start)
    deliver(log, start, stop)
    log.flush()
    return log


def with_gap(folder: Path) -> DeliveryLog:
    log = log_of(folder, 0, 20)
    log.skip_to(100)
    deliver(log, 100, 110)
    return log


@pytest.mark.parametrize("piece_bytes", [1, 500, 1 << 20])
def test_each_member_gives_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(_backfill, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(_reader_service, "_CHUNK_BYTES", 100)

    async def test() -> None:
        log = with_gap(tmp_path / "a")
        others = [log_of(tmp_path / "b", 60, 130), log_of(tmp_path / "c", 0, 70)]
        filling = backfill(log, Says(ConnectionError()), *map(Answers, others))
        assert filling.lost_until(20) is None  # it will come
        await fill_all(filling)
        assert read_all(log) == [message_at(position) for position in range(110)]
        for each in (log, *others):
            each.close()
        log = open_log(tmp_path / "a")
        assert read_all(log) == [message_at(position) for position in range(110)]
        log.close()

    run(test)


def test_what_no_member_has_stays_missing(tmp_path: Path) -> None:
    async def test() -> None:
        log = with_gap(tmp_path / "a")
        others = [log_of(tmp_path / "b", 60, 130), log_of(tmp_path / "c", 50, 130)]
        unreachable = backfill(log, *map(Answers, others), Says(TimeoutError()))
        target = unreachable._target()
        assert target is not None
        assert not await unreachable._fill(target)  # the third one may have it
        assert unreachable.lost_until(20) is None
        assert unreachable.is_filling
        filling = backfill(log, *map(Answers, others))
        await fill_all(filling)
        assert log.gaps() == [(20, 50)]
        assert not filling.is_filling, "there is nothing more to be had"
        assert (filling.lost_until(20), filling.lost_until(49), filling.lost_until(50)) == (50, 50, None)
        for each in (log, *others):
            each.close()

    run(test)


def test_a_member_that_is_behind_may_have_it_later(tmp_path: Path) -> None:
    async def test() -> None:
        log, other = with_gap(tmp_path / "a"), log_of(tmp_path / "b", 0, 15)
        filling = backfill(log, Answers(other))
        target = filling._target()
        assert target is not None
        assert not await filling._fill(target)
        deliver(other, 15, 120)
        await fill_all(filling)
        assert log.gaps() == []
        log.close()
        other.close()

    run(test)


def test_a_group_of_one_gives_up_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        log = with_gap(tmp_path / "a")
        filling = backfill(log)
        await fill_all(filling)
        assert filling.lost_until(30) == 100
        log.close()

    run(test)


def test_only_what_the_retention_asks_for_is_fetched(tmp_path: Path) -> None:
    async def test() -> None:
        log, other = log_of(tmp_path / "a", 200, 210, keep=50), log_of(tmp_path / "b", 0, 210)
        await fill_all(backfill(log, Answers(other)))
        assert log.first == 160
        log.close()
        other.close()

    run(test)


def test_batches_are_kept_as_they_are(tmp_path: Path) -> None:
    async def test() -> None:
        logs = [DeliveryLog.open(tmp_path / name, Durability.SYNC, 28, has_batches=True) for name in "ab"]
        log, other = logs
        log.skip_to(40)
        for first in range(0, 40, 5):
            other.append(first, *batch_at(first, 5))
        await fill_all(backfill(log, Answers(other), has_batches=True))
        # Position 12 is the first that is wanted: the batch with it begins at 10.
        assert (log.kept_from, log.first) == (12, 10)
        assert log.read(10, 1 << 20) == other.read(10, 1 << 20)
        log.close()
        other.close()

    run(test)


def stored(first: int, *messages: StampedMessage) -> StoredDeliveries:
    return StoredDeliveries(first, messages)


@pytest.mark.parametrize(
    "answer",
    [
        stored(19, message_at(19), message_at(20)),  # begins before the gap
        stored(21, message_at(21)),
        stored(20, (AppMessage(1, (2, 3), b"for others"), 7)),
        stored(20, (AppMessage(1, (1,), b"", 0, 0), 7)),
        stored(20, batch_at(20, 5)),  # in a protocol without batches
        Gone(20),
        "something else",
        files.SyncFailedError(errno.EIO, "of its own disk"),
    ],
)
def test_a_wrong_answer_fills_nothing(tmp_path: Path, answer: Any) -> None:
    async def test() -> None:
        log = with_gap(tmp_path / "a")
        filling = backfill(log, Says(answer))
        target = filling._target()
        assert target is not None
        assert not await filling._fill(target)
        assert log.gaps() == [(20, 100)]
        assert filling.lost_until(20) is None
        log.close()

    run(test)


def test_a_batch_that_runs_over_the_end_of_a_gap_is_wrong(tmp_path: Path) -> None:
    async def test() -> None:
        log = with_gap(tmp_path / "a")
        filling = backfill(log, Says(stored(20, batch_at(20, 90))), has_batches=True)
        target = filling._target()
        assert target is not None
        assert not await filling._fill(target)
        assert log.gaps() == [(20, 100)]
        log.close()

    run(test)


def test_a_full_disk_is_waited_for_and_a_failing_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backfill, "_SPACE_S", 0)
    number = errno.ENOSPC

    def write_fill(first: int, deliveries: list[StampedMessage]) -> int:
        raise OSError(number, os.strerror(number))

    async def test() -> None:
        nonlocal number
        log, other = with_gap(tmp_path / "a"), log_of(tmp_path / "b", 0, 120)
        filling = backfill(log, Answers(other))
        target = filling._target()
        assert target is not None
        with monkeypatch.context() as patched:
            patched.setattr(log, "write_fill", write_fill)
            assert not await filling._fill(target)
            assert filling.problem is not None
            number = errno.EIO
            with pytest.raises(DiskFailedError, match="Input/output"):
                await filling._fill(target)
            with pytest.raises(OSError, match="Input/output"):  # for whoever runs the node, one like any
                await filling.run()
        await fill_all(filling)
        assert (log.gaps(), filling.problem) == ([], None)
        log.close()
        other.close()

    run(test)


def test_a_power_failure_while_gaps_are_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every sync: what was held stays, and each piece is there as a whole or not at all."""
    power = PowerLoss(monkeypatch, tmp_path / "a")
    monkeypatch.setattr(_backfill, "_PIECE_BYTES", 200)
    monkeypatch.setattr(_reader_service, "_CHUNK_BYTES", 100)
    images: list[Path] = []

    async def test() -> None:
        log, other = with_gap(tmp_path / "a"), log_of(tmp_path / "b", 0, 120)
        log.sync()
        power.on_sync = lambda: images.append(power.image(tmp_path / f"image {len(images)}"))
        await fill_all(backfill(log, Answers(other)))
        power.on_sync = lambda: None
        log.close()
        assert len(images) > 10
        for image in images:
            log = open_log(copy_of(image, tmp_path / "again"))
            for start, end in log.gaps():
                assert 20 <= start < end <= 100
            held = [position for position in range(110) if log.has(position)]
            assert {*range(20), *range(100, 110)} <= set(held)
            for position in held:
                assert log.read(position, 1) == [message_at(position)]
            await fill_all(backfill(log, Answers(other)))
            assert read_all(log) == [message_at(position) for position in range(110)]
            log.close()
        other.close()

    run(test)


def test_in_memory_a_gap_is_not_filled_and_an_application_takes_over_a_state_behind_it(tmp_path: Path) -> None:
    """What it held before the gap is kept for readers, and is no help to an application that has got there."""
    log = DeliveryLog.open(tmp_path, Durability.MEMORY)
    deliver(log, 0, 10)
    log.skip_to(20)
    deliver(log, 20, 30)
    filling = backfill(log)
    assert not filling.is_filling
    assert [filling.lost_until(position) for position in (9, 10, 19, 20)] == [None, 20, 20, None]
