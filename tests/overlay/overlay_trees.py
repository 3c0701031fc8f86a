"""All trees of a few groups, problems to try searches on, and the workloads of the thesis."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from random import Random

from amcast.core import UsageError
from amcast.overlay import OverlayTree, Problem, evaluate, make_problem

# Table 3.2
UNIFORM = dict.fromkeys(combinations(range(1, 5), 2), 1200.0)
SKEWED = {(1, 2): 9000.0, (3, 4): 9000.0}
CAPACITY = 9500.0


@cache
def all_trees(groups: tuple[int, ...], leaves: tuple[int, ...] = ()) -> list[OverlayTree]:
    """From all lists of parents: nothing here knows how a search builds trees."""
    return list(_all_trees(groups, leaves))


def _all_trees(groups: tuple[int, ...], leaves: tuple[int, ...]) -> Iterator[OverlayTree]:
    inner = [group for group in groups if group not in leaves]
    above = [inner if group in leaves and len(groups) > 1 else (0, *inner) for group in groups]
    for parents in product(*above):
        try:
            yield OverlayTree.of_parents(groups, parents)
        except UsageError:
            continue


def best_of_all(problem: Problem) -> tuple[int, int] | None:
    """The least sum of heights, and the fewest auxiliary groups with it; None if no tree is viable."""
    found = []
    for count in range(len(problem.auxiliary) + 1):
        for chosen in combinations(problem.auxiliary, count):
            leaves = () if problem.targets_inside else problem.targets
            for tree in all_trees((*problem.targets, *chosen), leaves):
                outcome = evaluate(problem, tree)
                if outcome.is_viable:
                    found.append((outcome.heights_sum, count))
    return min(found, default=None)


def random_problem(rng: Random) -> Problem:
    """A few groups, a few sets, and capacities between what a group must sustain and what makes any tree viable."""
    targets_inside = rng.random() < 0.4
    targets = rng.choice((1, 2, 3, 4, 4, 4)) if targets_inside else rng.choice((1, 2, 3, 4, 5, 5, 5, 5))
    auxiliary = rng.randint(0, 5 - targets) if targets_inside else rng.randint(1, 7 - max(targets, 4))
    sets = [dst for size in (1, 2, 2, 2, 3) for dst in combinations(range(1, targets + 1), size)]
    rates = {dst: rng.choice((0.0, 0.5, 1.0, 1.0, 5.0, 8.0)) for dst in rng.sample(sets, min(len(sets), 6))}
    total = sum(rates.values())
    own = max(sum(rate for dst, rate in rates.items() if group in dst) for group in range(1, targets + 1))
    capacities = {
        group: max(0.0, own + (total - own) * rng.choice((-0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)))
        for group in range(1, targets + auxiliary + 1)
        if targets_inside or group > targets
    }
    return make_problem(
        rates,
        targets=range(1, targets + 1),
        auxiliary=auxiliary,
        capacities=capacities,
        targets_inside=targets_inside,
    )


def split_problem(rng: Random, targets: int, auxiliary: int, share: float) -> Problem:
    """Groups that mostly talk within clusters; a node sustains this share of what goes to several groups."""
    clusters = max(2, targets // 4)
    rates: dict[tuple[int, ...], float] = {}
    for one, other in combinations(range(1, targets + 1), 2):
        is_near = one % clusters == other % clusters
        if is_near or rng.random() < 0.2:
            rates[one, other] = float(rng.randint(50, 150) * (5 if is_near else 1))
    limit = share * sum(rates.values())
    rates |= {(group,): 100.0 for group in range(1, targets + 1)}
    if auxiliary:
        return make_problem(rates, targets=range(1, targets + 1), auxiliary=auxiliary, auxiliary_capacity=limit)
    return make_problem(rates, targets=range(1, targets + 1), capacities=dict.fromkeys(range(1, targets + 1), limit))
