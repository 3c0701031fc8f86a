"""Runs cut into the files of a run that grows, and fed to the verifier without Spark."""

from __future__ import annotations

from random import Random

import numpy as np

from amcast.check import Violation
from amcast.pipeline.stream import Arrived, DeliveryRows, Verifier, WatchState
from amcast.trace import NULL, Run


def arrivals(run: Run, rng: Random, triggers: int, shuffled: bool = False) -> list[Arrived]:
    """Every table in pieces: a log in the order of its positions, a piece or none at each trigger."""
    made: list[dict[tuple[int, int], DeliveryRows]] = [{} for _ in range(triggers)]
    rows = run.deliveries
    for process, kind in dict.fromkeys(zip(rows.process.tolist(), rows.kind.tolist(), strict=True)):
        mine = np.flatnonzero((rows.process == process) & (rows.kind == kind))
        when = np.array([rng.randrange(triggers) for _ in mine])
        if not shuffled:
            when.sort()
        for trigger in range(triggers):
            part = mine[when == trigger]
            if len(part):
                ts = [None if value == NULL else value for value in rows.ts[part].tolist()]
                made[trigger][process, kind] = DeliveryRows(rows.grp[part], rows.pos[part], rows.msg[part], ts)
    sent = run.multicasts
    messages: list[list[tuple[int, int, list[int]]]] = [[] for _ in range(triggers)]
    times = sorted(rng.randrange(triggers) for _ in range(len(sent)))
    for row, trigger in enumerate(times):
        dst = sent.dst[sent.dst_start[row] : sent.dst_start[row + 1]].tolist()
        messages[trigger].append((int(sent.msg[row]), int(sent.sender[row]), dst))
    faults = [(fault.process, fault.t_us, fault.what, fault.detail) for fault in run.faults]
    return [Arrived(messages[i], made[i], faults if i == 0 else ()) for i in range(triggers)]


def watch(run: Run, parts: list[Arrived], patience: int) -> tuple[WatchState, list[Violation]]:
    state = WatchState(run.info.run_id)
    verifier = Verifier(run.info, state, patience)
    found = [violation for part in parts for violation in verifier.feed(part)]
    if run.info.complete:
        found += verifier.finish(run.info)
    return state, found
