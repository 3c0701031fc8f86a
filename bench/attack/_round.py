"""One round: a cluster, correct clients in peace and under attack, and the verdict."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from amcast.core import UsageError
from bench.nemesis._judge import count_lost, read_group
from bench.nemesis._load import Load

from ._attacks import ATTACKS
from ._cluster import AttackedCluster
from ._judge import Outcome, Told, judge_trace
from ._tools import Order

_WARM_UP_S = 1.0  # after the first answers
_FIRST_ANSWERS = 4  # of each client
_FIRST_ANSWERS_S = 60.0
_REST_S = 1.0  # after the attack, before correct clients stop
_END_S = 30.0
_READ_S = 120.0
_ATTACKER_END_S = 60.0


Attacker = subprocess.Popen[bytes]
_ROOT = Path(__file__).resolve().parents[2]


class Settings(msgspec.Struct, frozen=True):
    calm_s: float = 3.0
    attack_s: float = 8.0
    clients: int = 12
    connections: int = 50_000  # of attacks that open connections


async def attack(folder: Path, protocol: str, names: list[str], settings: Settings) -> Outcome:
    cluster = AttackedCluster.make(folder / "cluster", protocol)
    load = Load(cluster, settings.clients)
    problems: list[str] = []
    loading: asyncio.Task[None] | None = None
    attackers: list[Attacker] = []
    try:
        await cluster.begin()
        loading = asyncio.create_task(load.run())
        await _warm_up(load, settings.clients)
        calm_rate = await _rate(load, settings.calm_s)
        seconds = settings.attack_s * max(ATTACKS[name].times for name in names)
        await _start(cluster, names, seconds, settings.connections, attackers)
        attacked_rate = await _rate(load, seconds)
        done = await _end(attackers, problems)
        await asyncio.sleep(_REST_S)
        is_waiting = await _finish(load, loading)
        return await _judge(cluster, load, names, done, (calm_rate, attacked_rate), is_waiting, problems)
    finally:
        _kill(attackers)
        if loading is not None:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        cluster.stop()


async def _warm_up(load: Load, clients: int) -> None:
    """Until the cluster is at its usual speed: clients and nodes connect first."""
    deadline = time.monotonic() + _FIRST_ANSWERS_S
    while len(load.acknowledged) < clients * _FIRST_ANSWERS and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    await asyncio.sleep(_WARM_UP_S)


async def _rate(load: Load, seconds: float) -> float:
    """Messages that are acknowledged in this time, a second."""
    before, begun = len(load.acknowledged), time.monotonic()
    await asyncio.sleep(seconds)
    return (len(load.acknowledged) - before) / (time.monotonic() - begun)


# -- attackers


async def _start(
    cluster: AttackedCluster, names: list[str], seconds: float, connections: int, attackers: list[Attacker]
) -> None:
    """One with a token that allows nothing, and one whose token allows everything."""
    statuses = (await cluster.statuses()).values()
    leaders = [status.name for status in statuses if status is not None and status.is_leader]
    for part, token in enumerate((cluster.tokens.without_rights, cluster.tokens.with_rights)):
        order = Order(
            config=str(cluster.folder / "cluster.toml"),
            attacks=names,
            part=part,
            seconds=seconds,
            connections=connections // 2,
            token=token,
            leaders=leaders,
            ids=str(_ids_file(cluster, part)),
        )
        command = [sys.executable, "-m", "bench.attack._attacker"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT)
        attackers.append(child)
        assert child.stdin is not None
        child.stdin.write(msgspec.json.encode(order))
        child.stdin.close()
    for child in attackers:
        assert child.stdout is not None
        await asyncio.to_thread(child.stdout.readline)  # it is ready


def _ids_file(cluster: AttackedCluster, part: int) -> Path:
    return cluster.folder.parent / f"attacker-{part}.ids"


async def _end(attackers: list[Attacker], problems: list[str]) -> Counter[str]:
    """Waits for them, and adds up what they did."""
    done: Counter[str] = Counter()
    for child in attackers:
        assert child.stdout is not None
        try:
            said = await asyncio.wait_for(asyncio.to_thread(child.stdout.read), _ATTACKER_END_S)
            done.update(msgspec.json.decode(said, type=dict[str, int]))
        except (TimeoutError, msgspec.DecodeError):
            problems.append("an attacker failed: what it did is not known")
    return done


def _kill(attackers: list[Attacker]) -> None:
    for child in attackers:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


# -- the end


async def _finish(load: Load, loading: asyncio.Task[None]) -> bool:
    """Correct clients send nothing more. Returns whether they still wait for answers after a long time."""
    load.stop()
    _, pending = await asyncio.wait([loading], timeout=_END_S)
    return bool(pending)


async def _judge(
    cluster: AttackedCluster,
    load: Load,
    names: list[str],
    done: Counter[str],
    rates: tuple[float, float],
    is_waiting: bool,
    problems: list[str],
) -> Outcome:
    ended, peak_mb = cluster.ended(), cluster.peak_mb()
    drained = not ended and await cluster.drain(_END_S)
    if not drained:
        problems = [*problems, "not drained"]
    told: dict[str, Told] = {}
    try:
        async with asyncio.timeout(_READ_S):
            ends = {status.group: status.delivered for status in (await cluster.statuses()).values() if status}
            for group, end in ends.items():
                told[group] = Told()
                await read_group(cluster, group, end, told[group])
    except (TimeoutError, UsageError) as error:
        problems = [*problems, f"can't read what was delivered: {error or 'no more comes'}"]
    cluster.stop()
    files = [_ids_file(cluster, part) for part in range(2)]
    liars = {int(line) for file in files if file.exists() for line in file.read_text().split()}
    verdict, violations = judge_trace(cluster, cluster.folder.parent / "run", drained, liars, told)
    has_read = set(told) == {f"g{group}" for group in cluster.config.topology().groups}
    return Outcome(
        protocol=cluster.config.protocol,
        attacks=names,
        done=dict(done),
        calm_rate=rates[0],
        attacked_rate=rates[1],
        is_waiting=is_waiting,
        ended=ended,
        peak_mb=peak_mb,
        verdict=verdict,
        violations=violations,
        lost=count_lost(load.acknowledged, dict(told)) if has_read else 0,
        problems=problems,
    )
