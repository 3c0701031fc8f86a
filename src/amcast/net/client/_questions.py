"""The queries of a program that wait for an answer, and where each was asked.

A query changes nothing, so it may be asked anywhere, and again: the first answer counts. The queries of a turn that go
to the same process leave in one frame. One that gets no answer for a while is asked at the next member of its group;
the pause grows, since a cluster that is slow must not get more to do for being slow.

Where f members of a group may lie, all are asked, and the answer is what f+1 of them say. While the state changes, they
may all tell the truth and say different things, since each answers from its own state: then they are asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from ...core import GroupId, ProcessId, UsageError
from ...core.errors import QueryError
from ..wire.control import BUSY, FAILED, QUERIES_MAX, WRONG, Answers, Query, Unanswered
from ..wire.framing import frame

_LOOK_S = 0.05
_SILENCE_FIRST_S, _SILENCE_MAX_S = 0.3, 2.2  # until another member is asked
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.02, 1.0  # after a member could not answer
_FRAME_BYTES = 1 << 20  # of queries


class Question(msgspec.Struct, eq=False):
    group: GroupId
    members: Sequence[ProcessId]
    to: ProcessId  # the member to ask next
    payload: bytes
    max_age_ms: int
    answer: asyncio.Future[bytes | None]
    liars: int = 0  # members that may lie: then all are asked
    said: dict[ProcessId, bytes | None] | None = None  # by members, if some may lie
    failed: dict[ProcessId, str] | None = None  # members that say that there never will be an answer
    number: int = -1
    problem: str = ""  # why there is no answer yet
    is_busy: bool = False
    silence_s: float = _SILENCE_FIRST_S
    pause_s: float = _PAUSE_FIRST_S
    deadline_s: float = float("inf")
    due_s: float = 0.0  # when another member is asked

    def hear(self, member: ProcessId, answer: bytes | None) -> bool:
        """Whether this is the answer, where members may lie."""
        said = self.said = self.said or {}
        if member in self.members:
            said[member] = answer
        return sum([each == answer for each in said.values()]) > self.liars

    def hear_failure(self, member: ProcessId, kind: str) -> bool:
        """Whether it is certain that there never will be an answer."""
        failed = self.failed = self.failed or {}
        if member in self.members:
            failed[member] = kind
        return not self.liars or sum([each == kind for each in failed.values()]) > self.liars

    @property
    def is_at_odds(self) -> bool:
        """As many have answered as can be waited for, and no f+1 of them have said the same."""
        return len(self.said or ()) >= len(self.members) - self.liars

    def is_asked_of(self, member: ProcessId) -> bool:
        return member in self.members if self.liars else member == self.to

    def next_member(self) -> None:
        self.to = self.members[(self.members.index(self.to) + 1) % len(self.members)]

    def wait(self, now_s: float) -> None:
        """It is asked now."""
        self.due_s = now_s + self.silence_s
        self.silence_s = min(2 * self.silence_s, _SILENCE_MAX_S)

    def pause(self, now_s: float) -> None:
        """A member has no answer: others are asked soon."""
        self.due_s = min(self.due_s, now_s + self.pause_s)
        self.pause_s = min(2 * self.pause_s, _PAUSE_MAX_S)


class Questions:
    def __init__(self, send: Callable[[ProcessId, bytes], None], touch: Callable[[], None]) -> None:
        """`touch` sees to it that `send_all` is called when the turn ends."""
        self._send = send
        self._touch = touch
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, Question] = {}
        self._unsent: list[Question] = []
        self._count = 0
        self.leaders: dict[GroupId, ProcessId] = {}  # as members say who answer
        self._look: asyncio.TimerHandle | None = None

    def ask(self, question: Question, timeout: float | None) -> None:
        """Without an answer in this time, it ends with a TimeoutError. One timer for all costs far less than many."""
        now_s = self._loop.time()
        if timeout is not None:
            question.deadline_s = now_s + timeout
        self._count = number = self._count + 1
        question.number = number
        self._open[number] = question
        if question.max_age_ms:
            question.to = question.members[number % len(question.members)]  # any will do: they share the work
        if len(question.members) == 1:
            # It counts a question that comes again twice, unless it has given up the first by then.
            question.silence_s = _SILENCE_MAX_S
        question.due_s = now_s + question.silence_s
        self._unsent.append(question)
        if len(self._unsent) == 1:
            self._touch()
            if self._look is None:
                self._look = self._loop.call_later(_LOOK_S, self._look_again)

    def forget(self, question: Question) -> None:
        self._open.pop(question.number, None)

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for question in self._open.values():
            if not question.answer.done():
                question.answer.set_exception(ConnectionError("the client was closed before the query was answered"))
                question.answer.exception()  # marks it as seen: perhaps nobody waits for it any more
        self._open = {}

    # -- what is sent

    def send_all(self) -> None:
        if not self._unsent:
            return
        unsent, self._unsent = self._unsent, []
        leaving: dict[tuple[ProcessId, GroupId, int], list[Question]] = {}
        for question in unsent:
            if question.liars:
                for member in question.members:
                    leaving.setdefault((member, question.group, question.max_age_ms), []).append(question)
                continue
            key = (question.to, question.group, question.max_age_ms)
            same = leaving.get(key)
            if same is None:
                leaving[key] = [question]
            else:
                same.append(question)
        for (to, group, age_ms), questions in leaving.items():
            for some in _cut(questions):
                payloads = tuple([each.payload for each in some])
                query = Query(group, age_ms, tuple([each.number for each in some]), payloads)
                self._send(to, frame(msgspec.msgpack.encode(query)))

    def _look_again(self) -> None:
        self._look = self._loop.call_later(_LOOK_S, self._look_again) if self._open else None
        now_s = self._loop.time()
        for question in self._open.values():
            if question.deadline_s < now_s and not question.answer.done():
                question.answer.set_exception(TimeoutError())
        overdue = [each for each in self._open.values() if each.due_s < now_s]
        for question in overdue:
            question.next_member()
            question.wait(now_s)
        if overdue:
            self._unsent += overdue
            self._touch()

    def on_reconnected(self, process: ProcessId) -> None:
        """The connection to a process broke, and there is another one: what it was asked may be lost."""
        again = [each for each in self._open.values() if each.is_asked_of(process)]
        for question in again:
            question.wait(self._loop.time())
        if again:
            self._unsent += again
            self._touch()

    # -- what arrives

    def on_answers(self, member: ProcessId, message: Answers) -> None:
        if message.leader is not None:
            self.leaders[message.group] = message.leader
        open_ = self._open
        for number, answer in zip(message.numbers, message.answers, strict=False):
            question = open_.pop(number, None)
            if question is None:
                continue
            if question.liars and not question.hear(member, answer):
                open_[number] = question
                if question.is_at_odds:
                    question.pause(self._loop.time())
            elif not question.answer.done():
                question.answer.set_result(answer)

    def on_unanswered(self, member: ProcessId, message: Unanswered) -> None:
        now_s = self._loop.time()
        self.leaders.pop(message.group, None)
        for number in message.numbers:
            question = self._open.get(number)
            if question is None or question.answer.done():
                continue
            if message.kind in (WRONG, FAILED):
                if not question.hear_failure(member, message.kind):
                    continue
                error = QueryError if message.kind == FAILED else UsageError
                question.answer.set_exception(error(message.reason))
            else:
                question.problem, question.is_busy = message.reason, message.kind == BUSY
                question.pause(now_s)


def _cut(questions: list[Question]) -> list[list[Question]]:
    """As few pieces as the limits of a frame allow, in order."""
    if len(questions) <= QUERIES_MAX and sum([len(each.payload) for each in questions]) <= _FRAME_BYTES:
        return [questions]
    cut: list[list[Question]] = []
    size = 0
    for question in questions:
        if not cut or len(cut[-1]) == QUERIES_MAX or size + len(question.payload) > _FRAME_BYTES:
            cut.append([])
            size = 0
        cut[-1].append(question)
        size += len(question.payload)
    return cut
