"""Thousands of simulations as one Spark job: every cell, every seed, each run checked where it ran.

The one part of the pipeline that knows the simulator. Nothing of a run travels but its counts and, if it broke
something, the scenario that breaks it.
"""

from .job import SwarmResult, run_swarm
from .plan import Cell, CellTotals, Found, Plan, SwarmSpec, make_cells, make_plan
from .task import probe_cell

__all__ = [
    "Cell",
    "CellTotals",
    "Found",
    "Plan",
    "SwarmResult",
    "SwarmSpec",
    "make_cells",
    "make_plan",
    "probe_cell",
    "run_swarm",
]
