"""The tree: hierarchical atomic multicast, for crashes.

Guarantees: uniform integrity, validity, agreement, prefix and acyclic order; partially genuine: a message to one group
concerns nobody else. Survives f crashes in each group of 2f+1, and restarts with one process a group. With one process
a group, 1 delay at the lowest common ancestor (the lca) of the destinations, and 1 more for each level below it.

Groups form a tree. A message enters at the lca of its destinations and is handed down, in the order in which each group
on the way orders it. Any two messages with a destination in common pass through some group that orders both, and all
groups below keep that order: links down the tree are FIFO.

    client       root          g2           g3        m to {g2, g3}, whose parent is the root
      |--START---->|            |            |   1    the root orders m: it may be a destination as well, or only relay
      |            |--RELAY---->|----------->|   2    each child whose subtree has a destination; deliver

From: Coelho, "On the many faces of atomic multicast" (2019), chapter 3, without the Byzantine part: with crashes, one
copy from the parent is as good as f+1.

Where this departs from the paper:
- Destinations may stand anywhere in the tree; without auxiliary groups, relaying costs the groups themselves. That is
  what the overhead of each group counts: payloads received that it does not deliver.
- No delivery has a timestamp.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from ..core import AppMessage, GroupId, MessageId, ProcessId, SeenMessages, SeenOfSender, Topology, UsageError
from ._adapter import Frame, StreamAck, replicate
from ._automaton import GroupAutomaton, GroupOutbox
from ._client import IngressGroups
from ._replica import ReplicaConfig
from ._spec import ORDER, SAMPLE, ProtocolSpec


class TreeConfig(ReplicaConfig, frozen=True, forbid_unknown_fields=True):
    # The parent of each group, in the order of group ids; 0 for the root. None at all: the first group is everyone's.
    parents: tuple[GroupId, ...] = ()


_LCA_MAX = 10_000


class Relay(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="relay"):
    message: AppMessage

    @property
    def id(self) -> MessageId:
        return self.message.id


class TreeFrame(Frame[Relay], frozen=True, tag="RELAY"):
    pass


class TreeState(msgspec.Struct, array_like=True):
    seen: dict[ProcessId, SeenOfSender]


class Tree:
    """The parent of each group, and what follows from it."""

    def __init__(self, config: TreeConfig, topology: Topology) -> None:
        groups = topology.groups
        parents = config.parents or (0, *[groups[0]] * (len(groups) - 1))
        if len(parents) != len(groups):
            raise UsageError(f"parents {list(parents)} must be one for each of {len(groups)} groups, 0 for the root")
        self._parent = dict(zip(groups, parents, strict=True))
        self._lca: dict[tuple[GroupId, ...], GroupId] = {}  # of destinations that were asked for
        # From the root down to the group itself
        self._path = {group: self._walk_up(group) for group in groups}
        if len({path[0] for path in self._path.values()}) != 1:
            raise UsageError(f"parents {list(parents)} make no tree: exactly one group has 0, as the root")

    def _walk_up(self, group: GroupId) -> tuple[GroupId, ...]:
        path = [group]
        while (parent := self._parent[path[-1]]) != 0:
            if parent not in self._parent or parent in path:
                raise UsageError(f"parent {parent} of g{path[-1]} makes no tree: parents are groups, without a cycle")
            path.append(parent)
        return tuple(reversed(path))

    def children(self, group: GroupId) -> tuple[GroupId, ...]:
        return tuple([child for child, parent in self._parent.items() if parent == group])

    def reach(self, group: GroupId) -> frozenset[GroupId]:
        """The group, and all below it."""
        return frozenset([below for below, path in self._path.items() if group in path])

    def lca(self, dst: tuple[GroupId, ...]) -> GroupId:
        """The lowest group that stands above all destinations, or is one and stands above the others."""
        found = self._lca.get(dst)
        if found is None:
            found = self._find_lca(dst)
            if len(self._lca) < _LCA_MAX:
                self._lca[dst] = found
        return found

    def _find_lca(self, dst: tuple[GroupId, ...]) -> GroupId:
        lowest = 0
        for level in zip(*(self._path[group] for group in dst), strict=False):
            if any(group != level[0] for group in level):
                break
            lowest = level[0]
        return lowest


class TreeAutomaton(GroupAutomaton):
    def __init__(self, group: GroupId, tree: Tree) -> None:
        self._group = group
        self._tree = tree
        self._children = [(child, tree.reach(child)) for child in tree.children(group)]
        self._seen = SeenMessages()

    def is_ingress(self, message: AppMessage, group: GroupId) -> bool:
        return self._tree.lca(message.dst) == group

    def is_known(self, message: MessageId) -> bool:
        return self._seen.is_known(message)

    def is_pending(self, message: MessageId) -> bool:
        return False  # what is ordered here is delivered

    def on_submit(self, message: AppMessage, out: GroupOutbox) -> None:
        if self._seen.admit_new(message):
            self._handle(message, out)

    def on_group_message(self, source: GroupId, body: Relay, out: GroupOutbox) -> None:
        self._seen.admit(body.message)
        self._handle(body.message, out)

    def _handle(self, message: AppMessage, out: GroupOutbox) -> None:
        """Algorithm 3, lines 10-13."""
        for child, reach in self._children:
            if not reach.isdisjoint(message.dst):
                out.send(child, Relay(message))
        if self._group in message.dst:
            out.deliver(message, None)

    def dump(self) -> TreeState:
        return TreeState(self._seen.dump())

    def load(self, state: TreeState) -> None:
        self._seen.load(state.seen)


def tree_automaton(group: GroupId, topology: Topology, config: TreeConfig) -> TreeAutomaton:
    return TreeAutomaton(group, Tree(config, topology))


def ingress_at_lca(config: TreeConfig) -> IngressGroups:
    """Clients send a message to the lca of its destinations."""

    made: list[tuple[Topology, Tree]] = []  # of the topology of the last message: hardly ever another one

    def ingress_groups(message: AppMessage, topology: Topology) -> tuple[GroupId, ...]:
        if not made or made[0][0] is not topology:
            made[:] = [(topology, Tree(config, topology))]
        return (made[0][1].lca(message.dst),)

    return ingress_groups


def draw_tree(groups: int, is_adverse: bool, rng: Random) -> dict[str, Any]:
    drawn = rng.sample(range(1, groups + 1), groups)  # each below one that was drawn before it
    parent_of = {group: rng.choice(drawn[:i]) if i else 0 for i, group in enumerate(drawn)}
    return {"parents": [parent_of[group] for group in sorted(parent_of)]}


SPEC = ProtocolSpec(
    name="tree",
    title="Tree, hierarchical",
    paper="Coelho 2019, Algorithm 3, for crashes",
    survives="f crashes of 2f+1 in each group; restarts with one process a group",
    replicas=1,
    claims=(*ORDER, "partially-genuine"),
    delays={"local": 1, "global": 2},
    build=replicate(TreeFrame, Relay, TreeState, tree_automaton),
    config=TreeConfig,
    messages=TreeFrame | StreamAck,
    samples=(TreeFrame(1, 0, (Relay(SAMPLE),)),),
    fuzz_options=draw_tree,
    ingress_groups=ingress_at_lca(TreeConfig()),
    ingress_from=ingress_at_lca,
)
