"""What a node says of the sites of objects, where its protocol has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocols.geopaxos import GeoPaxos
from ..wire.control import Placement, PlacementQuery

if TYPE_CHECKING:
    from .server import NodeServer

_MOVES_MAX = 1_000  # of the latest, in one answer


def placement_answer(server: NodeServer, query: PlacementQuery) -> Placement:
    node = server.node
    process = node.process
    name, group = node.name, f"g{node.group}"
    if not isinstance(process, GeoPaxos):
        return Placement(name, group, False, problem=f"objects have sites in geopaxos, not in {server.config.protocol}")
    if not node.is_running:
        return Placement(name, group, False, problem="it is starting")
    if query.object:
        return Placement(name, group, process.is_leader, process.placement_of(query.object))
    status = process.placement_status(max(0, min(query.moves, _MOVES_MAX)))
    return Placement(name, group, process.is_leader, status=status)
