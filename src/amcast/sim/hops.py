"""Message delays, counted: one message in a network where every message takes one unit, and nothing else takes time."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np

from ..core import app_message
from ..protocols import ProtocolSpec
from ..trace import FINAL, OPTIMISTIC
from .run import Simulation
from .scenario import Scenario, scenario


class Hops(msgspec.Struct, frozen=True):
    """Delays from multicast to the last delivery at a destination, and what the protocol claims.

    Of operations on objects: from the leaders that order it, to the last execution in the groups that order it.
    """

    protocol: str
    case: str
    delays: float
    claimed: int


def measure_hops(spec: ProtocolSpec, groups: int = 3) -> list[Hops]:
    return [_measure(spec, case, claimed, groups) for case, claimed in spec.delays.items()]


def _measure(spec: ProtocolSpec, case: str, claimed: int, groups: int) -> Hops:
    destinations = 1 if case == "local" else 2
    made = scenario(spec.name, "unit", groups=groups, clients=1, messages=0, options=spec.cases.get(case, {}), seed=1)
    simulation = Simulation(made, spec)
    simulation.start()
    if spec.orders_operations:
        return Hops(spec.name, case, _ordering_delays(simulation, made, spec, destinations), claimed)
    # The last groups: where the first one orders for all, it has no way to go.
    simulation.multicast(made.topology().clients[0], made.topology().groups[-destinations:], b"")
    simulation.settle()
    run = simulation.result().run()
    kind = OPTIMISTIC if case == "optimistic" else FINAL
    took = int(run.deliveries.t_us[run.deliveries.kind == kind].max()) - int(run.multicasts.t_us[0])
    return Hops(spec.name, case, took / made.network.default_us, claimed)


def _ordering_delays(simulation: Simulation, made: Scenario, spec: ProtocolSpec, destinations: int) -> float:
    """An operation on objects of the last groups, from the moment when the leaders of all of them have it."""
    topology = made.topology()
    groups = topology.groups[-destinations:]
    assert spec.draw_operation is not None
    dst, payload = spec.draw_operation(groups, b"", 1, 0.0, topology, made.replica_config(), Random(1))
    message = app_message(topology.clients[0], 0, dst, payload)
    simulation.hand_over(message, spec.client_messages[0](message), [topology.members(group)[0] for group in groups])
    simulation.settle()
    rows = simulation.result().run().deliveries
    members = [process for group in groups for process in topology.members(group)]
    return int(rows.t_us[np.isin(rows.process, members)].max()) / made.network.default_us
