"""Searches: the exact one finds what going through all trees finds; the heuristic never overloads, and comes close."""

from __future__ import annotations

from random import Random

import pytest

from amcast.core import UsageError
from amcast.overlay import Plan, Problem, evaluate, find_tree, make_problem, search
from amcast.overlay._shapes import name_groups
from amcast.overlay.exact import TARGETS_MAX, OutOfStepsError, find_exact
from amcast.overlay.heuristic import find_good
from amcast.overlay.model import UNIT
from tests.overlay.overlay_trees import CAPACITY, SKEWED, UNIFORM, best_of_all, random_problem, split_problem

HEURISTIC_FACTOR = 1.1  # of the least sum of heights, on small problems


def exact_of(problem: Problem) -> tuple[int, int] | None:
    """The sum of heights, and how many auxiliary groups are used."""
    shape = find_exact(problem)
    if shape is None:
        return None
    tree = name_groups(problem, shape)
    outcome = evaluate(problem, tree)
    assert outcome.is_viable
    return outcome.heights_sum, len(tree.groups) - len(problem.targets)


def good_of(problem: Problem) -> int | None:
    """The sum of heights of the heuristic's tree, which overloads nothing and has all groups where they may stand."""
    shape = find_good(problem)
    if shape is None:
        return None
    tree = name_groups(problem, shape)
    outcome = evaluate(problem, tree)
    assert outcome.is_viable
    assert set(tree.groups) <= {*problem.targets, *problem.auxiliary}
    assert problem.targets_inside or not any(tree.children[group] for group in problem.targets)
    assert all(len(tree.children[group]) > 1 for group in problem.auxiliary if group in tree.parent)
    return outcome.heights_sum


def loads_of(plan: Plan, problem: Problem) -> list[float]:
    assert plan.outcome is not None
    return [load / UNIT for group, load in plan.outcome.loads.items() if group in problem.auxiliary]


@pytest.mark.parametrize("method", ["auto", "exact"])
def test_table_3_3(method: search.Method) -> None:
    uniform = make_problem(UNIFORM, auxiliary=3, auxiliary_capacity=CAPACITY)
    best = find_tree(uniform, method)
    assert best.status == "optimal"
    assert best.tree is not None
    assert best.outcome is not None
    assert (best.tree.parents, best.outcome.heights_sum) == ((5, 5, 5, 5, 0), 12)
    assert loads_of(best, uniform) == [7200]

    skewed = make_problem(SKEWED, auxiliary=3, auxiliary_capacity=CAPACITY)
    best = find_tree(skewed, method)
    assert best.status == "optimal"
    assert best.tree is not None
    assert best.outcome is not None
    assert (best.tree.parents, best.outcome.heights_sum) == ((6, 6, 7, 7, 0, 5, 5), 4)
    assert loads_of(best, skewed) == [0, 9000, 9000]


def test_table_3_3_by_going_through_all_trees() -> None:
    """Of the exact search itself, without the bound that often makes it needless."""
    assert exact_of(make_problem(UNIFORM, auxiliary=3, auxiliary_capacity=CAPACITY)) == (12, 1)
    assert exact_of(make_problem(SKEWED, auxiliary=3, auxiliary_capacity=CAPACITY)) == (4, 3)
    assert exact_of(make_problem(SKEWED, auxiliary=2, auxiliary_capacity=CAPACITY)) == (5, 2)
    assert exact_of(make_problem(SKEWED, auxiliary=1, auxiliary_capacity=CAPACITY)) is None


def test_exact_search_equals_all_trees_and_the_heuristic_is_near() -> None:
    kinds = {"none": 0, "lowest": 0, "higher": 0}
    missed = 0
    for seed in range(200):
        problem = random_problem(Random(seed))
        wanted = best_of_all(problem)
        assert exact_of(problem) == wanted, f"seed {seed}: {problem}"
        good = good_of(problem)
        if wanted is None:
            assert good is None, f"seed {seed}: {problem}"
            kinds["none"] += 1
            continue
        kinds["lowest" if wanted[0] == problem.heights_min else "higher"] += 1
        missed += good is None
        if good is not None:
            assert wanted[0] <= good <= HEURISTIC_FACTOR * wanted[0], f"seed {seed}: {problem}"
    assert min(kinds.values()) > 3, f"too few of a kind: {kinds}"
    assert missed == 0


def test_a_dearer_division_may_be_the_one_that_is_viable() -> None:
    """Below the root of the best tree stands a cluster with fewer sets than another one has, but with more load."""
    rates = {(1, 2): 10.0, (1, 3): 1.0, (1, 4): 1.0, (2, 3, 5): 0.5, (2, 5): 8.0, (3, 4): 8.0}
    problem = make_problem(rates, auxiliary=2, capacities={6: 17.1, 7: 25.65})
    assert exact_of(problem) == best_of_all(problem) == (16, 2)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("auxiliary", "share"), [(4, 0.7), (5, 0.5), (0, 0.6)])
def test_the_heuristic_is_near_the_exact_search_with_more_groups(seed: int, auxiliary: int, share: float) -> None:
    problem = split_problem(Random(seed), 8, auxiliary, share)
    wanted, good = exact_of(problem), good_of(problem)
    if wanted is None:
        assert good is None
    elif good is not None:
        assert wanted[0] <= good <= HEURISTIC_FACTOR * wanted[0]


def test_a_known_cost_changes_nothing_but_the_work() -> None:
    problem = split_problem(Random(3), 7, 4, 0.6)
    best = exact_of(problem)
    assert best is not None
    for cost_max in (best[0], best[0] + 3):
        assert find_exact(problem, cost_max) == find_exact(problem)
    assert find_exact(problem, best[0] - 1) is None


def test_capacities_of_auxiliary_groups_may_differ() -> None:
    """Three nodes have the loads 0, 9,000 and 3,000, and each gets a group that sustains it."""
    rates = {(1, 2): 9000.0, (3, 4): 3000.0}
    problem = make_problem(rates, auxiliary=3, capacities={5: 3000.0, 6: 9000.0, 7: 1.0})
    plan = find_tree(problem)
    assert plan.tree is not None
    assert plan.tree.parents == (6, 6, 5, 5, 7, 7, 0)
    scarce = make_problem(rates, auxiliary=3, capacities={5: 3000.0, 6: 2999.0, 7: 8999.0})
    assert find_tree(scarce).status == "not-viable"
    assert best_of_all(make_problem({(1, 2): 9.0, (2, 3): 3.0}, auxiliary=2, capacities={4: 11.0, 5: 11.0})) is None


def test_an_unused_auxiliary_group_is_left_out() -> None:
    plan = find_tree(make_problem({(1, 2): 1.0}, auxiliary=3))
    assert plan.tree is not None
    assert plan.tree.groups == (1, 2, 3)


def test_one_group_needs_no_tree() -> None:
    plan = find_tree(make_problem({(1,): 5.0}, auxiliary=1, capacities={1: 5.0}))
    assert (plan.status, plan.tree and plan.tree.parents) == ("optimal", (0,))
    assert find_tree(make_problem({(1,): 5.0}, capacities={1: 4.0})).status == "not-viable"


def test_not_viable_is_said_only_where_it_is_proven() -> None:
    problem = make_problem(SKEWED, auxiliary=1, auxiliary_capacity=CAPACITY)
    for method, status, is_proven in (
        ("auto", "not-viable", True),
        ("exact", "not-viable", True),
        ("heuristic", "none-found", False),
    ):
        plan = find_tree(problem, method)  # type: ignore[arg-type]
        assert (plan.status, plan.is_proven, plan.tree) == (status, is_proven, None)


def test_what_can_be_said_at_any_size_is_proven_without_a_search() -> None:
    rates = {(group, group + 1): 10.0 for group in range(1, 60)}
    plan = find_tree(make_problem(rates, auxiliary=3, capacities={7: 19.0}), "heuristic")
    assert plan.status == "not-viable"
    assert "g7" in plan.why
    plan = find_tree(make_problem(rates, auxiliary=3, auxiliary_capacity=600), "heuristic")
    assert plan.status == "optimal", "two levels: no tree is lower"
    assert find_tree(make_problem(rates, targets_inside=False)).status == "not-viable"


def test_without_the_time_for_a_proof_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = split_problem(Random(3), 7, 4, 0.6)
    assert find_tree(problem).status == "optimal"
    monkeypatch.setattr(search, "_STEPS_MAX", 2000)
    plan = find_tree(problem)
    assert plan.status == "viable"
    assert not plan.is_proven
    none = make_problem(SKEWED, auxiliary=1, auxiliary_capacity=CAPACITY)
    monkeypatch.setattr(search, "_STEPS_MAX", 50)
    assert find_tree(none).status == "none-found"
    with pytest.raises(OutOfStepsError):
        find_exact(none, steps_max=50)


def test_many_groups_are_not_for_the_exact_search() -> None:
    rates = {(group, group + 1): 1.0 for group in range(1, TARGETS_MAX + 1)}
    with pytest.raises(UsageError, match="use --method heuristic"):
        find_tree(make_problem(rates, auxiliary=1, auxiliary_capacity=1), "exact")


@pytest.mark.slow
@pytest.mark.parametrize(("auxiliary", "share"), [(14, 0.4), (0, 0.6)])
def test_fifty_groups(auxiliary: int, share: float) -> None:
    problem = split_problem(Random(1), 50, auxiliary, share)
    plan = find_tree(problem)
    assert plan.status == "viable"
    assert plan.outcome is not None
    assert plan.outcome.is_viable
    assert problem.heights_min < plan.outcome.heights_sum <= 1.6 * problem.heights_min


def test_the_same_problem_has_the_same_answer() -> None:
    problem = split_problem(Random(5), 18, 6, 0.5)
    assert find_good(problem, steps=1500) == find_good(problem, steps=1500)
    assert find_good(problem, steps=1500) is not None
    assert find_good(problem, steps=1500, seed=1) != find_good(problem, steps=1500)
    one, other = (find_tree(split_problem(Random(4), 8, 5, 0.6)) for _ in range(2))
    assert one.tree is not None
    assert other.tree is not None
    assert one.tree.parents == other.tree.parents
