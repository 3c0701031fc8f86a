"""The queries of a program that wait for an answer, and where each was asked.

A query changes nothing, so it may be asked anywhere, and again: the first answer counts. The queries of a turn that are
alike but for their payloads are on one sheet. A sheet is asked in one frame, waits as one, and is usually answered in
one frame, so that a query costs hardly more than its future. What got no answer for a while is asked at the next member
of its group; the pause grows, since a cluster that is slow must not get more to do for being slow.

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
SHEET_BYTES = 1 << 20  # of queries in one frame, unless there is a single one

Answer = asyncio.Future[bytes | None]
Kind = tuple[str, int, float | None]  # of queries: the group's name, the greatest age in ms, and the timeout


class Sheet:
    """Queries that are asked in one frame. The number of a query is that of its sheet, and its place on it."""

    __slots__ = (
        "_failed",
        "_heard",
        "_pause_s",
        "_said",
        "_silence_s",
        "_timeout",
        "addable_bytes",
        "answers",
        "bytes",
        "deadline_s",
        "due_s",
        "group",
        "is_busy",
        "is_pausing",
        "liars",
        "max_age_ms",
        "members",
        "number",
        "numbers",
        "payloads",
        "problem",
        "to",
    )

    def __init__(
        self,
        group: GroupId,
        members: Sequence[ProcessId],
        to: ProcessId,
        max_age_ms: int = 0,
        timeout: float | None = None,
        liars: int = 0,
        addable_bytes: int = SHEET_BYTES,
    ) -> None:
        self.group = group
        self.members = members
        self.to = to  # the member to ask next
        self.max_age_ms = max_age_ms
        self.liars = liars  # members that may lie: then all are asked
        self.addable_bytes = addable_bytes  # one more query may be so large
        self.payloads: list[bytes] = []
        self.answers: list[Answer] = []  # in the order of the payloads
        self.bytes = 0  # of the payloads
        self.number = 0  # from 1 on, once it is sent
        self.numbers: tuple[int, ...] = ()  # of its queries
        self.problem = ""  # why there is no answer yet
        self.is_busy = False
        self.is_pausing = False  # a member has no answer: others are asked soon
        self.deadline_s = float("inf")
        self.due_s = 0.0  # when another member is asked
        self._timeout = timeout
        # It counts a question that comes again twice, unless it has given up the first by then.
        self._silence_s = _SILENCE_MAX_S if len(members) == 1 else _SILENCE_FIRST_S
        self._pause_s = _PAUSE_FIRST_S
        self._heard: set[int] = set()  # places of those that were answered in parts
        self._said: dict[int, dict[ProcessId, bytes | None]] = {}  # by places and members, if some may lie
        self._failed: dict[int, dict[ProcessId, str]] = {}  # members that say that there never will be an answer

    def add(self, payload: bytes, answer: Answer) -> None:
        self.bytes += len(payload)
        self.payloads.append(payload)
        self.answers.append(answer)

    def begin(self, number: int, now_s: float) -> None:
        """It is sent for the first time, and waits from now on."""
        self.number = number
        first = number * QUERIES_MAX
        self.numbers = tuple(range(first, first + len(self.payloads)))
        if self._timeout is not None:
            self.deadline_s = now_s + self._timeout
        self.due_s = now_s + self._silence_s

    # -- what members say

    def place_of(self, number: int) -> int | None:
        place = number - self.number * QUERIES_MAX
        return place if 0 <= place < len(self.payloads) else None

    def answer_all(self, answers: Sequence[bytes | None]) -> None:
        for waiting, answer in zip(self.answers, answers, strict=True):
            if not waiting.done():  # otherwise nobody waits any more
                waiting.set_result(answer)

    def hear(self, place: int, member: ProcessId, answer: bytes | None) -> bool:
        """Whether this is the answer."""
        if self.liars:
            said = self._said.setdefault(place, {})
            if member in self.members:
                said[member] = answer
            if sum([each == answer for each in said.values()]) <= self.liars:
                return False
        if not self.answers[place].done():
            self.answers[place].set_result(answer)
        self._heard.add(place)
        return True

    def hear_failure(self, place: int, member: ProcessId, kind: str, reason: str) -> None:
        """There never will be an answer, this member says."""
        failed = self._failed.setdefault(place, {})
        if member in self.members:
            failed[member] = kind
        if self.liars and sum([each == kind for each in failed.values()]) <= self.liars:
            return
        if not self.answers[place].done():
            self.answers[place].set_exception((QueryError if kind == FAILED else UsageError)(reason))
        self._heard.add(place)

    def is_at_odds(self, place: int) -> bool:
        """As many have answered as can be waited for, and no f+1 of them have said the same."""
        return len(self._said.get(place, ())) >= len(self.members) - self.liars

    @property
    def is_complete(self) -> bool:
        return len(self._heard) == len(self.answers)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for it."""
        return any(not answer.done() for answer in self.answers)

    def fail(self, error: Callable[[], Exception]) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(error())
                answer.exception()  # marks it as seen: perhaps nobody waits for it any more

    # -- when it is asked, and whom

    def query(self) -> Query:
        """What nobody has answered yet. That may be nothing, if those who asked for the rest have given up."""
        numbers, payloads = self.numbers, tuple(self.payloads)
        if self._heard:
            left = [place for place, answer in enumerate(self.answers) if not answer.done()]
            numbers, payloads = tuple([numbers[place] for place in left]), tuple([payloads[place] for place in left])
        return Query(self.group, self.max_age_ms, numbers, payloads)

    @property
    def asked(self) -> Sequence[ProcessId]:
        return self.members if self.liars else (self.to,)

    def next_member(self) -> None:
        self.to = self.members[(self.members.index(self.to) + 1) % len(self.members)]

    def wait(self, now_s: float) -> None:
        """It is asked again now."""
        self.due_s = now_s + self._silence_s
        self._silence_s = min(2 * self._silence_s, _SILENCE_MAX_S)
        self.is_pausing = False

    def pause(self, now_s: float) -> None:
        """A member has no answer: others are asked soon."""
        if not self.is_pausing:
            self.is_pausing = True
            self.due_s = min(self.due_s, now_s + self._pause_s)
            self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)


class Questions:
    def __init__(self, send: Callable[[ProcessId, bytes], None], touch: Callable[[], None]) -> None:
        """`touch` sees to it that `send_all` is called when the turn ends."""
        self._send = send
        self._touch = touch
        self._loop = asyncio.get_running_loop()
        self._filling: dict[Kind, Sheet] = {}  # of this turn
        self._unsent: dict[Sheet, None] = {}  # these, and those that are asked again
        self._open: dict[int, Sheet] = {}  # by their numbers
        self._count = 0
        self.leaders: dict[GroupId, ProcessId] = {}  # as members say who answer
        self._look: asyncio.TimerHandle | None = None

    # -- what is asked

    def ask(self, kind: Kind, payload: bytes, answer: Answer) -> Sheet | None:
        """With the others of this turn and kind. None: there are none, or it does not fit in with them."""
        try:
            sheet = self._filling.get(kind)
        except TypeError:  # the group is no name at all, which is said where a sheet is begun
            return None
        if sheet is None or len(payload) > sheet.addable_bytes or len(sheet.payloads) == QUERIES_MAX:
            return None
        if sheet.bytes + len(payload) > SHEET_BYTES:
            return None
        sheet.add(payload, answer)
        return sheet

    def begin(self, kind: Kind, sheet: Sheet) -> None:
        """Without answers in time, they end with a TimeoutError. One timer for all costs far less than many."""
        self._filling[kind] = sheet
        self._ask(sheet)
        if self._look is None:
            self._look = self._loop.call_later(_LOOK_S, self._look_again)

    def _ask(self, sheet: Sheet) -> None:
        self._unsent[sheet] = None
        self._touch()

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for sheet in (*self._open.values(), *self._unsent):
            sheet.fail(lambda: ConnectionError("the client was closed before the query was answered"))
        self._open, self._unsent, self._filling = {}, {}, {}

    def send_all(self) -> None:
        if not self._unsent:
            return
        unsent, self._unsent, self._filling = self._unsent, {}, {}
        for sheet in unsent:
            if not sheet.number:
                self._begin(sheet)
            query = sheet.query()
            if query.numbers:
                framed = frame(msgspec.msgpack.encode(query))
                for member in sheet.asked:
                    self._send(member, framed)

    def _begin(self, sheet: Sheet) -> None:
        self._count = number = self._count + 1
        if sheet.max_age_ms:
            sheet.to = sheet.members[number % len(sheet.members)]  # any will do: they share the work
        sheet.begin(number, self._loop.time())
        self._open[number] = sheet

    def _look_again(self) -> None:
        has_more = self._open or self._unsent
        self._look = self._loop.call_later(_LOOK_S, self._look_again) if has_more else None
        now_s = self._loop.time()
        for sheet in list(self._open.values()):
            if sheet.deadline_s < now_s:
                sheet.fail(TimeoutError)
                self._drop(sheet)
            elif not sheet.is_wanted:
                self._drop(sheet)
            elif sheet.due_s < now_s:
                sheet.next_member()
                sheet.wait(now_s)
                self._ask(sheet)

    def _drop(self, sheet: Sheet) -> None:
        del self._open[sheet.number]
        self._unsent.pop(sheet, None)

    def on_reconnected(self, process: ProcessId) -> None:
        """The connection to a process broke, and there is another one: what it was asked may be lost."""
        for sheet in self._open.values():
            if process in sheet.asked:
                sheet.wait(self._loop.time())
                self._ask(sheet)

    # -- what arrives

    def on_answers(self, member: ProcessId, message: Answers) -> None:
        if message.leader is not None:
            self.leaders[message.group] = message.leader
        sheet = self._sheet_of(message.numbers)
        if sheet is None or len(message.answers) != len(message.numbers):
            return
        if message.numbers == sheet.numbers and not sheet.liars:  # the usual case, which must cost little
            sheet.answer_all(message.answers)
            self._drop(sheet)
            return
        for number, answer in zip(message.numbers, message.answers, strict=True):
            place = sheet.place_of(number)
            if place is not None and not sheet.hear(place, member, answer) and sheet.is_at_odds(place):
                sheet.pause(self._loop.time())
        if sheet.is_complete:
            self._drop(sheet)

    def _sheet_of(self, numbers: Sequence[int]) -> Sheet | None:
        """A frame of answers is about one sheet."""
        return self._open.get(numbers[0] // QUERIES_MAX) if numbers else None

    def on_unanswered(self, member: ProcessId, message: Unanswered) -> None:
        self.leaders.pop(message.group, None)
        sheet = self._sheet_of(message.numbers)
        if sheet is None:
            return
        if message.kind in (WRONG, FAILED):
            for place in map(sheet.place_of, message.numbers):
                if place is not None:
                    sheet.hear_failure(place, member, message.kind, message.reason)
            if sheet.is_complete:
                self._drop(sheet)
        else:
            sheet.problem, sheet.is_busy = message.reason, message.kind == BUSY
            sheet.pause(self._loop.time())
