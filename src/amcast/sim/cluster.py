"""A simulated cluster to play with: multicast, let time pass, look at what was delivered where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import GroupId, MessageId, ProcessId, UsageError
from ..trace import Run
from .run import Simulation
from .scenario import scenario


class SimCluster:
    """A simulated cluster to play with. Groups are called `g1`, `g2`..., their processes `g1.p0`, `g1.p1`...

        cluster = SimCluster("fastcast", groups=3)
        cluster.multicast({"g1", "g2"}, b"hello")
        cluster.run()
        assert cluster.delivered("g1.p0") == [b"hello"]

    `settings` are fields of `Scenario`, such as `replicas=5`.
    """

    def __init__(
        self, protocol: str = "fastcast", groups: int = 2, network: str = "lan", seed: int = 0, **settings: Any
    ) -> None:
        self._scenario = scenario(protocol, network, groups=groups, clients=1, messages=0, seed=seed, **settings)
        self._topology = self._scenario.topology()
        self._simulation = Simulation(self._scenario)
        self._simulation.start()
        self._payloads: dict[MessageId, bytes] = {}

    def multicast(self, groups: Iterable[str], payload: bytes) -> MessageId:
        """Sends a message, which arrives when time passes (`run`). Returns its id."""
        dst = tuple(sorted({self._group(name) for name in groups}))
        id_ = self._simulation.multicast(self._topology.clients[0], dst, payload)
        self._payloads[id_] = payload
        return id_

    def run(self) -> None:
        """Lets time pass until everything is delivered everywhere."""
        if not self._simulation.settle():
            raise RuntimeError("nothing moves any more, and messages are undelivered: this is a bug in a protocol")

    def delivered(self, process: str) -> list[bytes]:
        """The payloads that a process delivered, in its order."""
        return [self._payloads[id_] for id_ in self._simulation.watch.delivered(self._process(process))]

    def trace(self) -> Run:
        """What happened so far, for `amcast.check.check_run`."""
        return self._simulation.result().run()

    def _group(self, name: str) -> GroupId:
        for group in self._topology.groups:
            if name == f"g{group}":
                return group
        raise UsageError(f"there is no group '{name}': this cluster has g1 to g{len(self._topology.groups)}")

    def _process(self, name: str) -> ProcessId:
        for process in self._topology.processes:
            if name == self._topology.name(process):
                return process
        raise UsageError(f"there is no process '{name}': g1.p0 is the first process of the first group")
