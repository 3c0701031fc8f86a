"""Trees as the searches build them: auxiliary groups have no names yet, only loads that some group must sustain.

Which auxiliary group stands where matters only by what it can sustain. Loads that must be sustained by one group each
fit if and only if the largest load fits the group that sustains most, the second largest the second, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..core import GroupId
from .model import OverlayTree, Problem

# A group and its children. 0: any auxiliary group.
Shape = tuple[GroupId, tuple["Shape", ...]]


def limits_of(problem: Problem) -> list[float]:
    """What auxiliary groups sustain, the most first."""
    return sorted([problem.capacities.get(group, math.inf) for group in problem.auxiliary], reverse=True)


def excess(loads: Iterable[int], limits: list[float]) -> float:
    """By how much loads of auxiliary groups exceed what the groups sustain, at best. There are enough of them."""
    pairs = zip(sorted(loads, reverse=True), limits, strict=False)
    return sum([load - limit for load, limit in pairs if load > limit])


def name_groups(problem: Problem, shape: Shape) -> OverlayTree:
    """Gives each auxiliary node of a shape a group that sustains its load.

    The heaviest nodes choose first, and each takes the group with the least capacity that is enough; of equal groups
    and nodes, the first group stands nearest to the root.
    """
    nodes: list[tuple[GroupId, int]] = []  # each with the place of its parent in this list, from the root down
    waiting: list[tuple[Shape, int]] = [(_ordered(shape), -1)]
    for (group, below), above in waiting:
        waiting += [(child, len(nodes)) for child in below]
        nodes.append((group, above))
    loads = _loads(problem, nodes)
    free = sorted(problem.auxiliary, key=lambda group: (problem.capacities.get(group, math.inf), group))
    named = [group for group, _ in nodes]
    is_alike = len({problem.capacities.get(group) for group in free}) < 2
    unnamed = [place for place, group in enumerate(named) if not group]
    for place in unnamed if is_alike else sorted(unnamed, key=lambda place: (-loads[place], place)):
        fitting = [group for group in free if problem.capacities.get(group, math.inf) >= loads[place]]
        named[place] = (fitting or free[-1:])[0]
        free.remove(named[place])
    return OverlayTree({named[place]: named[above] if above >= 0 else 0 for place, (_, above) in enumerate(nodes)})


def _ordered(shape: Shape) -> Shape:
    """With children in the order of the least target below each, so that equal trees look the same."""
    group, below = shape
    return group, tuple(sorted([_ordered(child) for child in below], key=_least_target))


def _least_target(shape: Shape) -> GroupId:
    group, below = shape
    return min([*([group] if group else []), *(_least_target(child) for child in below)])


def _loads(problem: Problem, nodes: list[tuple[GroupId, int]]) -> list[int]:
    """The load of each node, where no capacities count: by places, which stand for groups."""
    tree = OverlayTree({place + 1: above + 1 for place, (_, above) in enumerate(nodes)})
    place_of = {group: place + 1 for place, (group, _) in enumerate(nodes) if group}
    loads = [0] * len(nodes)
    for dst, rate in problem.rates.items():
        for place in tree.involved(tuple([place_of[group] for group in dst])):
            loads[place - 1] += rate
    return loads
