"""One Byzantine group that orders everything: what ByzCast is compared with.

Guarantees, for members that tell the truth: integrity, validity (of clients that do), agreement, prefix and acyclic
order. Survives f liars in each group of 3f+1, and lying clients. Not genuine: the first group of the topology orders
every message, and hands it down to the destinations as ByzCast does. 3 delays to the first group, 6 to the others, if
all members are up and in time; otherwise 4 and 8.

From: Coelho, "On the many faces of atomic multicast" (2019), chapter 3, where it is called Baseline.
"""

from __future__ import annotations

from dataclasses import replace

from ..core import AppMessage, GroupId, Topology
from . import byzcast, tree
from ._byzantine import replicate_among_liars
from ._replica import ReplicaConfig
from ._spec import ORDER
from .multipaxos import ordering_group


class RootedAutomaton(tree.TreeAutomaton):
    """All messages enter at the root, which is the parent of all other groups."""

    def __init__(self, group: GroupId, topology: Topology) -> None:
        super().__init__(group, tree.Tree(tree.TreeConfig(), topology))
        self._root = topology.groups[0]

    def is_ingress(self, message: AppMessage, group: GroupId) -> bool:
        return group == self._root


class BftConfig(ReplicaConfig, frozen=True, forbid_unknown_fields=True):
    two_phases: bool = True  # see `ByzCastConfig`


def _rooted(group: GroupId, topology: Topology, config: BftConfig) -> RootedAutomaton:
    return RootedAutomaton(group, topology)


SPEC = replace(
    byzcast.SPEC,
    name="bft",
    title="One Byzantine group that orders for all",
    paper="Castro and Liskov 1999; as compared in Coelho 2019",
    claims=ORDER,
    delays={"local": 6, "global": 6},
    build=replicate_among_liars(tree.TreeFrame, tree.Relay, tree.TreeState, _rooted),
    numbers_by_entry=False,  # all enter at one group
    config=BftConfig,
    fuzz_options=None,
    ingress_groups=ordering_group,
    ingress_from=None,
)
