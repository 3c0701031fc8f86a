"""The overlay as an optimisation problem: the tree of groups for a workload, and what any tree costs."""

from .model import Outcome, OverlayTree, Problem, evaluate, make_problem
from .search import Plan, find_tree

__all__ = ["Outcome", "OverlayTree", "Plan", "Problem", "evaluate", "find_tree", "make_problem"]
