"""What a task does with one seed: draws its scenario, runs it, and makes it smaller if it breaks something.

A cell says whether its schedules run protocol processes alone, or whole nodes with their disks and connections.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ...check import Violation
from ...core import UsageError
from ...sim import Scenario, SimResult, parse_kinds, simulate
from ...sim.fuzz import FuzzResult, fuzz_one, fuzz_scenario, shrink, violations_of
from .plan import NODE, Cell

Run = Callable[[Scenario], SimResult]


class Driver(Protocol):
    """Scenarios and results are those of the simulator that it drives; the swarm only hands them on."""

    def draw(self, cell: Cell, seed: int) -> Any: ...
    def fuzz(self, scenario: Any) -> Any: ...
    def shrink(self, scenario: Any, tries: int) -> Any: ...
    def violations(self, scenario: Any) -> tuple[Violation, ...]: ...
    def faults(self, scenario: Any) -> list[str]: ...


class ProcessDriver:
    def __init__(self, variant: str | None) -> None:
        self._run = runner(variant)

    def draw(self, cell: Cell, seed: int) -> Scenario:
        return fuzz_scenario(cell.protocol, seed, parse_kinds(cell.faults), cell.replicas, cell.groups)

    def fuzz(self, scenario: Scenario) -> FuzzResult:
        return fuzz_one(scenario, self._run)

    def shrink(self, scenario: Scenario, tries: int) -> Scenario:
        return shrink(scenario, self._run, tries)

    def violations(self, scenario: Scenario) -> tuple[Violation, ...]:
        return violations_of(self._run(scenario))

    def faults(self, scenario: Scenario) -> list[str]:
        return scenario.plan.describe(scenario.topology())


class NodeDriver:
    def __init__(self) -> None:
        from ... import netsim  # a swarm of processes does without all that nodes need

        self._netsim = netsim

    def draw(self, cell: Cell, seed: int) -> Any:
        kinds = self._netsim.parse_node_kinds(cell.faults)
        return self._netsim.fuzz_node_scenario(cell.protocol, seed, kinds, cell.replicas, cell.groups)

    def fuzz(self, scenario: Any) -> Any:
        return self._netsim.fuzz_one_node(scenario)

    def shrink(self, scenario: Any, tries: int) -> Any:
        return self._netsim.shrink_node(scenario, tries_max=tries)

    def violations(self, scenario: Any) -> tuple[Violation, ...]:
        return self._netsim.simulate_nodes(scenario).violations

    def faults(self, scenario: Any) -> list[str]:
        return list(scenario.plan.describe())


def driver_of(cell: Cell, variant: str | None = None) -> Driver:
    return NodeDriver() if cell.driver == NODE else ProcessDriver(variant)


def runner(variant: str | None) -> Run:
    """The simulator, or the simulator with the protocol that `variant`, "module:function", makes."""
    if variant is None:
        return simulate
    module, _, name = variant.partition(":")
    try:
        build = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{variant}: {error}") from error
    return partial(simulate, spec=build())
