"""How operations enter: a client sends to a replica nearby, and to another one when no answer comes."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import AppMessage, GroupId, Outbox, ProcessId, Topology
from .._client import Ingress
from .._replica import ReplicaConfig
from .messages import Request


def replicas_for(sender: ProcessId, topology: Topology) -> list[ProcessId]:
    """All replicas, in the order in which a sender turns to them: those of its region, then the others. Senders of one
    region begin with different ones."""
    near: list[ProcessId] = []
    far: list[ProcessId] = []
    for group in topology.groups:
        for process in topology.members(group):
            (near if topology.region(process) == topology.region(sender) else far).append(process)
    return [*_from(near, sender), *_from(far, sender)]


def _from(processes: list[ProcessId], sender: ProcessId) -> list[ProcessId]:
    first = sender % len(processes) if processes else 0
    return processes[first:] + processes[:first]


class GeoIngress(Ingress):
    def __init__(self, process: ProcessId, topology: Topology, config: ReplicaConfig) -> None:
        self._replicas = replicas_for(process, topology)
        self._at = 0
        self._moved_us: int | None = None

    def send(self, message: AppMessage, out: Outbox) -> Request:
        request = Request(message)
        out.send(self._replicas[self._at], request)
        return request

    def send_again(self, sent: Request, silent: Sequence[GroupId], out: Outbox) -> None:
        """To the next replica: all that is sent again in one turn goes to the same."""
        if out.now_us != self._moved_us:
            self._moved_us = out.now_us
            self._at = (self._at + 1) % len(self._replicas)
        out.send(self._replicas[self._at], sent)
