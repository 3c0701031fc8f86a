"""Small scenarios that once went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amcast.consensus import PaxosConfig
from amcast.core import BadFrameError, UsageError
from amcast.protocols import PROTOCOLS
from amcast.sim import FaultPlan, scenario, simulate
from amcast.sim.faults import KINDS, Crash, CrashGroup, CrashLeader, Pause
from amcast.sim.fuzz import fuzz_scenario, violations_of
from amcast.sim.run import Simulation
from amcast.workload import Micro
from tests.cli.cli_harness import Cli


def test_bytes_that_are_no_text_are_refused_like_any_other_garbage() -> None:
    codec = PROTOCOLS["fastcast"].codec()
    with pytest.raises(BadFrameError):
        codec.decode_message(b"\x92\xa2\xff\xff")
    with pytest.raises(BadFrameError):
        codec.decode_record(b"\x92\xa2\xff\xff")


@pytest.mark.parametrize(
    "plan",
    [
        b'{"faults":[{"what":"partition","at_us":0,"side":[],"for_us":10}]}',
        b'{"faults":[{"what":"crash\xff","at_us":0}]}',
        b'{"faults":[{"what":"skew","at_us":0,"process":0,"offset_us":0,"drift":-1.0}]}',
        b'{"faults":[{"what":"reorder","at_us":300,"probability":0.5,"delay_us":-100,"for_us":1000}]}',
        b'{"faults":[{"what":"loss","at_us":1,"probability":7.0,"for_us":5}]}',
        b'{"faults":[{"what":"loss","at_us":1,"probability":0.5,"for_us":-5}]}',
        b'{"faults":[{"what":"pause","at_us":-300,"process":1,"for_us":100}]}',
        b'{"faults":[{"what":"pause","at_us":3,"process":99,"for_us":100}]}',
        b'{"faults":[{"what":"crash-leader","at_us":3,"group":9,"down_us":100}]}',
        b'{"faults":[{"what":"crash","at_us":1000,"process":6,"down_us":100}]}',
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, plan: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_bytes(plan)
    Cli(monkeypatch, capsys).refuses("sim", "--messages", 10, "--plan", "plan.json")


def test_a_client_can_not_restart_since_it_would_use_its_ids_again() -> None:
    with pytest.raises(UsageError, match="can't restart"):
        scenario("fastcast", messages=30, plan=FaultPlan((Crash(1_000, 6, 500),)))


def test_a_client_that_crashes_while_sending_multicasts_nothing_after_that() -> None:
    plan = FaultPlan((Crash(300, 6, None, 1),))
    run = simulate(scenario("fastcast", clients=1, messages=60, outstanding=6, seed=58, plan=plan)).run()
    starts = run.wire.kind == run.wire.kinds.index("START")
    never_sent = set(run.multicasts.msg.tolist()) - set(run.wire.msg[starts].tolist())
    assert len(never_sent) <= 1  # the one it was about to send


def test_a_process_that_restarts_is_no_longer_paused() -> None:
    plan = FaultPlan((Pause(0, 0, 10_000_000), Crash(20_000, 0, 10_000)))
    made = scenario("skeen", groups=1, clients=1, messages=1, interval_us=1, workload=Micro(1, 1), plan=plan)
    assert simulate(made).run().deliveries.t_us.max() < 10_000_000


@pytest.mark.parametrize("name", ["multipaxos", "sequencer"])
def test_a_group_that_was_down_gets_all_that_was_ordered_for_it(name: str) -> None:
    """The history of the ordering group is shorter than what it orders meanwhile, and its log is too."""
    plan = FaultPlan((CrashGroup(20_000, 2, 400_000), CrashLeader(300_000, 1, 30_000)))
    paxos = PaxosConfig(snapshot_every=2, lag_max=1)
    load = {"messages": 60, "interval_us": 10_000, "workload": Micro(1, 2)}
    made = scenario(name, groups=3, replicas=3, history_max=1, paxos=paxos, plan=plan, seed=5, **load)
    result = simulate(made)
    assert violations_of(result) == ()
    run = result.run()
    assert not any(fault.what == "restored" for fault in run.faults if fault.process in run.info.groups[1].processes)


@pytest.mark.parametrize("limit", [{"owed_max": 3}, {"owed_bytes": 40}])
def test_a_group_that_is_down_costs_bounded_memory_and_does_not_stop_the_others(limit: dict[str, int]) -> None:
    plan = FaultPlan((CrashGroup(5_000, 2, 1_500_000),))
    load = {"clients": 4, "messages": 200, "interval_us": 20_000, "workload": Micro(1, 2, 10)}
    made = scenario("multipaxos", groups=3, plan=plan, options=limit, seed=5, **load)
    simulation = Simulation(made)
    leader: Any = simulation.process(0)
    owed: list[int] = []
    for at in range(100_000, 1_500_000, 100_000):
        simulation.loop.at(at, lambda: owed.append(len(leader._debts[2].owed)))
    result = simulation.run()
    assert violations_of(result) == ()
    assert 0 < max(owed) <= 4
    rows = result.run().deliveries
    down = (rows.t_us > 100_000) & (rows.t_us < 1_500_000)
    assert set(rows.process[down].tolist()) == {0, 1, 2, 6, 7, 8}
    assert down.sum() > 100


def test_a_group_that_crashes_before_it_was_formatted_starts_anew() -> None:
    plan = FaultPlan((CrashGroup(1_000, 1, 10_000),))
    made = scenario("fastcast", groups=2, clients=1, messages=5, sync_us=3_000, plan=plan, seed=2)
    assert violations_of(simulate(made)) == ()


def test_a_snapshot_waits_for_the_deliveries_before_it() -> None:
    """Otherwise a crash leaves a snapshot that covers them, and nobody who made them."""
    assert violations_of(simulate(fuzz_scenario("skeen", 35, KINDS, replicas=1))) == ()


def test_a_leader_that_leaps_again_and_again_does_not_drown_its_own_log() -> None:
    """Each leap made it propose all that had arrived once more: with a log of one entry an instance, a snapshot at
    each, and a slow disk, thousands of copies of a few messages."""
    result = simulate(fuzz_scenario("oam", 744, ("lying-client",)))
    assert violations_of(result) == ()
    assert result.wire_messages < 300_000, "it was a million"
