"""One run: a cluster, clients, faults, and the verdict."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from amcast.core import UsageError
from amcast.net.config import Limits
from amcast.net.disk.records import Durability
from amcast.net.local import plan
from amcast.protocols import PROTOCOLS

from ._cluster import ProxiedCluster, small_disks
from ._faults import DISK_FAULTS, FAULTS, Nemesis
from ._judge import Engine, Reading, Result, compare_applications, count_changed, count_lost, judge_trace, read_group
from ._load import Load

_BETWEEN_S = 0.5  # without faults, between two rounds
_END_S = 120.0  # for messages that are open when the faults end
_READ_S = 120.0

# Limits are small: snapshots are taken several times a second, and a replica that was away for a second or two gets
# state instead of messages.
OPTIONS: dict[str, Any] = {
    "paxos": {
        "tick_us": 50_000,
        "election_ticks": 10,
        "retransmit_ticks": 4,
        "window": 32,
        "snapshot_every": 10,
        "snapshot_bytes": 64 << 10,
        "lag_max": 50,
        "lag_bytes": 32 << 10,
        "learn_bytes": 16 << 10,
    },
    "resend_us": 300_000,
    "history_max": 8,
    "history_bytes": 4 << 10,
}

LIMITS = Limits(snapshot_messages=1_000, trace_bytes=0)  # it judges whole runs


async def torment(
    folder: Path,
    protocol: str,
    rounds: int,
    seed: int,
    clients: int = 12,
    faults: Sequence[str] = FAULTS,
    engine: Engine = "memory",
) -> Result:
    replicas = 4 if PROTOCOLS[protocol].survives_liars else 3
    config = plan(
        folder,
        protocol,
        2,
        replicas,
        network="sites" if PROTOCOLS[protocol].orders_operations else "none",
        durability=Durability.SYNC,
        trace=True,
        options=OPTIONS,
        limits=LIMITS,
    )
    with small_disks(config) as can_fill:
        ProxiedCluster.create(folder, config)
        possible = [fault for fault in faults if can_fill or fault not in DISK_FAULTS]
        rng = Random(f"{protocol} {seed}")  # faults come in another order for each protocol
        return await _torment(ProxiedCluster(folder), rounds, rng, clients, possible, engine)


async def _torment(
    cluster: ProxiedCluster, rounds: int, rng: Random, clients: int, faults: list[str], engine: Engine
) -> Result:
    load = Load(cluster, clients)
    loading: asyncio.Task[None] | None = None
    problems: list[str] = []
    done: list[str] = []
    try:
        await cluster.connect_links()
        cluster.start()
        try:
            await cluster.wait_until_ready()
            loading = asyncio.create_task(load.run())
            nemesis = Nemesis(cluster, rng, faults)
            await _strike(cluster, load, nemesis, rounds, done)
            await nemesis.mend()
            await cluster.settle()
            load.stop()
            async with asyncio.timeout(_END_S):
                await loading
        except UsageError as error:
            problems.append(str(error))
        except TimeoutError:
            problems.append(f"messages are still open {_END_S:g} s after the last fault")
        return await _judge(cluster, load, done, problems, engine)
    finally:
        if loading is not None:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        cluster.close()


async def _strike(cluster: ProxiedCluster, load: Load, nemesis: Nemesis, rounds: int, done: list[str]) -> None:
    begun = time.monotonic()
    for _ in range(rounds):
        await asyncio.sleep(_BETWEEN_S)
        await nemesis.mend()
        if dead := cluster.dead():
            raise UsageError(f"ended by itself: {'; '.join(dead)}")
        done.append(await nemesis.round())
        print(f"  {time.monotonic() - begun:6.1f} s  {done[-1]}  ({len(load.acknowledged):,} acknowledged)", flush=True)


async def _judge(cluster: ProxiedCluster, load: Load, done: list[str], problems: list[str], engine: Engine) -> Result:
    readings = {group: Reading() for group in ("g1", "g2")}
    drained = not problems and await cluster.drain(_END_S)
    if not drained:
        problems = [*problems, "not drained"]
    try:
        async with asyncio.timeout(_READ_S):
            for group, end in (await _ends(cluster)).items():
                readings[group] = await read_group(cluster, group, end)
    except (TimeoutError, UsageError) as error:
        problems = [*problems, f"can't read what was delivered: {error or 'no more comes'}"]
    problems += [f"ended by itself: {each}" for each in cluster.dead()]
    cluster.stop()
    verdict, violations = judge_trace(cluster, cluster.folder / "run", drained, engine)
    counts = {group: len(reading.states) - 1 for group, reading in readings.items()}
    return Result(
        protocol=cluster.config.protocol,
        faults=dict(Counter(what.split()[0] for what in done)),
        acknowledged=len(load.acknowledged),
        delivered=counts,
        verdict=verdict,
        violations=violations,
        lost=count_lost(load.acknowledged, readings),
        duplicates=sum(count > 1 for reading in readings.values() for count in reading.count.values()),
        changed=count_changed(load.acknowledged, readings.values()),
        reused_ids=len(load.reused_ids),
        applications=compare_applications(cluster, readings),
        problems=problems + [reading.problem for reading in readings.values() if reading.problem is not None],
    )


async def _ends(cluster: ProxiedCluster) -> dict[str, int]:
    """How far each group has come."""
    ends: dict[str, int] = {}
    for status in (await cluster.statuses()).values():
        if status is not None:
            ends[status.group] = max(ends.get(status.group, 0), status.delivered)
    return ends
