"""Placement: what moves objects, what keeps them where they are, its limits, and placers that crash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count, pairwise
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from amcast.check import check_run
from amcast.core import AppMessage, GroupId, UsageError, encode
from amcast.protocols.geopaxos import GeoPaxos, Move, Operation, PlacementPolicy, Use, register_policy
from amcast.protocols.geopaxos.execution import Execution
from amcast.protocols.geopaxos.messages import Attempt, Final, MoveNote, Order, decode_note, decode_operation
from amcast.protocols.geopaxos.placer import FORGET_US, Placer
from amcast.protocols.geopaxos.policy import Affinity, make_policy
from amcast.protocols.geopaxos.spec import objects_at
from amcast.protocols.geopaxos.track import Track, TrackState
from amcast.sim import FaultPlan, Scenario, SimResult, scenario
from amcast.sim.faults import KINDS, CrashLeader, CutLeader, PauseLeader
from amcast.sim.fuzz import fuzz_scenario, violations_of
from amcast.sim.run import Simulation
from amcast.trace.schema import NULL

REGIONS = {1: "R1", 2: "R2", 3: "R3"}
SITES = tuple(REGIONS)
SECOND = 1_000_000
X = objects_at(1, 1, SITES)[0]  # an object of g1


class System:
    """The placers of all sites, with moves that are executed at once."""

    def __init__(self, policy: str = "affinity", per_second: int = 100, objects_max: int = 1_000) -> None:
        self.placers = {site: Placer(policy, site, REGIONS, per_second, objects_max) for site in SITES}
        self.site: dict[str, GroupId] = {}
        self.notes: list[tuple[int, str, GroupId, MoveNote]] = []

    def use(self, name: str, region: str, now_us: int, home: GroupId = 1) -> None:
        site = self.site.get(name, home)
        placer = self.placers[site]
        placer.saw(name, region, now_us)
        for move in placer.wishes(name, name in self.site, now_us):
            message = placer.submit(move, site, 0, SITES, now_us)
            self.execute(decode_operation(message.payload), now_us)

    def execute(self, operation: Operation, now_us: int) -> None:
        note = decode_note(operation.body)
        for name in operation.objects:
            self.site[name] = operation.site
            self.notes.append((now_us, name, operation.site, note))
            for placer in self.placers.values():
                placer.moved(name, note.source, operation.site, note.moves, now_us)


def test_the_first_access_sets_the_site() -> None:
    """ "The first time an object is accessed, the user's preferred site is set to the region of the user." """
    system = System()
    system.use("ann", "R2", 0)
    assert system.site == {"ann": 2}
    assert system.notes[0][3].reason == "it was first used from region R2"


def test_an_object_that_is_first_used_at_home_stays() -> None:
    system = System()
    system.use("ann", "R1", 0)
    system.use("ann", "R2", 1)
    assert system.site == {}


def test_an_object_follows_where_most_of_its_operations_come_from_and_says_so() -> None:
    """ "A user A that follows a user B will have its preferred site set to B's preferred site if B posts more often
    than A reads his timeline." """
    system = System()
    for at in range(6):
        system.use("ann", "R1", at)
    for at in range(6, 20):
        system.use("ann", "R2", at)
    assert system.site == {"ann": 2}
    assert system.notes[0][3].reason == "14 of its last 20 operations came from region R2, 6 from R1"
    assert system.notes[0][3].source == 1


def test_a_region_without_a_site_attracts_nothing() -> None:
    system = System()
    for at in range(100):
        system.use("ann", "the moon", at)
    assert system.site == {}


class Majority(Affinity):
    """The heuristics as published, without hysteresis."""

    def decide(self, use: Use) -> Iterable[Move]:
        region = max(use.recent, key=lambda each: (use.recent[each], each == use.region))
        sites = {region: site for site, region in self.sites.items()}
        return (Move(use.object, sites[region], "more from there"),) if sites[region] != use.site else ()


register_policy("majority", Majority)


@pytest.mark.parametrize(("policy", "least", "most"), [("affinity", 0, 4), ("majority", 1_000, 20_000)])
@pytest.mark.parametrize("gap_us", [100, SECOND])
def test_an_object_that_is_used_by_halves_does_not_flap(policy: str, least: int, most: int, gap_us: int) -> None:
    """It may move in the beginning, until each further move takes more than chance gives."""
    system, rng = System(policy, per_second=100_000), Random(5)
    for at in range(20_000):
        system.use("ann", rng.choice(("R1", "R2")), at * gap_us)
    assert least <= len(system.notes) <= most
    assert all(at < 5_000 * gap_us for at, *_ in system.notes) or policy == "majority"


def test_an_object_whose_users_take_turns_moves_ever_less_often() -> None:
    """A second of R1, a second of R2, and so on, each far more than is counted: no lead tells them apart."""
    system = System()
    for at in range(400):
        for part in range(100):
            system.use("ann", "R1" if at % 2 else "R2", at * SECOND + part * 10_000)
    times = [at for at, *_ in system.notes]
    gaps = [after - before for before, after in pairwise(times[1:])]
    assert 2 <= len(times) <= 10
    assert gaps == sorted(gaps), "each move makes the next one wait twice as long"


def test_an_object_that_changes_its_region_for_good_is_not_held_up_by_moves_of_long_ago() -> None:
    system = System()
    for day in range(10):
        for at in range(50):
            system.use("ann", "R1" if day % 2 else "R2", day * 86_400 * SECOND + at * SECOND)
    assert len(system.notes) == 10


def test_no_site_makes_more_moves_a_second_than_it_may() -> None:
    system = System(per_second=7)
    for at in range(0, 3 * SECOND, 1_000):
        system.use(f"x{at % 997}", "R2", at)
    times = [at for at, *_ in system.notes]
    assert len(times) == 21, "and what was put off is done when its turn comes"
    assert all(sum(begin <= at < begin + SECOND for at in times) <= 7 for begin in times)
    assert system.placers[1].status.put_off > 0


def test_the_memory_of_a_million_objects_is_bounded() -> None:
    placer = Placer("affinity", 1, REGIONS, 100, 1_000)
    for number in range(1_000_000):
        placer.saw(f"x{number}", "R1", number)
    assert placer.status.objects == 1_000
    assert placer.recent("x999999") == {"R1": 1}
    assert placer.recent("x0") == {}


def test_objects_that_nobody_touches_are_forgotten() -> None:
    placer = Placer("affinity", 1, REGIONS, 100, 1_000)
    placer.saw("old", "R1", 0)
    placer.saw("new", "R1", FORGET_US)
    assert (placer.recent("old"), placer.recent("new")) == ({}, {"R1": 1})


# -- policies of one's own


class Odd(PlacementPolicy):
    wanted: Any = ()

    def decide(self, use: Use) -> Iterable[Move]:
        if isinstance(self.wanted, Exception):
            raise self.wanted
        return self.wanted  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        ([Move("ann", "g9", "far away")], "there is no such site, they are g1, g2, g3"),
        ([Move("nobody", "g2", "why not")], "nobody used such an object of g1 of late"),
        ([Move("ann", "g1", "home")], "it is there already"),
        ([("ann", "g2")], "asked for a tuple, which is no Move"),
        ([Move("ann", 2, "number")], "asked for a Move, which is no Move of an object to a site"),
        ((Move(f"x{n}", "g2", "all at once") for n in count()), "more than 100 moves at a time"),
    ],
)
def test_nonsense_that_a_policy_asks_for_is_refused_with_a_word(wanted: Any, word: str) -> None:
    register_policy("odd", type("OddNow", (Odd,), {"wanted": wanted}))
    placer = Placer("odd", 1, REGIONS, 100, 1_000)
    placer.saw("ann", "R2", 0)
    assert placer.wishes("ann", False, 0) == []
    assert any(word in each for each in placer.status.latest_refusals), placer.status.latest_refusals


@pytest.mark.parametrize("wanted", [ValueError("no idea"), 17])
def test_a_policy_that_raises_moves_nothing_and_stops_nothing(wanted: Any) -> None:
    register_policy("odd", type("OddNow", (Odd,), {"wanted": wanted}))
    placer = Placer("odd", 1, REGIONS, 100, 1_000)
    for at in range(3):
        placer.saw("ann", "R2", at)
        assert placer.wishes("ann", False, at) == []
    assert placer.status.failures == 3
    assert type(wanted).__name__ in placer.status.failure or "TypeError" in (placer.status.failure or "")


def test_a_policy_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(UsageError, match="no placement policy 'nonsense': use one of affinity"):
        make_policy("nonsense", {})
    with pytest.raises(UsageError, match="no placement policy 'nonsense'"):
        Simulation(scenario("geopaxos", options={"placement": "nonsense"}))


def test_what_is_no_policy_is_an_error() -> None:
    register_policy("broken", lambda sites: 1 // 0)  # type: ignore[arg-type, return-value]
    register_policy("number", lambda sites: 17)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="can't be made: ZeroDivisionError"):
        make_policy("broken", {})
    with pytest.raises(UsageError, match="makes a int, which has no method `decide`"):
        make_policy("number", {})


# -- two placers at once


def placed(seq: int, name: str, site: GroupId) -> AppMessage:
    body = encode(MoveNote(0, 1, "a test"))
    return AppMessage(-1000 + seq, SITES, encode(Operation((name,), body, site)))


class Replica:
    """The execution of a replica of g1, with moves that g1 and another site have ordered."""

    def __init__(self) -> None:
        self.tracks = {site: Track(TrackState(site), site == 1, True) for site in SITES}
        self.execution = Execution(1, SITES, self.tracks)

    def order(self, message: AppMessage, *dst: GroupId) -> None:
        attempt = Attempt(message.id, 0, dst)
        for site in dst:
            self.tracks[site].order(Order(attempt, 0, message), 0)
        ts = max(self.tracks[site].pending[attempt] for site in dst)
        for site in dst:
            self.tracks[site].finish(Final(attempt, ts))
        while steps := self.execution.next_steps():
            for step in steps:
                self.execution.take(step)


def test_a_move_of_a_placer_that_was_deposed_finds_the_object_elsewhere_and_changes_nothing() -> None:
    replica = Replica()
    replica.order(placed(0, X, 2), 1, 2)
    assert replica.execution.placement.site(X) == 2
    replica.order(placed(1, X, 2), 1, 2)
    assert replica.execution.placement.site(X) == 2, "the same once more"
    replica.order(placed(2, X, 3), 1, 3)
    assert replica.execution.placement.site(X) == 2, "it is not g1's to give any more"
    assert (replica.execution.void, replica.execution.executed.dump()) == ({}, {}), "nothing is kept of such moves"


# -- in the simulator


def regional(**settings: Any) -> Scenario:
    """Three regions, each with a whole group in it, and a client in each."""
    settings = {"groups": 3, "clients": 3, "messages": 0, "options": {"placement": "affinity"}, **settings}
    made = scenario("geopaxos", "wan", **settings)
    return replace(made, network=replace(made.network, spread=False))


def using(made: Scenario, uses: Mapping[int, Operation]) -> Simulation:
    """A run in which the client of R2 asks for these operations, each at its time."""
    simulation = Simulation(made)
    simulation.start()
    client, groups = made.topology().clients[1], made.topology().groups
    for at_us, operation in uses.items():
        simulation.loop.at(at_us, simulation.multicast, client, groups, encode(operation))
    return simulation


def finish(simulation: Simulation, until_us: int) -> SimResult:
    simulation.loop.at(until_us, lambda: None)
    while simulation.loop.now < until_us:
        simulation.settle()
        simulation.loop.at(min(simulation.loop.now + SECOND // 2, until_us), lambda: None)
    result = simulation.result()
    assert result.broken is None, result.broken
    report = check_run(result.run())
    assert report.verdict == "pass", report.violations
    return result


def replicas(simulation: Simulation, made: Scenario) -> list[GeoPaxos]:
    found = [simulation.process(process) for process in made.topology().processes]
    assert all(isinstance(each, GeoPaxos) for each in found)
    return found  # type: ignore[return-value]


def test_an_object_moves_to_its_user_and_all_replicas_know_why() -> None:
    made = regional()
    simulation = using(made, {at * SECOND // 4: Operation((X,)) for at in range(1, 9)})
    result = finish(simulation, 4 * SECOND)
    for replica in replicas(simulation, made):
        found = replica.placement_of(X)
        assert (found.site, found.is_placed) == (2, True)
        assert found.note is not None
        assert found.note.reason == "it was first used from region R2"
    answers = result.run().answers
    sent = dict(zip(result.run().multicasts.msg.tolist(), result.run().multicasts.t_us.tolist(), strict=True))
    took = [at - sent[msg] for msg, at in sorted(zip(answers.msg.tolist(), answers.t_us.tolist(), strict=True))]
    assert took[0] > 70_000 > 2_000 > took[-1], "from a round trip between regions to none"
    leader = next(
        each for each in replicas(simulation, made) if each.is_leader and each.placement_status(0).placer.moves
    )
    assert leader.placement_status(5).latest[0].object == X


def test_moves_are_no_messages() -> None:
    made = regional()
    result = finish(using(made, {SECOND: Operation((X,))}), 3 * SECOND)
    run = result.run()
    assert len(run.multicasts) == 1
    assert set(run.deliveries.pos.tolist()) == {0}
    about = set(run.wire.msg.tolist()) - {NULL}
    assert about == set(run.multicasts.msg.tolist())


def test_without_placement_nothing_moves() -> None:
    made = regional(options={})
    simulation = using(made, {at * SECOND // 4: Operation((X,)) for at in range(1, 9)})
    finish(simulation, 3 * SECOND)
    assert {replica.placement_of(X).site for replica in replicas(simulation, made)} == {1}
    assert replicas(simulation, made)[0].placement_status(5).placer.policy == ""


@pytest.mark.parametrize("after_sends", [0, 1, 2, 3, 5, 8, 13])
def test_a_placer_that_crashes_in_the_middle_loses_no_move_for_good(after_sends: int) -> None:
    """The leader of g1 crashes while it makes the move. Whether the move is lost or not, the next leader goes on."""
    made = regional(plan=FaultPlan((CrashLeader(SECOND, 1, 2 * SECOND, after_sends),)))
    simulation = using(made, {at * SECOND // 2: Operation((X,)) for at in range(3, 30)})
    finish(simulation, 20 * SECOND)
    found = [replica.placement_of(X) for replica in replicas(simulation, made)]
    assert {each.site for each in found} == {2}
    made_moves = [replica.placement_status(0).placer.moves for replica in replicas(simulation, made)]
    assert sum(made_moves) <= 3, "and it does not repeat it for ever"


@pytest.mark.parametrize("fault", [PauseLeader(SECOND, 1, 4 * SECOND), CutLeader(SECOND, 1, 4 * SECOND)])
def test_two_placers_at_once_do_no_harm(fault: Any) -> None:
    """The old leader of g1 still believes that it leads when it is back."""
    made = regional(plan=FaultPlan((fault,)))
    simulation = using(made, {at * SECOND // 5: Operation((X,)) for at in range(4, 60)})
    finish(simulation, 20 * SECOND)
    assert {replica.placement_of(X).site for replica in replicas(simulation, made)} == {2}


def test_a_restart_keeps_the_reason() -> None:
    made = regional(plan=FaultPlan((CrashLeader(3 * SECOND, 2, SECOND),)))
    made = replace(made, paxos=replace(made.paxos, snapshot_every=3))
    simulation = using(made, {at * SECOND // 4: Operation((X,)) for at in range(1, 30)})
    finish(simulation, 10 * SECOND)
    notes = {replica.placement_of(X).note for replica in replicas(simulation, made)}
    assert len(notes) == 1
    assert None not in notes


def test_the_limit_on_moves_holds_in_a_run() -> None:
    made = regional(options={"placement": "affinity", "moves_per_second": 2})
    names = objects_at(1, 20, SITES)
    simulation = using(made, {SECOND + at * 20_000: Operation((names[at % 20],)) for at in range(200)})
    finish(simulation, 8 * SECOND)
    latest = replicas(simulation, made)[0].placement_status(100).latest
    times = sorted(each.note.at_us for each in latest if each.note is not None and each.note.at_us is not None)
    assert len(times) >= 6
    assert all(sum(begin <= at < begin + SECOND for at in times) <= 2 for begin in times)


def test_a_leader_that_takes_over_a_state_goes_on_with_marks() -> None:
    """Its last mark was in that state: it waited for it for ever, and its group executed nothing of other sites."""
    made = fuzz_scenario("geopaxos", 77, KINDS, 3)
    made = replace(made, options={**made.options, "placement": "wandering", "moves_per_second": 1_000})
    assert violations_of(Simulation(made).run()) == ()


def test_placers_under_all_faults_of_the_fuzzer() -> None:
    """Objects wander all the time, with groups of one and of three."""
    moves = 0
    for seed in range(24):
        made = fuzz_scenario(
            "geopaxos", seed, ("crash", "group-down", "partition", "pause", "loss"), 1 + 2 * (seed % 2)
        )
        made = replace(made, options={**made.options, "placement": "wandering", "moves_per_second": 1_000})
        simulation = Simulation(made)
        result = simulation.run()
        assert violations_of(result) == (), f"seed {seed}"
        moves += len(replicas(simulation, made)[0].placement_status(1_000).latest)
    assert moves > 20, "there were moves to go wrong"
