"""What GeoPaxos says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import count
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from ...core import AppMessage, GroupId, Topology, encode
from .._spec import EXECUTION, SAMPLE, ProtocolSpec
from .execution import initial_site
from .ingress import GeoIngress
from .messages import (
    Attempt,
    Followed,
    GeoMessage,
    HoldThis,
    Operation,
    Order,
    Places,
    Request,
    SiteState,
    Step1,
    decode_operation,
    object_number,
)
from .policy import WANDERING
from .replica import GeoPaxos
from .state import GeoConfig, sites_of


def objects_at(site: GroupId, count: int, sites: tuple[GroupId, ...]) -> list[str]:
    """So many objects that belong to a site unless somebody moves them."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        if initial_site(f"x{number}", sites) == site:
            found.append(f"x{number}")
        number += 1
    return found


def objects_of(message: AppMessage) -> tuple[int, ...]:
    """None of a payload that is no operation: nobody executes it."""
    try:
        objects = decode_operation(message.payload).objects
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(sorted(set(map(object_number, objects))))


def draw_operation(
    dst: tuple[GroupId, ...],
    payload: bytes,
    objects: int,
    moves: float,
    topology: Topology,
    config: GeoConfig,
    rng: Random,
) -> tuple[tuple[GroupId, ...], bytes]:
    """The operation that a workload means by a message to these groups: on an object of each of them; or a move."""
    sites = sites_of(config, topology)
    homes = sorted({site if site in sites else sites[site % len(sites)] for site in dst})
    names = [rng.choice(objects_at(site, objects, sites)) for site in homes]
    site = rng.choice(sites) if rng.random() < moves else 0
    body = msgspec.json.encode(_steps(names, rng)).ljust(len(payload))
    return topology.groups, encode(Operation(tuple(names), body, site))


def operation_on(
    touches: Sequence[tuple[GroupId, str, tuple[str | int, ...]]], topology: Topology, config: GeoConfig
) -> tuple[tuple[GroupId, ...], bytes]:
    """The operation that does this: to each object (the site where it begins, its name) what its verb says."""
    sites = sites_of(config, topology)
    names = [name_at(site if site in sites else sites[site % len(sites)], name, sites) for site, name, _ in touches]
    steps = [(verb, name, *given) for name, (_, _, (verb, *given)) in zip(names, touches, strict=True)]
    return topology.groups, encode(Operation(tuple(dict.fromkeys(names)), msgspec.json.encode(steps)))


@cache
def name_at(site: GroupId, name: str, sites: tuple[GroupId, ...]) -> str:
    """The object's name, with an ending by which it belongs to this site until somebody moves it."""
    return next(found for at in count() if initial_site(found := f"{name}.{at}", sites) == site)


def _steps(names: list[str], rng: Random) -> list[tuple[str | int, ...]]:
    """What is done with these objects, as the store of `amcast.apps` reads it: a quarter only reads, most read and
    replace. No two operations write the same value, so that it is easily judged which write a read has seen."""
    kind = rng.random()
    reads: list[tuple[str | int, ...]] = [("get", name) for name in names]
    writes: list[tuple[str | int, ...]] = [("put", name, rng.getrandbits(52)) for name in names]
    return reads if kind < 0.25 else writes if kind < 0.4 else [*reads, *writes]


def _fuzz_options(groups: int, is_adverse: bool, rng: Random) -> dict[str, Any]:
    """In one of five runs operations of one site wait in the convoy; in one of four some groups only learn; in one of
    four little is kept for groups that are down; in one of three a placer moves objects all the time."""
    options: dict[str, Any] = {"counters_convoy": not is_adverse}
    if rng.random() < 0.25:
        options["sites"] = tuple(f"g{group}" for group in range(1, groups + 1) if group == 1 or rng.random() < 0.5)
    if rng.random() < 0.25:
        options["owed_max"] = rng.randint(1, 40)
    if rng.random() < 0.33:
        options |= {"placement": WANDERING, "moves_per_second": rng.choice((3, 1_000)), "placement_objects": 2}
    return options


_SAMPLE = replace(SAMPLE, payload=encode(Operation(("x", "y"))))
_ATTEMPT = Attempt(SAMPLE.id, 0, (1, 2))

SPEC = ProtocolSpec(
    name="geopaxos",
    title="GeoPaxos",
    paper="Coelho 2019, Algorithm 4",
    survives="f crashes of 2f+1 in each group",
    replicas=3,
    claims=EXECUTION,
    delays={"local": 2, "global": 4},
    build=GeoPaxos,
    config=GeoConfig,
    messages=GeoMessage,
    samples=(
        Request(_SAMPLE),
        Step1((Order(_ATTEMPT, 3, _SAMPLE), Order(_ATTEMPT, 3, None, 7))),
        Followed(5),
        HoldThis(),
        Places({1: 5}),
        SiteState(b"s"),
    ),
    fuzz_options=_fuzz_options,
    ingress=GeoIngress,
    ingress_messages=Request,
    draw_operation=draw_operation,
    operation_on=operation_on,
    objects_of=objects_of,
)
