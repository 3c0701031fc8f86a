"""What the two protocols of this package say of themselves."""

from __future__ import annotations

from random import Random
from typing import Any

from .._spec import ORDER, SAMPLE, ProtocolSpec
from .baseline import Baseline, BaselineConfig
from .ingress import BaselineIngress, OptimisticIngress, home_group, senders_facts
from .messages import (
    BarrierRequest,
    FrMcast,
    JoinRequest,
    JoinResponse,
    MergedState,
    OptimisticMessage,
    Positions,
    Received,
    SendersTo,
)
from .oam import Optimistic, OptimisticConfig


def _fuzz_options(groups: int, is_adverse: bool, rng: Random) -> dict[str, Any]:
    """In two of three runs groups join and leave each other's senders, some again and again while messages flow."""
    options: dict[str, Any] = {"null_us": rng.choice((0, 0, 0, 3_000)), "requests": rng.random() < 0.8}
    if rng.random() < 0.67:
        everyone = [f"g{group}" for group in range(1, groups + 1)]
        options["senders_to"] = {h: tuple(x for x in everyone if rng.random() < 0.4) for h in everyone}
        options["leave_after_us"] = rng.choice((0, 5_000, 20_000, 60_000))
    return options


_SHARED: dict[str, Any] = {
    "survives": "f crashes of 2f+1 in each group",
    "replicas": 3,
    "messages": OptimisticMessage,
    "samples": (
        FrMcast(SAMPLE, 1, 5, (1, 2), True),
        BarrierRequest(SAMPLE.id, 5, 1),
        JoinRequest(1, 2),
        JoinResponse(1, 2, 5, (1, 2)),
        SendersTo(1, 2, (1, 2)),
        Received(1, 2),
        Positions({1: 2}, True),
        MergedState(b"s"),
    ),
    "cases": {"slow": {"changed_timestamps": True}},
    "fuzz_options": _fuzz_options,
    "facts": senders_facts,
    "ingress_groups": home_group,
    "ingress_messages": FrMcast | BarrierRequest,
}

BASELINE = ProtocolSpec(
    name="oam-baseline",
    title="Baseline Atomic Multicast",
    paper="Bezerra, Pedone, Garbinato, Geyer 2013, Algorithm 1",
    claims=(*ORDER, "fifo", "quasi-genuine"),
    delays={"local": 3, "global": 3, "slow": 4},
    build=Baseline,
    config=BaselineConfig,
    ingress=BaselineIngress,
    **_SHARED,
)

SPEC = ProtocolSpec(
    name="oam",
    title="Optimistic Atomic Multicast",
    paper="Bezerra, Pedone, Garbinato, Geyer 2013, section IV",
    claims=(*ORDER, "fifo", "quasi-genuine", "local-order"),
    delays={"optimistic": 1, "local": 3, "global": 3, "slow": 4},
    build=Optimistic,
    config=OptimisticConfig,
    ingress=OptimisticIngress,
    **_SHARED,
)
