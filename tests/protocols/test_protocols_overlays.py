"""FlexCast and the tree: overlays, routes, flushes, bounded state, and many schedules on a stage."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from amcast.check import check_run
from amcast.core import UsageError, app_message, grid
from amcast.protocols import protocol
from amcast.protocols.flexcast import FlexCastAutomaton, FlexCastConfig
from amcast.protocols.flexcast import ingress_at_lca as flexcast_ingress
from amcast.protocols.tree import TreeConfig
from amcast.protocols.tree import ingress_at_lca as tree_ingress
from amcast.sim import Simulation, Stage, scenario
from amcast.trace import Run
from amcast.workload import Micro
from bench.state import growth, sizes_of

UNIT_US = 1_000_000


# -- overlays


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("flexcast", {"overlay": [1, 2]}, "does not rank the groups"),
        ("flexcast", {"overlay": [1, 2, 2]}, "does not rank the groups"),
        ("tree", {"parents": [0, 1]}, "one for each of 3 groups"),
        ("tree", {"parents": [0, 0, 1]}, "exactly one group has 0"),
        ("tree", {"parents": [2, 1, 0]}, "without a cycle"),
        ("tree", {"parents": [0, 1, 9]}, "parents are groups"),
    ],
)
def test_an_overlay_that_makes_no_sense_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Simulation(scenario(name, groups=3, options=options))


def test_clients_send_to_the_lowest_destination() -> None:
    topology, ingress = grid(4, 1), flexcast_ingress(FlexCastConfig(overlay=(3, 1, 4, 2)))
    for dst, lca in (((1, 2), 1), ((2, 3, 4), 3), ((2, 4), 4), ((2,), 2)):
        assert ingress(app_message(9, 0, dst, b""), topology) == (lca,)


def test_clients_send_to_the_lowest_common_ancestor() -> None:
    #     1
    #   2   3
    #  4 5   6
    topology, ingress = grid(6, 1), tree_ingress(TreeConfig(parents=(0, 1, 1, 2, 2, 3)))
    for dst, lca in (((4, 5), 2), ((4, 6), 1), ((2, 5), 2), ((3, 6), 3), ((5,), 5), ((1, 4), 1), ((4, 5, 6), 1)):
        assert ingress(app_message(9, 0, dst, b""), topology) == (lca,)


# -- delays: "1 at the lca, the i-th destination by rank after i"; "1 plus the levels below the lca"


def first_deliveries(name: str, dst: tuple[int, ...], groups: int, **options: Any) -> dict[int, float]:
    """Message delays until each group delivers the only message of a run."""
    made = scenario(name, "unit", groups=groups, clients=1, messages=0, options=options)
    simulation = Simulation(made)
    simulation.start()
    simulation.multicast(made.topology().clients[0], dst, b"")
    assert simulation.settle()
    rows = simulation.result().run().deliveries
    return {int(group): t_us / UNIT_US for group, t_us in zip(rows.grp, rows.t_us, strict=True)}


def test_the_ith_destination_delivers_after_i_delays() -> None:
    assert first_deliveries("flexcast", (1, 2, 3, 4), 4) == {1: 1, 2: 2, 3: 3, 4: 4}
    assert first_deliveries("flexcast", (1, 2, 4), 4, overlay=(4, 2, 1, 3)) == {4: 1, 2: 2, 1: 3}


def test_each_level_below_the_lca_costs_a_delay() -> None:
    chain = (0, 1, 2, 3)
    assert first_deliveries("tree", (1, 4), 4, parents=chain) == {1: 1, 4: 4}
    assert first_deliveries("tree", (2, 3, 4), 4, parents=chain) == {2: 1, 3: 2, 4: 3}
    assert first_deliveries("tree", (4,), 4, parents=chain) == {4: 1}


def test_a_group_of_the_tree_relays_what_it_does_not_deliver() -> None:
    """ "Groups that are no destinations relay": the payload reaches the root, and is overhead there."""
    made = scenario("tree", groups=3, clients=1, messages=0)
    simulation = Simulation(made)
    simulation.start()
    message = simulation.multicast(made.topology().clients[0], (2, 3), bytes(500))
    assert simulation.settle()
    run: Run = simulation.result().run()
    carried = (run.wire.msg == message) & (run.wire.bytes >= 500)
    assert set(run.wire.dst[carried].tolist()) == {0, 1, 2}
    assert set(run.deliveries.process.tolist()) == {1, 2}


@pytest.mark.parametrize("name", ["flexcast", "tree", "multipaxos"])
def test_who_works_when_a_group_is_idle(name: str) -> None:
    """FlexCast's minimality: whoever works is a destination of some message. The tree's root and an ordering group are
    not; of these the tree at least leaves messages to one group alone."""
    made = scenario(name, groups=4, messages=0, seed=2)
    simulation = Simulation(made)
    simulation.start()
    client = made.topology().clients[0]
    for dst in ((2, 3), (3, 4), (2, 4), (3,), (2, 3), (4,), (3, 4)):
        simulation.multicast(client, dst, b"not to g1")
    assert simulation.settle()
    run = simulation.result().run()
    claims = ("minimality", "partially-genuine")
    report = check_run(dataclasses.replace(run, info=replace(run.info, claims=claims)))
    assert report.properties["minimality"] == ("pass" if name == "flexcast" else "fail")
    assert report.properties["partially-genuine"] == ("fail" if name == "multipaxos" else "pass")


# -- flushes and state


def test_a_members_multicast_finds_its_way() -> None:
    made = scenario("tree", groups=3, clients=1, messages=0)
    simulation = Simulation(made)
    simulation.start()
    message = app_message(2, 0, (2, 3), b"from a member")
    simulation.loop.at(0, simulation._nodes[2].multicast_now, message)
    simulation.settle()
    assert simulation.watch.delivered(1) == simulation.watch.delivered(2) == [message.id]


@pytest.mark.parametrize("flush_every", [1, 5, 50])
def test_a_history_holds_little_more_than_one_flush_allows(flush_every: int) -> None:
    made = scenario(
        "flexcast", groups=4, clients=4, messages=600, workload=Micro(1, 3), options={"flush_every": flush_every}
    )
    simulation = Simulation(made)
    largest = 0

    def look() -> None:
        nonlocal largest
        processes: list[Any] = [simulation.process(each) for each in made.topology().processes]
        largest = max(largest, *(len(process._automaton._history) for process in processes))
        simulation.loop.at(simulation.loop.now + 100, look)

    simulation.loop.at(100, look)
    simulation.start()
    assert simulation.settle()
    # What was added until the flush was everywhere: a few messages of each client, told by each group.
    assert 0 < largest <= flush_every + 4 * 4 * 8
    assert check_run(simulation.result().run()).verdict == "pass"


@pytest.mark.parametrize(
    ("name", "messages"), [("flexcast", 6_000), ("tree", 6_000), ("byzcast", 1_500), ("bft", 1_500)]
)
def test_state_does_not_grow_with_the_run(name: str, messages: int) -> None:
    sizes = sizes_of(name, messages)
    assert len(sizes.states) > 20
    assert growth(sizes.states) < 1.3
    assert growth(sizes.disks) < 1.3


# -- many schedules: what waits is handed over in any order that streams allow


def play_at_random(seed: int) -> Run:
    rng = Random(seed)
    groups = rng.randint(3, 6)
    overlay = tuple(rng.sample(range(1, groups + 1), groups))
    flush_every = rng.choice((1, 3, 10, 1_000))
    claims = protocol("flexcast").claims
    stage = Stage("flexcast", claims, groups, lambda group: FlexCastAutomaton(group, overlay, flush_every))
    haste = {(a, b): rng.choice((1, 10, 100)) for a in overlay for b in overlay}
    messages = rng.randint(4, 25)
    sent = 0
    while sent < messages or stage.waiting():
        waiting = stage.waiting()
        if sent < messages and (not waiting or rng.random() < 0.3):
            sent += 1
            stage.multicast(sent, *rng.sample(overlay, rng.randint(1, min(3, groups))))
        else:
            stage.hand_over(*rng.choices(waiting, [haste[ends] for ends in waiting])[0])
    return stage.run()


def test_flexcast_survives_adversarial_schedules() -> None:
    for seed in range(400):
        report = check_run(play_at_random(seed))
        assert report.verdict == "pass", f"seed {seed}: {report.violations}"
