"""Fuzzing on Spark: thousands of simulated runs as one job, each checked in the task that ran it.

The one part of the pipeline that knows the simulator. Of a run only its counts come back and, if it violated a
property, its scenario.
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
