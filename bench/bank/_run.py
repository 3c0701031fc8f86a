"""One run: a cluster with the bank inside, its clients, faults, and the verdict."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from amcast.core import UsageError
from amcast.net.config import Limits
from amcast.net.local import LocalCluster, plan
from amcast.net.node._application_state import read_snapshot, split_state

from ..nemesis._cluster import ProxiedCluster
from ..nemesis._faults import Nemesis
from ..nemesis._torment import OPTIONS
from ._judge import History, Saved, judge, judge_replicas
from ._tellers import APP, Teller, shared_accounts

FAULTS = (
    "kill",
    "kill-leader",
    "kill-majority",
    "kill-group",
    "kill-all",
    "kill-starting",
    "terminate",
    "pause",
    "cut",
    "replace-disk",
    "restart-group",
)

_LIMITS = Limits(snapshot_messages=200)
_BETWEEN_S = 2.5  # without faults, between two rounds
_END_S = 120.0  # for calls that are open when the faults end
_OWN, _SHARED = 200, 100  # deposited in an account
_REPEATED = 20  # of the last transfers of each client, in the end


class Result(msgspec.Struct, frozen=True):
    protocol: str
    groups: int
    clients: int
    seed: int
    rounds: int
    faults: dict[str, int]
    done: int  # transfers
    refused: int
    on_the_way: dict[str, int]  # what happened to clients
    totals: int
    queries: int
    violations: list[str]
    problems: list[str]  # other reasons for which this is no pass

    @property
    def is_good(self) -> bool:
        is_tried = self.done > 0 and self.refused > 0 and self.totals > 0 and self.queries > 0
        return is_tried and not self.violations and not self.problems

    def to_json(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "good": self.is_good}


class BankCluster(ProxiedCluster):
    """Its nodes are started as `amcast up` starts them."""

    def command(self, name: str) -> list[str]:
        return LocalCluster.command(self, name)


class BankNemesis(Nemesis):
    async def _terminate(self, victim: str) -> str:
        await self._restart_in_turn([victim])
        return victim

    async def _restart_group(self, victim: str) -> str:
        members = self._group_of(victim)
        await self._restart_in_turn(members)
        return " ".join(members)

    async def _kill_starting(self, victim: str) -> str:
        victims = [victim] if self._rng.random() < 0.5 else self._group_of(victim)
        await self._kill_for_a_while(victims)
        await asyncio.sleep(self._rng.uniform(0.1, 2.0))
        return await self._kill_for_a_while(victims)


async def run(
    folder: Path,
    protocol: str,
    rounds: int,
    seed: int,
    *,
    groups: int = 3,
    clients: int = 12,
    faults: tuple[str, ...] = FAULTS,
) -> Result:
    config = plan(folder, protocol, groups, 3, app=APP, options=OPTIONS, limits=_LIMITS)
    BankCluster.create(folder, config)
    cluster = BankCluster(folder)
    names = [f"g{number}" for number in range(1, groups + 1)]
    shared = shared_accounts(names)
    history = History()
    tellers = [Teller(cluster, f"client-{seed}-{number}", names, shared, history) for number in range(clients)]
    done: list[str] = []
    problems: list[str] = []
    try:
        await cluster.connect_links()
        cluster.start()
        nemesis = BankNemesis(cluster, Random(f"{protocol} {seed}"), list(faults))
        await _work(cluster, nemesis, tellers, shared, rounds, done)
        saved = await _stop(cluster)
    except* (UsageError, TimeoutError) as errors:
        problems = [str(each) or "no end in time" for each in _leaves(errors)]
        saved = {}
    finally:
        cluster.close()
    violations = judge(history) + judge_replicas(saved, history.balances())
    answers = Counter(each.is_done for each in history.transfers if each.payer)
    return Result(
        protocol=protocol,
        groups=groups,
        clients=clients,
        seed=seed,
        rounds=len(done),
        faults=dict(Counter(what.split()[0] for what in done)),
        done=answers[True],
        refused=answers[False],
        on_the_way=dict(sum((teller.counts for teller in tellers), Counter())),
        totals=len(history.totals),
        queries=len(history.queries),
        violations=violations,
        problems=problems,
    )


def _leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    found: list[BaseException] = []
    for each in group.exceptions:
        found += _leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return found


async def _work(
    cluster: BankCluster, nemesis: BankNemesis, tellers: list[Teller], shared: list[str], rounds: int, done: list[str]
) -> None:
    await cluster.wait_until_ready(_END_S)
    is_over = asyncio.Event()
    async with AsyncExitStack() as stack:
        for teller in tellers:
            await stack.enter_async_context(teller)
        await asyncio.gather(*(tellers[0].deposit(account, _SHARED) for account in shared))
        await asyncio.gather(*(teller.deposit(account, _OWN) for teller in tellers for account in teller.own))
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(teller.work(is_over)) for teller in tellers]
            await _strike(cluster, nemesis, rounds, done)
            is_over.set()
            async with asyncio.timeout(_END_S):
                await asyncio.wait(working)
        await _audit(tellers, shared)


async def _strike(cluster: BankCluster, nemesis: BankNemesis, rounds: int, done: list[str]) -> None:
    begun = time.monotonic()
    for _ in range(rounds):
        await asyncio.sleep(_BETWEEN_S)
        if dead := cluster.dead():
            raise UsageError(f"ended by itself: {'; '.join(dead)}")
        done.append(await nemesis.round())
        print(f"  {time.monotonic() - begun:6.1f} s  {done[-1]}", file=sys.stderr, flush=True)
    await cluster.settle()


async def _audit(tellers: list[Teller], shared: list[str]) -> None:
    """When nothing else happens: there is one right answer to each question now."""
    await asyncio.gather(*(teller.repeat_last(_REPEATED) for teller in tellers))
    await asyncio.gather(*(teller.look(account) for teller in tellers for account in [*shared, *teller.own]))
    await asyncio.gather(*(teller.read_total() for teller in tellers))


async def _stop(cluster: BankCluster) -> dict[str, Saved | None]:
    """In good order, when every replica has executed everything."""
    async with asyncio.timeout(_END_S):
        while not await cluster.is_drained() or not await _have_applied(cluster):
            await asyncio.sleep(0.1)
    cluster.terminate(cluster.names)
    await cluster.end(cluster.names)
    return {name: read_saved(cluster.config.data_folder(name)) for name in cluster.names}


async def _have_applied(cluster: BankCluster) -> bool:
    return all(each is not None and each.application == each.delivered for each in (await cluster.statuses()).values())


def read_saved(folder: Path) -> Saved | None:
    found = read_snapshot(folder / "application.state")
    if found is None:
        return None
    kept, state = split_state(found[1])
    return Saved(found[0], msgspec.json.decode(state, type=dict[str, int]), kept.keys)
