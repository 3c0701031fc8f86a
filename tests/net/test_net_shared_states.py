"""An application takes over a state that f+1 members vouch for, whatever one of them says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast.core import AppMessage, message_id
from amcast.net.disk.deliveries import DeliveryLog
from amcast.net.disk.records import Durability
from amcast.net.node import _backfill, _shared_states, _vouched_transfer
from amcast.net.node._backfill import Backfill
from amcast.net.node._exchange import Exchange
from amcast.net.node._keeper import Keeper
from amcast.net.node._shared_states import SharedStates, digest_of_state
from amcast.net.node.application import Host
from amcast.net.node.results import Results
from amcast.net.wire.control import (
    AppDigests,
    AppDigestsQuery,
    AppStatePart,
    AppStateQuery,
    DeliveriesQuery,
    NoAppState,
    StateDigest,
    Told,
)

from .clusters import eventually, run
from .test_net_application import FakeMembers, Restored
from .test_net_backfill import log_of, with_gap
from .test_net_backfill_liars import Liar as Teller
from .test_net_backfill_liars import alters_all
from .test_net_deliveries import message_at
from .test_net_exchange import Purse, Wire, tell

ASKER = "g1.p0"


def host_of(folder: Path, results_bytes: int = 64 << 20) -> Host:
    return Host(Restored(), DeliveryLog.open(folder, Durability.MEMORY), None, 1, results_bytes, needed=2)


def apply_up_to(host: Host, position: int) -> None:
    for at in range(host.position, position):
        host.deliver(at, message_at(at)[0])
    assert host.position == position


class Member:
    """Its application goes on by some positions before each question."""

    def __init__(self, folder: Path, position: int, step: int = 0) -> None:
        self.host = host_of(folder)
        self.shared = SharedStates(self.host)
        self.step = step
        self.questions: list[Any] = []
        apply_up_to(self.host, position)

    async def ask(self, question: Any, timeout: float) -> Any:
        await asyncio.sleep(0)
        self.questions.append(question)
        apply_up_to(self.host, self.host.position + self.step)
        if isinstance(question, AppDigestsQuery):
            return self.shared.digests(ASKER, question)
        assert isinstance(question, AppStateQuery)
        return self.shared.part(ASKER, question)


class Liar(Member):
    def __init__(self, folder: Path, position: int, lie: Callable[[Any], Any]) -> None:
        super().__init__(folder, position)
        self._lie = lie

    async def ask(self, question: Any, timeout: float) -> Any:
        return self._lie(await super().ask(question, timeout))


class Mute(Member):
    async def ask(self, question: Any, timeout: float) -> Any:
        self.questions.append(question)
        await asyncio.Event().wait()


def newcomer(folder: Path, *members: Member) -> tuple[Keeper, Host]:
    log = DeliveryLog.open(folder, Durability.MEMORY)
    log.skip_to(50)
    host = Host(Restored(), log, None, 1, needed=2)
    fakes: Any = FakeMembers(*members)  # type: ignore[arg-type]
    return Keeper(host, log, Backfill(1, False, log, fakes, 2), fakes, 2), host


async def take_over(keeper: Keeper, rounds: int, at_least: int = 50) -> bool:
    for _ in range(rounds):
        if await keeper._take_over(at_least):
            return True
    return False


def lines_of(host: Host) -> list[bytes]:
    assert isinstance(host._machine, Restored)
    return host._machine.lines


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared_states, "_EVERY_S", 0)


def test_members_that_stand_still_vouch_for_the_state_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared_states, "_PART_BYTES", 10)

    async def test() -> None:
        members = [Member(tmp_path / name, 60) for name in "bcd"]
        keeper, host = newcomer(tmp_path / "a", *members)
        assert not await keeper._take_over(50), "nobody has dumped a state before"
        assert await keeper._take_over(50)
        assert host.position == 60
        assert lines_of(host) == lines_of(members[0].host)
        fetched = [sum(isinstance(each, AppStateQuery) for each in member.questions) for member in members]
        assert sorted(map(bool, fetched)) == [False, False, True], "its bytes come from one of them"
        assert host.dump_shared() == members[0].host.dump_shared(), "now it can vouch for them as well"

    run(test)


@pytest.mark.parametrize("steps", [(1, 2, 3), (100, 100, 100), (7, 7, 0)])
def test_members_that_go_on_keep_the_state_after_a_position_that_is_yet_to_come(
    tmp_path: Path, steps: tuple[int, ...], unlimited: None
) -> None:
    async def test() -> None:
        members = [Member(tmp_path / str(step) / name, 60, step) for step, name in zip(steps, "bcd", strict=True)]
        keeper, host = newcomer(tmp_path / "a", *members)
        assert await take_over(keeper, 400)
        assert host.position > 60
        copy = host_of(tmp_path / "copy")
        apply_up_to(copy, host.position)
        assert lines_of(host) == lines_of(copy)

    run(test)


def another_state(answer: Any) -> Any:
    """Its own state, with its own digest, further than those of the others."""
    if isinstance(answer, AppDigests):
        return AppDigests(90, (StateDigest(90, 5, digest_of_state(b"a lie")),))
    return AppStatePart(90, 5, 0, 0, b"a lie")


def same_position(answer: Any) -> Any:
    if isinstance(answer, AppDigests):
        return AppDigests(60, (StateDigest(60, 5, digest_of_state(b"a lie")),) * 50)
    return AppStatePart(60, 5, 0, 0, b"a lie")


def other_bytes(answer: Any) -> Any:
    """It vouches for the right state, and hands over another one."""
    if isinstance(answer, AppStatePart):
        return msgspec.structs.replace(answer, data=bytes(len(answer.data)))
    return answer


def other_part(answer: Any) -> Any:
    return msgspec.structs.replace(answer, offset=7) if isinstance(answer, AppStatePart) else answer


def no_bytes(answer: Any) -> Any:
    return msgspec.structs.replace(answer, data=b"") if isinstance(answer, AppStatePart) else answer


def too_much(answer: Any) -> Any:
    return msgspec.structs.replace(answer, data=answer.data * 2) if isinstance(answer, AppStatePart) else answer


def no_digest(answer: Any) -> Any:
    return NoAppState()


@pytest.mark.parametrize(
    "lie",
    [another_state, same_position, other_bytes, other_part, no_bytes, too_much, no_digest],
    ids=lambda f: f.__name__,
)
def test_a_liar_hands_over_nothing(tmp_path: Path, lie: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        liar = Liar(tmp_path / "b", 60, lie)
        honest = [Member(tmp_path / name, 60) for name in "cd"]
        keeper, host = newcomer(tmp_path / "a", liar, *honest)
        assert await take_over(keeper, 3)
        assert (host.position, lines_of(host)) == (60, lines_of(honest[0].host))
        if lie is other_bytes:
            assert "0 is not asked for a state any more" in caplog.text
            asked = len(liar.questions)
            assert not await take_over(keeper, 1, 61)
            assert len(liar.questions) == asked

    run(test)


@pytest.mark.parametrize("lie", [another_state, same_position])
def test_one_honest_member_and_a_liar_are_not_enough(tmp_path: Path, lie: Any) -> None:
    async def test() -> None:
        keeper, host = newcomer(tmp_path / "a", Liar(tmp_path / "b", 60, lie), Member(tmp_path / "c", 60))
        assert not await take_over(keeper, 5)
        assert host.position == 0
        assert lines_of(host) == []

    run(test)


def test_a_liar_that_does_not_answer_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_vouched_transfer, "_DIGESTS_S", 0.2)

    async def test() -> None:
        members = [Mute(tmp_path / "b", 60), *[Member(tmp_path / name, 60) for name in "cd"]]
        keeper, host = newcomer(tmp_path / "a", *members)
        assert not await keeper._take_over(50)
        monkeypatch.setattr(_vouched_transfer, "_DIGESTS_S", 600)
        assert await keeper._take_over(50)
        assert host.position == 60

    run(test)


def test_a_transfer_begins_again_at_another_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared_states, "_PART_BYTES", 10)

    class Breaking(Member):
        async def ask(self, question: Any, timeout: float) -> Any:
            if isinstance(question, AppStateQuery) and question.offset >= 50:
                raise ConnectionError("broken")
            return await super().ask(question, timeout)

    async def test() -> None:
        members = [Breaking(tmp_path / "b", 60), Member(tmp_path / "c", 60)]
        keeper, host = newcomer(tmp_path / "a", *members)
        assert await take_over(keeper, 2)
        assert (host.position, lines_of(host)) == (60, lines_of(members[1].host))
        assert sum(isinstance(question, AppStateQuery) for question in members[0].questions) == 5

    run(test)


# -- messages that are in doubt


class Both(Member):
    """Answers for its log as well."""

    def __init__(
        self, folder: Path, first: int, lie: Callable[[int, Any], Any] = lambda position, answer: answer
    ) -> None:
        super().__init__(folder / "state", 130)
        self.log = log_of(folder / "log", first, 130)
        self._tell = Teller(self.log, lie)
        self.is_away = False
        self.has_state = True

    async def ask(self, question: Any, timeout: float) -> Any:
        if self.is_away:
            raise ConnectionError("away")
        if isinstance(question, DeliveriesQuery):
            return await self._tell.ask(question, timeout)
        return await super().ask(question, timeout) if self.has_state else NoAppState()


@asynccontextmanager
async def kept(folder: Path, *members: Both) -> AsyncIterator[tuple[Host, Backfill]]:
    log = with_gap(folder)
    host = Host(Restored(), log, None, 1, needed=2)
    fakes: Any = FakeMembers(*members)  # type: ignore[arg-type]
    backfill = Backfill(1, False, log, fakes, 2)
    tasks = [asyncio.create_task(each.run()) for each in (backfill, Keeper(host, log, backfill, fakes, 2))]
    try:
        yield host, backfill
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (log, *[member.log for member in members]):
            each.close()


def test_an_application_goes_on_though_a_liar_has_messages_in_doubt(tmp_path: Path, unlimited: None) -> None:
    """One member has them, one has dropped them, and the liar tells others."""

    async def test() -> None:
        members = [Both(tmp_path / "b", 0), Both(tmp_path / "c", 60), Both(tmp_path / "d", 0, alters_all)]
        async with kept(tmp_path / "a", *members) as (host, backfill):
            await eventually(lambda: host.position == 130, "it has taken over a state")
            assert lines_of(host) == lines_of(members[0].host)
            assert backfill.is_in_doubt(20)
            await eventually(lambda: host.problem is None, "nothing is wrong with it")

    run(test)


def test_an_application_goes_on_when_its_messages_are_in_doubt_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_backfill, "_DOUBT_S", 0.1)

    async def test() -> None:
        members = [Both(tmp_path / name, 0) for name in "bcd"]
        for member in members:
            member.is_away, member.has_state = True, False
        async with kept(tmp_path / "a", *members) as (host, _):
            await eventually(lambda: host.problem is not None, "it waits")
            assert host.position == 20
            for member in members:
                member.is_away = False
            await eventually(lambda: host.position == 110, "it has applied them")
            await eventually(lambda: host.problem is None, "it waits for nothing")
            assert host._machine.restored == []  # type: ignore[attr-defined]

    run(test)


# -- what a liar may ask for


def test_a_liar_does_not_keep_others_dumping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        member = Member(tmp_path / "a", 10)
        dumps: list[int] = []
        dump = member.host.dump_shared

        def counted() -> tuple[int, bytes]:
            dumps.append(member.host.position)
            return dump()

        monkeypatch.setattr(member.host, "dump_shared", counted)
        for position in range(11, 100):
            member.shared.digests("g1.p1", AppDigestsQuery(0, position))
            await asyncio.sleep(0)
            apply_up_to(member.host, position)
        assert dumps == [10, 11]
        member.shared.digests(ASKER, AppDigestsQuery(0, 200))
        await asyncio.sleep(0)
        assert dumps == [10, 11, 99], "another one is not kept waiting by that"
        assert not isinstance(member.shared.part("g1.p1", AppStateQuery(0)), AppStatePart), "no digest, no state"
        member.shared.forget()

    run(test)


def test_a_state_stays_while_it_is_fetched(tmp_path: Path, unlimited: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared_states, "_PART_BYTES", 10)

    async def test() -> None:
        member = Member(tmp_path / "a", 10)
        member.shared.digests(ASKER, AppDigestsQuery(0))
        await asyncio.sleep(0)
        (digest,) = member.shared.digests(ASKER, AppDigestsQuery(0)).states
        state = b""
        while len(state) < digest.size:
            apply_up_to(member.host, member.host.position + 1)
            member.shared.digests("g1.p1", AppDigestsQuery(0))
            await asyncio.sleep(0)
            part = member.shared.part(ASKER, AppStateQuery(0, digest.position, 0, len(state), digest.digest))
            assert isinstance(part, AppStatePart)
            state += part.data
        assert digest_of_state(state) == digest.digest
        member.shared.forget()
        assert member.shared.part(ASKER, AppStateQuery(0, 10, 0, 0, digest.digest)) == NoAppState()

    run(test)


# -- states are the same bytes


def test_results_do_not_depend_on_when_a_state_was_dumped() -> None:
    """One replica dumps often, one was restored from a dump, and one never dumps. All forget the same senders."""

    def message(number: int) -> AppMessage:
        sender, seq = 1 + number % 7, number // 7
        return AppMessage(message_id(sender, seq), (1,), b"", max(0, seq - 2) if seq % 5 == 0 else 0)

    def add(results: Results, number: int) -> None:
        results.add_all([message(number)], [bytes(number % 90)])

    often, never = Results(6_000, is_exact=True), Results(6_000, is_exact=True)
    restored = Results(6_000, is_exact=True)
    for number in range(500):
        add(often, number)
        add(never, number)
        if number > 100:
            add(restored, number)
        often.dump()
        if number == 100:
            restored.load(often.dump())
        if number > 100:
            assert often.dump() == restored.dump()
    assert often.dump() == never.dump()


def test_a_shared_state_leaves_out_what_each_member_forgets_at_its_own_time(tmp_path: Path) -> None:
    async def test() -> None:
        states = []
        for name, held in (("a", 0), ("b", 2)):
            exchange = Exchange({2: (3, 4, 5)}, Wire(), lambda: True, 1_000, True)
            log = DeliveryLog.open(tmp_path / name, Durability.MEMORY)
            host = Host(Purse("g1"), log, None, 1, exchange=exchange, needed=2)
            for number in range(3):
                tell(3, exchange, Told(number, (b"10",), 0))
                host.deliver(number, AppMessage(message_id(100, number), (1, 2), b"give 1 1"))
            exchange._pairs[2].forget_below(held)
            assert host.position == 3
            states.append((host, host.dump_shared()))
        assert states[0][0].dump() != states[1][0].dump()
        assert states[0][1] == states[1][1]
        for host, _ in states:
            assert host.exchange is not None
            host.exchange.close()

    run(test)
