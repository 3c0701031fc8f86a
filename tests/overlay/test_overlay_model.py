"""What a tree costs: the figures of the thesis, and the definitions."""

from __future__ import annotations

from random import Random

import pytest

from amcast.core import UsageError, grid
from amcast.overlay import Outcome, OverlayTree, Problem, evaluate, make_problem
from amcast.overlay.model import GROUPS_MAX, UNIT, names
from amcast.protocols.tree import Tree, TreeConfig
from tests.overlay.overlay_trees import CAPACITY, SKEWED, UNIFORM, all_trees

TWO_LEVELS = (5, 5, 5, 5, 0)
THREE_LEVELS = (6, 6, 7, 7, 0, 5, 5)


def outcome_of(rates: dict[tuple[int, ...], float], parents: tuple[int, ...]) -> Outcome:
    problem = make_problem(rates, auxiliary=len(parents) - 4, auxiliary_capacity=CAPACITY)
    return evaluate(problem, OverlayTree.of_parents(range(1, len(parents) + 1), parents))


def loads_of(outcome: Outcome, *groups: int) -> list[float]:
    return [outcome.loads[group] / UNIT for group in groups]


def test_table_3_3_uniform_workload() -> None:
    low, high = outcome_of(UNIFORM, TWO_LEVELS), outcome_of(UNIFORM, THREE_LEVELS)
    assert (low.heights_sum, high.heights_sum) == (12, 16)
    assert loads_of(low, 5) == [7200]
    assert loads_of(high, 5, 6, 7) == [4800, 6000, 6000]
    assert low.is_viable
    assert high.is_viable


def test_table_3_3_skewed_workload() -> None:
    low, high = outcome_of(SKEWED, TWO_LEVELS), outcome_of(SKEWED, THREE_LEVELS)
    assert (low.heights_sum, high.heights_sum) == (4, 4)
    assert loads_of(low, 5) == [18000]
    assert loads_of(high, 5, 6, 7) == [0, 9000, 9000]
    assert low.overloaded == (5,)
    assert high.is_viable


def test_targets_can_be_inner_nodes_and_order_what_they_do_not_deliver() -> None:
    problem = make_problem({(1, 2): 1.0, (2, 3): 10.0, (3,): 100.0})
    outcome = evaluate(problem, OverlayTree.of_parents((1, 2, 3), (0, 1, 1)))
    assert outcome.heights == {(1, 2): 2, (2, 3): 2}
    assert loads_of(outcome, 1, 2, 3) == [11, 11, 110]
    chain = evaluate(problem, OverlayTree.of_parents((1, 2, 3), (0, 1, 2)))
    assert chain.heights == {(1, 2): 3, (2, 3): 2}
    assert loads_of(chain, 1, 2, 3) == [1, 11, 110]


def test_a_set_of_one_group_loads_it_alone_and_has_no_height() -> None:
    outcome = outcome_of({(4,): 7.0, (1, 2): 1.0}, THREE_LEVELS)
    assert outcome.heights == {(1, 2): 2}
    assert loads_of(outcome, 1, 2, 3, 4, 5, 6, 7) == [1, 1, 0, 7, 0, 1, 0]


def test_a_load_equal_to_the_capacity_is_viable_and_a_millionth_more_is_not() -> None:
    # As binary fractions, 0.1 + 0.2 is more than 0.3.
    for limit, is_viable in ((0.3, True), (0.299999, False)):
        problem = make_problem({(1, 2): 0.1, (1, 3): 0.2}, auxiliary=1, auxiliary_capacity=limit)
        tree = OverlayTree.of_parents((1, 2, 3, 4), (4, 4, 4, 0))
        assert evaluate(problem, tree).is_viable == is_viable


def test_trees_are_those_of_the_protocol() -> None:
    """The lca, the groups below and the option's text mean the same to the protocol that runs on the tree."""
    rng = Random(1)
    for tree in rng.sample(all_trees((1, 2, 3, 4, 5)), 60):
        theirs = Tree(TreeConfig(parents=tree.parents), grid(5, 1))
        for dst in [(1, 2), (2, 5), (1, 3, 4), (1, 2, 3, 4, 5), (3,)]:
            assert theirs.lca(dst) == tree.lca(dst)
            reached = {group for group in theirs.reach(tree.lca(dst)) if not theirs.reach(group).isdisjoint(dst)}
            assert tree.involved(dst) == reached
        assert tree.option() == f"parents=[{','.join(map(str, tree.parents))}]"


def test_there_are_as_many_trees_as_there_should_be() -> None:
    """Cayley: n^(n-1) rooted trees with n names."""
    assert [len(all_trees(tuple(range(1, n + 1)))) for n in (1, 2, 3, 4, 5)] == [1, 2, 9, 64, 625]


@pytest.mark.parametrize(
    ("parents", "says"),
    [
        ((0, 0), "exactly one is the root"),
        ((2, 1), "without a cycle"),
        ((0, 3), "parent 3 of g2"),
        ((0,), "one for each of 2 groups"),
    ],
)
def test_what_is_no_tree_is_refused(parents: tuple[int, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        OverlayTree.of_parents((1, 2), parents)


def test_a_tree_without_a_target_is_refused() -> None:
    with pytest.raises(UsageError, match="g3: every target"):
        evaluate(make_problem({(1, 3): 1.0}), OverlayTree.of_parents((1, 2), (0, 1)))


def refused(says: str, rates: dict[tuple[int, ...], float], **settings: object) -> None:
    with pytest.raises(UsageError, match=says):
        make_problem(rates, **settings)  # type: ignore[arg-type]


def test_what_is_no_problem_is_refused() -> None:
    refused("no destination set", {})
    refused("none twice", {(2, 1): 1.0})
    refused("one group or more", {(1,): 1.0, (): 1.0})
    refused("the rate of g1, g2 is -1", {(1, 2): -1.0})
    refused("the rate of g1, g2 is nan", {(1, 2): float("nan")})
    refused("the capacity of g1 is inf", {(1, 2): 1.0}, capacities={1: float("inf")})
    refused("g9: there are g1 to g3", {(1, 2): 1.0}, auxiliary=1, capacities={9: 1.0})
    refused("g3, which is no target group: those are g1, g2", {(1, 3): 1.0}, targets=(1, 2))
    refused("at most", {(1, 2): 1.0}, auxiliary=GROUPS_MAX)
    refused("from 1 to", {(0, 2): 1.0}, targets=(0, 2))


def test_auxiliary_groups_follow_the_targets() -> None:
    problem: Problem = make_problem({(1, 3): 1.0}, auxiliary=2)
    assert (problem.targets, problem.auxiliary) == ((1, 2, 3), (4, 5))
    assert names((1, 2, 3, 5, 6, 9)) == "g1 to g3, g5, g6, g9"
