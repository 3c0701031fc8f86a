"""The queries of a program that wait: which frames they leave in, who is asked again, and what becomes of answers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from amcast import QueryError, UsageError
from amcast.core import ProcessId
from amcast.net.client._questions import Answer, Kind, Questions, Sheet
from amcast.net.wire.control import BUSY, ELSEWHERE, FAILED, QUERIES_MAX, WRONG, Answers, Query, Unanswered
from tests.net.clusters import run

_decoder = msgspec.msgpack.Decoder(Query)
_MEMBERS = (0, 1, 2)


class Asker:
    """Questions on their own, with a clock that stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, members: tuple[ProcessId, ...] = _MEMBERS) -> None:
        self.sent: list[tuple[ProcessId, Query]] = []
        self.now_s = 1_000.0
        self._members = members
        self._loop = asyncio.get_running_loop()
        self.questions = Questions(self._send, lambda: None)
        monkeypatch.setattr(self.questions, "_loop", self)

    # -- the loop, as far as questions use it

    def time(self) -> float:
        return self.now_s

    def call_later(self, after_s: float, callback: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(3600, callback)

    def _send(self, to: ProcessId, framed: bytes) -> None:
        self.sent.append((to, _decoder.decode(framed[4:])))

    def ask(self, payload: bytes = b"", age_ms: int = 0, timeout: float | None = None, liars: int = 0) -> Answer:
        kind: Kind = ("g1", age_ms, timeout)
        answer: Answer = self._loop.create_future()
        if self.questions.ask(kind, payload, answer) is None:
            sheet = Sheet(1, self._members, self._members[0], age_ms, timeout, liars)
            sheet.add(payload, answer)
            self.questions.begin(kind, sheet)
        return answer

    def turn(self) -> list[tuple[ProcessId, Query]]:
        """Ends the turn, and returns what was sent in it."""
        self.questions.send_all()
        sent, self.sent = self.sent, []
        return sent

    def pass_time(self, seconds: float) -> list[tuple[ProcessId, Query]]:
        self.now_s += seconds
        self.questions._look_again()
        return self.turn()


def test_queries_that_are_alike_leave_in_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch)
        waiting = [asker.ask(b"a"), asker.ask(b"b"), asker.ask(b"c", timeout=5.0), asker.ask(b"d", age_ms=10)]
        frames = asker.turn()
        assert [query.payloads for _, query in frames] == [(b"a", b"b"), (b"c",), (b"d",)]
        assert [query.max_age_ms for _, query in frames] == [0, 0, 10]
        for to, query in frames:
            asker.questions.on_answers(to, Answers(1, 0, query.numbers, tuple(each.upper() for each in query.payloads)))
        assert [each.result() for each in waiting] == [b"A", b"B", b"C", b"D"]
        assert not asker.questions._open

    run(test)


def test_a_frame_has_a_limit_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch)
        for _ in range(QUERIES_MAX + 1):
            asker.ask()
        first, second = asker.turn()
        assert (len(first[1].numbers), len(second[1].numbers)) == (QUERIES_MAX, 1)
        sizes = [600 << 10, 600 << 10, 2 << 20, 1, 1]
        for size in sizes:
            asker.ask(bytes(size))
        frames = [[len(each) for each in query.payloads] for _, query in asker.turn()]
        assert frames == [[600 << 10], [600 << 10], [2 << 20], [1, 1]]

    run(test)


def test_answers_may_come_in_parts_and_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked again is only what is missing."""

    async def test() -> None:
        asker = Asker(monkeypatch)
        waiting = [asker.ask(b"%d" % number) for number in range(4)]
        ((_, query),) = asker.turn()
        one, two, three, four = query.numbers
        asker.questions.on_answers(0, Answers(1, 0, (two, one), (b"2", b"1")))
        asker.questions.on_answers(0, Answers(1, 0, (two,), (b"wrong",)))
        assert [each.done() for each in waiting] == [True, True, False, False]
        ((to, again),) = asker.pass_time(0.4)
        assert (to, again.numbers, again.payloads) == (1, (three, four), (b"2", b"3"))
        asker.questions.on_answers(1, Answers(1, 0, (three, four), (b"3", b"4")))
        asker.questions.on_answers(0, Answers(1, 0, query.numbers, (b"late",) * 4))
        assert [each.result() for each in waiting] == [b"1", b"2", b"3", b"4"]
        assert not asker.questions._open

    run(test)


def test_what_is_no_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch)
        waiting = [asker.ask(), asker.ask()]
        ((_, query),) = asker.turn()
        first, second = query.numbers
        beyond = (first, second + 1, first - 1, -1)
        for wrong in (
            Answers(1, 0, (), ()),
            Answers(1, 0, query.numbers, (b"one too few",)),
            Answers(1, 0, (first + QUERIES_MAX,), (b"another sheet",)),
            Answers(1, 0, (-7,), (b"never asked",)),
        ):
            asker.questions.on_answers(0, wrong)
        assert not any(each.done() for each in waiting)
        asker.questions.on_answers(0, Answers(1, 0, beyond, (b"mine", b"", b"", b"")))
        assert [each.done() for each in waiting] == [True, False]
        asker.questions.on_unanswered(0, Unanswered(1, (), FAILED, "of nothing"))
        asker.questions.on_unanswered(0, Unanswered(1, (second + 5,), FAILED, "of another"))
        assert not waiting[1].done()

    run(test)


@pytest.mark.parametrize(("kind", "error"), [(FAILED, QueryError), (WRONG, UsageError)])
def test_a_failure_is_that_of_its_query_alone(
    kind: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch)
        good, bad = asker.ask(), asker.ask()
        ((_, query),) = asker.turn()
        asker.questions.on_unanswered(0, Unanswered(1, query.numbers[1:], kind, "no such thing"))
        assert not good.done()
        with pytest.raises(error, match="no such thing"):
            bad.result()
        asker.questions.on_answers(0, Answers(1, 0, query.numbers[:1], (b"1",)))
        assert good.result() == b"1"
        assert not asker.questions._open

    run(test)


def test_a_member_that_can_not_answer_is_left_soon_and_more_slowly_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch)
        answer = asker.ask()
        ((_, query),) = asker.turn()
        # Several such answers to one frame count as one.
        for _ in range(20):
            asker.questions.on_unanswered(0, Unanswered(1, query.numbers, ELSEWHERE, "no leader"))
        assert asker.pass_time(0.01) == []
        assert asker.pass_time(0.02) == [(1, query)]
        asker.questions.on_unanswered(1, Unanswered(1, query.numbers, BUSY, "too many"))
        assert asker.pass_time(0.03) == []
        assert asker.pass_time(0.02) == [(2, query)]
        (sheet,) = asker.questions._open.values()
        assert (sheet.problem, sheet.is_busy) == ("too many", True)
        assert not answer.done()

    run(test)


def test_time_runs_out_for_a_whole_sheet_and_never_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time begins when it is sent: a turn may be long."""

    async def test() -> None:
        asker = Asker(monkeypatch)
        waiting = [asker.ask(timeout=1.0), asker.ask(timeout=1.0)]
        forever = asker.ask()
        asker.now_s += 5.0
        asker.questions._look_again()
        assert asker.questions._look is not None, "somebody looks after what is not sent yet"
        asker.turn()
        asker.pass_time(0.9)
        assert not any(each.done() for each in waiting)
        asker.pass_time(0.2)
        for each in waiting:
            with pytest.raises(TimeoutError):
                each.result()
        assert not forever.done()
        assert len(asker.questions._open) == 1

    run(test)


def test_nothing_is_kept_of_queries_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch)
        first, second = asker.ask(b"1"), asker.ask(b"2")
        ((_, query),) = asker.turn()
        first.cancel()
        assert asker.pass_time(0.05) == []
        assert len(asker.questions._open) == 1, "somebody waits for the other one"
        second.cancel()
        assert asker.pass_time(0.05) == []
        assert not asker.questions._open
        assert asker.pass_time(0.05) == []
        assert asker.questions._look is None
        asker.questions.on_answers(0, Answers(1, 0, query.numbers, (b"1", b"2")))

    run(test)


def test_nobody_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is answered, nobody waits for the other one any more, and the connection breaks."""

    async def test() -> None:
        asker = Asker(monkeypatch)
        answered, given_up = asker.ask(b"1"), asker.ask(b"2")
        ((_, query),) = asker.turn()
        asker.questions.on_answers(0, Answers(1, 0, query.numbers[:1], (b"1",)))
        given_up.cancel()
        asker.questions.on_reconnected(0)
        assert asker.turn() == []
        assert answered.result() == b"1"

    run(test)


def test_a_sheet_is_asked_once_in_a_turn_for_however_many_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch)
        asker.ask()
        ((_, query),) = asker.turn()
        asker.questions.on_reconnected(2)
        assert asker.turn() == [], "it was asked of another one"
        asker.questions.on_reconnected(0)
        asker.now_s += 5.0
        asker.questions._look_again()
        assert asker.turn() == [(1, query)]

    run(test)


def test_local_queries_are_shared_out_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch)
        asked = []
        for _ in range(3):
            asker.ask(age_ms=50)
            asker.ask(age_ms=50)
            ((to, query),) = asker.turn()
            asked.append(to)
            assert len(query.numbers) == 2
        assert sorted(asked) == list(_MEMBERS)

    run(test)


def test_among_liars_all_are_asked_and_each_query_counts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch, (0, 1, 2, 3))
        agreed, disputed = asker.ask(b"1", liars=1), asker.ask(b"2", liars=1)
        frames = asker.turn()
        assert [to for to, _ in frames] == [0, 1, 2, 3]
        numbers = frames[0][1].numbers
        for member in range(3):
            asker.questions.on_answers(member, Answers(1, 0, numbers, (b"a", b"%d" % member)))
        assert agreed.result() == b"a"
        assert not disputed.done()
        assert [(to, query.payloads) for to, query in asker.pass_time(0.05)] == [(each, (b"2",)) for each in range(4)]
        asker.questions.on_unanswered(0, Unanswered(1, numbers[1:], FAILED, "a lie"))
        assert not disputed.done(), "one of them may lie"
        asker.questions.on_answers(3, Answers(1, 0, numbers[1:], (b"0",)))
        assert disputed.result() == b"0"
        assert not asker.questions._open

    run(test)


def test_a_program_that_ends_tells_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asker = Asker(monkeypatch)
        sent = asker.ask()
        asker.turn()
        unsent = asker.ask()
        asker.questions.close()
        for answer in (sent, unsent):
            with pytest.raises(ConnectionError, match="closed before the query was answered"):
                answer.result()
        assert asker.turn() == []

    run(test)
