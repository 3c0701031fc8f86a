"""What the recipes of FlexCast's evaluation share: twelve cloud regions, overlays and trees.

The paper draws its regions and overlays without naming them. It tells this much: twelve regions, numbered from the left
to the right of a map; overlays that start at node 8 in the centre (O1) and at node 1 on the left (O2) and always go on
to the nearest node; a tree with Europe at the root, America below 5 and Asia below 9 (T1), one with inner nodes 5 and 7
(T2), and one with all below 6 (T3). The regions here are those for which trees have about the overheads of its Table 4.

Published latencies are about twice as long as these regions allow if a message takes half a round trip. They fit where
it takes the whole of it, as it would if measured round trips were given to an emulator that delays every message. So
messages take as long here.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...core import Latency, latency_preset
from ...workload import Gtpcc
from ...workload.gtpcc import Mix
from ..cell import Label, RecipeCell
from ..recipe import Scale
from ._building import planned

REGIONS = (
    "us-west-2",
    "us-west-1",
    "ca-central-1",
    "sa-east-1",
    "us-east-1",
    "eu-west-1",
    "me-south-1",
    "eu-central-1",
    "ap-south-1",
    "ap-southeast-1",
    "ap-northeast-1",
    "ap-southeast-2",
)
TREES = {
    "T1": (5, 5, 5, 5, 8, 8, 8, 0, 8, 9, 9, 9),
    "T2": (5, 5, 5, 5, 6, 0, 6, 7, 7, 7, 7, 7),
    "T3": (6, 6, 6, 6, 6, 0, 6, 6, 6, 6, 6, 6),
}
STARTS = {"O1": 8, "O2": 1}
CLIENTS = 240


def network() -> Latency:
    """A message takes a whole round trip, see above."""
    aws = latency_preset("aws")
    round_trips = {pair: 2 * one_way for pair, one_way in aws.one_way_us.items()}
    return replace(aws, name="aws12", regions=REGIONS, one_way_us=round_trips)


def overlay(start: int) -> list[int]:
    """All groups, each the nearest to the one before that is left."""
    aws, order = network(), [start]
    while len(order) < len(REGIONS):
        left = [group for group in range(1, len(REGIONS) + 1) if group not in order]
        here = REGIONS[order[-1] - 1]
        order.append(min(left, key=lambda group: aws.mean_us(here, REGIONS[group - 1])))
    return order


# What a system is called in the paper -> protocol and options
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("flexcast", {"overlay": overlay(start)}) for name, start in STARTS.items()},
    **{name: ("tree", {"parents": list(parents)}) for name, parents in TREES.items()},
    "distributed": ("skeen", {}),
}


def cell(
    system: str,
    locality: int,
    scale: Scale,
    measures: tuple[str, ...] = ("load_together", "replies"),
    mix: Mix = "global",
    clients: int = CLIENTS,
    each: int = 12,
    **labels: Label,
) -> RecipeCell:
    protocol, options = SYSTEMS[system]
    return planned(
        {"system": system, "locality": locality, "clients": clients, **labels},
        protocol,
        "aws",
        latency=network(),
        measures=measures,
        groups=len(REGIONS),
        replicas=1,
        clients=clients,
        messages=clients * each * (1 if scale == "small" else 20),
        workload=Gtpcc(mix=mix, locality=locality / 100),
        options=options,
    )
