"""Gaps of a delivery log are filled with what f+1 members tell alike: a liar invents nothing, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast.core import StampedMessage
from amcast.net.disk.deliveries import DeliveryLog
from amcast.net.node import _backfill, _reader_service
from amcast.net.node._agreement import Missing, Telling, agreed, missing
from amcast.net.node._backfill import Backfill
from amcast.net.wire.control import DeliveriesQuery, Gone, StoredDeliveries

from .clusters import run
from .test_net_backfill import Answers, FakeMembers, Says, fill_all, log_of, with_gap
from .test_net_deliveries import message_at, read_all

TRUE = [message_at(position) for position in range(110)]


class Counted(Answers):
    """An honest member."""

    def __init__(self, log: DeliveryLog) -> None:
        super().__init__(log)
        self.asked = 0

    async def ask(self, question: msgspec.Struct, timeout: float) -> Any:
        self.asked += 1
        return await super().ask(question, timeout)


class Liar(Counted):
    """Changes each answer that it would give."""

    def __init__(self, log: DeliveryLog, lie: Callable[[int, Any], Any]) -> None:
        super().__init__(log)
        self._lie = lie

    async def ask(self, question: msgspec.Struct, timeout: float) -> Any:
        assert isinstance(question, DeliveriesQuery)
        return self._lie(question.position, await super().ask(question, timeout))


class Mute(Counted):
    async def ask(self, question: msgspec.Struct, timeout: float) -> Any:
        self.asked += 1
        await asyncio.Event().wait()


def altered(stamped: StampedMessage) -> StampedMessage:
    message, ts = stamped
    return msgspec.structs.replace(message, payload=b"a lie"), ts


def alters_60(position: int, answer: StoredDeliveries) -> StoredDeliveries:
    told = list(answer.messages)
    if answer.first <= 60 < answer.first + len(told):
        told[60 - answer.first] = altered(told[60 - answer.first])
    return StoredDeliveries(answer.first, tuple(told))


def alters_all(position: int, answer: StoredDeliveries) -> StoredDeliveries:
    return StoredDeliveries(answer.first, tuple(map(altered, answer.messages)))


def tells_one(position: int, answer: StoredDeliveries) -> Any:
    """The truth, but little of it: a piece ends where it says that it has no more."""
    return StoredDeliveries(answer.first, answer.messages[:1]) if position % 2 == 0 else Gone(position + 1)


def filling_of(log: DeliveryLog, *members: Any) -> Backfill:
    return Backfill(1, False, log, FakeMembers(*members), needed=2)  # type: ignore[arg-type]


def close(*logs: DeliveryLog) -> None:
    for each in logs:
        each.close()


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reader_service, "_CHUNK_BYTES", 300)
    monkeypatch.setattr(_backfill, "_PIECE_BYTES", 1_000)


def test_honest_members_are_believed_and_no_more_are_asked_than_needed(tmp_path: Path, chunks: None) -> None:
    async def test() -> None:
        log = with_gap(tmp_path / "a")
        logs = [log_of(tmp_path / name, 0, 130) for name in "bcd"]
        members = [Counted(each) for each in logs]
        await fill_all(filling_of(log, *members))
        assert read_all(log) == TRUE
        assert members[0].asked == members[1].asked > 0
        assert members[2].asked == 0
        close(log, *logs)

    run(test)


def test_members_that_each_have_another_part(tmp_path: Path, chunks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backfill, "_DOUBT_S", 0)

    async def test() -> None:
        log = with_gap(tmp_path / "a")
        logs = [log_of(tmp_path / "b", 0, 70), log_of(tmp_path / "c", 40, 130), log_of(tmp_path / "d", 0, 130)]
        filling = filling_of(log, *map(Counted, logs))
        await fill_all(filling)
        assert read_all(log) == TRUE
        assert not filling.is_filling
        close(log, *logs)

    run(test)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("lie", [alters_60, alters_all])
def test_who_tells_something_else_is_named_and_not_asked_again(
    tmp_path: Path, chunks: None, lie: Any, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        log = with_gap(tmp_path / "a")
        logs = [log_of(tmp_path / name, 0, 130) for name in "bcd"]
        liar = Liar(logs[0], lie)
        members: list[Counted] = [Counted(logs[1]), Counted(logs[2])]
        members.insert(place, liar)
        filling = filling_of(log, *members)
        while not log.has(60):
            target = filling._target()
            assert target is not None
            assert await filling._fill(target)
        asked = liar.asked
        assert f"{place} is not asked for deliveries any more" in caplog.text
        await fill_all(filling)
        assert liar.asked == asked
        assert read_all(log) == TRUE
        close(log, *logs)

    run(test)


def test_a_liar_that_tells_little_does_not_make_many_small_pieces(
    tmp_path: Path, chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        log = with_gap(tmp_path / "a")
        logs = [log_of(tmp_path / name, 0, 130) for name in "bcd"]
        pieces: list[int] = []
        write = log.write_fill

        def write_fill(first: int, deliveries: list[StampedMessage]) -> int:
            pieces.append(len(deliveries))
            return write(first, deliveries)

        monkeypatch.setattr(log, "write_fill", write_fill)
        await fill_all(filling_of(log, Liar(logs[0], tells_one), Counted(logs[1]), Counted(logs[2])))
        assert read_all(log) == TRUE
        assert min(pieces[:-1]) > 1
        close(log, *logs)

    run(test)


@pytest.mark.parametrize("lie", [alters_all, lambda position, answer: Gone(1 << 60), lambda position, answer: Gone(-1)])
def test_one_honest_member_and_a_liar_prove_and_lose_nothing(tmp_path: Path, lie: Any) -> None:
    """The third one can't be asked now. It has all that is missing, and comes back."""

    async def test() -> None:
        log = with_gap(tmp_path / "a")
        logs = [log_of(tmp_path / name, 0, 130) for name in "bcd"]
        away = FakeMembers(Liar(logs[0], lie), Counted(logs[1]), Says(ConnectionError()))
        filling = Backfill(1, False, log, away, needed=2)  # type: ignore[arg-type]
        target = filling._target()
        assert target is not None
        assert not await filling._fill(target)
        assert log.gaps() == [(20, 100)]
        assert filling.lost_until(20) is None
        assert filling.is_in_doubt(20)
        assert filling.is_in_doubt(99)
        assert not filling.is_in_doubt(100)
        assert filling.is_filling
        assert filling._target() is None, "it is not asked for all the time"
        away._members = (*away._members[:2], Counted(logs[2]))
        filling._doubtful = []
        await fill_all(filling)
        assert read_all(log) == TRUE
        assert not filling.is_in_doubt(20)
        close(log, *logs)

    run(test)


def test_what_is_in_doubt_is_asked_for_again_after_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backfill, "_DOUBT_S", 0)
    monkeypatch.setattr(_backfill, "_PAUSE_S", 0)

    async def test() -> None:
        log = with_gap(tmp_path / "a")
        logs = [log_of(tmp_path / name, 0, 130) for name in "bc"]
        members = FakeMembers(Says(ConnectionError()), Says(ConnectionError()), Counted(logs[0]))
        filling = Backfill(1, False, log, members, needed=2)  # type: ignore[arg-type]
        task = asyncio.create_task(filling.run())
        while not filling.is_in_doubt(20):
            await asyncio.sleep(0)
        members._members = (Counted(logs[1]), *members._members[1:])
        async with asyncio.timeout(20):
            while log.gaps():
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert read_all(log) == TRUE
        close(log, *logs)

    run(test)


def test_what_a_liar_alone_says_that_it_has_is_lost_and_the_rest_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        log = with_gap(tmp_path / "a")
        logs = [log_of(tmp_path / "b", 0, 130), log_of(tmp_path / "c", 60, 130), log_of(tmp_path / "d", 60, 130)]
        filling = filling_of(log, Liar(logs[0], alters_all), Counted(logs[1]), Counted(logs[2]))
        await fill_all(filling)
        assert log.gaps() == [(20, 60)]
        assert (filling.lost_until(20), filling.lost_until(59)) == (60, 60)
        assert not filling.is_filling
        assert [stamped for position in range(60, 110) for stamped in log.read(position, 1)] == TRUE[60:]
        close(log, *logs)

    run(test)


def test_a_liar_that_contradicts_does_not_keep_the_rest_waiting(tmp_path: Path) -> None:
    """One honest member has everything, the other what is behind 60: the liar can have the range before in doubt."""

    async def test() -> None:
        log = with_gap(tmp_path / "a")
        logs = [log_of(tmp_path / "b", 0, 130), log_of(tmp_path / "c", 0, 130), log_of(tmp_path / "d", 60, 130)]
        filling = filling_of(log, Liar(logs[0], alters_all), Counted(logs[1]), Counted(logs[2]))
        target = filling._target()
        assert target is not None
        assert not await filling._fill(target)
        assert filling.lost_until(20) is None
        await fill_all(filling)
        assert log.gaps() == [(20, 60)]
        assert filling.is_in_doubt(20)
        close(log, *logs)

    run(test)


def test_a_member_that_does_not_answer_is_asked_last(tmp_path: Path, chunks: None, monkeypatch: Any) -> None:
    async def test() -> None:
        log = with_gap(tmp_path / "a")
        logs = [log_of(tmp_path / name, 0, 130) for name in "bcd"]
        mute = Mute(logs[0])
        filling = filling_of(log, mute, Counted(logs[1]), Counted(logs[2]))
        monkeypatch.setattr(_backfill, "_ANSWER_S", 0.2)
        await fill_all(filling)
        assert mute.asked == 1
        assert read_all(log) == TRUE
        close(log, *logs)

    run(test)


# -- the rules by themselves


def telling(member: str, first: int, *payloads: bytes) -> Telling:
    piece = [(msgspec.structs.replace(TRUE[0][0], payload=payload), None) for payload in payloads]
    return Telling(member, first, piece, first + len(payloads))


@pytest.mark.parametrize(
    ("tellings", "end", "liars"),
    [
        ([], 5, []),
        ([telling("a", 5, b"5", b"6")], 5, []),
        ([telling("a", 5, b"5", b"6"), telling("b", 5, b"5")], 6, []),
        ([telling("a", 5, b"5", b"6"), telling("b", 5, b"x"), telling("c", 5, b"5", b"6", b"7")], 7, ["b"]),
        ([telling("a", 5, b"5", b"6"), telling("b", 4, b"4", b"5"), telling("c", 5, b"5", b"6")], 7, ["b"]),
        ([telling("a", 5, b"5", b"x", b"y"), telling("b", 5, b"5", b"6"), telling("c", 5, b"5", b"z")], 6, []),
        ([telling("a", 5, b"x", b"6"), telling("b", 5, b"5", b"6"), telling("c", 5, b"5", b"x")], 6, ["a"]),
    ],
)
def test_a_piece_ends_where_too_few_tell_the_same(tellings: list[Telling], end: int, liars: list[str]) -> None:
    found = agreed(5, tellings, 2)
    assert (found.first, found.end, found.liars) == (5, end, liars)
    assert [message.payload for message, _ in found.piece] == [b"%d" % at for at in range(5, end)]


def lacks(next_: int) -> Telling:
    return Telling("x", 20, [], next_)


HAS = telling("x", 20, b"something")


@pytest.mark.parametrize(
    ("tellings", "silent", "expected"),
    [
        ([lacks(50), lacks(60), lacks(70)], 0, Missing(60, 70)),
        ([lacks(50), lacks(60)], 1, Missing(50, 100)),
        ([lacks(50)], 2, Missing(20, 100)),
        ([], 3, Missing(20, 100)),
        ([HAS, lacks(60), lacks(60)], 0, Missing(60, 60)),
        ([HAS, HAS, lacks(60)], 0, Missing(20, 60)),
        ([HAS, lacks(20), lacks(60)], 0, Missing(20, 100)),
        ([lacks(1 << 60), lacks(50), lacks(50)], 0, Missing(50, 100)),
        ([lacks(1 << 60), lacks(1 << 60), lacks(1 << 60)], 0, Missing(100, 100)),
        ([lacks(60)], 0, Missing(100, 100)),
    ],
)
def test_what_is_lost_and_what_is_in_doubt(tellings: list[Telling], silent: int, expected: Missing) -> None:
    assert missing(20, 100, tellings, silent, 2) == expected
