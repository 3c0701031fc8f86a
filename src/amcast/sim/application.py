"""Executes what a workload means in a simulated run, and says whether the application keeps its invariants.

Every replica has a state of its own and executes what it delivers, as on a cluster. A state that a replica receives in
place of deliveries covers what its group delivered before: it executes that from the deliveries of the group's other
members. Replicas of a group that have executed as much must be in the same state, and the totals of all groups must
fit together once everything is delivered.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..apps.tpcc import Totals, Warehouse, disagreements
from ..core import AppMessage, GroupId, ProcessId, Topology
from ..protocols import ProtocolSpec
from ..workload import Gtpcc, Workload


@dataclass(frozen=True)
class ApplicationReport:
    """What an application has to say at the end of a run."""

    name: str
    executed: int  # by all replicas together
    totals: dict[str, Totals]  # of each group
    problems: tuple[str, ...]


class _Replica:
    def __init__(self, group: GroupId) -> None:
        self.group = group
        self.warehouse = Warehouse(group)
        self.executed = 0  # positions


class Execution:
    def __init__(self, topology: Topology, traitors: frozenset[ProcessId]) -> None:
        self._groups = {group: [p for p in topology.members(group) if p not in traitors] for group in topology.groups}
        self._replicas = {p: _Replica(group) for group, members in self._groups.items() for p in members}
        self._delivered: dict[GroupId, dict[int, AppMessage]] = {group: {} for group in topology.groups}

    def executed(self, process: ProcessId, position: int, message: AppMessage) -> None:
        replica = self._replicas.get(process)
        if replica is not None:  # nobody knows what a traitor executes
            self._delivered[replica.group].setdefault(position, message)
            self._execute(replica, position, message)

    def restored(self, process: ProcessId, position: int) -> None:
        """`position`: all below are covered by the state. Whoever gave it has delivered them."""
        replica = self._replicas[process]
        for each in range(replica.executed, position):
            self._execute(replica, each, self._delivered[replica.group][each])

    def _execute(self, replica: _Replica, position: int, message: AppMessage) -> None:
        replica.executed = position + 1
        replica.warehouse.execute(message.payload, message.dst)

    def report(self, is_complete: bool) -> ApplicationReport:
        """What was not delivered everywhere makes groups differ: only a whole run can be added up."""
        problems: list[str] = []
        totals: dict[str, Totals] = {}
        for group, members in self._groups.items():
            replicas = [self._replicas[member] for member in members]
            furthest = max(replicas, key=lambda replica: replica.executed)
            state = furthest.warehouse.dump()
            alike = [replica for replica in replicas if replica.executed == furthest.executed]
            if any(replica.warehouse.dump() != state for replica in alike):
                problems.append(
                    f"replicas of g{group} executed {furthest.executed} messages, and are in different states"
                )
            totals[f"g{group}"] = furthest.warehouse.totals()
        if is_complete:
            problems += disagreements(totals)
        else:
            problems += [f"{name}: {problem}" for name, each in totals.items() for problem in each.problems]
        executed = sum(replica.executed for replica in self._replicas.values())
        return ApplicationReport("tpcc", executed, totals, tuple(problems))


def execution_of(
    workload: Workload, spec: ProtocolSpec, topology: Topology, traitors: frozenset[ProcessId]
) -> Execution | None:
    """None if nothing is executed. Operations on objects have a store of their own (`history.py`)."""
    return Execution(topology, traitors) if isinstance(workload, Gtpcc) and not spec.orders_operations else None
