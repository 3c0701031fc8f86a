"""Fault plans: as data, drawn at random within what protocols survive, and doing to a run what they say."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from amcast.check import check_run
from amcast.core import Topology, UsageError, grid
from amcast.sim import FaultPlan, PlanSize, SimResult, parse_kinds, random_plan, scenario, simulate
from amcast.sim.faults import (
    FUSE_US,
    KINDS,
    AnyFault,
    Crash,
    CrashGroup,
    CrashLeader,
    CutLeader,
    Duplicating,
    Liar,
    Lossy,
    Partition,
    Pause,
    PauseLeader,
    Reordering,
    Skew,
)
from amcast.sim.fuzz import violations_of
from amcast.trace import NULL
from amcast.workload import Micro

TOPOLOGY = grid(2, 3, clients=2)

EVERY_FAULT: list[tuple[AnyFault, str]] = [
    (Crash(5, 0), "t=5 us: g1.p0 crashes for good"),
    (Crash(5, 4, 90), "t=5 us: g2.p1 crashes, restarts 90 us later"),
    (Crash(5, 4, 90, keeps_disk=False), "t=5 us: g2.p1 crashes, restarts WITHOUT ITS DISK 90 us later"),
    (Crash(5, 6, None, 2), "t=5 us: c6 crashes after 2 more sends for good"),
    (Crash(5, 0, 90, 1, "1b"), "t=5 us: g1.p0 crashes after 1 more sends of 1b, restarts 90 us later"),
    (CrashLeader(5, 2, 90), "t=5 us: the leader of g2 crashes, restarts 90 us later"),
    (CrashGroup(5, 2, 90), "t=5 us: all of g2 crashes, restarts 90 us later"),
    (CrashGroup(5, 2, 90, 7), "t=5 us: all of g2 crashes, restarts 90 us later, one by one within 7 us"),
    (Pause(5, 3, 90), "t=5 us: g2.p0 pauses for 90 us"),
    (PauseLeader(5, 1, 90), "t=5 us: the leader of g1 pauses for 90 us"),
    (CutLeader(5, 1, 90), "t=5 us: the leader of g1 is cut off from the others for 90 us"),
    (CutLeader(5, 1, 90, True, True), "t=5 us: the leader of g1 can't send to its group for 90 us"),
    (Partition(5, (0, 3), 90), "t=5 us: {g1.p0, g2.p0} is cut off from the others for 90 us"),
    (Partition(5, (0,), 90, True), "t=5 us: {g1.p0} can't send to the others for 90 us"),
    (Lossy(5, 0.25, 90), "t=5 us: links lose 25% for 90 us"),
    (Duplicating(5, 0.25, 90), "t=5 us: links duplicate 25% for 90 us"),
    (Reordering(5, 0.25, 7, 90), "t=5 us: links hold 25% up by up to 7 us for 90 us"),
    (Skew(5, 0, -7, 0.05), "t=5 us: g1.p0's clock is off by -7 us, drifts +5.0%"),
    (Liar(0, 6), "t=0 us: c6 lies"),
]


def drawn(seed: int, topology: Topology = TOPOLOGY, kinds: tuple[str, ...] = KINDS) -> FaultPlan:
    return random_plan(topology, kinds, PlanSize(), Random(seed))


# -- as data


@pytest.mark.parametrize(("fault", "line"), EVERY_FAULT, ids=lambda value: type(value).__name__)
def test_a_fault_describes_itself_in_one_line(fault: AnyFault, line: str) -> None:
    assert FaultPlan((fault,)).describe(TOPOLOGY) == [line]


def test_plans_survive_json() -> None:
    plans = [FaultPlan(tuple(fault for fault, _ in EVERY_FAULT)), *map(drawn, range(50))]
    for plan in plans:
        assert msgspec.json.decode(msgspec.json.encode(plan), type=FaultPlan) == plan


@pytest.mark.parametrize(
    "text",
    [
        '{"faults": [{"what": "meteor", "at_us": 1}]}',
        '{"faults": [{"what": "crash"}]}',
        '{"faults": [{"what": "crash", "at_us": 1, "process": 0, "when": 3}]}',
        '{"faults": [{"what": "crash", "at_us": "soon", "process": 0}]}',
        '{"fault": []}',
        "[]",
    ],
)
def test_a_plan_with_a_typo_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=FaultPlan)


def test_a_plan_ends_when_its_last_fault_is_over() -> None:
    assert FaultPlan().end_us() == 0
    assert FaultPlan((Crash(10, 0, 90), Lossy(20, 0.5, 30))).end_us() == 100
    assert FaultPlan((Crash(10, 0, 90, after_sends=1),)).end_us() == 100 + FUSE_US
    assert FaultPlan((Skew(10, 0, 5, 0.1),)).end_us() == 10
    assert FaultPlan((CrashGroup(10, 1, 80, 9),)).end_us() == 99


def test_a_plan_without_one_of_its_faults() -> None:
    plan = drawn(3)
    assert len(plan.faults) > 3
    assert plan.without(1).faults == (plan.faults[0], *plan.faults[2:])


def test_kinds_by_name() -> None:
    assert parse_kinds("all") == KINDS
    assert parse_kinds("none") == ()
    assert parse_kinds("crash, loss") == ("crash", "loss")
    with pytest.raises(UsageError, match="no fault 'meteor': use all, none, or some of crash"):
        parse_kinds("crash,meteor")


# -- at random


@pytest.mark.parametrize("replicas", [1, 3, 5])
def test_a_random_plan_stays_within_what_protocols_survive(replicas: int) -> None:
    """ "In each group at most a minority is gone for good or loses its disk, and at the end every link works." """
    topology = grid(3, replicas, clients=2)
    size = PlanSize()
    doomed_at_most = 0
    for seed in range(500):
        plan = drawn(seed, topology)
        assert 0 <= len(plan.faults) <= size.faults_max
        doomed = {f.process for f in plan.faults if isinstance(f, Crash) and (f.down_us is None or not f.keeps_disk)}
        for group in topology.groups:
            gone = doomed & set(topology.members(group))
            assert 2 * len(gone) < replicas
            doomed_at_most = max(doomed_at_most, len(gone))
        for fault in plan.faults:
            assert 0 <= fault.at_us < size.window_us
            if isinstance(fault, Crash) and topology.group_of(fault.process) is None:
                assert fault.down_us is None  # a client does not come back
        assert plan.end_us() <= size.window_us + size.last_us + FUSE_US
        assert list(plan.faults) == sorted(plan.faults, key=lambda f: f.at_us)
    assert doomed_at_most == (replicas - 1) // 2  # the limit is reached


def test_random_plans_draw_every_kind_and_nothing_else() -> None:
    seen = {type(fault) for seed in range(300) for fault in drawn(seed).faults}
    assert seen == {type(fault) for fault, _ in EVERY_FAULT}
    for kind in ("loss", "pause", "partition", "skew", "group-down"):
        assert {f.kind for seed in range(20) for f in drawn(seed, kinds=(kind,)).faults} == {kind}
    assert random_plan(TOPOLOGY, (), PlanSize(), Random(1)) == FaultPlan()


def test_random_plans_lose_some_disks_twice() -> None:
    """One disk twice counts as one: the group survives it."""
    twice = 0
    for seed in range(200):
        plan = drawn(seed)
        lost = [f.process for f in plan.faults if isinstance(f, Crash) and not f.keeps_disk]
        twice += len(lost) - len(set(lost))
        plan.check(TOPOLOGY)
    assert twice > 20


def test_a_group_that_is_down_stops_and_comes_back_one_by_one() -> None:
    plan = FaultPlan((CrashGroup(1_000, 2, 20_000, 10_000),))
    result = simulate(scenario("fastcast", groups=2, clients=2, messages=30, plan=plan, seed=4))
    faults = [(f.process, f.what, f.t_us) for f in result.run().faults]
    members = TOPOLOGY.members(2)
    assert faults[:3] == [(p, "crash", 1_000) for p in members]
    assert faults[3:] == [(p, "restart", 21_000 + 5_000 * i) for i, p in enumerate(members)]
    assert violations_of(result) == ()


def test_a_random_plan_is_a_function_of_its_seed() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


# -- refused


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ((Crash(1, 0), Crash(1, 1)), "g1 without a majority"),
        ((Crash(1, 0), Crash(1, 1, 5, keeps_disk=False)), "g1 without a majority"),
        ((Crash(1, 99),), "there is no process 99"),
        ((Pause(1, 99, 5),), "there is no process 99"),
        ((Skew(1, 99, 5, 0.0),), "there is no process 99"),
        ((Partition(1, (0, 99), 5),), "there is no process 99"),
        ((CrashLeader(1, 9, 5),), "no group g9"),
        ((CrashGroup(1, 9, 5),), "no group g9"),
        ((CrashGroup(1, 1, 5, -1),), "spread_us is 0 or more"),
        ((CutLeader(1, 9, 5),), "no group g9"),
        ((PauseLeader(1, 9, 5),), "no group g9"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(faults: tuple[AnyFault, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        scenario("fastcast", plan=FaultPlan(faults))


def test_a_group_of_one_has_no_disk_to_spare() -> None:
    with pytest.raises(UsageError, match="g1 without a majority"):
        scenario("skeen", plan=FaultPlan((Crash(1, 0, 5, keeps_disk=False),)))


# -- what they do


def faulty(*faults: AnyFault, name: str = "basecast", interval_us: int = 1_000) -> SimResult:
    made = scenario(name, groups=2, messages=60, clients=2, interval_us=interval_us, workload=Micro(1, 2), seed=8)
    result = simulate(replace(made, plan=FaultPlan(faults)))
    assert result.complete
    assert check_run(result.run()).verdict == "pass"
    return result


@pytest.mark.parametrize("one_way", [True, False])
def test_a_partition_cuts_what_it_says(one_way: bool) -> None:
    run = faulty(Partition(5_000, (0, 4), 20_000, one_way)).run()
    wire = run.wire
    during = (wire.sent_us >= 5_000) & (wire.sent_us < 25_000)
    from_side, to_side = np.isin(wire.src, (0, 4)), np.isin(wire.dst, (0, 4))
    lost = wire.received_us == NULL
    assert lost[during & from_side & ~to_side].all()
    assert lost[during & ~from_side & to_side].all() != one_way
    assert not lost[during & (from_side == to_side)].any()
    assert not lost[wire.sent_us < 5_000].any()
    assert (during & from_side & ~to_side).any()
    assert [(fault.what, fault.t_us) for fault in run.faults] == [("partition", 5_000), ("mend", 25_000)]


def test_a_leader_that_is_cut_off_within_its_group_still_hears_clients() -> None:
    run = faulty(CutLeader(5_000, 1, 20_000, within_group=True)).run()
    wire = run.wire
    during = (wire.sent_us >= 5_000) & (wire.sent_us < 25_000)
    lost = wire.received_us == NULL
    inside = np.isin(wire.src, (0, 1, 2)) & np.isin(wire.dst, (0, 1, 2))
    assert lost[during & inside & ((wire.src == 0) | (wire.dst == 0)) & (wire.src != wire.dst)].all()
    assert not lost[during & ~inside].any()


def test_loss_and_duplication_end_when_they_should() -> None:
    run = faulty(Lossy(5_000, 0.5, 10_000), Duplicating(20_000, 0.5, 10_000)).run()
    wire = run.wire
    lost = wire.received_us == NULL
    in_loss = (wire.sent_us >= 5_000) & (wire.sent_us < 15_000)
    assert 0.3 < lost[in_loss].mean() < 0.7
    end = wire.sent_us.max()
    assert not lost[~in_loss & (wire.sent_us < end - 1_000)].any()


@pytest.mark.parametrize("what", ["crash", "restart"])
def test_a_crash_and_a_restart_are_in_the_trace(what: str) -> None:
    run = faulty(Crash(5_000, 1, 7_000)).run()
    at = {"crash": 5_000, "restart": 12_000}[what]
    assert (1, at, what) in [(fault.process, fault.t_us, fault.what) for fault in run.faults]
    down = run.deliveries.t_us[run.deliveries.process == 1]
    assert not ((down > 5_000) & (down < 12_000)).any()


def test_a_process_that_is_gone_for_good_is_not_correct() -> None:
    result = faulty(Crash(5_000, 1))
    assert 1 not in result.info.correct
    assert len(result.info.correct) == 5


def test_clocks_that_are_off_do_no_harm() -> None:
    """ "Time is counted in ticks, so that a clock that jumps disturbs nothing." """
    skews = [Skew(3_000 * p, p, 50_000 * (-1) ** p, 0.1 * (-1) ** p) for p in range(6)]
    for name in ("basecast", "fastcast", "multipaxos"):
        run = faulty(*skews, name=name).run()
        assert [fault.what for fault in run.faults] == ["skew"] * 6
        assert "1a" not in run.wire.kinds  # nobody doubted a leader


def test_a_disk_that_was_lost_brings_its_process_back_into_the_group() -> None:
    for name in ("basecast", "fastcast", "multipaxos"):
        run = faulty(Crash(5_000, 1, 7_000, keeps_disk=False), name=name, interval_us=3_000).run()
        assert {"rejoin", "welcome"} <= set(run.wire.kinds)
        votes = run.wire.kind == run.wire.kinds.index("2b")
        back = run.wire.sent_us[(run.wire.kind == run.wire.kinds.index("welcome")) & (run.wire.dst == 1)].min()
        own = run.wire.sent_us[votes & (run.wire.src == 1)]
        assert not ((own > 5_000) & (own < back)).any()
        assert (own > back).any()


def test_a_replica_that_was_away_too_long_is_restored() -> None:
    """State is handed over, without the deliveries that nobody keeps any more: the trace says from where on."""
    for name in ("basecast", "fastcast", "multipaxos"):
        made = scenario(name, groups=2, messages=200, interval_us=500, workload=Micro(1, 2), seed=9)
        paxos = replace(made.paxos, lag_max=2, snapshot_every=3)
        plan = FaultPlan((Crash(5_000, 1, 30_000),))
        result = simulate(replace(made, paxos=paxos, history_max=2, plan=plan))
        assert result.complete
        run = result.run()
        restored = [fault for fault in run.faults if fault.what == "restored"]
        assert [fault.process for fault in restored] == [1]
        (position,) = run.restored[1]
        own = run.deliveries.pos[run.deliveries.process == 1].tolist()
        assert position in own
        assert position - 1 not in own
        assert check_run(run).verdict == "pass"
