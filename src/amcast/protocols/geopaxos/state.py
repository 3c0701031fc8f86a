"""The options of GeoPaxos, and what a replica hands over: to its own disk, to its peers, and to other groups."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from ...core import GroupId, Topology, UsageError
from .._replica import DeliveriesState, ReplicaConfig
from .execution import ExecutionState
from .track import TrackState

Count = Annotated[int, msgspec.Meta(ge=1)]


class GeoConfig(ReplicaConfig, frozen=True, forbid_unknown_fields=True):
    # The groups that order operations, such as ["g1", "g2"]; the others only learn. None: all of them order.
    sites: tuple[str, ...] = ()
    counters_convoy: bool = True  # operations of one site do not wait for those of several that are not final yet
    owed_max: int = 65_536  # instances kept for a group that does not take them: beyond that, a site orders no more
    # Who moves objects to the sites where they are used: a policy, `affinity` or one of your own. None: nobody does.
    placement: str = ""
    moves_per_second: Count = 100  # that placement makes away from one site
    placement_objects: Count = 100_000  # whose use a process remembers, for placement
    data_independent: ClassVar[frozenset[str]] = frozenset({"placement", "moves_per_second", "placement_objects"})


class Kept(msgspec.Struct, array_like=True):
    """What a site has decided, until a majority of each other group has it on disk."""

    floor: int = 0  # what is below is dropped
    values: list[tuple[int, bytes]] = []


class GeoState(msgspec.Struct, array_like=True):
    tracks: dict[GroupId, TrackState]
    kept: Kept
    execution: ExecutionState
    deliveries: DeliveriesState


decode_state = msgspec.msgpack.Decoder(GeoState).decode
decode_kept = msgspec.msgpack.Decoder(Kept).decode


def sites_of(config: GeoConfig, topology: Topology) -> tuple[GroupId, ...]:
    names = {f"g{group}": group for group in topology.groups}
    for name in config.sites:
        if name not in names:
            raise UsageError(f"sites names '{name}', which is no group of this topology")
    return tuple(sorted({names[name] for name in config.sites})) or topology.groups
