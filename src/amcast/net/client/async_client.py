"""The client: multicasts messages, and follows what groups deliver.

    async with amcast.connect("cluster.toml") as client:
        await client.multicast({"g1", "g2"}, b"transfer 10 from a to b")   # returns when all groups have delivered it
        async for delivery in client.deliveries("g1"):
            ...

It drives the same sans-IO client as the simulator. That client finds leaders, and sends a message again under the same
id until it is delivered; groups order each id once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ...apps.store import Meaning, meaning_of, result_in
from ...core import AppMessage, GroupId, MessageId, Outbox, ProcessId, Topology, UsageError, Wire, liars_max, sender_of
from ...core.errors import RetryableError
from ...core.ids import SEQ_BITS
from ...protocols import Client, ClientConfig, Ingress, IngressGroups, ProtocolSpec, Reply, protocol
from ..config import client_config, replica_config
from ..system import system
from ..wire.control import Layout, Result, ResultsQuery, Status
from ..wire.envelope import KEY_LIMIT, Keyed, Skip, as_sent, enclose
from ..wire.framing import frame
from ._questions import SHEET_BYTES, Answer, Kind, Sheet
from .driver import ClientDriver
from .history import HistoryWriter
from .observer import Observer, Where, seeds_and_credentials
from .trunk import Credentials, Trunk

_ASK_FIRST_S, _ASK_MAX_S = 0.05, 1.0  # between two questions for a result
Payload = bytes | bytearray | memoryview


class BusyError(RetryableError):
    """The cluster has too many open messages. This one may still be delivered, once."""


class NotInTimeError(RetryableError, TimeoutError):
    """Not every group has answered in time. The message may still be delivered, once."""


class NotExecutedError(UsageError):
    """The groups have delivered the request, and their applications did not execute it: the text says why."""


class _Call(msgspec.Struct, gc=False):
    """What the applications of some groups answered to a message."""

    dst: tuple[GroupId, ...]
    only: GroupId | None = None  # its one group, if one member is believed: the usual case, which must cost little
    result: Result = None  # of that group
    told: dict[GroupId, Result] | None = None  # otherwise, by groups
    is_complete: bool = False
    problem: str = ""
    is_told: asyncio.Event | None = None  # while somebody waits for it
    said: dict[ProcessId, tuple[Result, str]] | None = None  # by members of the groups, where one is not enough

    @property
    def missing(self) -> list[GroupId]:
        if self.is_complete:
            return []
        told = self.told or {}
        return [group for group in self.dst if group not in told]

    def results(self) -> dict[str, bytes | None]:
        """By the names of the groups. Raises if a group has not executed the message."""
        if self.problem:
            raise UsageError(self.problem)
        if self.only is not None and not isinstance(self.result, int):
            return {_name_of(self.only): self.result}
        told = {self.dst[0]: self.result} if self.told is None else self.told
        results: dict[str, bytes | None] = {}
        for group in self.dst:
            if group not in told:
                continue  # another one's answer was enough
            result = told[group]
            if isinstance(result, int):
                raise NotExecutedError(f"g{group}: {result.text}")
            results[_name_of(group)] = result
        return results


@cache
def _name_of(group: GroupId) -> str:
    return f"g{group}"


class WaitingClient(Client):
    """Completes the future of a message when all its groups have delivered it, and gathers the results of calls."""

    def __init__(
        self,
        process: ProcessId,
        topology: Topology,
        entries: IngressGroups,
        config: ClientConfig,
        make_ingress: Callable[[ProcessId], Ingress] | None,
        fears_liars: bool,
        numbers_by_entry: bool,
        spec: ProtocolSpec | None = None,
    ) -> None:
        """`spec`: of a protocol whose messages are operations on objects. All groups execute the same and answer the
        same, so that the first answer to a call is enough."""
        super().__init__(process, topology, entries, config, make_ingress, fears_liars, numbers_by_entry)
        self.operations_of = spec
        self.waiting: dict[MessageId, asyncio.Future[None]] = {}
        self.calls: dict[MessageId, _Call] = {}  # without the results of all groups

    def unfinished(self, delivered: Sequence[AppMessage]) -> Sequence[AppMessage]:
        calls = self.calls
        return [message for message in delivered if message.id in calls] if calls else ()

    def take_results(
        self, sender: ProcessId, group: GroupId, ids: Sequence[MessageId], results: Sequence[Result], problem: str
    ) -> None:
        """The first answer of each group counts, or the first that f+1 members give, if f may lie.

        Those of multicasts come as well: groups don't tell them apart.
        """
        calls = self.calls
        if not calls:
            return
        for id_, result in zip(ids, results, strict=False):
            call = calls.get(id_)
            if call is None:
                continue
            if call.only == group:
                call.result, call.is_complete = result, True
                del calls[id_]
            elif call.only is not None or not self._is_news(call, sender, group, (result, problem)):
                continue
            elif call.is_complete:
                del calls[id_]
            if problem:
                call.problem = problem
            if call.is_told is not None:
                call.is_told.set()
            if call.is_complete and self._delivered:
                self.release(id_)

    def _is_news(self, call: _Call, sender: ProcessId, group: GroupId, answer: tuple[Result, str]) -> bool:
        """Whether it is known by this, what one of several groups answered, or one whose members may lie."""
        told = call.told = call.told or {}
        if group in told or group not in call.dst:
            return False
        if self._fears_liars and not self._is_certain(call, sender, group, answer):
            return False
        told[group], _ = answer
        call.is_complete = self.operations_of is not None or len(told) == len(call.dst)
        return True

    def _is_certain(self, call: _Call, sender: ProcessId, group: GroupId, told: tuple[Result, str]) -> bool:
        said = call.said = call.said or {}
        said[sender] = told
        members = self._topology.members(group)
        return sum([said.get(each) == told for each in members]) > liars_max(len(members))

    def refuse_wrong(self, dst: tuple[GroupId, ...], payload: bytes) -> None:
        """An operation that the groups would refuse raises here, and nobody hears of it."""
        spec = self.operations_of
        assert spec is not None
        message = AppMessage(self._process << SEQ_BITS, dst, payload, 0)
        problem = spec.problem_with(self._process, spec.client_messages[0](message), self._topology)
        if problem is not None:
            raise UsageError(problem)

    def begin_call(self, message: AppMessage) -> _Call:
        dst = message.dst
        only = dst[0] if len(dst) == 1 and not self._fears_liars else None
        call = self.calls[message.id] = _Call(dst, only)
        return call

    def end_call(self, id_: MessageId) -> None:
        """It is complete, or given up: groups need not keep its results for this client any more."""
        del self.calls[id_]
        self.release(id_)

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Reply):
            for completed in self.on_reply(sender, message):
                future = self.waiting.pop(completed.id, None)
                if future is not None and not future.done():
                    future.set_result(None)


class _Driver(ClientDriver):
    process: WaitingClient


def _make_process(process: ProcessId, topology: Topology, layout: Layout) -> WaitingClient:
    config = replica_config(layout.protocol, layout.network, layout.options)
    spec = protocol(layout.protocol).configured(config)
    make_ingress = spec.ingress_maker(topology, config)
    configured = client_config(layout.network)
    groups, own = spec.ingress_groups, spec if spec.orders_operations else None
    return WaitingClient(
        process, topology, groups, configured, make_ingress, spec.survives_liars, spec.numbers_by_entry, own
    )


def _age_ms(consistency: str, max_age: float) -> int:
    """How old the state that answers a local query may be."""
    if consistency != "local":
        raise UsageError(f"a query is linearizable or local, not '{consistency}'")
    age_ms = round(max_age * 1_000)
    if age_ms < 1:
        raise UsageError(f"a state is never {max_age:g} s old: ask for a linearizable query, or give a longer time")
    return age_ms


def _checked(payload: Any) -> bytes:
    if not isinstance(payload, Payload):
        hint = ": encode it, as in text.encode()" if isinstance(payload, str) else ""
        raise UsageError(f"a payload is bytes, not {type(payload).__name__}{hint}")
    return bytes(payload)  # what can change must not change on its way


async def _answer_and_write_down(
    history: HistoryWriter, id_: MessageId, answer: Coroutine[Any, Any, dict[str, bytes | None]], meaning: Meaning
) -> dict[str, bytes | None]:
    try:
        results = await answer
    except NotExecutedError:
        history.refused(id_)
        raise
    told = next(iter(results.values()))
    result = None if told is None else result_in(told, meaning)
    if told is not None and result is None:
        history.refused(id_)
    else:
        history.answered(id_, result)
    return results


class AsyncClient(Observer):
    """Multicasts messages, calls applications, and follows groups. Made by `connect`, and opened by `async with`.

    It belongs to the event loop in which it was opened. What it has for the same groups at a time is ordered as one, so
    many calls at a time (`asyncio.gather`) are much faster than one after the other.
    """

    def __init__(self, seeds: Sequence[tuple[str, int]], credentials: Credentials, trunk: Trunk | None = None) -> None:
        super().__init__(seeds, credentials)
        self._shared = trunk  # of the client whose connections this one shares
        self._driver: _Driver | None = None
        self._busy: set[MessageId] = set()
        self.history_folder: Path | None = None  # where it writes down what it did: see `connect`
        self._history: HistoryWriter | None = None

    async def __aenter__(self) -> Self:
        driver = _Driver(self._shared or Trunk(self._credentials), _make_process)
        await self._patiently(partial(driver.open, self._seeds))
        driver.on_busy = self._note_busy
        driver.on_results = driver.process.take_results
        self._driver = driver
        self._opened = driver.trunk
        if self.history_folder is not None:
            self._history = HistoryWriter(self.history_folder)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._history is not None:
            self._history.close()
            self._history = None
        if self._driver is None:
            return
        await self._driver.close()
        for future in self._process.waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the client was closed before the message was delivered"))
                future.exception()  # marks it as seen: perhaps nobody waits for it any more
        self._driver = self._opened = None

    def session(self) -> AsyncClient:
        """Another client on the connections of this one: its messages have an order and retries of their own.

        For programs that act for many others, such as a gateway: a session costs far less than connections.
        """
        session = AsyncClient(self._seeds, self._credentials, self._trunk)
        session.history_folder = self.history_folder
        return session

    def _note_busy(self, ids: Sequence[MessageId]) -> None:
        for id_ in ids:
            self._busy.update([message.id for message in self._process.sent_with(id_)])

    @property
    def _open(self) -> _Driver:
        if self._driver is None:
            raise UsageError("this client is not open: use `async with amcast.connect(...) as client`")
        return self._driver

    @property
    def _process(self) -> WaitingClient:
        return self._open.process

    @property
    def uses_new_files(self) -> bool:
        """Whether all connections were made with the files of now: then older certificates and tokens may go."""
        return self._trunk.uses_new_files

    # -- multicast

    async def multicast(self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0) -> MessageId:
        """Returns when every destination group has delivered the message. `groups` is one name, or several.

        Returns the message's id. After `timeout` seconds it raises `NotInTimeError`, or `BusyError` if the cluster was
        too busy all the time. The client then goes on trying in the background, under the same id: the message may be
        delivered later, but never twice.
        """
        driver = self._driver or self._open
        given = payload if type(payload) is bytes else _checked(payload)
        message, future = self._submit(driver, groups, as_sent(given))
        await self._finish(driver, message.id, future, timeout)
        return message.id

    async def _finish(
        self,
        driver: _Driver,
        id_: MessageId,
        future: asyncio.Future[None],
        timeout: float | None,
        call: _Call | None = None,
    ) -> None:
        """Waits until all groups have delivered a message, and have told the results of a call.

        Nobody else has the future: it may be cancelled with whoever waits here, and the message goes its way.
        """
        deadline_s = None if timeout is None else driver.deadlines.begin(future, timeout)
        try:
            await future
            if call is not None and not call.is_complete:
                async with asyncio.timeout_at(deadline_s):
                    await self._ask_for_results(id_, call)
        except TimeoutError:
            raise self._not_in_time(id_, timeout) from None
        finally:
            if timeout is not None:
                driver.deadlines.end(future, timeout)
            self._busy.discard(id_)
            if call is not None and not call.is_complete:
                driver.process.end_call(id_)

    def _not_in_time(self, id_: MessageId, timeout: float | None) -> RetryableError:
        if id_ in self._busy:
            return BusyError("the cluster was busy all the time: send less, or wait longer")
        problems = "; ".join(self._trunk.problems)
        reason = f": {problems}" if problems else ""
        return NotInTimeError(f"not delivered everywhere within {timeout:g} s{reason}")

    # -- calls

    async def call(
        self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0, *, key: str | None = None
    ) -> dict[str, bytes | None]:
        """Multicasts a message to groups with an application inside, and returns what each group's `apply` returned.

        Each group executes the message once, and its answer is the one of that execution, through any retry and
        fail-over. After a timeout the message may still be executed, once.

        With a `key`, the same holds for all calls that this client's name makes with that key, groups and payload, also
        by other programs and later: the request is executed once, and each call gets the answer of that execution.
        """
        if self._history is not None:
            _, answer = self.submit_call(groups, payload, timeout, key=key)
            return await answer
        enclosed = as_sent(payload) if key is None and type(payload) is bytes else self._enclosed(payload, key)
        driver = self._driver or self._open
        message, future = self._submit(driver, groups, enclosed)
        call = driver.process.begin_call(message)
        await self._finish(driver, message.id, future, timeout, call)
        return call.results()

    def _submit_and_write_down(
        self, history: HistoryWriter, groups: str | Iterable[str], payload: bytes, timeout: float | None
    ) -> tuple[MessageId, Coroutine[Any, Any, dict[str, bytes | None]]]:
        """A call of which the history has all: when it was made, and the answer if there was one."""
        meaning = meaning_of(payload)
        id_, answer = self._submit_call(groups, as_sent(payload), timeout)
        if meaning is None:
            return id_, answer
        history.called(id_, sender_of(id_), meaning)  # nothing has left yet: that happens when the turn ends
        return id_, _answer_and_write_down(history, id_, answer, meaning)

    def submit_call(
        self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0, *, key: str | None = None
    ) -> tuple[MessageId, Coroutine[Any, Any, dict[str, bytes | None]]]:
        """Like `call`: the message is on its way, and its results are to be awaited."""
        if self._history is not None and key is None:
            return self._submit_and_write_down(self._history, groups, _checked(payload), timeout)
        return self._submit_call(groups, self._enclosed(payload, key), timeout)

    def _enclosed(self, payload: Payload, key: str | None) -> bytes:
        payload = _checked(payload)
        return as_sent(payload) if key is None else self._keyed(key, payload)

    def _keyed(self, key: str, payload: bytes) -> bytes:
        if not 0 < len(key) <= KEY_LIMIT:
            raise UsageError(f"a key is a text of 1 to {KEY_LIMIT} characters, such as 'invoice 17'")
        return enclose(Keyed(self._credentials.name, key, payload))

    async def skip(self, group: str, position: int, timeout: float | None = 30.0) -> None:
        """Has a group decide not to execute the message at this position, because its application raises for it.

        The group's nodes must run with the application on hold there (`amcast node --hold-at`). See `amcast skip`.
        """
        await self._check_held(group, position)
        _, answer = self._submit_call((group,), enclose(Skip(position)), timeout)
        await answer

    async def _check_held(self, group: str, position: int) -> None:
        members = self.layout.groups[self._group(group)]
        answers = await asyncio.gather(*map(self.status, members), return_exceptions=True)
        told = [answer for answer in answers if isinstance(answer, Status)]
        further = [each.name for each in told if each.application is not None and each.application > position]
        if further:
            raise UsageError(f"{further[0]} has executed the message at position {position}: it can't be skipped")
        if not any(each.held_at == position for each in told):
            raise UsageError(
                f"no member of {group} holds its application at position {position}: start its nodes with"
                f" --hold-at {position} first"
            )

    def _submit_call(
        self, groups: str | Iterable[str], enclosed: bytes, timeout: float | None
    ) -> tuple[MessageId, Coroutine[Any, Any, dict[str, bytes | None]]]:
        driver = self._open
        message, future = self._submit(driver, groups, enclosed)
        call = driver.process.begin_call(message)

        async def answer() -> dict[str, bytes | None]:
            await self._finish(driver, message.id, future, timeout, call)
            return call.results()

        return message.id, answer()

    async def _ask_for_results(self, id_: MessageId, call: _Call) -> None:
        """A leader tells results by itself. If it could not, any member of the group may know them.

        Where members may lie, all are asked.
        """
        question = frame(msgspec.msgpack.encode(ResultsQuery((id_,))))
        pause_s = _ASK_FIRST_S
        attempt = 0
        is_told = call.is_told = asyncio.Event()
        while missing := call.missing:
            if self._driver is None:
                raise ConnectionError("the client was closed before all groups had answered")
            for group in missing:
                members = self.layout.groups[group]
                first = members.index(self._process.leader_of(group))
                asked = members if self._trunk.fears_liars else (members[(first + attempt) % len(members)],)
                for member in asked:
                    self._trunk.send(member, question)
            attempt += 1
            is_told.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await is_told.wait()
            pause_s = min(2 * pause_s, _ASK_MAX_S)

    # -- queries

    async def query(
        self,
        group: str,
        payload: Payload,
        *,
        consistency: str = "linearizable",
        max_age: float = 1.0,
        timeout: float | None = 30.0,
    ) -> bytes | None:
        """Asks the application of one group, which answers with its `query`. Nothing is ordered or written.

        The answer shows whatever any client was told before this call: every message that was delivered, and all that
        an earlier query showed. With `consistency="local"` any member answers, at once, whose state was up to date at
        some time in the last `max_age` seconds, as far as it heard from its leader.

        An error of the application is a `QueryError`. A query that got no answer in time can be asked again freely.
        """
        age_ms = 0 if consistency == "linearizable" else _age_ms(consistency, max_age)
        history = None if age_ms else self._history
        since_us = 0 if history is None else system().wall_us()
        driver = self._driver or self._open
        question = payload if type(payload) is bytes else _checked(payload)
        future: Answer = driver.loop.create_future()
        kind = (group, age_ms, timeout)
        sheet = driver.trunk.questions.ask(kind, question, future) or self._ask_first(driver, kind, question, future)
        try:
            answer = await future
        except TimeoutError:
            raise self._unanswered(sheet, timeout) from None
        if history is not None:
            self._write_down_query(history, question, since_us, answer)
        return answer

    def _write_down_query(self, history: HistoryWriter, payload: bytes, since_us: int, answer: bytes | None) -> None:
        """A query without an answer changes nothing, so the history has only those that were answered."""
        meaning = meaning_of(payload)
        result = None if meaning is None or answer is None else result_in(answer, meaning)
        if meaning is not None and result is not None:
            history.read(self._process.sender, since_us, meaning, result)

    def _ask_first(self, driver: _Driver, kind: Kind, question: bytes, future: Answer) -> Sheet:
        """The first query of its kind in this turn, or one that does not fit in with the others."""
        name, age_ms, timeout = kind
        trunk, group = driver.trunk, self._group(name)
        questions, members, limit = trunk.questions, trunk.members[group], trunk.message_bytes
        if len(question) > limit:
            raise UsageError(f"a query of {len(question)} bytes is over the cluster's limit of {limit}")
        leader = questions.leaders.get(group)
        if leader is None or leader not in members:
            leader = driver.process.leader_of(group)
        liars = liars_max(len(members)) if trunk.fears_liars else 0
        sheet = Sheet(group, members, leader, age_ms, timeout, liars, min(limit, SHEET_BYTES))
        sheet.add(question, future)
        questions.begin(kind, sheet)
        return sheet

    def _unanswered(self, sheet: Sheet, timeout: float | None) -> RetryableError:
        if sheet.is_busy:
            return BusyError("the cluster was busy all the time: ask less, or wait longer")
        problems = "; ".join([*([sheet.problem] if sheet.problem else []), *self._trunk.problems])
        reason = f": {problems}" if problems else ""
        return NotInTimeError(f"no answer to a query within {timeout:g} s{reason}")

    def submit(self, groups: str | Iterable[str], payload: Payload) -> tuple[MessageId, asyncio.Future[None]]:
        """Like `multicast`, without waiting: the future is done when the message is delivered everywhere."""
        message, future = self._submit(self._open, groups, as_sent(_checked(payload)))
        return message.id, future

    def _submit(
        self, driver: _Driver, groups: str | Iterable[str], payload: bytes
    ) -> tuple[AppMessage, asyncio.Future[None]]:
        process, trunk = driver.process, driver.trunk
        if isinstance(groups, str):
            dst: tuple[GroupId, ...] = trunk.destinations.get(groups) or (self._group(groups),)
        else:
            dst = tuple(sorted({self._group(name) for name in groups}))
        if len(payload) > trunk.message_bytes:
            raise UsageError(
                f"a payload of {len(payload)} bytes is over the cluster's limit of {trunk.message_bytes}: "
                "split it, or send a reference"
            )
        if process.operations_of is not None:
            process.refuse_wrong(dst, payload)
        message = process.new_message(dst, payload)
        future: asyncio.Future[None] = driver.loop.create_future()
        process.waiting[message.id] = future
        process.on_multicast_all((message,), driver)
        return message, future


def connect(
    where: Where,
    *,
    name: str = "client",
    token: str = "",
    token_file: str | Path | None = None,
    certs: str | Path | None = None,
    region: str = "local",
    wait: float = 0.0,
    history: str | Path | None = None,
) -> AsyncClient:
    """A client of a running cluster, for programs with an event loop.

        async with amcast.connect("cluster.toml") as client:
            await client.multicast({"g1", "g2"}, b"transfer 10 from a to b")

    `where` is a `cluster.toml`, or some addresses as "10.0.0.1:7101,10.0.0.2:7101", of which one must answer. `name` is
    the client's name, as in its certificate; `token`, or the file `token_file`, gives it its rights where nodes ask for
    one. `region` says where it is, for a cluster whose links have delays of an emulated network.

    `wait` is how many seconds to try if no process answers, as while the cluster starts; without it, that is an error.
    `certs` is a folder of `amcast certs` that holds this client's certificate under its name. Its files, and that of
    the token, are read again for new connections: they can be replaced while the client runs.

    `history` is a folder where the client writes down its calls and queries of a store of objects, for a check of
    linearizability (docs/geopaxos.md).
    """
    client = AsyncClient(*seeds_and_credentials(where, name, token, token_file, certs, region))
    client.wait_s = wait
    client.history_folder = None if history is None else Path(history)
    return client
