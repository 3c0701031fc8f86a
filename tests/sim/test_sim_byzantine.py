"""Members that lie: what they do harms nobody who tells the truth, as long as there are no more than f of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec import structs

from amcast.check import check_run
from amcast.consensus import PaxosConfig
from amcast.core import UsageError
from amcast.protocols import ProtocolSpec, protocol
from amcast.sim import FaultPlan, Scenario, SimResult, Simulation, scenario, simulate
from amcast.sim.byzantine import LIES, Lying
from amcast.sim.faults import (
    AnyFault,
    Crash,
    CrashGroup,
    Partition,
    Pause,
    Traitor,
    parse_kinds,
)
from amcast.sim.fuzz import fuzz_scenario, violations_of
from amcast.trace.latency import latencies_us, percentile
from amcast.workload import Micro
from tests.liar_mutants import LIAR_MUTANTS
from tests.mutants import Mutant

QUICK: dict[str, Any] = {
    "paxos": PaxosConfig(tick_us=1_000, election_ticks=4, snapshot_every=5, lag_max=5),
    "resend_us": 5_000,
    "retry_us": 10_000,
    "patience_us": 3_000_000,
}


def with_faults(name: str, *faults: AnyFault, groups: int = 2, seed: int = 3, **settings: Any) -> Scenario:
    made = scenario(
        name, groups=groups, clients=3, messages=60, interval_us=1_500, workload=Micro(1, groups), seed=seed, **QUICK
    )
    return structs.replace(made, plan=FaultPlan(faults), **settings)


def passes(made: Scenario) -> SimResult:
    result = simulate(made)
    assert violations_of(result) == ()
    assert check_run(result.run()).verdict == "pass"
    return result


def liar(process: int, *ways: str, often: float = 1.0) -> Traitor:
    return Traitor(0, process, Lying(ways, often, 7))


# -- each way to lie


@pytest.mark.parametrize("name", ["byzcast", "bft"])
@pytest.mark.parametrize("way", LIES)
def test_the_first_leader_of_every_group_may_lie(name: str, way: str) -> None:
    made = with_faults(name, liar(0, way), liar(4, way))
    result = passes(made)
    assert result.messages == 60
    assert result.info.correct == (1, 2, 3, 5, 6, 7), "run.json lists those who tell the truth"
    named = {(fault.process, fault.detail) for fault in result.run().faults if fault.what == "byzantine"}
    assert named == {(0, way), (4, way)}, "and the liars are among the faults"
    assert not set(result.run().deliveries.process.tolist()) & {0, 4}


def test_two_liars_of_seven_collude() -> None:
    ways = ("twins",), ("equivocate", "wrong-digest")
    for seed in range(3):
        faults = [Traitor(0, p, Lying(ways[p % 2], 1.0, seed, (1 - p,))) for p in (0, 1)]
        passes(with_faults("byzcast", *faults, groups=1, seed=seed, replicas=7))


# The later ones once found something: a request that one member alone had heard of, a member that left its leader
# alone, answers for what does not concern a group, reads that did not wait for what was decided behind a gap,
# acknowledgements that a leader never ordered.
@pytest.mark.parametrize("seed", [*range(20), 32, 35, 235, 627, 992, 1208, 1251])
def test_liars_of_all_groups_with_all_other_faults(seed: int) -> None:
    assert violations_of(simulate(fuzz_scenario("byzcast", seed, parse_kinds("all,byzantine")))) == ()


def test_more_liars_than_f_do_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The liars of the simulator are no tame ones: two of four break what one of four can't."""
    monkeypatch.setattr(ProtocolSpec, "faulty_max", lambda self, size: 2)
    found = set()
    for seed in range(12):
        faults = [Traitor(0, p, Lying(("twins",), 1.0, seed, (1 - p,))) for p in (0, 1)]
        made = with_faults("byzcast", *faults, groups=1, seed=seed, patience_us=300_000)
        found |= {violation.property for violation in violations_of(simulate(made))}
    assert found & {"prefix", "acyclic", "replicas", "agreement"}


@pytest.mark.parametrize("mutant", LIAR_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_by_liars(mutant: Mutant) -> None:
    for seed in range(100):
        made = structs.replace(mutant.scenario(seed), patience_us=500_000)
        found = {violation.property for violation in violations_of(simulate(made, mutant.spec()))}
        if found & mutant.caught_by:
            assert not violations_of(simulate(made)), f"{mutant.base} itself fails with seed {seed}"
            return
    pytest.fail(f"{mutant.name} survives: the liars have lost their teeth")


# -- what users of such systems complain of


def kinds(result: SimResult) -> set[str]:
    return set(result.run().wire.kinds)


def test_a_replica_that_was_cut_off_catches_up() -> None:
    result = passes(with_faults("byzcast", Partition(5_000, (1,), 30_000), groups=1))
    assert kinds(result) & {"values", "handed-state"}


def test_a_silent_leader_is_replaced() -> None:
    """The liar of this seed falls silent early; others do so when all is delivered."""
    result = passes(with_faults("byzcast", liar(0, "selective", "silent"), groups=1, seed=4))
    assert "new-view" in kinds(result)


def test_a_fork_attack_forks_nothing() -> None:
    """The leader tells one half of the members something else than the other half, with all that belongs to it."""
    for seed in range(8):
        passes(with_faults("byzcast", liar(0, "twins"), groups=1, seed=seed))
        passes(with_faults("byzcast", liar(0, "equivocate"), groups=1, seed=seed))


def test_a_replica_that_was_paused_comes_back_after_a_checkpoint() -> None:
    """What arrived meanwhile waits for it, and it has to take it all in."""
    simulation = Simulation(with_faults("byzcast", Pause(5_000, 2, 30_000), groups=1))
    assert violations_of(simulation.run()) == ()
    replica: Any = simulation.process(2)
    others: Any = simulation.process(1)
    assert replica._dump() == others._dump()
    assert replica._log._checkpoints.low > 5


def test_a_replica_that_lost_its_state_is_given_one() -> None:
    made = with_faults("byzcast", Crash(12_000, 3, 10_000, keeps_disk=False), groups=1)
    simulation = Simulation(made)
    result = simulation.run()
    assert violations_of(result) == ()
    assert "ask-rejoin" in kinds(result)
    assert not simulation.process(3).is_silent, "and its group has taken it back"


def test_all_replicas_restart_at_once() -> None:
    passes(with_faults("byzcast", CrashGroup(12_000, 1, 5_000), groups=1))
    passes(with_faults("byzcast", CrashGroup(12_000, 1, 5_000), CrashGroup(14_000, 2, 5_000), sync_us=300))


def test_a_replica_that_went_astray_notices_and_repairs_itself() -> None:
    """A fault of its machine changed its state, and nothing of what it says or does."""
    made = with_faults("byzcast", Pause(90_000, 1, 10), groups=1)
    simulation = Simulation(made)
    simulation.start()
    replica: Any = simulation.process(2)
    simulation.loop.at(15_000, lambda: replica._deliveries._latest.clear())
    simulation.settle()
    assert violations_of(simulation.result()) == ()
    assert replica._log.astray == 1
    others: Any = simulation.process(1)
    assert replica._dump() == others._dump()


# -- what is claimed


def test_local_messages_concern_no_other_group() -> None:
    made = scenario("byzcast", groups=3, messages=40, workload=Micro(1, 1), seed=1)
    run = simulate(made).run()
    rows = run.wire
    about = rows.msg >= 0
    destination = {int(msg): int(run.multicasts.dst[at]) for at, msg in enumerate(run.multicasts.msg)}
    group_of = made.topology().group_of
    for msg, receiver in zip(rows.msg[about].tolist(), rows.dst[about].tolist(), strict=True):
        assert group_of(receiver) in (None, destination[msg])
    assert np.count_nonzero(about) == 40 * (1 + 4), "a START, and a REPLY of each member"


def local_p99_us(name: str, global_share: float) -> dict[str, float]:
    """At the client, and at the first and the last replica."""
    made = scenario(name, groups=3, clients=6, messages=600, interval_us=2_000, seed=2)
    run = simulate(structs.replace(made, workload=Micro(1, 2, global_share=global_share))).run()
    is_local = np.diff(run.multicasts.dst_start) == 1
    assert np.count_nonzero(~is_local) == pytest.approx(600 * global_share, rel=0.3)
    return {at: percentile(took[is_local], 99) for at, took in latencies_us(run).items()}


def test_one_global_message_in_ten_slows_no_local_one_down() -> None:
    alone, mixed = local_p99_us("byzcast", 0.0), local_p99_us("byzcast", 0.1)
    for at, took in alone.items():
        assert mixed[at] < 1.02 * took, at
    alone, mixed = local_p99_us("basecast", 0.0), local_p99_us("basecast", 0.1)
    assert mixed["client"] > 1.3 * alone["client"], "where local messages wait for global ones, this shows it"


def test_crash_protocols_refuse_liars() -> None:
    with pytest.raises(UsageError, match="fastcast believes the members of its groups"):
        fuzz_scenario("fastcast", 1, parse_kinds("byzantine"))
    made = scenario("fastcast", groups=1, workload=Micro(1, 1))
    with pytest.raises(UsageError, match="believes the members"):
        simulate(structs.replace(made, plan=FaultPlan((liar(0, "silent"),))))


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Traitor(0, 0, Lying(("politely",), 1.0, 1)), "no way of lying 'politely': use some of silent"),
        (Traitor(0, 11, Lying(("silent",), 1.0, 1)), "c11 is no member"),
    ],
)
def test_a_plan_names_ways_that_there_are(fault: Traitor, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        with_faults("byzcast", fault).check()


def test_groups_have_three_f_plus_one_members() -> None:
    for size, more in ((2, 4), (3, 4), (5, 7), (6, 7)):
        with pytest.raises(
            UsageError, match=f"groups of {size} are not 3f.1: use 4, 7, 10 or so replicas, here {more}"
        ):
            scenario("byzcast", replicas=size)
    assert protocol("byzcast").faulty_max(7) == 2
