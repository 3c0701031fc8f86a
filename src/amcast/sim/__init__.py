"""The deterministic simulator: protocols under faults, in integer microseconds, the same bytes for the same seed."""

from ..core import PRESETS, Latency, latency_preset
from .cluster import SimCluster
from .faults import FaultPlan, PlanSize, parse_kinds, random_plan
from .machine import CpuCost
from .run import BrokenInvariant, SimResult, Simulation, simulate
from .scenario import Scenario, scenario
from .stage import Stage

__all__ = [
    "PRESETS",
    "BrokenInvariant",
    "CpuCost",
    "FaultPlan",
    "Latency",
    "PlanSize",
    "Scenario",
    "SimCluster",
    "SimResult",
    "Simulation",
    "Stage",
    "latency_preset",
    "parse_kinds",
    "random_plan",
    "scenario",
    "simulate",
]
