"""The best tree, proven: a dynamic program over sets of target groups, with a bound that cuts off what can't be best.

Below a node of a tree stands a set of targets, its cluster; the clusters of its children are disjoint. Two facts make
the problem one of clusters alone. Write in(S) for the rate of all destination sets inside S, touching(S) for that of
all which have a group in S, and count(S) for the number of sets of two groups or more inside S. For a node with cluster
S whose children have the clusters C1, C2, ...:

- its load is touching(S) - in(C1) - in(C2) - ..., whatever stands below the children;
- it is the lca of count(S) - count(C1) - count(C2) - ... sets, each of which costs its height.

So the best tree for a cluster, of at most some height and with at most so many auxiliary groups, is made of best trees
for the clusters of its children; how to divide a cluster is found by splitting off the child with the smallest target,
again and again. Divisions are kept that no other one beats in load, cost and use of auxiliary groups at once. A node
may count as higher than it is: that only costs more, so the best tree counts none so.

Exact, because every tree is considered or beaten, with one exception that is no loss: an auxiliary group with one child
is left out, since without it no load and no height grows. The time grows with 3^n for n targets.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ._shapes import Shape, limits_of
from .model import Problem

TARGETS_MAX = 16  # half a minute or a few; tables have 2^n entries, and are gone through 3^n times

# How many auxiliary groups are needed that sustain at least so much, for each capacity there is, the least one first
Used = tuple[int, ...]
Mask = int


class Tree(NamedTuple):
    """A tree of a cluster."""

    cost: int
    used: Used
    height: int
    shape: Shape


class Division(NamedTuple):
    """A set of targets, divided into the clusters of children of a node."""

    cost: int  # of all sets inside the clusters, less what they would cost as sets of the node
    saved: int  # the rate that does not load the node
    used: Used
    children: tuple[Tree, ...]


class OutOfStepsError(Exception):
    """More steps would be needed than were allowed: nothing is known."""


def find_exact(problem: Problem, cost_max: int | None = None, steps_max: int | None = None) -> Shape | None:
    """A tree with the least sum of heights, and of those one with the fewest auxiliary groups. None: there is none.

    `cost_max`: the sum of heights of some viable tree, if one is known. `steps_max`: raises `OutOfStepsError` beyond.
    """
    if steps_max is not None and 3 ** len(problem.targets) // 2 > steps_max:
        raise OutOfStepsError  # not even one level would be finished
    return _Search(problem, math.inf if cost_max is None else cost_max, steps_max).find()


class _Search:
    def __init__(self, problem: Problem, cost_max: float, steps_max: int | None) -> None:
        self._targets = problem.targets
        self._bit_of = {group: 1 << index for index, group in enumerate(problem.targets)}
        self._all = (1 << len(problem.targets)) - 1
        self._cost_max = cost_max
        self._steps_left = math.inf if steps_max is None else steps_max
        self._targets_inside = problem.targets_inside
        self._limit_of = [problem.capacities.get(group, math.inf) for group in problem.targets]
        limits = limits_of(problem)
        self._limits = sorted(set(limits))
        self._available = tuple([sum(limit >= least for limit in limits) for least in self._limits])
        inside = self._limit_of if problem.targets_inside else []
        self._limit_max = max([*self._limits, *inside], default=-1)
        self._rate_in, self._count_in = self._tables(problem)
        self._best: list[list[Tree]] = [[] for _ in range(self._all + 1)]

    def _tables(self, problem: Problem) -> tuple[list[int], list[int]]:
        """For each set of targets: the rate of all destination sets inside it, and the number of global ones."""
        rates, counts = [0] * (self._all + 1), [0] * (self._all + 1)
        for dst, rate in problem.rates.items():
            mask = sum(self._bit_of[group] for group in dst)
            rates[mask] += rate
            counts[mask] += len(dst) > 1
        for bit in self._bit_of.values():
            for mask in range(self._all + 1):
                if mask & bit:
                    rates[mask] += rates[mask ^ bit]
                    counts[mask] += counts[mask ^ bit]
        return rates, counts

    def find(self) -> Shape | None:
        for index, group in enumerate(self._targets):
            if self._rate_touching(1 << index) > self._limit_of[index]:
                return None  # every message to the group loads it, in every tree
            self._best[1 << index] = [Tree(0, (0,) * len(self._limits), 1, (group, ()))]
        height = 2
        while self._grow(height):  # a level that brings nothing new leaves nothing for the next one
            height += 1
        found = min(self._best[self._all], key=lambda tree: (tree.cost, tree.used), default=None)
        return None if found is None else found.shape

    def _grow(self, height: int) -> bool:
        """Adds trees whose root counts as so high; its children are those that were found before."""
        divisions: list[list[Division]] = [[Division(0, 0, (0,) * len(self._limits), ())]]
        for mask in range(1, self._all + 1):
            divisions.append(self._divide(mask, height, divisions))
        has_grown = False
        for mask in range(1, self._all + 1):
            made = [tree for tree in self._roots(mask, height, divisions) if self._bound(tree, mask) <= self._cost_max]
            if made:
                merged = _unbeaten_trees([*self._best[mask], *made])
                has_grown |= any(tree.height == height for tree in merged)
                self._best[mask] = merged
        return has_grown

    def _divide(self, mask: Mask, height: int, divisions: list[list[Division]]) -> list[Division]:
        made: list[Division] = []
        lowest = mask & -mask
        rest = mask ^ lowest
        # What a set of targets that is divided at this height costs at least, and loads the node at least
        touching, count = self._rate_touching(mask), self._count_touching(mask)
        least = height * count + 2 * (self._count_in[self._all] - count)
        self._count_steps(1 << rest.bit_count())
        part = rest
        while True:
            cluster = part | lowest
            saved, discount = self._rate_in[cluster], height * self._count_in[cluster]
            for division in divisions[mask ^ cluster] if self._best[cluster] else ():
                self._count_steps(len(self._best[cluster]))
                if touching - division.saved - saved > self._limit_max:
                    continue
                for tree in self._best[cluster]:
                    cost = division.cost + tree.cost - discount
                    if cost + least <= self._cost_max and (used := self._sum(division.used, tree.used)) is not None:
                        made.append(Division(cost, division.saved + saved, used, (*division.children, tree)))
            if not part:
                return _unbeaten_divisions(made)
            part = (part - 1) & rest

    def _roots(self, mask: Mask, height: int, divisions: list[list[Division]]) -> Iterator[Tree]:
        """Trees of the cluster, with a root of each kind."""
        touching = self._rate_touching(mask)
        base = height * self._count_in[mask]
        for division in divisions[mask] if self._limits else ():
            if len(division.children) > 1:
                enough = bisect_left(self._limits, touching - division.saved)
                need = tuple([1] * (enough + 1) + [0] * (len(self._limits) - enough - 1))
                used = self._sum(division.used, need) if enough < len(self._limits) else None
                if used is not None:
                    yield Tree(base + division.cost, used, height, (0, _shapes(division)))
        if not self._targets_inside:
            return
        for index, group in enumerate(self._targets):
            if mask >> index & 1 and mask != 1 << index:
                for division in divisions[mask ^ 1 << index]:
                    if touching - division.saved <= self._limit_of[index]:
                        yield Tree(base + division.cost, division.used, height, (group, _shapes(division)))

    def _bound(self, tree: Tree, mask: Mask) -> int:
        """What a whole tree costs at least that has this one in it: sets that reach out of it have a higher lca."""
        crossing = self._count_touching(mask) - self._count_in[mask]
        elsewhere = self._count_in[self._all] - self._count_touching(mask)
        return tree.cost + (tree.height + 1) * crossing + 2 * elsewhere

    def _rate_touching(self, mask: Mask) -> int:
        return self._rate_in[self._all] - self._rate_in[self._all ^ mask]

    def _count_touching(self, mask: Mask) -> int:
        return self._count_in[self._all] - self._count_in[self._all ^ mask]

    def _sum(self, one: Used, other: Used) -> Used | None:
        """None if there are not so many auxiliary groups."""
        both = tuple([a + b for a, b in zip(one, other, strict=True)])
        return both if all(a <= b for a, b in zip(both, self._available, strict=True)) else None

    def _count_steps(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise OutOfStepsError


def _shapes(division: Division) -> tuple[Shape, ...]:
    return tuple([tree.shape for tree in division.children])


def _is_within(one: Used, other: Used) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


def _unbeaten_trees(trees: Iterable[Tree]) -> list[Tree]:
    """Those that no other one beats or equals; of equal ones, the lowest."""
    kept: list[Tree] = []
    for tree in sorted(trees, key=lambda each: (each.cost, each.used, each.height)):
        if not any(_is_within(other.used, tree.used) for other in kept):
            kept.append(tree)
    return kept


def _unbeaten_divisions(divisions: list[Division]) -> list[Division]:
    kept: list[Division] = []
    for each in sorted(divisions, key=lambda each: (each.cost, -each.saved, each.used)):
        if not any(other.saved >= each.saved and _is_within(other.used, each.used) for other in kept):
            kept.append(each)
    return kept
