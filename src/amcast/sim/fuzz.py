"""Random schedules until something breaks: a seed decides topology, load, network, timing and faults.

Timeouts are short and snapshots frequent, so that elections, catch-up, state transfer and restarts happen in every run,
not once in a thousand. Liveness counts as much as order: a run that does not drain after its last fault is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from ..check import Report, Violation, check_run
from ..consensus import PaxosConfig
from ..core import Latency, UsageError, message_name
from ..protocols import ProtocolSpec, ReplicaConfig, protocol
from ..workload import Micro
from .faults import BYZANTINE, FaultPlan, Partition, PlanSize, random_plan
from .run import SimResult, simulate
from .scenario import Scenario

_SIZE = PlanSize()
_LOOKS_MAX = 16  # each after 1,024 steps: a run that has an order shows it after some hundred
_LIMITS = (  # of a log: what is small in a fuzz, and large in practice
    "window",
    "window_bytes",
    "value_bytes",
    "snapshot_every",
    "snapshot_bytes",
    "lag_max",
    "lag_bytes",
    "learn_chunk",
    "learn_bytes",
)


class Finding(msgspec.Struct, frozen=True):
    """A schedule that breaks a protocol."""

    seed: int
    scenario: Scenario
    violations: tuple[Violation, ...]


class FuzzResult(msgspec.Struct, frozen=True):
    seed: int
    messages: int
    deliveries: int
    wire_messages: int
    faults: int
    finding: Finding | None


def fuzz_scenario(
    protocol_name: str,
    seed: int,
    kinds: tuple[str, ...],
    replicas: int | None = None,
    groups: int | None = None,
    size: PlanSize = _SIZE,
) -> Scenario:
    rng = Random(f"fuzz/{seed}")
    spec = protocol(protocol_name)
    if BYZANTINE in kinds and not spec.survives_liars:
        raise UsageError(f"{protocol_name} believes the members of its groups: leave out the fault '{BYZANTINE}'")
    group_count = rng.randint(1, 4) if groups is None else groups
    replica_count = spec.replicas if replicas is None else replicas
    clients = rng.randint(2, 4)
    messages = rng.randint(10, 80)
    drawn = Scenario(
        protocol=protocol_name,
        groups=group_count,
        replicas=replica_count,
        clients=clients,
        messages=messages,
        interval_us=size.window_us * clients // messages,
        workload=Micro(1, rng.randint(1, min(3, group_count)), 8),
        network=Latency("fuzz", rng.choice((100, 300, 1_000)), sigma=rng.choice((0.0, 0.2, 1.0))),
        fifo=rng.random() < 0.5,
        sync_us=rng.choice((0, 0, 300, 3_000)),
        options=_options(spec, group_count, seed, rng),
        paxos=PaxosConfig(
            tick_us=2_000,
            election_ticks=rng.choice((4, 8)),
            retransmit_ticks=3,
            window=rng.choice((1, 2, 16)),
            snapshot_every=rng.choice((3, 10, 1_000)),
            lag_max=rng.choice((2, 10, 1_000)),
            learn_chunk=rng.choice((2, 256)),
        ),
        resend_us=10_000,
        retry_us=20_000,
        patience_us=3_000_000,
        seed=seed,
    )
    if spec.orders_operations:
        drawn = _with_operations(drawn, Random(f"fuzz/objects/{seed}"))
    if spec.takes_batches:
        drawn = _with_batches(drawn, Random(f"fuzz/batch/{seed}"))
    drawn = _with_reads(drawn, Random(f"fuzz/reads/{seed}"))
    drawn = _with_limits(drawn, Random(f"fuzz/limits/{seed}"))
    drawn = _with_small_numbers(drawn, Random(f"fuzz/numbers/{seed}"))
    plan = random_plan(drawn.topology(), kinds, size, rng, spec.faulty_max)
    if spec.orders_operations and "partition" in kinds:
        plan = _with_sites_cut_off(plan, drawn, size, Random(f"fuzz/sites/{seed}"))
    made = msgspec.structs.replace(drawn, plan=plan)
    made.check()
    return made


def _with_operations(drawn: Scenario, rng: Random) -> Scenario:
    """Few objects, so that operations meet; in three of four runs some operations move objects."""
    workload = msgspec.structs.replace(
        drawn.workload, objects=rng.choice((1, 2, 4)), moves=rng.choice((0.0, 0.1, 0.3, 0.6))
    )
    return msgspec.structs.replace(drawn, workload=workload)


def _with_sites_cut_off(plan: FaultPlan, drawn: Scenario, size: PlanSize, rng: Random) -> FaultPlan:
    """In half of the runs a whole site, with some of the clients, is cut off from the others for a while."""
    if rng.random() < 0.5:
        return plan
    topology = drawn.topology()
    clients = [client for client in topology.clients if rng.random() < 0.5]
    at = rng.randrange(size.window_us)
    side = (*topology.members(rng.choice(topology.groups)), *clients)
    return FaultPlan((*plan.faults, Partition(at, side, rng.randint(5_000, size.window_us), rng.random() < 0.3)))


def _with_batches(drawn: Scenario, rng: Random) -> Scenario:
    """In one of four runs clients send batches. Not in all: messages that share a batch share their schedule."""
    if rng.random() < 0.75:
        return drawn
    return msgspec.structs.replace(drawn, burst=rng.choice((2, 5, 12)), batch=rng.choice((2, 3, 16)))


def _with_reads(drawn: Scenario, rng: Random) -> Scenario:
    """In one of three runs members read, about as often as clients multicast."""
    if rng.random() < 0.67:
        return drawn
    return msgspec.structs.replace(drawn, reads_us=max(1_000, drawn.interval_us // rng.choice((1, 4))))


def _with_limits(drawn: Scenario, rng: Random) -> Scenario:
    """In one of four runs limits in bytes are so small that single messages exceed them."""
    if rng.random() < 0.75:
        return drawn
    paxos = msgspec.structs.replace(
        drawn.paxos,
        value_bytes=rng.choice((1, 60)),
        window_bytes=rng.choice((1, 100)),
        snapshot_bytes=rng.choice((100, 1_000)),
        lag_bytes=rng.choice((100, 1_000)),
        learn_bytes=rng.choice((1, 100)),
    )
    return msgspec.structs.replace(drawn, paxos=paxos)


def _with_small_numbers(drawn: Scenario, rng: Random) -> Scenario:
    """In half of the runs numbers that are large in practice are small, each for itself, and so reached in a run."""
    if rng.random() < 0.5:
        return drawn

    def small(usual: int, least: int = 1) -> int:
        return rng.choice((usual, least, rng.randint(least, 4), rng.randint(least, 30)))

    paxos = msgspec.structs.replace(
        drawn.paxos,
        window=small(drawn.paxos.window),
        snapshot_every=small(drawn.paxos.snapshot_every),
        lag_max=small(drawn.paxos.lag_max, 0),
        learn_chunk=small(drawn.paxos.learn_chunk),
    )
    config = drawn.replica_config()
    own = {name: small(getattr(config, name)) for name in ("resend_max", "ahead_max")}
    return msgspec.structs.replace(
        drawn,
        paxos=paxos,
        history_max=small(drawn.history_max, 0),
        history_bytes=rng.choice((drawn.history_bytes, 0, rng.randrange(400))),
        options={**drawn.options, **own, "resend_bytes": rng.choice((config.resend_bytes, 1, 100))},
    )


def _options(spec: ProtocolSpec, groups: int, seed: int, rng: Random) -> dict[str, Any]:
    is_adverse = rng.random() < 0.2  # drawn for every protocol: all have the same schedule for a seed
    own = Random(f"fuzz/{spec.name}/{seed}")  # so that a new protocol does not change the schedules of the others
    return {} if spec.fuzz_options is None else spec.fuzz_options(groups, is_adverse, own)


def _after_looks(most: int) -> Callable[[], bool]:
    """Ends the search for an order of operations after so many looks at the clock. It counts, so that the same run gets
    the same verdict on any machine. An order that is neither found nor ruled out by then is no violation."""
    looks = 0

    def is_over() -> bool:
        nonlocal looks
        looks += 1
        return looks > most

    return is_over


def violations_of(result: SimResult, report: Report | None = None) -> tuple[Violation, ...]:
    """What is wrong with a run: a broken invariant, a violated property, or no end.

    `report` is what the checker says of the run, if somebody has asked it already.
    """
    if result.broken is not None:
        name = result.scenario.topology().name
        broken = result.broken
        where = name(broken.process) if broken.process >= 0 else "a process"
        return (Violation("invariant", [], [broken.process], f"at {broken.t_us} us {where}: {broken.what}"),)
    report = report or check_run(result.run(), _after_looks(_LOOKS_MAX))
    if report.violations:
        return tuple(report.violations)
    if result.application is not None and result.application.problems:
        return tuple(Violation("application", [], [], problem) for problem in result.application.problems)
    if not result.complete:
        names = ", ".join(map(message_name, result.stuck[:5]))
        more = f" and {len(result.stuck) - 5} more" if len(result.stuck) > 5 else ""
        explanation = (
            f"nothing moves any more, although the last fault ended at {result.scenario.plan.end_us()} us: "
            + (f"{names}{more} not delivered everywhere" if result.stuck else "clients or reads wait for answers")
        )
        return (Violation("liveness", list(result.stuck), [], explanation),)
    return ()


def fuzz_one(made: Scenario, run: Callable[[Scenario], SimResult] = simulate) -> FuzzResult:
    result = run(made)
    violations = violations_of(result)
    finding = Finding(made.seed, made, violations) if violations else None
    return FuzzResult(made.seed, result.messages, result.deliveries, result.wire_messages, result.faults, finding)


def shrink(
    made: Scenario,
    run: Callable[[Scenario], SimResult] = simulate,
    tries_max: int = 400,
) -> Scenario:
    """A smaller scenario that breaks the same property: fewer faults, fewer messages, calmer settings."""
    target = {violation.property for violation in violations_of(run(made))}
    tries = 0

    def still_breaks(candidate: Scenario) -> bool:
        nonlocal tries
        tries += 1
        found = violations_of(run(candidate))
        return bool(target & {violation.property for violation in found})

    while tries < tries_max:
        for candidate in _smaller(made):
            if tries < tries_max and still_breaks(candidate):
                made = candidate
                break
        else:
            break
    return made


def _smaller(made: Scenario) -> list[Scenario]:
    """Candidates, boldest first."""
    replace = msgspec.structs.replace
    candidates = []
    count = len(made.plan.faults)
    if count > 2:
        half = count // 2
        plan = type(made.plan)
        candidates.append(replace(made, plan=plan(made.plan.faults[half:])))
        candidates.append(replace(made, plan=plan(made.plan.faults[:half])))
    candidates += [replace(made, messages=n) for n in (made.messages // 2, made.messages - 1) if 1 <= n < made.messages]
    candidates += [replace(made, plan=made.plan.without(index)) for index in range(count)]
    usual = ReplicaConfig()
    calmer = {"reads_us": 0, "sync_us": 0, "fifo": True, "batch": 1, "burst": 1, "options": {}}
    calmer |= {"history_max": usual.history_max, "history_bytes": usual.history_bytes}
    for field, value in calmer.items():
        if getattr(made, field) != value:
            candidates.append(replace(made, **{field: value}))
    for field in _LIMITS:
        value = getattr(usual.paxos, field)
        if getattr(made.paxos, field) != value:
            candidates.append(replace(made, paxos=replace(made.paxos, **{field: value})))
    return candidates
