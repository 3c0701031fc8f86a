"""Every protocol through the simulator: local and global messages, retries, crashed senders, changing leaders."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import numpy as np
import pytest
from msgspec.structs import replace

from amcast.check import check_run
from amcast.consensus import PaxosConfig
from amcast.protocols import PROTOCOLS, Start
from amcast.sim import FaultPlan, Scenario, SimResult, scenario, simulate
from amcast.sim.faults import Crash, CrashLeader
from amcast.trace import FINAL, NULL, Run
from amcast.workload import Micro

REPLICATED = [name for name, spec in PROTOCOLS.items() if max(spec.fuzz_replicas) > 1]
SOLO = [name for name, spec in PROTOCOLS.items() if min(spec.fuzz_replicas) == 1]
GROUPS = [(name, size) for name in REPLICATED for size in ((4, 7) if PROTOCOLS[name].survives_liars else (3, 5))]
SIZES = [*((name, 1) for name in SOLO), *GROUPS]

# Timeouts short enough that an election is over in a few milliseconds.
QUICK: dict[str, Any] = {
    "paxos": PaxosConfig(tick_us=1_000, election_ticks=4),
    "resend_us": 5_000,
    "retry_us": 10_000,
    "patience_us": 2_000_000,
}


def passes(made: Scenario) -> SimResult:
    result = simulate(made)
    assert result.broken is None
    assert result.complete, f"stuck: {result.stuck}"
    run = result.run()
    verdicts = check_run(run).properties
    if not (run.operations.returned_us != NULL).any():  # nobody was answered, so that no answer can be wrong
        assert verdicts.pop("linearizability", "unknown") == "unknown"
    assert set(verdicts.values()) == {"pass"}, verdicts
    return result


def deliveries(run: Run) -> Counter[tuple[int, int]]:
    rows = run.deliveries
    final = rows.kind == FINAL
    return Counter(zip(rows.process[final].tolist(), rows.msg[final].tolist(), strict=True))


def destinations(run: Run) -> dict[int, tuple[int, ...]]:
    rows = run.multicasts
    return {
        int(msg): tuple(rows.dst[rows.dst_start[i] : rows.dst_start[i + 1]].tolist()) for i, msg in enumerate(rows.msg)
    }


@pytest.mark.parametrize(("dst_min", "dst_max"), [(1, 1), (2, 2), (1, 3), (3, 3)])
@pytest.mark.parametrize(("name", "replicas"), SIZES)
def test_every_process_of_every_destination_delivers_once(name: str, replicas: int, dst_min: int, dst_max: int) -> None:
    made = scenario(
        name,
        groups=3,
        replicas=replicas,
        clients=3,
        outstanding=3,
        messages=40,
        workload=Micro(dst_min, dst_max),
        seed=replicas,
    )
    run = passes(made).run()
    topology = made.topology()
    expected = {(p, msg) for msg, dst in destinations(run).items() for g in dst for p in topology.members(g)}
    assert deliveries(run) == Counter(expected)
    assert len(run.multicasts) == 40


@pytest.mark.parametrize(("name", "replicas"), SIZES)
def test_a_retried_message_is_delivered_once(name: str, replicas: int) -> None:
    """ "A message keeps its id through all retries, and groups order an id once." """
    made = scenario(name, groups=2, replicas=replicas, messages=30, retry_us=60, seed=4)
    run = passes(made).run()
    first = PROTOCOLS[name].ingress_messages or Start
    tag = (get_args(first) or (first,))[0].__struct_config__.tag
    starts = run.wire.kind == run.wire.kinds.index(tag)
    receivers = set(zip(run.wire.msg[starts].tolist(), run.wire.dst[starts].tolist(), strict=True))
    # Where a client turns to another replica with each retry, no receiver has a message twice.
    firsts = len(run.multicasts) if PROTOCOLS[name].orders_operations else len(receivers)
    repeated = np.count_nonzero(starts) - firsts
    assert repeated > len(run.multicasts) / 2
    assert set(deliveries(run).values()) == {1}


@pytest.mark.parametrize("sends", range(4))
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_sender_that_crashes_on_the_way_is_heard_by_all_or_by_nobody(name: str, sends: int) -> None:
    made = scenario(name, groups=3, clients=1, messages=1, interval_us=500, workload=Micro(3, 3), seed=1, **QUICK)
    client = made.topology().clients[0]
    result = passes(replace(made, plan=FaultPlan((Crash(1, client, None, sends),))))
    run = result.run()
    assert len(run.multicasts) == 1
    everyone = {(p, int(run.multicasts.msg[0])) for p in made.topology().processes}
    assert set(deliveries(run)) == (everyone if sends else set())


@pytest.mark.parametrize(("name", "replicas"), GROUPS)
def test_leaders_may_change_at_any_point(name: str, replicas: int) -> None:
    elections = 0
    for step in range(10):
        made = scenario(
            name,
            groups=2,
            replicas=replicas,
            clients=3,
            messages=30,
            interval_us=1_000,
            fifo=bool(step % 2),
            seed=step,
            **QUICK,
        )
        at = 1_000 + 737 * step
        after = step if step % 3 else None
        plan = FaultPlan((CrashLeader(at, 1, 9_000, after), CrashLeader(at + 300, 2, 7_000, after)))
        run = passes(replace(made, plan=plan)).run()
        elections += "1b" in run.wire.kinds or "new-view" in run.wire.kinds
        assert sum(fault.what == "crash" for fault in run.faults) in (1, 2)
    assert elections > 7


@pytest.mark.parametrize("name", REPLICATED)
def test_a_leader_that_is_gone_for_good_is_replaced(name: str) -> None:
    size = 4 if PROTOCOLS[name].survives_liars else 3
    made = scenario(name, groups=2, replicas=size, clients=2, messages=20, interval_us=500, seed=5, **QUICK)
    result = passes(replace(made, plan=FaultPlan((Crash(2_000, 0),))))
    assert result.info.correct == tuple(range(1, 2 * size))
    assert len(result.run().multicasts) == 20


def test_skeen_over_a_replicated_log_is_basecast() -> None:
    """ "BaseCast is what that gives for Skeen." """
    runs = [simulate(scenario(name, replicas=3, groups=3, seed=6)).run() for name in ("skeen", "basecast")]
    for column in ("process", "grp", "pos", "msg", "ts", "t_us"):
        assert np.array_equal(getattr(runs[0].deliveries, column), getattr(runs[1].deliveries, column))
    assert runs[0].wire.kinds == runs[1].wire.kinds
    assert np.array_equal(runs[0].wire.received_us, runs[1].wire.received_us)


@pytest.mark.parametrize("name", SOLO)
def test_one_process_a_group_survives_restarts(name: str) -> None:
    """ "Skeen with one process a group survives restarts." """
    made = scenario(name, groups=3, messages=40, interval_us=500, sync_us=200, seed=7, **QUICK)
    plan = FaultPlan(tuple(Crash(1_500 * n, n % 3, 700) for n in range(1, 7)))
    run = passes(replace(made, plan=plan)).run()
    assert [fault.what for fault in run.faults].count("restart") >= 5
