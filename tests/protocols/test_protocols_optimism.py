"""Delays by size of group, how good optimistic orders are, sendersTo while it changes, and state that stays bounded."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from amcast.check import check_run
from amcast.core import ProcessId, UsageError, app_message, encode, grid, message_id, timestamp
from amcast.protocols.optimistic.ingress import home_of
from amcast.protocols.optimistic.merge import END_OF_TIME
from amcast.protocols.optimistic.messages import SKEW_MAX_US, TIME_MAX, BarrierRequest, FrMcast
from amcast.protocols.optimistic.proposals import Proposals
from amcast.protocols.optimistic.reconfiguration import Reconfiguration
from amcast.protocols.optimistic.source import Source
from amcast.protocols.optimistic.window import SAMPLES, WaitWindow
from amcast.sim import FaultPlan, Scenario, scenario, simulate
from amcast.sim.faults import KINDS, Crash, Skew
from amcast.sim.fuzz import fuzz_scenario, violations_of
from amcast.sim.run import Simulation
from amcast.trace import FINAL, OPTIMISTIC, Run
from amcast.workload import Micro

# -- message delays


@pytest.mark.parametrize(("name", "delays"), [("oam", 2), ("oam-baseline", 2), ("sequencer", 2)])
def test_a_group_of_one_saves_the_votes(name: str, delays: int) -> None:
    assert _final_delays(name, replicas=1) == delays


def test_a_replicated_sequencer_takes_a_delay_more() -> None:
    assert _final_delays("sequencer", replicas=3) == 3


def _final_delays(name: str, replicas: int) -> float:
    made = scenario(name, "unit", groups=3, replicas=replicas, clients=1, messages=1, workload=Micro(2, 2), seed=1)
    run = simulate(made).run()
    last = run.deliveries.t_us[run.deliveries.kind == FINAL].max()
    return float(last - run.multicasts.t_us[0]) / made.network.default_us


# -- the quality of optimistic orders


def orders(run: Run, process: ProcessId) -> tuple[list[int], list[int]]:
    """What a process delivered, and guessed. What came for good before its guess was due is a guess of that moment."""
    rows = run.deliveries
    final = np.flatnonzero((rows.process == process) & (rows.kind == FINAL))
    guessed = np.flatnonzero((rows.process == process) & (rows.kind == OPTIMISTIC))
    early = set(rows.msg[guessed].tolist())
    late = [row for row in final.tolist() if int(rows.msg[row]) not in early]
    by_time = sorted(
        [*guessed.tolist(), *late], key=lambda row: (rows.t_us[row], rows.kind[row] == FINAL, rows.pos[row])
    )
    return rows.msg[final].tolist(), rows.msg[by_time].tolist()


def right_guesses(run: Run, process: ProcessId, after: float = 0.0) -> float:
    """The share of messages at the same position in both orders, without the first ones."""
    final, guessed = orders(run, process)
    first = int(len(final) * after)
    return float(np.mean([a == b for a, b in zip(final[first:], guessed[first:], strict=True)]))


def two_clusters(compensates: bool) -> Run:
    """Ten processes that multicast to all, 100 messages a second together; g1 is the sequencer, even groups are far."""
    made = scenario(
        "sequencer",
        "two-clusters",
        groups=10,
        clients=1,
        messages=0,
        member_messages=220,
        interval_us=100_000,
        workload=Micro(10, 10, 8),
        fifo=False,
        options={"compensates": compensates},
        records_wire=False,
        seed=1,
    )
    result = simulate(made)
    assert result.complete
    return result.run()


def test_delay_compensation_orders_what_spontaneous_order_does_not() -> None:
    """At 3 % spread and 100 messages a second, published for a distant process: 11.2 % right without, 82.5 % with."""
    distant = (1, 3, 5, 7, 9)
    plain, compensated = two_clusters(False), two_clusters(True)
    assert 0.05 < np.mean([right_guesses(plain, process, 0.5) for process in distant]) < 0.2
    assert np.mean([right_guesses(compensated, process, 0.5) for process in distant]) > 0.8
    assert right_guesses(plain, 0) == right_guesses(compensated, 0) == 1.0  # the sequencer itself


def optimistic_run(network: str, interval_us: int, plan: FaultPlan, **settings: Any) -> Run:
    made = scenario(
        "oam",
        network,
        clients=1,
        messages=0,
        member_messages=40,
        interval_us=interval_us,
        workload=Micro(1, 2, 8),
        plan=plan,
        seed=1,
        **settings,
    )
    result = simulate(made)
    assert result.complete
    run = result.run()
    assert check_run(run).verdict == "pass"
    return run


def mean_accuracy(run: Run) -> float:
    processes = np.unique(run.deliveries.process).tolist()
    return float(np.mean([right_guesses(run, process) for process in processes]))


def test_mistakes_are_rare_in_a_local_network() -> None:
    """Published: fewer mistakes than 0.5 %. Five groups of three, 3,000 messages a second."""
    assert mean_accuracy(optimistic_run("lan", 5_000, FaultPlan(), groups=5)) > 0.995


def test_most_guesses_are_right_in_a_wide_area_network_with_skewed_clocks() -> None:
    """Published: about 95 % right, with clocks less than 10 ms apart."""
    rng = Random(3)
    skewed = FaultPlan(tuple(Skew(1, process, rng.randint(-9_999, 9_999), 0.0) for process in range(9)))
    assert mean_accuracy(optimistic_run("wan", 200_000, skewed, groups=3)) > 0.95


# -- clocks that are wrong

YEAR_US = 365 * 24 * 3_600 * 1_000_000


@pytest.mark.parametrize("name", ["oam", "oam-baseline"])
@pytest.mark.parametrize("offset_us", [10 * YEAR_US, 1 << 60, -10 * YEAR_US, -(1 << 60)])
def test_a_client_with_a_wrong_clock_harms_nobody(name: str, offset_us: int) -> None:
    """Its own messages are ordered as well; and nobody waits for its clock, neither before a restart nor after it."""
    clients = 3
    wrong = grid(2, 3, clients).clients[0]
    plan = FaultPlan((Skew(0, wrong, offset_us, 0.0), *(Crash(200_000, process, 50_000) for process in range(6))))
    made = scenario(name, groups=2, clients=clients, messages=60, interval_us=10_000, plan=plan, seed=3)
    result = simulate(made)
    assert violations_of(result) == ()
    assert result.end_us < 20 * SKEW_MAX_US


def test_what_a_log_says_never_takes_a_clock_beyond_what_a_timestamp_holds() -> None:
    """A log may hold times that were taken without a look: they must not stop a replica at every start."""
    source = Source(1, {})
    for seq, time in enumerate((1 << 50, 1 << 63, 5)):
        assert source.stamp(message_id(9, seq), (1,), time) == timestamp(TIME_MAX + seq, 1)
    source.raise_clock(1 << 62)
    last = source.stamp(message_id(9, 3), (1,), -(1 << 60))
    assert last is not None
    assert source.barrier() > last
    assert last < END_OF_TIME


@pytest.mark.parametrize("name", ["oam", "oam-baseline"])
@pytest.mark.parametrize("time", [1 << 60, -(1 << 60)])
@pytest.mark.parametrize("kind", [FrMcast, BarrierRequest])
def test_a_time_that_no_clock_shows_harms_nobody(name: str, time: int, kind: type) -> None:
    simulation = Simulation(scenario(name, groups=2, clients=2, messages=0))
    simulation.start()
    assert simulation.settle()
    good, bad = grid(2, 3, 2).clients
    message = app_message(bad, 0, (1, 2), b"")
    copy = FrMcast(message, home_of(bad, grid(2, 3, 2)), time, ())
    said = copy if kind is FrMcast else BarrierRequest(message.id, time, 1)
    for process in range(6):
        machine = simulation._nodes[process]
        machine.process.on_message(bad, said, machine)
    for _ in range(3):
        simulation.multicast(good, (1, 2), b"")
        assert simulation.settle()
    assert simulation.loop.now < 20 * SKEW_MAX_US


def test_the_window_is_the_largest_average_of_the_last_hundred() -> None:
    window = WaitWindow()
    for took in range(1, 2 * SAMPLES + 1):
        window.add(1, took)
    assert window.length_us == sum(range(SAMPLES + 1, 2 * SAMPLES + 1)) // SAMPLES
    window.add(2, 1_000)
    assert window.length_us == 1_000
    for _ in range(SAMPLES):
        window.add(2, 0)
    assert window.length_us == sum(range(SAMPLES + 1, 2 * SAMPLES + 1)) // SAMPLES


# -- sendersTo


PAIRS = {"g1": ["g1", "g2"], "g2": ["g1", "g2"], "g3": ["g3"], "g4": ["g4"]}


def reconfiguring(name: str, **options: Any) -> Scenario:
    return scenario(
        name,
        groups=4,
        clients=4,
        messages=80,
        interval_us=8_000,
        workload=Micro(1, 2, 8),
        options={"senders_to": PAIRS, **options},
        resend_us=5_000,
        seed=4,
    )


@pytest.mark.parametrize("name", ["oam-baseline", "oam"])
def test_groups_join_and_leave_while_messages_flow(name: str) -> None:
    """Nothing is lost, and the order is kept."""
    simulation = Simulation(reconfiguring(name, leave_after_us=6_000))
    result = simulation.run()
    assert result.complete
    report = check_run(result.run())
    assert report.verdict == "pass", report.violations
    replicas: list[Any] = [simulation._nodes[p].process for p in simulation._topology.processes]
    links = [link for replica in replicas for link in replica._merger.sources[replica._group].links.values()]
    assert max(link.count for link in links) > 2, "some group joined again after it had left"
    assert not all(link.joined for link in links)


@pytest.mark.parametrize("name", ["oam-baseline", "oam"])
def test_who_is_not_in_senders_to_hears_nothing(name: str) -> None:
    """Quasi-genuine: messages to g1 and g2 concern the groups that send there, and these alone."""
    made = scenario(name, groups=4, clients=1, messages=0, options={"senders_to": PAIRS}, seed=5)
    simulation = Simulation(made)
    simulation.start()
    client = made.topology().clients[0]  # its number is 12: its home is g1
    for _ in range(20):
        simulation.multicast(client, (1, 2), b"x")
    assert simulation.settle()
    run = simulation.result().run()
    assert run.info.extra["senders_to"] == {"1": [1, 2], "2": [1, 2], "3": [3], "4": [4]}
    assert check_run(run).properties["quasi-genuine"] == "pass"
    crossing = {
        (topology_group(made, src), topology_group(made, dst))
        for src, dst in zip(run.wire.src.tolist(), run.wire.dst.tolist(), strict=True)
    }
    assert {pair for pair in crossing if None not in pair} == {(1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (4, 4)}
    narrow = msgspec.structs.replace(run.info, extra={**run.info.extra, "senders_to": {"1": [1], "2": [2]}})
    blamed = Run(narrow, run.multicasts, run.deliveries, run.wire, run.faults, run.restored)
    assert check_run(blamed).properties["quasi-genuine"] == "fail"


def test_a_leader_that_learns_of_a_join_from_a_peer_goes_on() -> None:
    """Its own log was behind: the peer's state held the join that its messages waited for."""
    assert not violations_of(simulate(fuzz_scenario("oam", 815, KINDS, replicas=3)))


def test_a_leader_whose_proposal_was_refused_in_what_it_never_saw_proposes_again() -> None:
    """A peer's state took it past the place in its own log where a message came after the group had left."""
    assert not violations_of(simulate(fuzz_scenario("oam-baseline", 58, KINDS, replicas=3)))


def topology_group(made: Scenario, process: ProcessId) -> int | None:
    return made.topology().group_of(process)


def test_a_payload_goes_to_its_destinations_only() -> None:
    made = scenario("oam", groups=3, clients=1, messages=0, seed=6)
    simulation = Simulation(made)
    simulation.start()
    for _ in range(10):
        simulation.multicast(made.topology().clients[0], (1,), bytes(5_000))
    assert simulation.settle()
    run = simulation.result().run()
    accepts = run.wire.kind == run.wire.kinds.index("2a")
    outside = accepts & ~np.isin(run.wire.dst, made.topology().members(1))
    assert outside.any()
    assert run.wire.bytes[outside].max() < 2_000


def test_senders_to_must_name_groups() -> None:
    with pytest.raises(UsageError, match="senders_to names 'g9', which is no group"):
        simulate(scenario("oam", groups=2, options={"senders_to": {"g1": ["g9"]}}))


# -- local order


def test_an_optimistic_delivery_after_the_final_one_is_found() -> None:
    run = simulate(scenario("oam", groups=2, messages=20, seed=7)).run()
    assert check_run(run).properties["local-order"] == "pass"
    rows = run.deliveries
    late = rows.t_us.copy()
    late[np.flatnonzero(rows.kind == OPTIMISTIC)[3]] = int(rows.t_us.max()) + 1
    changed = type(rows)(rows.process, rows.grp, rows.pos, rows.msg, rows.kind, rows.ts, late)
    report = check_run(Run(run.info, run.multicasts, changed, run.wire, run.faults, run.restored))
    assert report.properties["local-order"] == "fail"
    assert "after its final delivery" in report.violations[0].explanation


# -- bounded state


@pytest.mark.parametrize("name", ["oam-baseline", "oam", "sequencer"])
def test_state_does_not_grow_with_the_run(name: str) -> None:
    """What replicas hold at the end of a run four times as long is no larger than a few messages more."""
    sizes = [held_at_the_end(name, messages) for messages in (400, 1_600)]
    assert sizes[1] < 1.5 * sizes[0] + 2_000


def held_at_the_end(name: str, messages: int) -> int:
    made = scenario(name, groups=2, clients=4, messages=messages, outstanding=4, workload=Micro(1, 2, 8), seed=8)
    small = msgspec.structs.replace(
        made,
        history_max=64,
        paxos=msgspec.structs.replace(made.paxos, snapshot_every=20, lag_max=40),
        records_wire=False,
    )
    simulation = Simulation(small)
    assert simulation.run().complete
    held = 0
    for process in (simulation._nodes[p].process for p in simulation._topology.processes):
        replica: Any = process
        parts = [replica, *(part for part in vars(replica).values() if isinstance(part, Proposals | Reconfiguration))]
        held += len(encode(replica._dump())) + sum(size_of(value) for part in parts for value in vars(part).values())
    return held


def size_of(value: Any) -> int:
    return 20 * len(value) if isinstance(value, dict | list | set) else 0
