"""Message delays, counted: one message in a network where every message takes one unit, and nothing else takes time."""

from __future__ import annotations

import msgspec

from ..protocols import ProtocolSpec
from ..trace import FINAL, OPTIMISTIC
from .run import Simulation
from .scenario import scenario


class Hops(msgspec.Struct, frozen=True):
    """Delays from multicast to the last delivery at a destination, and what the protocol claims."""

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
    # The last groups: where the first one orders for all, it has no way to go.
    simulation.multicast(made.topology().clients[0], made.topology().groups[-destinations:], b"")
    simulation.settle()
    run = simulation.result().run()
    kind = OPTIMISTIC if case == "optimistic" else FINAL
    took = int(run.deliveries.t_us[run.deliveries.kind == kind].max()) - int(run.multicasts.t_us[0])
    return Hops(spec.name, case, took / made.network.default_us, claimed)
