"""Random scenarios of whole nodes: a seed decides topology, load, limits, network, disks and faults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from ..check import Violation
from ..consensus import PaxosConfig
from ..net.config import Limits
from ..net.disk.records import Durability
from ..protocols import protocol
from .faults import NodePlan, NodePlanSize, PoisonedMessage, random_node_plan
from .run import NodeResult, simulate_nodes
from .scenario import NodeScenario

_SIZE = NodePlanSize()
_NULL_US = 60_000  # less often than protocols alone, which do it every 3 ms: nodes are slower to simulate


class NodeFinding(msgspec.Struct, frozen=True):
    seed: int
    scenario: NodeScenario
    violations: tuple[Violation, ...]


class NodeFuzzResult(msgspec.Struct, frozen=True):
    seed: int
    messages: int
    deliveries: int
    wire_messages: int  # events, of which a scenario of nodes has many more than messages
    faults: int
    finding: NodeFinding | None


def fuzz_node_scenario(
    protocol_name: str,
    seed: int,
    kinds: tuple[str, ...],
    replicas: int | None = None,
    groups: int | None = None,
    durability: Durability | None = None,
    size: NodePlanSize = _SIZE,
) -> NodeScenario:
    rng = Random(f"fuzz nodes/{seed}")
    spec = protocol(protocol_name)
    group_count = rng.randint(1, 3) if groups is None else groups
    replica_count = spec.replicas if replicas is None else replicas
    clients = rng.randint(1, 3)
    messages = rng.randint(10, 40)
    mode = rng.choice((Durability.SYNC, Durability.SYNC, Durability.SYNC, Durability.ASYNC, Durability.MEMORY))
    mode = mode if durability is None else durability
    is_adverse = rng.random() < 0.2
    own = Random(f"fuzz nodes/{protocol_name}/{seed}")
    options: dict[str, Any] = {
        "paxos": msgspec.to_builtins(_paxos(Random(f"fuzz nodes/paxos/{seed}"))),
        "resend_us": 60_000,
        "history_max": rng.choice((1, 4, 30, 4_096)),
    }
    if spec.fuzz_options is not None:
        options |= spec.fuzz_options(group_count, is_adverse, own)
    if options.get("null_us"):
        options["null_us"] = _NULL_US
    scenario = NodeScenario(
        protocol=protocol_name,
        groups=group_count,
        replicas=replica_count,
        clients=clients,
        messages=messages,
        dst_max=rng.randint(1, min(3, group_count)),
        payload_bytes=rng.choice((16, 200, 3_000)),
        interval_us=size.window_us * clients // messages,
        queries=Random(f"fuzz nodes/queries/{seed}").choice((0.0, 0.5, 2.0)),
        durability=mode,
        latency_us=rng.choice((50, 200, 1_000)),
        splits=rng.choice((0.0, 0.1, 0.5)),
        window_bytes=rng.choice((300, 4_000, 256 << 10)),
        sync_us=rng.choice((0, 100, 2_000)),
        options=options,
        limits=_limits(Random(f"fuzz nodes/limits/{seed}")),
        keep_messages=rng.choice((5, 10_000_000, 10_000_000)),
        seed=seed,
    )
    if spec.orders_operations:
        kinds = tuple(kind for kind in kinds if kind != PoisonedMessage.kind)
    reader, plan_rng = f"c{clients}", Random(f"fuzz nodes/plan/{seed}")
    plan = random_node_plan(group_count, replica_count, mode, kinds, size, plan_rng, reader)
    readers = int(any(reader in getattr(fault, "side", ()) for fault in plan.faults))
    scenario = msgspec.structs.replace(scenario, plan=plan, readers=readers)
    scenario.check()
    return scenario


def _paxos(rng: Random) -> PaxosConfig:
    return PaxosConfig(
        tick_us=40_000,
        election_ticks=rng.choice((3, 6)),
        retransmit_ticks=3,
        window=rng.choice((1, 2, 16)),
        snapshot_every=rng.choice((1, 3, 10, 1_000)),
        snapshot_bytes=rng.choice((200, 32 << 20)),
        lag_max=rng.choice((2, 10, 1_000)),
        lag_bytes=rng.choice((300, 64 << 20)),
        learn_chunk=rng.choice((2, 256)),
    )


def _limits(rng: Random) -> Limits:
    return Limits(
        open_messages=rng.choice((2, 20, 100_000)),
        open_bytes=rng.choice((100, 4_000, 256 << 20)),
        link_bytes=rng.choice((2_000, 32 << 20)),
        client_bytes=rng.choice((1_000, 8 << 20)),
        snapshot_messages=rng.choice((1, 3, 10, 100_000)),
        reads_bytes=rng.choice((1, 200, 16 << 20)),
        undurable_bytes=rng.choice((1_000, 64 << 20)),
        segment_bytes=rng.choice((200, 2_000, 64 << 20)),
        trace_bytes=rng.choice((500, 30_000, 100_000, 0, 1_000_000_000)),
        trace_age_s=rng.choice((1, 0, 604_800)),
        queries=rng.choice((1, 10_000)),
    )


def fuzz_one_node(made: NodeScenario, run: Callable[[NodeScenario], NodeResult] = simulate_nodes) -> NodeFuzzResult:
    result = run(made)
    finding = NodeFinding(made.seed, made, result.violations) if result.violations else None
    return NodeFuzzResult(made.seed, result.messages, result.deliveries, result.events, result.faults, finding)


def shrink_node(
    made: NodeScenario, run: Callable[[NodeScenario], NodeResult] = simulate_nodes, tries_max: int = 80
) -> NodeScenario:
    """A smaller scenario that breaks the same property."""
    target = {violation.property for violation in run(made).violations}
    tries = 0
    found = True
    while found and tries < tries_max:
        found = False
        for candidate in _smaller(made):
            tries += 1
            if target & {violation.property for violation in run(candidate).violations}:
                made, found = candidate, True
                break
            if tries >= tries_max:
                break
    return made


def _smaller(made: NodeScenario) -> list[NodeScenario]:
    """Candidates, boldest first."""
    replace = msgspec.structs.replace
    faults = made.plan.faults
    half = len(faults) // 2
    candidates = []
    if len(faults) > 2:
        candidates += [replace(made, plan=NodePlan(part)) for part in (faults[half:], faults[:half])]
    candidates += [replace(made, plan=made.plan.without(index)) for index in range(len(faults))]
    candidates += [replace(made, messages=n) for n in (made.messages // 2, made.messages - 1) if 1 <= n < made.messages]
    calmer: dict[str, Any] = {
        "queries": 0.0,
        "clients": 1,
        "splits": 0.0,
        "window_bytes": 256 << 10,
        "sync_us": 0,
        "limits": Limits(),
    }
    for name, value in calmer.items():
        if getattr(made, name) != value:
            candidates.append(replace(made, **{name: value}))
    return candidates
