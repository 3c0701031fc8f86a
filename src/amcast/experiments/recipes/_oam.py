"""What the recipes of Optimistic Atomic Multicast share: processes that multicast at a constant rate, by sendersTo."""

from __future__ import annotations

from typing import Any

import msgspec

from ...core import GroupId, Latency, grid
from ...sim import CpuCost, FaultPlan, scenario
from ...sim.faults import Skew
from ..cell import Label, RecipeCell
from ..hardware import libpaxos
from ..recipe import MissingError, Results

PROTOCOLS = ("oam-baseline", "oam", "multipaxos")
TITLES = {"oam-baseline": "baseline", "oam": "optimistic", "multipaxos": "Paxos amcast"}
_INFLECTION = 3.0  # latency beyond so many times that of a light load has left the flat part of the curve


def senders_to(groups: int, senders: int) -> dict[str, list[str]]:
    """Each group sends to itself and to the next ones in a ring."""
    names = [f"g{group}" for group in range(1, groups + 1)]
    return {name: [names[(at - step) % groups] for step in range(senders)] for at, name in enumerate(names)}


def skewed(groups: int, replicas: int, offsets_us: tuple[int, ...]) -> FaultPlan:
    """Clocks of members that differ: the member of a group with this number by so much."""
    topology = grid(groups, replicas)
    members: list[tuple[GroupId, int]] = [(group, at) for group in topology.groups for at in range(replicas)]
    return FaultPlan(
        tuple(Skew(0, topology.members(group)[at], offsets_us[at % len(offsets_us)], 0.0) for group, at in members)
    )


def constant_rate(
    labels: dict[str, Label],
    protocol: str,
    network: str,
    *,
    senders: int,
    rate: float,
    messages: int,
    groups: int,
    replicas: int,
    latency: Latency | None = None,
    cpu: bool = True,
    plan: FaultPlan | None = None,
    options: dict[str, Any] | None = None,
) -> RecipeCell:
    own = {} if protocol == "multipaxos" else {"senders_to": senders_to(groups, senders)}
    made = scenario(
        protocol,
        network,
        groups=groups,
        replicas=replicas,
        clients=1,
        messages=0,
        cpu=libpaxos("basecast") if cpu else CpuCost(),
        plan=plan or FaultPlan(),
        options=own | (options or {}),
        records_wire=False,
        seed=1,
    )
    if latency is not None:
        made = msgspec.structs.replace(made, network=latency)
    settings = {
        "scenario": msgspec.to_builtins(made),
        "senders": senders,
        "every_us": round(1e6 / rate),
        "messages": messages,
        "start_us": 20_000 if network == "lan" else 1_000_000,
    }
    return RecipeCell(labels={"protocol": protocol, **labels}, program="senders", settings=settings)


def most(results: Results, protocol: str, rates: tuple[int, ...], **labels: Label) -> int:
    """The maximum throughput: the highest rate before latency leaves the flat part of its curve."""
    latency = {rate: results("final_p95_ms", protocol=protocol, rate=rate, **labels) for rate in rates}
    flat = [rate for rate in rates if latency[rate] <= _INFLECTION * latency[rates[0]]]
    if not flat:
        raise MissingError(f"no rate of {protocol} was sustained")
    return max(flat)
