"""Kills a replica that has a long record log on its disk: how long does it take to catch up after its restart?"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from amcast.net.disk.records import Durability
from amcast.net.wire.control import Status
from bench._figures import Figure

from ._jobs import Shape
from ._measure import Progress, Sizes
from ._systems import Amcast

_SHAPE = Shape(1, 1_024)
_TARGET_S = 10.0
_GIVE_UP_S = 120.0
_BATCH = 200_000
_MISSED = 50  # while it is down, the others deliver one message for each 50 in the log


def measure_recovery(sizes: Sizes, folder: Path, progress: Progress) -> list[Figure]:
    messages = sizes.recovery_messages
    with Amcast(folder / "recovery", Durability.SYNC) as system:
        for sent in range(0, messages, _BATCH):
            system.run(_SHAPE, min(_BATCH, messages - sent))
            progress(f"{min(sent + _BATCH, messages):,} messages in the log")
        victim = _follower(asyncio.run(system.cluster.statuses()))
        system.cluster.kill(victim)
        missed = max(1_000, messages // _MISSED)
        system.run(_SHAPE, missed)
        progress(f"{victim} was killed and missed {missed:,} messages")
        begun = time.perf_counter()
        system.cluster.start([victim])
        answered_s, seconds = asyncio.run(_wait(system, victim, begun))
    detail = (
        f"{messages:,} messages in the log of {victim}, {missed:,} more while it was away; "
        f"from its start, it answers after {answered_s:.1f} s"
    )
    return [Figure("recovery of a killed replica", seconds, "s", detail, _TARGET_S, is_limit=True)]


def _follower(statuses: dict[str, Status | None]) -> str:
    return next(name for name, status in statuses.items() if status is not None and not status.is_leader)


async def _wait(system: Amcast, victim: str, begun: float) -> tuple[float, float]:
    """Seconds until it answers, and until it has delivered as much as every other replica."""
    answered_s = 0.0
    while True:
        statuses = await system.cluster.statuses()
        elapsed = time.perf_counter() - begun
        own = statuses[victim]
        others = [status.delivered for name, status in statuses.items() if name != victim and status is not None]
        if own is not None:
            answered_s = answered_s or elapsed
            if others and own.delivered >= max(others):
                return answered_s, elapsed
        if elapsed > _GIVE_UP_S:
            raise TimeoutError(f"{victim} has not caught up after {elapsed:.0f} s")
        await asyncio.sleep(0.02)
