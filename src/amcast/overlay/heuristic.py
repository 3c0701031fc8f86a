"""A good tree for many groups: simulated annealing over trees, from simple ones on.

A draft is the parent of every node; the targets are the first nodes, then there is one for each auxiliary group. Steps
move a subtree, swap two, put some children of a node below a new one, or take a node away. Drafts may overload groups
on the way: overload has a price, which rises while drafts are overloaded and falls while they are not, so that the
search stays near the border, where good trees are. What is returned overloads nothing, or nothing is: that no tree was
found is then all that is known.

Numbers are drawn from a generator with a fixed seed, and steps are counted, not timed: the same problem has the same
answer everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import numpy as np

from ..core import GroupId
from ._shapes import Shape, excess, limits_of
from .model import Problem

_ROOT, _UNUSED = -1, -2
_KNOWN_MAX = 200_000  # clusters whose figures are remembered
_STEPS_MAX = 100_000
_WORK_MAX = 6_000_000  # steps times nodes: below a minute on a slow core
_SETS_WORK_MAX = 200_000_000  # steps times destination sets

Draft = list[int]


class Figures(NamedTuple):
    """Of a set of targets; see `exact`."""

    count_in: int
    rate_in: int
    rate_touching: int


class Score(NamedTuple):
    overload: float  # as a share of all rates
    heights_sum: int
    used: int  # auxiliary groups

    def price(self, overload_price: float) -> float:
        # Of two trees that are equally good, the one with fewer auxiliary groups costs a little less.
        return self.heights_sum + overload_price * self.overload + self.used / 1024


def find_good(problem: Problem, steps: int | None = None, seed: int = 0) -> Shape | None:
    """A tree that overloads no group, with a small sum of heights, which is not proven the least. None: none found."""
    return _Annealing(problem, Random(seed)).find(usual_steps(problem) if steps is None else steps)


def usual_steps(problem: Problem) -> int:
    nodes = len(problem.targets) + len(problem.auxiliary)
    few = min(_STEPS_MAX, 2000 + 400 * nodes + 40 * nodes**2)
    return max(200, min(few, _WORK_MAX // nodes, _SETS_WORK_MAX // (len(problem.rates) + 2000)))


class _Clusters:
    """Figures of clusters, each counted once."""

    def __init__(self, problem: Problem) -> None:
        index_of = {group: index for index, group in enumerate(problem.targets)}
        # Small whole numbers: their sums are exact in this type, and it is the one that matrices are fast in.
        self._has = np.zeros((len(problem.rates), len(problem.targets)), np.float32)
        for row, dst in enumerate(problem.rates):
            self._has[row, [index_of[group] for group in dst]] = 1
        self._sizes = self._has.sum(axis=1)
        self._rates = np.array(list(problem.rates.values()), np.int64)
        self._is_global = self._sizes > 1
        self._known: dict[int, Figures] = {}

    def figures(self, mask: int) -> Figures:
        known = self._known.get(mask)
        return self._count(mask) if known is None else known

    def _count(self, mask: int) -> Figures:
        width = self._has.shape[1]
        packed = np.frombuffer(mask.to_bytes((width + 7) // 8, "little"), np.uint8)
        shared = self._has @ np.unpackbits(packed, count=width, bitorder="little").astype(np.float32)
        inside = shared == self._sizes
        figures = Figures(
            int(np.count_nonzero(inside & self._is_global)),
            int(self._rates[inside].sum()),
            int(self._rates[shared > 0].sum()),
        )
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[mask] = figures
        return figures


class _Annealing:
    def __init__(self, problem: Problem, rng: Random) -> None:
        self._problem = problem
        self._rng = rng
        self._clusters = _Clusters(problem)
        self._targets = len(problem.targets)
        self._nodes = self._targets + len(problem.auxiliary)
        self._limit_of = [problem.capacities.get(group, math.inf) for group in problem.targets]
        self._aux_limits = limits_of(problem)
        self._rate_sum = max(1, sum(problem.rates.values()))
        self._global = max(1, len(problem.global_sets))
        self._best: tuple[Score, Draft] | None = None
        self._moves: list[Callable[[Draft], Draft | None]] = [self._move, self._swap, self._gather]
        if problem.auxiliary:
            self._moves += [self._dissolve, self._crown]
        if problem.targets_inside:
            self._moves += [self._exchange, self._turn]

    def find(self, steps: int) -> Shape | None:
        starts = list(self._starts())
        for draft in starts:
            self._keep(self._score(draft), draft)
        if self._targets > 1 and starts and not self._is_least():
            starts.sort(key=lambda draft: self._score(draft).price(100.0 * self._global))
            chosen = [*starts[:1], self._divided(starts[0])]
            for draft in chosen:
                self._anneal(draft, steps // len(chosen))
        return None if self._best is None else self._shape(self._best[1])

    def _is_least(self) -> bool:
        return self._best is not None and self._best[0].heights_sum == self._problem.heights_min

    def _keep(self, score: Score, draft: Draft) -> None:
        if not score.overload and (self._best is None or score[1:] < self._best[0][1:]):
            self._best = score, draft

    # ------------------------------------------------------------------------------------- worth

    def _score(self, draft: Draft) -> Score:
        below = _children(draft)
        order = [draft.index(_ROOT)]
        for node in order:
            order += below[node]
        masks, heights, loads = [0] * self._nodes, [1] * self._nodes, []
        overload, cost = 0.0, 0
        figures = self._clusters.figures
        for node in reversed(order):
            mask = 1 << node if node < self._targets else 0
            height, count_in, rate_in = 0, 0, 0
            for child in below[node]:
                mask |= masks[child]
                height = max(height, heights[child])
                inside = figures(masks[child])
                count_in += inside.count_in
                rate_in += inside.rate_in
            masks[node], heights[node] = mask, height + 1
            own = figures(mask)
            cost += (height + 1) * (own.count_in - count_in)
            load = own.rate_touching - rate_in
            if node >= self._targets:
                loads.append(load)
            elif load > self._limit_of[node]:
                overload += load - self._limit_of[node]
        overload += excess(loads, self._aux_limits)
        return Score(overload / self._rate_sum, cost, len(loads))

    def _shape(self, draft: Draft) -> Shape:
        below = _children(draft)

        def shape(node: int) -> Shape:
            group: GroupId = self._problem.targets[node] if node < self._targets else 0
            return group, tuple([shape(child) for child in below[node]])

        return shape(draft.index(_ROOT))

    # ------------------------------------------------------------------------------------ starts

    def _starts(self) -> Iterator[Draft]:
        """Two levels: everything below an auxiliary group, or below each of the targets."""
        aside = [_UNUSED] * (self._nodes - self._targets)
        if self._targets == 1:
            yield [_ROOT, *aside]
            return
        if aside:
            yield [*[self._targets] * self._targets, _ROOT, *aside[1:]]
        if self._problem.targets_inside:
            for root in range(self._targets):
                yield [*[_ROOT if node == root else root for node in range(self._targets)], *aside]

    def _divided(self, draft: Draft) -> Draft:
        """Puts groups that have much in common together, until the price of overload rises or no change is left."""
        price = 100.0 * self._global
        score = self._score(draft)
        for _ in range(2 * self._nodes):
            if not score.overload:
                break
            made = [each for each in [self._gathered_around(draft) for _ in range(8)] if each is not None]
            scored = [(self._score(each), each) for each in made]
            best = min(scored, key=lambda pair: pair[0].price(price), default=None)
            if best is None or best[0].price(price) >= score.price(price):
                break
            score, draft = best
            self._keep(score, draft)
        return draft

    # ------------------------------------------------------------------------------------- steps

    def _anneal(self, draft: Draft, steps: int) -> None:
        score = self._score(draft)
        price = 4.0 * self._global
        hot, cold = max(0.5, 0.02 * score.heights_sum), 0.05
        for step in range(steps):
            heat = hot * (cold / hot) ** (step / steps)
            changed = self._rng.choice(self._moves)(draft)
            if changed is not None:
                made = self._score(changed)
                worse = made.price(price) - score.price(price)
                if worse <= 0 or self._rng.random() < math.exp(-worse / heat):
                    draft, score = changed, made
                    self._keep(score, draft)
                    if self._is_least():
                        return
            price = min(max(price * (1.002 if score.overload else 0.998), self._global), 1e6 * self._global)

    def _move(self, draft: Draft) -> Draft | None:
        """A subtree goes elsewhere."""
        node = self._rng.choice(_used(draft))
        above = self._any_parent(draft)
        if draft[node] == _ROOT or above == draft[node] or _is_below(draft, above, node):
            return None
        made = draft.copy()
        made[node] = above
        return self._tidied(made)

    def _swap(self, draft: Draft) -> Draft | None:
        """Two subtrees trade places."""
        one, other = self._rng.choice(_used(draft)), self._rng.choice(_used(draft))
        if draft[one] == draft[other] or _is_below(draft, one, other) or _is_below(draft, other, one):
            return None
        made = draft.copy()
        made[one], made[other] = draft[other], draft[one]
        return made

    def _gather(self, draft: Draft) -> Draft | None:
        """Some children of a node get a parent of their own: an auxiliary group, or one of them."""
        if self._rng.random() < 0.5:
            return self._gathered_around(draft)
        above = self._any_parent(draft)
        siblings = [node for node, parent in enumerate(draft) if parent == above]
        if len(siblings) < 3:
            return None
        chosen = self._rng.sample(siblings, self._rng.randint(2, len(siblings) - 1))
        return self._below_new(draft, above, chosen)

    def _gathered_around(self, draft: Draft) -> Draft | None:
        """As `_gather`, of children that messages go to together."""
        above = self._any_parent(draft)
        siblings = [node for node, parent in enumerate(draft) if parent == above]
        if len(siblings) < 3:
            return None
        masks = _masks(draft, self._targets)
        self._rng.shuffle(siblings)
        chosen, mask = [siblings[0]], masks[siblings[0]]
        for _ in range(self._rng.randint(1, len(siblings) - 2)):
            inside = self._clusters.figures(mask).rate_in
            others = [node for node in siblings if node not in chosen]
            gains = [self._gain(mask, inside, masks[node]) for node in others]
            best = max(gains)
            if best <= 0 and len(chosen) > 1:
                break
            chosen.append(others[gains.index(best)])
            mask |= masks[chosen[-1]]
        return self._below_new(draft, above, chosen)

    def _gain(self, mask: int, inside: int, added: int) -> int:
        """The rate that stays inside if both are one cluster."""
        return self._clusters.figures(mask | added).rate_in - inside - self._clusters.figures(added).rate_in

    def _below_new(self, draft: Draft, above: int, chosen: list[int]) -> Draft | None:
        made = draft.copy()
        free = [node for node in range(self._targets, self._nodes) if draft[node] == _UNUSED]
        if free and (not self._problem.targets_inside or self._rng.random() < 0.5):
            head = free[0]
            made[head] = above
        elif self._problem.targets_inside and (inside := [node for node in chosen if node < self._targets]):
            head = self._rng.choice(inside)
        else:
            return None
        for node in chosen:
            if node != head:
                made[node] = head
        return self._tidied(made)

    def _crown(self, draft: Draft) -> Draft | None:
        """An auxiliary group becomes the root, above the one that was it and some of its children."""
        free = [node for node in range(self._targets, self._nodes) if draft[node] == _UNUSED]
        root = draft.index(_ROOT)
        below = [child for child, parent in enumerate(draft) if parent == root]
        if not free or not below:
            return None
        made = draft.copy()
        made[free[0]], made[root] = _ROOT, free[0]
        for child in self._rng.sample(below, self._rng.randint(1, len(below))):
            made[child] = free[0]
        return self._tidied(made)

    def _dissolve(self, draft: Draft) -> Draft | None:
        """An auxiliary group is left out: its children go to its parent; below a root, to one of them."""
        used = [node for node in range(self._targets, self._nodes) if draft[node] != _UNUSED]
        if not used:
            return None
        node = self._rng.choice(used)
        below = [child for child, parent in enumerate(draft) if parent == node]
        above = draft[node]
        made = draft.copy()
        if above == _ROOT:
            heads = [child for child in below if child >= self._targets or self._problem.targets_inside]
            if not heads:
                return None
            above = self._rng.choice(heads)
            made[above] = _ROOT
        for child in below:
            if child != above:
                made[child] = above
        made[node] = _UNUSED
        return self._tidied(made)

    def _exchange(self, draft: Draft) -> Draft | None:
        """Two targets trade places, and everything else stays."""
        if self._targets < 2:
            return None
        one, other = self._rng.sample(range(self._targets), 2)
        name = {one: other, other: one}
        made = draft.copy()
        made[one], made[other] = draft[other], draft[one]
        return [name.get(parent, parent) for parent in made]

    def _turn(self, draft: Draft) -> Draft | None:
        """A child of the root becomes the root, and the root its child."""
        root = draft.index(_ROOT)
        heads = [node for node, parent in enumerate(draft) if parent == root and self._may_have_children(node)]
        if not heads:
            return None
        made = draft.copy()
        head = self._rng.choice(heads)
        made[root], made[head] = head, _ROOT
        return self._tidied(made)

    # ------------------------------------------------------------------------------------- parts

    def _may_have_children(self, node: int) -> bool:
        return node >= self._targets or self._problem.targets_inside

    def _any_parent(self, draft: Draft) -> int:
        return self._rng.choice([node for node in _used(draft) if self._may_have_children(node)])

    def _tidied(self, draft: Draft) -> Draft:
        """Without auxiliary groups that have one child or none: they order nothing."""
        pending = list(range(self._targets, self._nodes))
        while pending:
            node = pending.pop()
            below = [child for child, parent in enumerate(draft) if parent == node]
            if draft[node] == _UNUSED or len(below) > 1:
                continue
            above = draft[node]
            draft[node] = _UNUSED
            if below:
                draft[below[0]] = above
            elif above >= self._targets:
                pending.append(above)
        return draft


def _used(draft: Draft) -> list[int]:
    return [node for node, parent in enumerate(draft) if parent != _UNUSED]


def _children(draft: Draft) -> list[list[int]]:
    below: list[list[int]] = [[] for _ in draft]
    for node, parent in enumerate(draft):
        if parent >= 0:
            below[parent].append(node)
    return below


def _is_below(draft: Draft, node: int, above: int) -> bool:
    """Also if they are the same."""
    while node >= 0:
        if node == above:
            return True
        node = draft[node]
    return False


def _masks(draft: Draft, targets: int) -> list[int]:
    """The cluster of each node."""
    masks = [0] * len(draft)
    for target in range(targets):
        node = target
        while node >= 0:
            masks[node] |= 1 << target
            node = draft[node]
    return masks
