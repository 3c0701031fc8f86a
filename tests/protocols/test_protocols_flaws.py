"""Optimistic Atomic Multicast as published: each flaw shows, and the mended protocol passes where it does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from amcast.protocols import ProtocolSpec, protocol
from amcast.sim import FaultPlan, scenario, simulate
from amcast.sim.faults import Skew
from amcast.sim.fuzz import violations_of
from amcast.trace import FINAL
from amcast.workload import Micro
from tests.mutants_oam import FLAWS, EagerBarriers, EagerEntry, Flaw, NullsOfOwnClock


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.name)
def test_a_flaw_is_caught(flaw: Flaw) -> None:
    for seed in range(flaw.seeds):
        made = flaw.scenario(seed)
        found = {violation.property for violation in violations_of(simulate(made, flaw.spec()))}
        if found & flaw.caught_by:
            assert not violations_of(simulate(made)), f"{flaw.base} itself fails with seed {seed}"
            return
    pytest.fail(f"{flaw.name} survives {flaw.seeds} seeds")


def latencies(spec: ProtocolSpec, **settings: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    run = simulate(scenario(spec.name, **settings), spec).run()  # type: ignore[arg-type]
    sent = dict(zip(run.multicasts.msg.tolist(), run.multicasts.t_us.tolist(), strict=True))
    rows = run.deliveries
    final = rows.kind == FINAL
    return np.array(
        [t_us - sent[msg] for msg, t_us in zip(rows.msg[final].tolist(), rows.t_us[final].tolist(), strict=True)]
    )


def test_a_barrier_that_is_proposed_at_once_raises_the_message_it_serves() -> None:
    """ "Barrier requests sent up front bump the very message they serve": it takes the slow path, of 4 delays."""
    sound = protocol("oam")
    eager = replace(sound, build=EagerBarriers, entry=EagerEntry)
    settings = {"network": "unit", "groups": 3, "clients": 1, "messages": 1, "workload": Micro(2, 2), "seed": 1}
    assert latencies(sound, **settings).max() == 3_000_000
    assert latencies(eager, **settings).max() == 4_000_000


def test_null_messages_of_a_clock_that_lags_delay_everyone_by_the_lag() -> None:
    """ "Use requests, or null messages that jump ahead." """
    lag_us = 40_000
    sound = protocol("oam-baseline")
    settings = {
        "groups": 3,
        "messages": 30,
        "interval_us": 1_000,
        "workload": Micro(1, 2),
        "options": {"requests": False, "null_us": 1_000},
        "plan": FaultPlan(tuple(Skew(1, process, -lag_us, 0.0) for process in (6, 7, 8))),
        "resend_us": 1_000_000,
        "seed": 2,
    }
    assert np.median(latencies(sound, **settings)) < 5_000
    assert np.median(latencies(replace(sound, build=NullsOfOwnClock), **settings)) > lag_us / 2
