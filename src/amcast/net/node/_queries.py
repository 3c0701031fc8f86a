"""Queries: what clients ask a node's application, without a message in any log.

    a turn's queries   begin one read of the process, which says what position shows everything: see `Process.on_read`
    the read is done   they wait until the application has applied that much
    it has             each is asked, and its answer leaves

A query with an age asks for less: that this process heard from its group, within that time, that it had everything its
leader knew of. It waits only for what the process has delivered by itself.

Queries are bounded: so many may wait, in all and of each client, with so many bytes; whoever asks for more hears BUSY.
One that waited too long is given back, for the client to ask elsewhere. An answer is made only when there is room for
it on its connection, so that a client that asks and does not read costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from ...core import GroupId, Process
from ..config import Limits
from ..security.access import Rights
from ..system import system
from ..wire.control import BUSY, ELSEWHERE, FAILED, WRONG, Answers, Query, Unanswered
from ..wire.framing import frame
from ._accounts import Account
from ._audit import Rate
from .application import ApplicationError, Host, checked_result
from .node import Node
from .results import RESULT_LIMIT

if TYPE_CHECKING:
    from .connection import Connection

_PATIENCE_S = 2.0  # for a leader, or for an application that lags: then the client asks elsewhere
_LOOK_S = 0.005  # at an application that lags, or a client that reads slowly
_TURN_QUERIES = 500  # asked in one turn of the event loop
_FRAME_BYTES = 256 << 10  # of answers
_REASON_MAX = 1_000  # characters

logger = logging.getLogger("amcast.node")


class _Asked:
    """The queries of one frame."""

    __slots__ = ("account", "bytes", "connection", "deadline_s", "numbers", "payloads", "position", "read")

    def __init__(self, connection: Connection, account: Account, query: Query, deadline_s: float) -> None:
        self.connection = connection
        self.account = account
        self.numbers = query.numbers
        self.payloads = query.payloads
        self.bytes = sum(map(len, query.payloads))
        self.deadline_s = deadline_s
        self.read = -1
        self.position = -1  # which the application must have reached, once its read is done


class Queries:
    def __init__(self, node: Node, limits: Limits) -> None:
        self._node = node
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        # In the order in which they came: those whose read is not done, and those that wait for the application, or for
        # room on their connections.
        self._reading: deque[_Asked] = deque()
        self._readable: dict[_Asked, None] = {}
        self.count = 0
        self.bytes = 0
        self._look: asyncio.Handle | None = None
        self._logged = Rate(1, 10)
        self._can_read = type(node.process).on_read is not Process.on_read
        node.on_readable = self._on_readable

    # -- taking

    def take(self, connection: Connection, account: Account, rights: Rights, query: Query) -> None:
        # An empty one would count as nothing, so that any number of them could wait.
        if not query.numbers or len(query.numbers) != len(query.payloads) or query.max_age_ms < 0:
            connection.refuse("not a query: it has payloads, a number for each payload, and an age of 0 or more")
            return
        limit = self._limits.message_bytes
        if (size := max(map(len, query.payloads), default=0)) > limit:
            connection.refuse(f"a query of {size} bytes is over the limit of {limit}")
        elif (problem := self._problem_with(query.group, rights)) is not None:
            self._give_back(connection, query.numbers, WRONG, problem)
        elif not self._node.is_running or self._node.process.is_silent:
            self._give_back(connection, query.numbers, ELSEWHERE, f"{self._node.name} is starting")
        elif query.max_age_ms and (problem := self._too_old(query.max_age_ms)) is not None:
            self._give_back(connection, query.numbers, ELSEWHERE, problem)
        else:
            self._admit(_Asked(connection, account, query, system().monotonic_s() + _PATIENCE_S), query)

    def _problem_with(self, group: GroupId, rights: Rights) -> str | None:
        node = self._node
        if group != node.group:
            return f"{node.name} is no member of g{group}: ask a member"
        if not rights.may_follow(group):
            return f"this client has no right to follow g{group}, and so none to query it"
        if node.application is None:
            return f"g{group} has no application: nothing there answers a query"
        return None if self._can_read else f"{node.config.protocol} answers no reads"

    def _too_old(self, max_age_ms: int) -> str | None:
        """Whether this process was up to date within this time, as far as it was told."""
        node = self._node
        if node.process.freshness == ():
            return None
        if node.fresh_s is None:
            return f"{node.name} does not know how old its state is"
        age_ms = (system().monotonic_s() - node.fresh_s) * 1_000
        return None if age_ms <= max_age_ms else f"the state of {node.name} may be {age_ms:.0f} ms old"

    def _admit(self, asked: _Asked, query: Query) -> None:
        account, count = asked.account, len(asked.numbers)
        fits = self.count + count <= self._limits.queries and self.bytes + asked.bytes <= self._limits.queries_bytes
        own = account.limits
        is_within = (
            account.open_messages + count <= own.open_messages and account.open_bytes + asked.bytes <= own.open_bytes
        )
        # A frame that is larger than a limit is taken while nothing waits: otherwise it would never be.
        if (self.count and not fits) or (account.open_messages and not is_within):
            self._give_back(asked.connection, asked.numbers, BUSY, f"too many queries wait at {self._node.name}")
            # A short pause, always: what the client asked again meanwhile is behind this frame, and has to be read.
            asked.connection.throttle(account.pause(int(system().monotonic_s() * 1e6), is_contended=False))
            return
        self._count(asked, count, asked.bytes)
        if query.max_age_ms:
            self._note_position(asked, self._node.process.delivered)
            self._serve()
        else:
            asked.read = self._node.begin_read()
            self._reading.append(asked)
            self._look_later()

    def _count(self, asked: _Asked, count: int, size: int) -> None:
        self.count += count
        self.bytes += size
        asked.account.open_messages += count
        asked.account.open_bytes += size

    # -- serving

    def _on_readable(self, read: int, position: int) -> None:
        reading = self._reading
        while reading and reading[0].read <= read:  # they only rise
            self._note_position(reading.popleft(), position)
        self._serve()

    def _note_position(self, asked: _Asked, position: int) -> None:
        asked.position = position
        self._readable[asked] = None

    def _on_turn_end(self) -> None:
        if self._readable:
            self._serve()

    def _serve(self) -> None:
        """Asks the application what it can answer by now."""
        host = self._node.application
        assert host is not None, "queries are taken only where there is an application"
        room = _TURN_QUERIES
        for asked in list(self._readable):
            if asked.position > host.position or not self._has_room(asked.connection):
                continue
            room -= len(asked.numbers)
            self._answer(asked, host)
            if room <= 0:
                break
        if room < _TURN_QUERIES:
            self._node.hurry()
        if self._readable or self._reading:
            self._look_later()

    def _has_room(self, connection: Connection) -> bool:
        return connection.takes_output and connection.waiting_bytes <= self._limits.client_bytes

    def _answer(self, asked: _Asked, host: Host) -> None:
        """As much as there is room for. The rest waits."""
        try:
            query = host.querying()
        except ApplicationError as error:
            self._give_back(asked.connection, asked.numbers, ELSEWHERE, str(error))
            self._forget(asked, len(asked.numbers))
            return
        answers: list[bytes | None] = []  # those that are not sent yet
        first = done = 0  # `first`: of them
        size = 0  # of all since the last look whether there is room, also of those that are sent
        for payload in asked.payloads:
            done += 1
            try:
                answer = query(payload)
                if type(answer) is not bytes or len(answer) > RESULT_LIMIT:
                    answer = checked_result(answer)
            except Exception as error:
                self._send(asked.connection, asked.numbers[first : done - 1], answers)
                self._on_raised(asked.connection, asked.numbers[done - 1], error)
                answers, first = [], done
                continue
            answers.append(answer)
            if answer is not None:
                size += len(answer)
                if size > _FRAME_BYTES:
                    self._send(asked.connection, asked.numbers[first:done], answers)
                    answers, first, size = [], done, 0
                    if not self._has_room(asked.connection):
                        break
        self._send(asked.connection, asked.numbers[first:done], answers)
        self._forget(asked, done)

    def _forget(self, asked: _Asked, done: int) -> None:
        """The first ones are answered, or given back."""
        if done == len(asked.numbers):
            self._count(asked, -done, -asked.bytes)
            self._readable.pop(asked, None)
            return
        size = sum(map(len, asked.payloads[:done]))
        self._count(asked, -done, -size)
        asked.numbers, asked.payloads = asked.numbers[done:], asked.payloads[done:]
        asked.bytes -= size

    def _send(self, connection: Connection, numbers: tuple[int, ...], answers: list[bytes | None]) -> None:
        if not answers:
            return
        leader = self._node.process.leader
        if leader is not None and self._node.topology.group_of(leader) != self._node.group:
            leader = None
        answer = Answers(self._node.group, leader, numbers, tuple(answers))
        connection.send_frame(frame(msgspec.msgpack.encode(answer)), is_owed=True)

    def _on_raised(self, connection: Connection, number: int, error: Exception) -> None:
        """It changed nothing, so that its client alone hears of it."""
        if self._logged.take():
            logger.warning("the application raised in a query: %s", error, exc_info=error)
        try:
            text = f"{type(error).__name__}: {error}"
        except Exception:  # so may its text
            text = type(error).__name__
        self._give_back(connection, (number,), FAILED, text)

    def _give_back(self, connection: Connection, numbers: tuple[int, ...], kind: str, reason: str) -> None:
        text = reason.encode(errors="replace").decode()[:_REASON_MAX]
        connection.say(Unanswered(self._node.group, numbers, kind, text))

    # -- waiting

    def _look_later(self) -> None:
        """While something waits, and a bit longer: to watch turns only now and then costs more than a look too many."""
        if self._look is None:
            self._node.watch_turns(self._on_turn_end, True)
            self._look = self._loop.call_later(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        self._give_up(system().monotonic_s())
        if self._readable:
            self._serve()
        elif self._reading:
            self._look_later()
        if self._look is None:
            self._node.watch_turns(self._on_turn_end, False)

    def _give_up(self, now_s: float) -> None:
        """Those that have waited for too long, and those that nobody waits for."""
        ended = [
            each for each in (*self._reading, *self._readable) if each.connection.is_lost or each.deadline_s < now_s
        ]
        for asked in ended:
            if not asked.connection.is_lost:
                self._give_back(asked.connection, asked.numbers, ELSEWHERE, self._what_is_missing(asked))
            self._forget(asked, len(asked.numbers))
        if ended and self._reading:
            gone = set(ended)
            self._reading = deque([each for each in self._reading if each not in gone])

    def _what_is_missing(self, asked: _Asked) -> str:
        if asked.position < 0:
            return f"{self._node.name} finds no leader that a majority follows"
        return f"the application of {self._node.name} lags: it waits for position {asked.position}"
