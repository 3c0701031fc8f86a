"""A scenario of whole nodes is data: everything that a simulated run depends on. Same scenario, same bytes."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from ..core import UsageError
from ..net.config import ClusterConfig, Limits, ProcessConfig
from ..net.disk.records import Durability
from ..net.security.signing import KEY_BYTES, public_half
from ..protocols import protocol
from .faults import NodePlan, PoisonedMessage

_PORT = 7_000
FOLDER = "/cluster"


class NodeScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    driver: str = "node"
    protocol: str
    groups: int = 2
    replicas: int = 3
    clients: int = 2
    messages: int = 30  # by all clients together
    dst_max: int = 2  # groups of one message
    payload_bytes: int = 64  # at most
    interval_us: int = 100_000  # between two messages of a client
    queries: float = 0.0  # to applications, for each message that is sent
    readers: int = 0  # more clients, named after the others, which only ask
    durability: Durability = Durability.SYNC
    latency_us: int = 200
    splits: float = 0.1  # how often a reader gets a part of what has arrived
    window_bytes: int = 256 << 10  # on their way in one direction of a connection
    sync_us: int = 300
    options: dict[str, Any] = {}  # the protocol's own, `paxos` among them
    limits: Limits = Limits()
    keep_messages: int = 10_000_000
    plan: NodePlan = NodePlan()
    patience_us: int = 12_000_000  # without progress for so long after the last fault, a run is stuck
    seed: int = 0

    def names(self) -> list[str]:
        return [f"g{group}.p{index}" for group in range(1, self.groups + 1) for index in range(self.replicas)]

    def members(self, group: int) -> list[str]:
        return [f"g{group}.p{index}" for index in range(self.replicas)]

    def config(self) -> ClusterConfig:
        return ClusterConfig(
            cluster="simulated",
            id="5eed",
            protocol=self.protocol,
            process=tuple(map(_process, self.names())),
            durability=self.durability,
            trace=True,
            keep_messages=self.keep_messages,
            options=self.options,
            limits=self.limits,
            insecure=True,  # simulated connections are not encrypted
            folder=FOLDER,
        )

    def grown(self, process: str) -> ClusterConfig:
        """The configuration with two more members in the group of this process."""
        config, group = self.config(), process.partition(".")[0]
        new = [_process(f"{group}.p{index}") for index in (self.replicas, self.replicas + 1)]
        return msgspec.structs.replace(config, process=(*config.process, *new))

    def end_us(self) -> int:
        """When the last fault is over."""
        return self.plan.end_us(self.replicas)

    def check(self) -> None:
        self.config().check()
        if protocol(self.protocol).orders_operations and any(isinstance(f, PoisonedMessage) for f in self.plan.faults):
            raise UsageError(
                f"no group of {self.protocol} can skip an operation by itself: leave out the fault 'poison'"
            )
        if self.clients < 1 or self.messages < 0 or self.dst_max < 1:
            raise UsageError("a run needs at least one client, and messages go to one group or more")
        names = [*self.names(), *(f"c{index}" for index in range(self.clients + self.readers))]
        for fault in self.plan.faults:
            touched = getattr(fault, "side", None) or (getattr(fault, "process", names[0]),)
            strangers = [name for name in touched if name not in names]
            if strangers or not 1 <= getattr(fault, "group", 1) <= self.groups:
                raise UsageError(f"fault at {fault.at_us} us: there is no {(*strangers, 'such group')[0]}")


def _process(name: str) -> ProcessConfig:
    return ProcessConfig(name, f"{name}:{_PORT}", key=public_half(private_key(name)))


def private_key(name: str) -> bytes:
    """With which a process signs: the same in every run."""
    return blake2b(name.encode(), digest_size=KEY_BYTES).digest()
