"""Clients of the bank, and what goes wrong on their side."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self, TypeVar

import amcast
from amcast.net.app_loading import find_factory
from amcast.net.local import CONFIG, LocalCluster

from ._judge import History, Query, Total, Transfer

_FILE = Path(__file__).parents[2] / "examples" / "bank" / "bank.py"
APP = f"{_FILE}:Bank"
_DOOMED = Path(__file__).with_name("_doomed.py")

_BOX = "box"  # an account of this name is one from which nobody pays
_AMOUNT_MAX = 150
_PAUSE_S = 0.005
_PATIENT_S = 20.0
_CONNECT_S = 60.0
_REMEMBERED = 200  # transfers that may be repeated
_STEPS = {"own": 30, "any": 30, "look": 20, "total": 12, "repeat": 8}
_CRASH = 0.01  # of the transfers

Answer = TypeVar("Answer")


bank = sys.modules[find_factory(APP, _FILE.parent).__module__]


def shared_accounts(groups: list[str]) -> list[str]:
    return [f"{name}@{group}" for name in ("rent", "tips", _BOX) for group in groups]


async def _close(client: amcast.AsyncClient | None) -> None:
    """One that is closed already stays so."""
    if client is not None:
        await client.__aexit__(None, None, None)


class Teller:
    """One name, and one program after the other that uses it. Its own accounts are touched by nobody else."""

    def __init__(
        self, cluster: LocalCluster, name: str, groups: list[str], shared: list[str], history: History
    ) -> None:
        self.name = name
        self.own = [f"{name}@{group}" for group in groups]
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._shared = shared
        self._history = history
        self._rng = Random(name)
        self._keys = count(1)
        self._client: amcast.AsyncClient | None = None
        self._former: amcast.AsyncClient | None = None  # nobody waits for its calls any more, but it goes on
        self._replacing = asyncio.Lock()
        self._done: list[Transfer] = []

    async def __aenter__(self) -> Self:
        self._client = await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _close(self._former)
        await _close(self._client)

    async def _open(self) -> amcast.AsyncClient:
        client = self._cluster.client(name=self.name, wait=_CONNECT_S)
        return await client.__aenter__()

    async def _replace_program(self) -> None:
        """Another program takes over under the same name. The former one may linger until the next change."""
        async with self._replacing:
            self.counts["programs replaced"] += 1
            await _close(self._former)
            self._former, self._client = self._client, await self._open()
            if self._rng.random() < 0.5:
                await _close(self._former)

    # -- asking until there is an answer

    async def _insist(self, ask: Callable[[amcast.AsyncClient], Awaitable[Answer]]) -> Answer:
        while True:
            assert self._client is not None
            try:
                async with asyncio.timeout(self._patience_s()):
                    return await ask(self._client)
            except ConnectionError:  # another call has thrown this program away
                self.counts["asked again"] += 1
            except (TimeoutError, amcast.RetryableError):
                self.counts["asked again"] += 1
                if self._rng.random() < 0.3:
                    await self._replace_program()

    def _patience_s(self) -> float:
        if self._rng.random() < 0.9:
            return _PATIENT_S
        return self._rng.choice((0.005, 0.05, 0.5)) * self._rng.random()

    async def deposit(self, account: str, amount: int) -> None:
        made = self._note("", account, amount)
        await self._insist(lambda client: bank.deposit(client, account, amount, made.key))
        made.is_done, made.ended = True, self._history.now()

    async def transfer(self, payer: str, payee: str, amount: int) -> None:
        made = self._note(payer, payee, amount)
        if self._rng.random() < _CRASH:
            await self._crash_in(made)
        made.is_done = await self._ask(made)
        made.ended = self._history.now()
        self._done = [*self._done[-_REMEMBERED:], made]

    def _note(self, payer: str, payee: str, amount: int) -> Transfer:
        made = Transfer(payer, payee, amount, f"{self.name} {next(self._keys)}", self._history.now())
        self._history.transfers.append(made)
        return made

    async def _ask(self, made: Transfer) -> bool:
        answer: bool = await self._insist(
            lambda client: bank.transfer(client, made.payer, made.payee, made.amount, made.key)
        )
        return answer

    async def _crash_in(self, made: Transfer) -> None:
        """A program of the same name asks, and is killed before or after it has its answer."""
        self.counts["programs killed"] += 1
        where = (str(_FILE), str(self._cluster.folder / CONFIG), self.name)
        request = (made.payer, made.payee, str(made.amount), made.key)
        program = await asyncio.create_subprocess_exec(
            sys.executable, str(_DOOMED), *where, *request, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )
        try:
            assert program.stdout is not None
            await program.stdout.readline()  # it asks now
            await asyncio.sleep(0.02 * self._rng.random())
        finally:
            with suppress(ProcessLookupError):
                program.send_signal(signal.SIGKILL)
            await program.wait()

    async def look(self, account: str) -> int:
        async def ask(client: amcast.AsyncClient) -> Query:
            began = self._history.now()
            value = await bank.balance(client, account)
            return Query(self.name, account, began, self._history.now(), value)

        query = await self._insist(ask)
        self._history.queries.append(query)
        return query.value

    async def read_total(self) -> None:
        self._history.totals.append(Total(self.name, await self._insist(bank.total)))

    async def repeat(self, made: Transfer) -> None:
        made.repeated.append(await self._ask(made))
        self.counts["repeated"] += 1

    async def repeat_last(self, number: int) -> None:
        for made in self._done[-number:]:
            await self.repeat(made)

    # -- a working day

    async def work(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await self._step()
            await asyncio.sleep(_PAUSE_S)

    async def _step(self) -> None:
        rng = self._rng
        amount = rng.randint(1, _AMOUNT_MAX)
        match rng.choices(list(_STEPS), list(_STEPS.values()))[0]:
            case "own":
                pair = rng.sample(self.own, 2)
                await self.transfer(pair[0], pair[1], amount)
                await asyncio.gather(*map(self.look, pair))
            case "any":
                payer = rng.choice([each for each in self.own + self._shared if not each.startswith(_BOX)])
                payee = rng.choice([each for each in self.own + self._shared if each != payer])
                if payee.startswith(_BOX):  # or all money were there soon
                    amount = rng.randint(1, 3)
                await self.transfer(payer, payee, amount)
                await asyncio.gather(*map(self.look, {payer, payee}))
            case "look":
                await self.look(rng.choice(self._shared))
            case "total":
                await self.read_total()
            case _ if self._done:
                await self.repeat(rng.choice(self._done))
