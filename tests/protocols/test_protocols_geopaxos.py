"""GeoPaxos: what a site waits for and what it does not, moves, clients that turn elsewhere, and replicas that learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from amcast.check import check_run
from amcast.core import AppMessage, GroupId, Topology, app_message, encode, grid, message_id
from amcast.protocols.geopaxos import Operation, object_number
from amcast.protocols.geopaxos.execution import Execution
from amcast.protocols.geopaxos.ingress import replicas_for
from amcast.protocols.geopaxos.messages import Attempt, Final, Mark, Order, Request
from amcast.protocols.geopaxos.spec import objects_at
from amcast.protocols.geopaxos.track import Admitted, Track, TrackState
from amcast.sim import FaultPlan, Scenario, SimResult, scenario, simulate
from amcast.sim.faults import Crash
from amcast.sim.run import Simulation
from amcast.trace import Run
from amcast.trace.latency import latencies_us
from amcast.workload import Micro

SITES = (1, 2, 3)
X, Y, Z = (objects_at(site, 1, SITES)[0] for site in SITES)  # an object of each site


def passes(made: Scenario) -> SimResult:
    result = simulate(made)
    assert result.broken is None
    assert result.complete, f"stuck: {result.stuck}"
    report = check_run(result.run())
    assert report.verdict == "pass", report.violations
    assert "conflict-order" in report.properties
    assert "acyclic" not in report.properties
    return result


# -- the order of a site, step by step


def operation(seq: int, *objects: str, site: GroupId = 0) -> AppMessage:
    return app_message(9, seq, SITES, encode(Operation(objects, b"", site)))


def attempt_of(message: AppMessage, *dst: GroupId) -> Attempt:
    return Attempt(message.id, 0, dst)


class Replica:
    """The execution of a replica of g1, fed with the logs of all sites by hand."""

    def __init__(self, counters_convoy: bool = True) -> None:
        self.tracks = {site: Track(TrackState(site), site == 1, counters_convoy) for site in SITES}
        self.execution = Execution(1, SITES, self.tracks)
        self.executed: list[int] = []

    def step1(self, site: GroupId, message: AppMessage, *dst: GroupId) -> None:
        self.tracks[site].order(Order(attempt_of(message, *dst), 0, message), 0)
        self._execute()

    def step2(self, site: GroupId, message: AppMessage, *dst: GroupId) -> None:
        attempt = attempt_of(message, *dst)
        stamps = [self.tracks[each].stamp(attempt) for each in dst]
        self.tracks[site].finish(Final(attempt, max(stamp for stamp in stamps if stamp is not None)))
        self._execute()

    def mark(self) -> None:
        bounds = self.execution.executable()
        if bounds:
            self.tracks[1].mark(Mark(bounds))
        self._execute()

    def _execute(self) -> None:
        while steps := self.execution.next_steps():
            for step in steps:
                if self.execution.take(step) is not None:
                    assert step.message is not None
                    self.executed.append(step.message.seq)


def test_an_operation_of_one_site_does_not_wait_for_one_that_is_not_final() -> None:
    """ "STEP2 of a multi-group operation does not delay the execution of a single-group operation." """
    replica = Replica()
    several, single = operation(0, X, Y), operation(1, X)
    replica.step1(1, several, 1, 2)
    replica.step1(1, single, 1)
    assert replica.executed == [1]


def test_without_the_optimisation_it_waits_in_the_convoy() -> None:
    replica = Replica(counters_convoy=False)
    several, single = operation(0, X, Y), operation(1, X)
    replica.step1(1, several, 1, 2)
    replica.step1(1, single, 1)
    assert replica.executed == []
    replica.step1(2, several, 1, 2)
    replica.step2(1, several, 1, 2)
    replica.step2(2, several, 1, 2)
    assert replica.executed == [0, 1]


def test_an_operation_of_one_site_waits_for_one_that_was_final_before_it() -> None:
    """The published algorithm executes it at once: other replicas may have executed the other one by then."""
    replica = Replica()
    several, single = operation(0, X, Y), operation(1, X)
    replica.step1(1, several, 1, 2)
    replica.step1(2, several, 1, 2)
    replica.step2(1, several, 1, 2)
    replica.step1(1, single, 1)
    assert replica.executed == [], "the other site's STEP2 is still missing"
    replica.step2(2, several, 1, 2)
    assert replica.executed == [0, 1]


def test_what_another_site_has_before_an_operation_is_executed_before_it() -> None:
    replica = Replica()
    several, before, after = operation(0, X, Y), operation(1, Y), operation(2, Y)
    replica.step1(1, several, 1, 2)
    replica.step1(2, several, 1, 2)
    replica.step1(2, before, 2)
    replica.step2(2, several, 1, 2)
    replica.step1(2, after, 2)
    assert replica.executed == []
    replica.step2(1, several, 1, 2)
    assert replica.executed == [1, 0], "no mark is needed for what comes before"
    replica.mark()
    assert replica.executed == [1, 0, 2]


def test_a_mark_does_not_reach_beyond_what_concerns_the_own_site() -> None:
    replica = Replica()
    several, later = operation(0, X, Y), operation(1, Y)
    replica.step1(2, several, 1, 2)
    replica.step1(1, several, 1, 2)
    replica.step2(2, several, 1, 2)
    replica.step1(2, later, 2)
    replica.mark()
    assert replica.executed == [], "both wait for this site's STEP2"
    replica.step2(1, several, 1, 2)
    replica.mark()
    assert replica.executed == [0, 1]


def test_two_sites_never_give_the_same_timestamp() -> None:
    """After the maximum with another site's timestamp, a clock goes on under its own id."""
    one, other = Track(TrackState(1), True, True), Track(TrackState(2), False, True)
    first = attempt_of(operation(0, X, Y), 1, 2)
    for track in (one, other):
        track.order(Order(first, 0, None), 0)
    ts = max(one.pending[first], other.pending[first])
    for track in (one, other):
        track.finish(Final(first, ts))
        track.finish(Final(first, ts))  # once more, from another replica: nothing comes of it
    assert [len(track.by_ts) for track in (one, other)] == [1, 1]
    stamps = []
    for seq, track in ((1, one), (2, other)):
        attempt = attempt_of(operation(seq, X, Y), 1, 2)
        track.order(Order(attempt, 0, None), 1)
        stamps.append(track.pending[attempt])
    assert len(set(stamps)) == 2
    assert min(stamps) > ts


def test_an_attempt_with_a_site_that_is_not_right_any_more_is_void() -> None:
    replica = Replica()
    move, stale, right = operation(0, X, site=2), operation(1, X), operation(2, X)
    replica.step1(1, move, 1, 2)
    replica.step1(2, move, 1, 2)
    replica.step2(1, move, 1, 2)
    replica.step2(2, move, 1, 2)
    replica.step1(1, stale, 1)
    assert (replica.executed, replica.execution.void) == ([0], {stale.id: 0})
    replica.step1(2, right, 2)
    replica.mark()
    assert replica.executed == [0, 2]
    replica.tracks[2].order(Order(Attempt(stale.id, 1, (2,)), 0, stale), 5)
    replica.mark()
    assert replica.executed == [0, 2, 1]
    assert not replica.execution.void
    replica.tracks[2].order(Order(Attempt(stale.id, 2, (2,)), 0, stale), 6)
    replica.mark()
    assert replica.executed == [0, 2, 1], "two attempts, one execution"


def test_an_attempt_whose_content_no_site_ordered_is_void() -> None:
    replica = Replica()
    lost = operation(0, X, Y)
    for site in (1, 2):
        replica.tracks[site].order(Order(attempt_of(lost, 1, 2), 0, None), 0)
    replica.step2(1, lost, 1, 2)
    replica.step2(2, lost, 1, 2)
    assert (replica.executed, replica.execution.void) == ([], {lost.id: 0})


# -- which attempts a log takes


def order(seq: int, settled: int = 0, number: int = 0, followed: int = -1) -> Order:
    return Order(Attempt(message_id(9, seq), number, (1, 2)), settled, None, followed)


def test_a_log_takes_an_attempt_once() -> None:
    admitted = Admitted()
    assert admitted.admit(order(0), 0)
    assert not admitted.admit(order(0), 1)
    assert admitted.admit(order(0, number=1), 2)


def test_a_late_copy_of_what_is_settled_is_taken_only_for_a_site_that_has_seen_all_that_was_forgotten() -> None:
    admitted = Admitted()
    assert admitted.admit(order(0), 0)
    assert admitted.admit(order(7, settled=5), 4)
    assert not admitted.admit(order(0), 5)
    assert not admitted.admit(order(3), 6), "it is settled: nobody needs it"
    assert not admitted.admit(order(3, followed=4), 7), "instance 4, which forgot it, is not among those followed"
    assert admitted.admit(order(3, followed=5), 8), "another site has ordered it, and waits for this one"
    assert not admitted.admit(order(3, followed=5), 9)


# -- clients


def test_a_client_turns_to_its_own_region_first() -> None:
    topology = grid(3, 3, clients=2, regions=("A", "B", "C"), spread=False)
    for client in topology.clients:
        order_of = [topology.region(replica) for replica in replicas_for(client, topology)]
        assert order_of[:3] == [topology.region(client)] * 3
        assert topology.region(client) not in order_of[3:]
        assert sorted(replicas_for(client, topology)) == sorted(topology.processes)


def regional(**settings: Any) -> Scenario:
    """Three regions, each with a whole group in it."""
    made = scenario("geopaxos", "wan", groups=3, clients=3, **settings)
    return replace(made, network=replace(made.network, spread=False))


def test_operations_of_one_site_cost_no_delay_between_regions() -> None:
    """ "Operations that involve multiple groups require coordination among servers in datacenters that may be far
    apart"; those of one group do not."""
    made = regional(messages=1, workload=Micro(1, 1, objects=1), client_region="R1", seed=2)
    groups = made.topology().groups
    took = {}
    for dst in ((groups[0],), (groups[0], groups[1])):
        simulation = Simulation(replace(made, messages=0))
        simulation.start()
        topology = made.topology()
        names = tuple(objects_at(group, 1, topology.groups)[0] for group in dst)
        message = app_message(topology.clients[0], 0, topology.groups, encode(Operation(names)))
        simulation.hand_over(message, Request(message), [topology.members(dst[0])[0]])
        simulation.settle()
        rows = simulation.result().run().deliveries
        took[len(dst)] = int(rows.t_us[np.isin(rows.process, topology.members(dst[0]))].max())
    assert took[1] < 1_000
    assert 70_000 < took[2] < 90_000, "two delays between R1 and R2"


@pytest.mark.parametrize("gone", [1, 3])
def test_a_client_goes_on_elsewhere_when_replicas_are_gone(gone: int) -> None:
    """ "Clients connected to a replica that fails can reconnect to any operational replica." """
    made = regional(messages=30, workload=Micro(1, 2), seed=3)
    topology = made.topology()
    first = topology.members(1)
    crashes = tuple(Crash(1_000, process, 2_000_000 if gone == 3 else None) for process in first[:gone])
    result = passes(replace(made, plan=FaultPlan(crashes)))
    assert len(result.run().answers) == 30


def test_a_read_shows_what_a_client_of_another_site_was_told() -> None:
    made = regional(messages=0, seed=8)
    topology = made.topology()
    simulation = Simulation(made)
    simulation.start()
    message = app_message(topology.clients[0], 0, topology.groups, encode(Operation((X,))))
    simulation.hand_over(message, Request(message), [topology.members(1)[0]])
    reader = topology.members(2)[1]
    shown: list[list[int]] = []
    simulation.watch.saw_readable = lambda *_: shown.append(simulation.watch.delivered(reader))  # type: ignore[method-assign]
    begun_us = 1_000
    simulation.loop.at(begun_us, lambda: simulation._nodes[reader].read_now())
    simulation.settle()
    rows = simulation.result().run().deliveries
    assert rows.t_us[np.isin(rows.process, topology.members(1))].max() < begun_us, "the client has its answer by then"
    assert shown == [[message.id]]


# -- replicas that only learn


def executed_by(run: Run, topology: Topology, group: GroupId) -> int:
    return int(np.isin(run.deliveries.process, topology.members(group)).sum())


def test_a_group_that_is_no_site_executes_everything_and_orders_nothing() -> None:
    made = scenario("geopaxos", groups=3, messages=40, options={"sites": ("g1", "g2")}, workload=Micro(1, 2), seed=4)
    made = replace(made, workload=replace(made.workload, moves=0.3))
    run = passes(made).run()
    topology = made.topology()
    assert executed_by(run, topology, 3) == 40 * made.replicas
    learner = set(topology.members(3))
    asked = run.wire.kind == run.wire.kinds.index("STEP1")
    assert not learner & set(run.wire.dst[asked].tolist())


def test_only_one_site_gets_the_whole_operation() -> None:
    """ "It is sufficient that one group receives the full operation while the other groups receive only the unique id
    of the operation." """
    body = 5_000
    made = scenario("geopaxos", groups=3, clients=1, messages=1, workload=Micro(3, 3, body), seed=5)
    run = passes(made).run()
    proposals = run.wire.kind == run.wire.kinds.index("2a")
    topology = made.topology()
    whole = {topology.group_of(int(src)) for src in run.wire.src[proposals & (run.wire.bytes > body)]}
    assert len(whole) == 1


# -- the trace


def test_the_trace_says_which_objects_an_operation_touches() -> None:
    made = scenario("geopaxos", groups=3, clients=2, messages=10, workload=Micro(3, 3, objects=1), seed=6)
    run = passes(made).run()
    objects = {object_number(name) for name in (X, Y, Z)}
    assert set(run.objects.object.tolist()) == objects
    assert len(run.objects) == 30
    assert set(run.objects.msg.tolist()) == set(run.multicasts.msg.tolist())


def test_the_latency_at_the_client_is_that_of_the_replica_that_it_asked() -> None:
    run = passes(regional(messages=60, workload=Micro(1, 1), seed=7)).run()
    found = latencies_us(run)
    assert found["client"].mean() < found["last"].mean() if "last" in found else len(found["client"]) == 60
