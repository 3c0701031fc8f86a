"""Whole nodes under faults: nothing acknowledged is lost, and the same scenario makes the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from amcast.apps.store import VERBS
from amcast.core import UsageError
from amcast.net.config import Limits
from amcast.net.disk.records import Durability
from amcast.netsim import (
    KINDS,
    NodePlan,
    NodeScenario,
    fuzz_node_scenario,
    fuzz_one_node,
    parse_node_kinds,
    shrink_node,
    simulate_nodes,
)
from amcast.netsim.faults import CutOff, EmptyDisk, Kill, PauseNode, PoisonedMessage, Terminate
from tests.netsim.node_mutants import swallowed_application_errors

SEEDS = range(5)


@pytest.mark.parametrize(
    "protocol", ["fastcast", "basecast", "multipaxos", "flexcast", "tree", "skeen", "oam", "sequencer", "geopaxos"]
)
def test_nothing_is_lost_whatever_happens_to_nodes(protocol: str) -> None:
    for seed in SEEDS:
        result = simulate_nodes(fuzz_node_scenario(protocol, seed, KINDS))
        assert not result.violations, f"seed {seed}: {result.violations[0].explanation}"
        assert result.acknowledged > 0


def test_a_wrong_answer_to_an_operation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what clients were answered alone: here all replicas forget alike what is put."""
    made = NodeScenario(protocol="geopaxos", messages=30, seed=3)
    assert not simulate_nodes(made).violations
    monkeypatch.setitem(VERBS, "put", VERBS["put"]._replace(act=lambda held, given: (held, None)))
    assert {violation.property for violation in simulate_nodes(made).violations} == {"linearizability"}


def test_a_group_of_geopaxos_has_no_poison_to_skip() -> None:
    with pytest.raises(UsageError, match="leave out the fault 'poison'"):
        NodeScenario(protocol="geopaxos", plan=NodePlan((PoisonedMessage(1_000, 1),))).check()


@pytest.mark.parametrize("durability", list(Durability))
def test_a_calm_run_delivers_everything_at_every_member(durability: Durability) -> None:
    made = NodeScenario(protocol="fastcast", messages=12, durability=durability, seed=3)
    result = simulate_nodes(made)
    assert not result.violations
    assert result.acknowledged == result.messages >= 12  # some are sent twice, under one key
    assert result.boots == 6
    assert result.run is not None
    assert result.run.info.complete


_PRINT_DIGEST = """
from amcast.netsim import KINDS, fuzz_node_scenario, simulate_nodes
for protocol, seed in (("fastcast", 7), ("fastcast", 20), ("flexcast", 7), ("fastcast", 20)):
    result = simulate_nodes(fuzz_node_scenario(protocol, seed, KINDS))
    print(result.digest, result.events)
"""


def test_the_same_seed_makes_the_same_bytes_in_any_program() -> None:
    outputs = set()
    for number in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": number}
        made = subprocess.run(
            [sys.executable, "-c", _PRINT_DIGEST], env=environment, capture_output=True, text=True, check=True
        )
        outputs.add(made.stdout)
    assert len(outputs) == 1
    lines = outputs.pop().splitlines()
    assert lines[1] == lines[3]
    assert len(set(lines)) == 3


def test_a_scenario_survives_json() -> None:
    for seed in range(20):
        made = fuzz_node_scenario("fastcast", seed, KINDS)
        assert msgspec.json.decode(msgspec.json.encode(made), type=NodeScenario) == made


def test_a_plan_takes_the_disks_of_a_minority_only() -> None:
    for seed in range(200):
        made = fuzz_node_scenario("fastcast", seed, KINDS, groups=2, durability=Durability.SYNC)
        losing = {
            fault.process for fault in made.plan.faults if fault.kind in ("disk-loss", "old-disk", "flipped-bits")
        }
        for group in (1, 2):
            assert len([name for name in losing if name.startswith(f"g{group}.")]) <= 1


def test_a_finding_is_shrunk_to_what_it_needs() -> None:
    """An application that leaves messages out needs no fault to be caught."""
    with pytest.MonkeyPatch.context() as patch:
        swallowed_application_errors(patch)
        made = fuzz_node_scenario("fastcast", 4, ("kill", "pause"), None, 1, Durability.SYNC)
        assert fuzz_one_node(made).finding is not None
        small = shrink_node(made, tries_max=30)
        assert simulate_nodes(small).violations
    assert made.plan.faults
    assert not small.plan.faults
    assert small.messages < made.messages


def test_a_node_that_is_killed_in_its_stop_loses_nothing() -> None:
    plan = NodePlan((Terminate(300_000, "g1.p0", 100_000, 500), Kill(700_000, "g1.p1", 50_000, 3)))
    result = simulate_nodes(NodeScenario(protocol="basecast", groups=1, messages=20, plan=plan))
    assert not result.violations
    assert result.boots == 5


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="nodes have no fault 'flood': use all, none, or some of kill, "):
        parse_node_kinds("kill,flood")
    made = NodeScenario(protocol="fastcast", plan=NodePlan((EmptyDisk(5, "g9.p0", 10),)))
    with pytest.raises(UsageError, match=r"fault at 5 us: there is no g9\.p0"):
        made.check()


def test_a_group_that_only_passes_messages_on_takes_more_of_them() -> None:
    """The root of a tree takes messages for other groups. They are not open there for ever, since others answer."""
    made = NodeScenario(
        protocol="tree",
        groups=3,
        replicas=1,
        messages=24,
        interval_us=20_000,
        options={"parents": [3, 3, 0]},
        limits=Limits(open_messages=2),
        patience_us=6_000_000,
    )
    result = simulate_nodes(made)
    assert not result.violations
    assert result.acknowledged == result.messages >= 24


def test_a_replica_on_hold_that_missed_the_decision_takes_over_a_state() -> None:
    """Its log has the message that it holds, and a gap where the group decided to skip it.

    Whether the gap is there depends on when packets arrive, so the same faults happen on several networks.
    """
    drawn = fuzz_node_scenario("multipaxos", 43, KINDS)
    made = [msgspec.structs.replace(drawn, seed=seed) for seed in (17, 33, 38)]
    assert not any(simulate_nodes(each).violations for each in made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("amcast.net.node.application.Host.unseen_at", None)
        found = {violation.property for each in made for violation in simulate_nodes(each).violations}
        assert found == {"liveness"}


def test_some_partitions_leave_a_client_that_only_asks_with_a_deposed_leader() -> None:
    made = [fuzz_node_scenario("basecast", seed, ("partition",)) for seed in range(20)]
    deposing = [each for each in made if each.readers]
    assert 5 <= len(deposing) < 20
    for scenario in deposing:
        reader = f"c{scenario.clients}"
        cuts = [each for each in scenario.plan.faults if isinstance(each, CutOff) and reader in each.side]
        pauses = {(each.at_us, each.process) for each in scenario.plan.faults if isinstance(each, PauseNode)}
        assert cuts
        assert {(each.at_us, each.side[0]) for each in cuts} <= pauses, "it sleeps while the others elect another one"


def test_states_do_not_fill_links_that_are_slow() -> None:
    """g1 joins the senders to g2 and leaves again, and links carry 300 bytes at a time: a replica that is behind for a
    moment needs no state, and whoever needs one needs it once."""
    options = {"requests": True, "senders_to": {"g1": ["g1", "g2"], "g2": ["g2"]}, "leave_after_us": 5_000}
    drawn = fuzz_node_scenario("oam", 459, KINDS, durability=Durability.MEMORY)
    made = msgspec.structs.replace(
        drawn,
        clients=1,
        messages=35,
        dst_max=1,
        payload_bytes=3_000,
        latency_us=1_000,
        window_bytes=300,
        options={**drawn.options, **options},
        plan=NodePlan(),
    )
    assert not simulate_nodes(made).violations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("amcast.protocols.optimistic.baseline._is_state_due", lambda periods: True)
        assert {violation.property for violation in simulate_nodes(made).violations} == {"liveness"}
