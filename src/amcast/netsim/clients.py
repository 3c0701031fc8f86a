"""The clients of a simulated cluster: those that multicast, and one that reads everything at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import Any

from ..apps.store import Meaning, meaning_of, operation_of, result_in
from ..core import AppMessage, MessageId, UsageError
from ..core.errors import RetryableError
from ..net.client.async_client import AsyncClient, NotExecutedError, connect
from ..net.client.observer import GoneError
from ..net.config import ClusterConfig
from ..net.wire.control import Status
from ..protocols import protocol
from ..trace import Recorder
from .application import EXCHANGE, answer_in
from .machine import Machine
from .nodes import Poison
from .scenario import NodeScenario

_RETRY_S = 0.2
_COMES_BACK_S = 0.5  # after so long, on average
_LOOK_S = 0.1
_STATUS_S = 1.0


class Asked:
    """A query, and what came of it."""

    def __init__(self, group: str, is_local: bool) -> None:
        self.group = group
        self.is_local = is_local
        self.answer: tuple[int, int] | None = None  # the application's position and state


class History:
    """What clients saw, in the order in which they saw it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ...]] = []  # the groups of each message
        self.events: list[tuple[str, MessageId | Asked, int]] = []  # kind, subject, and how many were sent by then
        self.recorder = Recorder()  # of operations on objects
        self._moment = 0

    def note(self, kind: str, subject: MessageId | Asked) -> None:
        self.events.append((kind, subject, len(self.sent)))

    def moment(self) -> int:
        """The time of a call or an answer: which came first is all that matters."""
        self._moment += 1
        return self._moment


class Sender:
    """Multicasts, calls and queries at its pace, whether or not the messages before are delivered.

    A leader that was deposed and does not know it proposes what clients send it, and its reads wait for that, in vain.
    One who only asks it is answered at once, if the leader takes it for granted that it leads.
    """

    def __init__(self, scenario: NodeScenario, index: int, machine: Machine, rng: Random, history: History) -> None:
        self._history = history
        self._asking = Random(f"{scenario.seed}/queries/{index}")  # messages are the same with queries and without
        self.sent: dict[MessageId, tuple[str, ...]] = {}
        self.acknowledged: set[MessageId] = set()
        self.payloads: dict[MessageId, bytes] = {}
        self.results: dict[MessageId, dict[str, bytes | None]] = {}  # of calls that were answered
        self.refused: dict[MessageId, str] = {}  # calls that were not executed, and why
        self.keys: dict[MessageId, str] = {}
        self.is_done = False
        self._spec = protocol(scenario.protocol)
        self._scenario = scenario
        self._index = index
        self._rng = rng
        each, more = divmod(scenario.messages, scenario.clients)
        self._messages = each + (index < more)
        self._only_asks = index >= scenario.clients
        self.program = machine.start(machine.name)
        self.task = self.program.loop.create_task(self._run())

    async def _run(self) -> None:
        scenario = self._scenario
        async with _connected(scenario.config(), self.program.name) as client:
            waiting: list[asyncio.Future[Any]] = []
            queries = max(1.0, scenario.queries) if self._only_asks else scenario.queries
            for number in range(self._messages):
                if not self._only_asks:
                    waiting.append(self._multicast(client, number))
                for _ in range(int(queries + self._asking.random())):
                    waiting.append(self.program.loop.create_task(self._query(client)))
                await asyncio.sleep(self._rng.expovariate(1e6 / self._scenario.interval_us))
            for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, NotExecutedError):
                    raise outcome
        self.is_done = True

    async def _query(self, client: AsyncClient) -> None:
        """Now, or a little later: much happens right after a message was sent."""
        rng = self._asking
        await asyncio.sleep(rng.choice((0.0, rng.expovariate(1e6 / self._scenario.interval_us))))
        asked = Asked(rng.choice(client.groups), rng.random() < 0.2)
        consistency = "local" if asked.is_local else "linearizable"
        self._history.note("begin", asked)
        answer = await client.query(asked.group, b"?", consistency=consistency, timeout=None)
        assert answer is not None, "the application of simulated nodes always answers"
        position, state = map(int, answer.split())
        asked.answer = position, state
        self._history.note("end", asked)

    def _multicast(self, client: AsyncClient, number: int) -> asyncio.Future[Any]:
        rng, scenario = self._rng, self._scenario
        if self._spec.orders_operations:
            return self._operate(client)
        groups = rng.sample(client.groups, rng.randint(1, min(scenario.dst_max, scenario.groups)))
        payload = f"{self._index}.{number}.".encode()
        if rng.random() < 0.5:
            payload = EXCHANGE + payload
        payload += b"x" * rng.randint(0, max(0, scenario.payload_bytes - len(payload)))
        kind = rng.random()
        if kind < 0.3:
            return self._call(client, groups, payload, None)
        if kind < 0.5:
            return self.program.loop.create_task(self._call_twice(client, groups, payload, f"key {number}"))
        id_, future = client.submit(groups, payload)
        self._note_sent(id_, groups, payload, future)
        return future

    def _operate(self, client: AsyncClient) -> asyncio.Future[Any]:
        """On one to three objects. Some operations move them, some are large; most are called for their answer."""
        rng, sites = self._rng, range(1, self._scenario.groups + 1)
        names = rng.sample([f"x{number}" for number in range(5)], rng.randint(1, 3))
        steps: list[tuple[str | int, ...]] = [("get", name) for name in names]
        if rng.random() < 0.7:
            steps += [("put", name, rng.getrandbits(52)) for name in names]
        if rng.random() < 0.2:
            steps.append(("put", names[0], "x" * rng.randint(0, self._scenario.payload_bytes)))
        payload = operation_of(steps, rng.choice(sites) if rng.random() < 0.2 else 0)
        groups = list(client.groups)
        meaning, history = meaning_of(payload), self._history
        assert meaning is not None
        if rng.random() < 0.7:
            done: asyncio.Future[Any] = self._call(client, groups, payload, None)
        else:
            id_, done = client.submit(groups, payload)
            self._note_sent(id_, groups, payload, done)
        row = history.recorder.operation(self._index, history.moment(), None, *meaning[:2], None, meaning.objects)
        done.add_done_callback(partial(self._note_answer, row, meaning))
        return done

    def _note_answer(self, row: int, meaning: Meaning, done: asyncio.Future[Any]) -> None:
        """A message that was not called has no answer that anybody saw: it may have taken effect at any time."""
        if not done.cancelled() and done.exception() is None and isinstance(done.result(), dict):
            (told,) = done.result().values()
            result = result_in(answer_in(told), meaning)
            self._history.recorder.operation_answered(row, self._history.moment(), result)

    def _call(
        self, client: AsyncClient, groups: list[str], payload: bytes, key: str | None
    ) -> asyncio.Future[dict[str, bytes | None]]:
        id_, answer = client.submit_call(groups, payload, None, key=key)
        task = self.program.loop.create_task(answer)
        if key is not None:
            self.keys[id_] = key
        self._note_sent(id_, groups, payload, task)
        return task

    async def _call_twice(self, client: AsyncClient, groups: list[str], payload: bytes, key: str) -> None:
        """As a program does that crashed and came back: the same request again."""
        first = self._call(client, groups, payload, key)
        await asyncio.sleep(self._rng.expovariate(1 / _COMES_BACK_S))
        second = self._call(client, groups, payload, key)
        for outcome in await asyncio.gather(first, second, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, NotExecutedError):
                raise outcome

    def _note_sent(self, id_: MessageId, groups: list[str], payload: bytes, future: asyncio.Future[Any]) -> None:
        self.sent[id_] = tuple(sorted(groups))
        self._history.sent.append(self.sent[id_])
        self.payloads[id_] = payload
        future.add_done_callback(lambda done: self._on_done(id_, done))

    def _on_done(self, id_: MessageId, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            return
        if isinstance(done.exception(), NotExecutedError):
            self.acknowledged.add(id_)
            self.refused[id_] = str(done.exception())
        elif done.exception() is None:
            self.acknowledged.add(id_)
            if isinstance(done.result(), dict):
                self.results[id_] = done.result()
            self._history.note("acknowledged", id_)


@asynccontextmanager
async def _connected(config: ClusterConfig, name: str) -> AsyncIterator[AsyncClient]:
    """A client that some process has answered. Until one does, it tries again."""
    while True:
        client = connect(config, name=name)
        try:
            await client.__aenter__()
        except UsageError:
            await asyncio.sleep(_RETRY_S)
        else:
            break
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)


class Operator:
    """Has groups skip the messages that their applications can't digest, once their nodes hold them there."""

    def __init__(self, scenario: NodeScenario, machine: Machine, poisons: dict[str, Poison]) -> None:
        self._scenario = scenario
        self._poisons = poisons
        self.is_asking = False  # a request is open: if the run ended now, nobody would know what became of it
        self.program = machine.start(machine.name)
        self.task = self.program.loop.create_task(self._run())

    async def _run(self) -> None:
        async with _connected(self._scenario.config(), self.program.name) as client:
            while True:
                await asyncio.sleep(_RETRY_S)
                for group, poison in self._poisons.items():
                    if poison.position is not None and not poison.is_skipped:
                        self.is_asking = True
                        with suppress(UsageError, RetryableError):
                            await client.skip(group, poison.position, 2.0)
                            poison.is_skipped = True
                        self.is_asking = False


class Reader:
    """Waits until all members of each group are at the same position, and reads what each group delivered."""

    def __init__(self, scenario: NodeScenario, machine: Machine, is_quiet: Callable[[dict[str, int]], bool]) -> None:
        self.positions: dict[str, int] = {}  # of each process
        self.delivered: dict[str, list[tuple[int, AppMessage]]] = {}
        self.first: dict[str, int] = {}  # the first position that a group still has
        self.waits_for = "an answer"
        self.is_done = False
        self._scenario = scenario
        self._is_quiet = is_quiet
        self.program = machine.start(machine.name)
        self.task = self.program.loop.create_task(self._run())

    async def _run(self) -> None:
        async with _connected(self._scenario.config(), self.program.name) as client:
            quiet = 0
            while quiet < 2:
                await asyncio.sleep(_LOOK_S)
                quiet = quiet + 1 if await self._look(client) else 0
            for group in client.groups:
                await self._read(client, group)
        self.is_done = True

    async def _look(self, client: AsyncClient) -> bool:
        ids = self._scenario.config().ids()
        names = list(ids)
        answers = await asyncio.gather(*(client.status(ids[name], _STATUS_S) for name in names), return_exceptions=True)
        positions: dict[str, int] = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, BaseException):
                self.waits_for = f"an answer of {name} ({answer!r})"
                return False
            positions[name] = answer.delivered
            if answer.open_messages:
                self.waits_for = f"{answer.open_messages} open messages at {name}"
                return False
        leading = {answer.name for answer in answers if isinstance(answer, Status) and answer.is_leader}
        for name, answer in zip(names, answers, strict=True):
            # After a restart a member may hold votes that only a leader turns into deliveries.
            if isinstance(answer, Status) and answer.leader not in leading:
                self.waits_for = f"a leader that {name} knows"
                return False
        self.positions = positions
        for group in range(1, self._scenario.groups + 1):
            found = {name: positions[name] for name in self._scenario.members(group)}
            if len(set(found.values())) > 1:
                self.waits_for = f"the same position: {found}"
                return False
        self.waits_for = "the applications"
        return self._is_quiet(positions)

    async def _read(self, client: AsyncClient, group: str) -> None:
        end = max(position for name, position in self.positions.items() if name.startswith(f"{group}."))
        self.waits_for = f"the deliveries of {group} up to {end}"
        first = 0
        while True:
            found: list[tuple[int, AppMessage]] = []
            try:
                if first < end:
                    await self._follow(client, group, first, end, found)
            except GoneError as error:
                first = error.first
                continue
            self.first[group] = first
            self.delivered[group] = found
            return

    async def _follow(
        self, client: AsyncClient, group: str, first: int, end: int, found: list[tuple[int, AppMessage]]
    ) -> None:
        stream = client.deliveries(group, first)
        try:
            async for delivery in stream:
                found.append((delivery.position, delivery.message))
                if delivery.position + 1 >= end:
                    return
        finally:
            await stream.aclose()
