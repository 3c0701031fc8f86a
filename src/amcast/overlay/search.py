"""The tree for a problem, and what is known of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..core import UsageError
from ._shapes import Shape, name_groups
from .exact import TARGETS_MAX, OutOfStepsError, find_exact
from .heuristic import find_good
from .model import Outcome, OverlayTree, Problem, evaluate, names

Method = Literal["auto", "exact", "heuristic"]
# optimal, not-viable: proven. viable: perhaps there is a better tree. none-found: perhaps there is one.
Status = Literal["optimal", "viable", "not-viable", "none-found"]

_STEPS_MAX = 40_000_000  # of the exact search, if nobody insists on it: half a minute on a slow core


class Plan(msgspec.Struct, frozen=True):
    status: Status
    why: str  # how that is known, for people
    tree: OverlayTree | None = None
    outcome: Outcome | None = None

    @property
    def is_proven(self) -> bool:
        return self.status in ("optimal", "not-viable")


def find_tree(problem: Problem, method: Method = "auto") -> Plan:
    """The tree with the least sum of heights that overloads no group, or a good one; the plan says which.

    `auto` looks for a good tree, and then for a proof within a bounded number of steps. `exact` goes on until it has
    the proof, however long it takes. `heuristic` looks for a good tree only.
    """
    if method == "exact" and len(problem.targets) > TARGETS_MAX:
        raise UsageError(
            f"{len(problem.targets)} target groups are too many for an exact search, which takes {TARGETS_MAX}:"
            " use --method heuristic"
        )
    reason = _impossible(problem)
    if reason is not None:
        return Plan("not-viable", reason)
    good = find_good(problem)
    found = None if good is None else _plan(problem, good, "viable", "found by a heuristic, not proven the least")
    if found is not None and _sum(found) == problem.heights_min:
        return _plan(problem, good, "optimal", "no tree is lower: every lca stands directly above leaves")
    if method != "heuristic" and len(problem.targets) <= TARGETS_MAX:
        try:
            return _proven(problem, None if found is None else _sum(found), None if method == "exact" else _STEPS_MAX)
        except OutOfStepsError:
            pass
    return found or Plan("none-found", "a heuristic found none, which proves nothing")


def _proven(problem: Problem, cost_max: int | None, steps_max: int | None) -> Plan:
    best = find_exact(problem, cost_max, steps_max)
    if best is None:
        assert cost_max is None, "a viable tree was found, and the exact search says that there is none"
        return Plan("not-viable", "an exact search went through all trees")
    return _plan(problem, best, "optimal", "an exact search went through all trees")


def _plan(problem: Problem, shape: Shape | None, status: Status, why: str) -> Plan:
    assert shape is not None
    tree = name_groups(problem, shape)
    outcome = evaluate(problem, tree)
    assert outcome.is_viable, f"{names(outcome.overloaded)} would be overloaded in a tree that was found viable"
    return Plan(status, why, tree, outcome)


def _sum(plan: Plan) -> int:
    assert plan.outcome is not None
    return plan.outcome.heights_sum


def _impossible(problem: Problem) -> str | None:
    """What can be said without a search."""
    own = {group: sum([rate for dst, rate in problem.rates.items() if group in dst]) for group in problem.targets}
    over = [group for group in problem.targets if own[group] > problem.capacities.get(group, own[group])]
    if over:
        return f"messages to {names(over)} alone exceed what it can sustain, in every tree"
    if len(problem.targets) > 1 and not problem.auxiliary and not problem.targets_inside:
        return "without auxiliary groups and without targets as inner nodes there is no tree of several groups"
    return None
