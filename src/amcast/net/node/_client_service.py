"""What a node does for a client program on one connection: checks and takes its requests, and sends it replies.

Clients are not trusted. A request that breaks a rule closes the connection, with the rule as the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId, encode
from ...core.batch import problem_with_batch
from ...core.ids import SEQ_BITS, SEQ_MASK, UNSETTLED_MAX
from ...protocols import IngressMessage, Reply, Start, problem_with_destinations, problem_with_number
from ..security.access import Rights
from ..wire.control import (
    DECODE_ERRORS,
    Attach,
    Busy,
    Detach,
    Follow,
    Hello,
    PlacementQuery,
    Query,
    Renew,
    Renewed,
    Result,
    Results,
    ResultsQuery,
    StatusQuery,
    Unfollow,
)
from ..wire.envelope import ENVELOPE, KEY_LIMIT, Keyed, Skip, enclosed, envelopes_in
from ..wire.framing import Frame, frame
from ._accounts import Account
from ._observer_service import ObserverService
from ._refusals import Cause

if TYPE_CHECKING:
    from .connection import Connection
    from .server import NodeServer

_KNOWN_DST_MAX = 256
_SESSIONS_MAX = 100_000
_REGION_MAX = 64  # characters
_RESULTS_BYTES = 256 << 10  # in one frame, about
_ANSWER_BYTES = 1 << 20  # in all frames that answer one question, about


class ClientService:
    def __init__(
        self, server: NodeServer, connection: Connection, hello: Hello, rights: Rights, account: Account
    ) -> None:
        self.sessions: set[ProcessId] = set()  # client ids that were proved on this connection, also those that left
        self.has_sent = False  # a message, so that there may be more
        self._server = server
        self._node = server.node
        self._connection = connection
        self.send_frame = connection.send_frame
        self.close = connection.close
        self._name = hello.name
        self.region = hello.region[:_REGION_MAX]
        self._rights = rights
        self.account = account
        self._observer = ObserverService(server, connection, rights, account)
        self._known_dst: set[tuple[GroupId, ...]] = set()  # destinations that were checked before
        # Of this turn, by the groups that have delivered a message and who leads, if that is said.
        self._replies: dict[tuple[tuple[GroupId, ...], ProcessId | None], list[MessageId]] = {}
        self._results: dict[MessageId, Result] = {}  # of this turn

    # -- replies

    def reply(self, reply: Reply) -> bool:
        """Whether it is the first of this turn: the caller then sees to it that `send_replies` is called."""
        is_first = not self._replies and not self._results
        ids = self._replies.get((reply.groups, reply.leader))
        if ids is None:
            self._replies[reply.groups, reply.leader] = [*reply.ids]
        else:
            ids += reply.ids
        return is_first

    def results(self, ids: Sequence[MessageId], results: Sequence[Result]) -> bool:
        """What the application answered. Returns the same as `reply`."""
        is_first = not self._replies and not self._results
        self._results.update(zip(ids, results, strict=True))
        return is_first

    def send_replies(self) -> None:
        """Results come first: a client that has a reply and no result asks for it."""
        if self._results:
            results, self._results = self._results, {}
            self._send_results(results)
        replies, self._replies = self._replies, {}
        for (groups, leader), ids in replies.items():
            self.send_frame(frame(encode(Reply(groups, tuple(ids), leader))))

    def _send_results(self, results: dict[MessageId, Result]) -> None:
        """In frames of a moderate size. Those that do not fit in what may wait are lost, and asked for."""
        for part in _parts(results):
            answer = Results(self._node.group, tuple(part), tuple(part.values()))
            self.send_frame(frame(msgspec.msgpack.encode(answer)))

    def _on_results_query(self, message: ResultsQuery) -> None:
        if any(id_ >> SEQ_BITS not in self.sessions for id_ in message.ids):
            self._connection.refuse("a result is told to whoever has proved its client id on the same connection")
            return
        host = self._node.application
        if host is None:
            problem = f"g{self._node.group} has no application: nothing there answers a call"
            self._connection.say(Results(self._node.group, message.ids, (None,) * len(message.ids), problem))
            return
        found: dict[MessageId, Result] = {}
        size = 0
        for id_ in message.ids:
            is_known, result = host.results.find(id_)
            if is_known:
                found[id_] = result
                size += len(result) if isinstance(result, bytes) else 0
                if size > _ANSWER_BYTES:
                    break  # a short question must not cost much: the client asks again for the rest
        self._send_results(found)

    # -- requests

    def on_frame(self, data: Frame) -> None:
        try:
            message = self._server.requests.decode(data)
        except DECODE_ERRORS as error:
            self._connection.refuse(f"not a request: {error}")
            return
        if self.account.limits.messages_per_second:
            self._count(message)
        match message:
            case Start():
                self._on_start(message)
            case Attach():
                self._on_attach(message)
            case Renew():
                self._on_renew(message)
            case Detach():
                self._on_detach(message)
            case ResultsQuery():
                self._on_results_query(message)
            case Query() | Follow() | Unfollow() | StatusQuery() | PlacementQuery():
                self._observer.take(message)
            case IngressMessage():
                self._on_ingress(message)

    def _count(self, message: object) -> None:
        """Every frame counts, and one with messages as so many. What came is taken; what comes next may wait."""
        count = len(message.handed_over()) if isinstance(message, IngressMessage) else 1
        if isinstance(message, Query):
            count = len(message.numbers)
        wait_us = self.account.take_messages(max(1, count), self._server.now_us())
        if wait_us:
            self._connection.throttle(wait_us)

    # -- sessions

    def enter(self, client: ProcessId) -> None:
        self.sessions.add(client)
        self._node.clients.attach(client, self)

    def leave(self) -> None:
        """The connection is lost."""
        for client in self.sessions:
            self._node.forget_client(client, self)

    def _on_attach(self, message: Attach) -> None:
        tickets, session = self._server.security.tickets, self._connection.session_number
        if (problem := tickets.problem_with(message.client, self._name, message.ticket, session)) is not None:
            self._connection.refuse(problem)
        elif (problem := self._node.clients.problem_with_one_more(self.account)) is not None:
            self._connection.refuse(problem, elsewhere=True, cause=Cause.BUDGET)
        elif len(self.sessions) >= _SESSIONS_MAX:
            self._connection.refuse(f"{_SESSIONS_MAX} client ids have used this connection: open another one")
        else:
            self.enter(message.client)

    def _on_detach(self, message: Detach) -> None:
        """The id stays in `sessions`: frames that it sent before may arrive after this one."""
        if message.client in self.sessions:
            self._node.forget_client(message.client, self, message.settled)
        else:  # the trace would tell of an end that its client knows nothing of
            self._connection.refuse("a good-bye is said by whoever has proved its client id on the same connection")

    def _on_renew(self, message: Renew) -> None:
        if message.client not in self.sessions:
            self._connection.refuse("a ticket is renewed for whoever has proved its client id on the same connection")
        else:
            ticket = self._server.security.tickets.issue(message.client, self._name)
            self._connection.say(Renewed(message.client, ticket))

    # -- messages to multicast

    def _on_start(self, message: Start) -> None:
        if not self._node.is_running:
            self._connection.refuse(f"{self._node.name} is starting: try another process")
            return
        if Start not in self._node.client_messages:
            self._connection.refuse(f"no client sends START in {self._server.config.protocol}")
            return
        self.has_sent = True
        sessions, known_dst, limit = self.sessions, self._known_dst, self._server.config.limits.message_bytes
        checks_entries = self._node.checks_entries
        count = size = 0
        for each in message.messages:
            if (
                each.count != 1
                or checks_entries
                or each.id >> SEQ_BITS not in sessions
                or each.dst not in known_dst
                or len(each.payload) > limit
                or (each.id & SEQ_MASK) - each.settled >= UNSETTLED_MAX
                or each.payload.startswith(ENVELOPE)
            ):
                problem = self._problem_with(each)
                if problem is not None:
                    self._connection.refuse(problem)
                    return
            count += each.count
            size += len(each.payload)
        busy = self._node.admission.admit(message.messages, count, size, self.account, self._node.process.is_leader)
        if busy:
            self._say_busy(busy)
            message = _without(message, set(busy))
        if message.messages:
            self._node.take(message.messages[0].id >> SEQ_BITS, message)

    def _on_ingress(self, message: IngressMessage) -> None:
        """In protocols with an ingress of their own. All that a client sends must concern messages of its own."""
        self.has_sent = True
        problem = None if self._node.is_running else f"{self._node.name} is starting: try another process"
        senders = {id_ >> SEQ_BITS for id_ in message.about()}
        if len(senders) != 1 or not senders <= self.sessions:
            problem = "a message carries another sender's id"
        elif not self._rights.may_send_anything:
            problem = "this client has no right to send"
        handed_over = message.handed_over()
        for each in handed_over:
            problem = problem or self._problem_with(each)
        problem = problem or message.problem(next(iter(senders)), self._node.topology)
        if problem is not None:
            self._connection.refuse(problem)
        elif handed_over and (busy := self._busy_with(handed_over)):
            self._say_busy(busy)
        else:
            self._node.take(senders.pop(), message)

    def _say_busy(self, ids: Sequence[MessageId]) -> None:
        """And reads nothing more for a moment: a client that goes on sending must not cost the others' time."""
        self._connection.say(Busy(self._node.group, tuple(ids)))
        is_contended = self._node.admission.fairness.share < 1.0
        self._connection.throttle(self.account.pause(self._server.now_us(), is_contended))

    def _busy_with(self, messages: Sequence[AppMessage]) -> list[MessageId]:
        """All of them if one of them must wait: they came as one message of the protocol."""
        busy = self._node.admission.admit_ingress(messages, self.account)
        return [message.id for message in messages] if busy else []

    def _problem_with(self, message: AppMessage) -> str | None:
        limit = self._server.config.limits.message_bytes
        if message.id >> SEQ_BITS not in self.sessions:
            return "a message carries another sender's id"
        if message.count != 1:
            if not self._node.has_batches:
                return f"{self._server.config.protocol} orders each message by itself: no batch, please"
            problem = problem_with_batch(message, limit)
            if problem is not None:
                return problem
        elif len(message.payload) > limit:
            return f"a payload of {len(message.payload)} bytes is over the limit of {limit}"
        problem = problem_with_number(message)
        for envelope in envelopes_in(message):
            problem = problem or self._problem_with_envelope(envelope, message.dst)
        if problem is None and message.dst not in self._known_dst:
            problem = self._problem_with_dst(message.dst)
        if problem is None and self._node.checks_entries:
            problem = self._node.spec.problem_with_entry(message, self._node.topology)
        return problem

    def _problem_with_envelope(self, payload: bytes, dst: tuple[GroupId, ...]) -> str | None:
        try:
            found = enclosed(payload)
        except DECODE_ERRORS as error:
            return f"not an envelope: {error}"
        match found:
            case Keyed() if found.name != self._name:
                return "a key belongs to the name of the client that uses it"
            case Keyed() if not 0 < len(found.key) <= KEY_LIMIT:
                return f"a key has 1 to {KEY_LIMIT} characters"
            case Skip():
                return self._problem_with_skip(found.position, dst)
        return None

    def _problem_with_skip(self, position: int, dst: tuple[GroupId, ...]) -> str | None:
        """Nobody skips what a group executes: some node must hold its application there, as its operator wants."""
        host = self._node.application
        if not self._rights.may_operate:
            return "this client has no right to skip messages (`amcast token add --operate`)"
        if len(dst) != 1:
            return "a decision to skip a message concerns one group"
        if dst[0] != self._node.group:  # it is ordered here, for a group that this node knows nothing of
            return None
        if host is None or not (host.held_at == position or host.skips.is_decided(position)):  # it may be sent again
            return (
                f"{self._node.name} does not hold its application at position {position}: start the group's nodes with"
                f" --hold-at {position} first"
            )
        return None

    def _problem_with_dst(self, dst: tuple[GroupId, ...]) -> str | None:
        problem = problem_with_destinations(dst, self._node.topology)
        if problem is not None:
            return problem
        if not self._rights.may_send(dst):
            return "this client has no right to send to " + ", ".join(f"g{group}" for group in dst)
        if len(self._known_dst) < _KNOWN_DST_MAX:
            self._known_dst.add(dst)
        return None


def _parts(results: dict[MessageId, Result]) -> list[dict[MessageId, Result]]:
    if sum([len(result) for result in results.values() if isinstance(result, bytes)]) <= _RESULTS_BYTES:
        return [results] if results else []
    parts: list[dict[MessageId, Result]] = [{}]
    size = 0
    for id_, result in results.items():
        if size > _RESULTS_BYTES:
            parts.append({})
            size = 0
        parts[-1][id_] = result
        size += len(result) if isinstance(result, bytes) else 0
    return parts


def _without(start: Start, ids: set[MessageId]) -> Start:
    return Start(tuple([message for message in start.messages if message.id not in ids]))
