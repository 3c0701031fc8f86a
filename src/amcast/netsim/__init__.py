"""Whole nodes in a simulator: the real server, links, clients, disk layer, application host and trace of `net`.

Many nodes run in one program, on event loops with virtual time, connections in memory and disks that forget what was
not synced. A `NodeScenario` is data, and the same scenario makes the same bytes.
"""

from .faults import KINDS, NodePlan, parse_node_kinds
from .fuzz import NodeFinding, NodeFuzzResult, fuzz_node_scenario, fuzz_one_node, shrink_node
from .run import NodeResult, simulate_nodes
from .scenario import NodeScenario

__all__ = [
    "KINDS",
    "NodeFinding",
    "NodeFuzzResult",
    "NodePlan",
    "NodeResult",
    "NodeScenario",
    "fuzz_node_scenario",
    "fuzz_one_node",
    "parse_node_kinds",
    "shrink_node",
    "simulate_nodes",
]
