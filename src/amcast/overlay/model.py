"""The problem of laying out a tree, trees, and what a tree costs: `evaluate`.

Given are destination sets with the rate of each, and what each group can sustain. Wanted is the tree of groups with the
least sum of heights: for each destination set of two groups or more, the height of the lowest common ancestor (lca) of
its groups. A leaf has height 1, and its parent at least 2. No group may be involved in more messages a second than it
can sustain; a destination set involves the groups on the paths from its lca down to its groups, both ends included. A
set of one group involves that group alone, in every tree, and counts in its load only.

From: Coelho, "On the many faces of atomic multicast" (2019), section 3.1.3.

Rates are kept in millionths of a message a second, as integers: sums of them are exact, and whether a load is within a
capacity does not depend on the order in which it was summed up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..core import GroupId, UsageError
from ..core.ids import GROUP_ID_LIMIT

UNIT = 1_000_000
RATE_MAX = 1e9  # messages a second, of one destination set and of a capacity
SETS_MAX = 200_000  # with RATE_MAX, the sum of all rates is below 2^63
GROUPS_MAX = 500

Destinations = tuple[GroupId, ...]  # sorted, none twice


class Problem(msgspec.Struct, frozen=True):
    """Make one with `make_problem`, which looks at what it is given."""

    targets: tuple[GroupId, ...]
    auxiliary: tuple[GroupId, ...]  # at most these are used, as inner nodes
    rates: dict[Destinations, int]
    capacities: dict[GroupId, int]  # groups that are not in it are unlimited
    targets_inside: bool  # may a target be an inner node?

    @property
    def global_sets(self) -> tuple[Destinations, ...]:
        return tuple([dst for dst in self.rates if len(dst) > 1])

    @property
    def heights_min(self) -> int:
        """No tree has a smaller sum of heights: an lca of several groups is no leaf."""
        return 2 * len(self.global_sets)


def make_problem(
    rates: Mapping[Destinations, float],
    *,
    targets: Iterable[GroupId] | None = None,
    auxiliary: int = 0,
    capacities: Mapping[GroupId, float] | None = None,
    auxiliary_capacity: float | None = None,
    targets_inside: bool | None = None,
) -> Problem:
    """A problem, from rates and capacities in messages a second.

    Target groups are 1 to the greatest number in a destination set, if they are not given. Auxiliary groups get the
    numbers after the greatest target. Targets are leaves where there are auxiliary groups, unless said otherwise.
    """
    if not rates:
        raise UsageError("there is no destination set: give at least one, with its rate")
    if len(rates) > SETS_MAX:
        raise UsageError(f"{len(rates):,} destination sets are too many: {SETS_MAX:,} are allowed")
    named = {group for dst in rates for group in dst}
    known = tuple(sorted(set(range(1, max(named, default=0) + 1) if targets is None else targets)))
    for group in sorted(named - set(known)):
        raise UsageError(f"a destination set has g{group}, which is no target group: those are {names(known)}")
    added = tuple(range(known[-1] + 1, known[-1] + 1 + auxiliary))
    if not 0 < known[0] <= (*known, *added)[-1] < GROUP_ID_LIMIT or len(known) + auxiliary > GROUPS_MAX:
        raise UsageError(f"groups have numbers from 1 to {GROUP_ID_LIMIT - 1}, and there are at most {GROUPS_MAX}")
    limits = dict(capacities or {})
    if auxiliary_capacity is not None:
        limits = dict.fromkeys(added, auxiliary_capacity) | limits
    for group in sorted(limits.keys() - {*known, *added}):
        raise UsageError(f"a capacity is given for g{group}: there are {names((*known, *added))}")
    return Problem(
        known,
        added,
        {_destinations(dst): in_units(rate, f"the rate of {names(dst)}") for dst, rate in sorted(rates.items())},
        {group: in_units(limit, f"the capacity of g{group}") for group, limit in sorted(limits.items())},
        not auxiliary if targets_inside is None else targets_inside,
    )


def _destinations(dst: Destinations) -> Destinations:
    if not dst or tuple(sorted(set(dst))) != tuple(dst):
        raise UsageError(f"the destination set {list(dst)} must have one group or more, in order and none twice")
    return tuple(dst)


def in_units(rate: float, what: str) -> int:
    if not (math.isfinite(rate) and 0 <= rate <= RATE_MAX):
        raise UsageError(f"{what} is {rate:g}: it is a number of messages a second, 0 to {RATE_MAX:,.0f}")
    return round(rate * UNIT)


def names(groups: Iterable[GroupId]) -> str:
    """g1 to g4, g7"""
    runs: list[list[GroupId]] = []
    for group in groups:
        if runs and group == runs[-1][-1] + 1:
            runs[-1].append(group)
        else:
            runs.append([group])
    return ", ".join(
        f"g{run[0]} to g{run[-1]}" if len(run) > 2 else ", ".join(f"g{group}" for group in run) for run in runs
    )


class OverlayTree:
    """The parent of each group, 0 for the root. Groups that are not in it take no part."""

    def __init__(self, parent: Mapping[GroupId, GroupId]) -> None:
        self.parent = dict(sorted(parent.items()))
        self._path = {group: self._walk_up(group) for group in self.parent}
        roots = [group for group, above in self.parent.items() if above == 0]
        if len(roots) != 1:
            raise UsageError(f"{len(roots)} groups have parent 0: exactly one is the root")
        self.root = roots[0]
        self.children: dict[GroupId, list[GroupId]] = {group: [] for group in self.parent}
        for group, above in self.parent.items():
            if above:
                self.children[above].append(group)
        self.height = dict.fromkeys(self.parent, 1)
        for path in self._path.values():
            for above, group in enumerate(reversed(path)):
                self.height[group] = max(self.height[group], above + 1)

    @classmethod
    def of_parents(cls, groups: Sequence[GroupId], parents: Sequence[GroupId]) -> OverlayTree:
        """From the option `parents` of the protocol `tree`: one for each group, in the order of groups."""
        if len(parents) != len(groups):
            raise UsageError(f"parents {list(parents)} must be one for each of {len(groups)} groups, 0 for the root")
        return cls(dict(zip(groups, parents, strict=True)))

    @property
    def groups(self) -> tuple[GroupId, ...]:
        return tuple(self.parent)

    @property
    def parents(self) -> tuple[GroupId, ...]:
        return tuple(self.parent.values())

    def option(self) -> str:
        """What `-o` of `amcast sim -p tree` takes."""
        return f"parents=[{','.join(map(str, self.parents))}]"

    def path(self, group: GroupId) -> tuple[GroupId, ...]:
        """From the root down to the group."""
        return self._path[group]

    def _walk_up(self, group: GroupId) -> tuple[GroupId, ...]:
        path = {group: None}
        while (above := self.parent[group]) != 0:
            if above not in self.parent or above in path:
                raise UsageError(f"parent {above} of g{group} makes no tree: parents are groups, without a cycle")
            path[above] = None
            group = above
        return tuple(reversed(path))

    def lca(self, dst: Destinations) -> GroupId:
        lowest = self.root
        for level in zip(*(self._path[group] for group in dst), strict=False):
            if any(group != level[0] for group in level):
                break
            lowest = level[0]
        return lowest

    def involved(self, dst: Destinations) -> set[GroupId]:
        depth = len(self._path[self.lca(dst)]) - 1
        return {group for each in dst for group in self._path[each][depth:]}


class Outcome(msgspec.Struct, frozen=True):
    """What a tree is worth for a problem."""

    heights: dict[Destinations, int]  # of sets with two groups or more
    loads: dict[GroupId, int]
    overloaded: tuple[GroupId, ...]

    @property
    def heights_sum(self) -> int:
        return sum(self.heights.values())

    @property
    def is_viable(self) -> bool:
        return not self.overloaded


def evaluate(problem: Problem, tree: OverlayTree) -> Outcome:
    """Straight from the definitions: the searches have faster ways, and their results are looked at here."""
    missing = [group for group in problem.targets if group not in tree.parent]
    if missing:
        raise UsageError(f"{names(missing)}: every target group has a place in the tree")
    loads = dict.fromkeys(tree.parent, 0)
    for dst, rate in problem.rates.items():
        for group in tree.involved(dst):
            loads[group] += rate
    over = [group for group, load in loads.items() if load > problem.capacities.get(group, load)]
    heights = {dst: tree.height[tree.lca(dst)] for dst in problem.global_sets}
    return Outcome(heights, loads, tuple(over))
