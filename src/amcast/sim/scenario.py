"""A scenario is data: everything that a simulated run depends on. Same scenario, same bytes."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ..consensus import PaxosConfig
from ..core import BATCH_LIMIT, Latency, Topology, UsageError, grid, latency_preset
from ..protocols import ClientConfig, ProtocolSpec, ReplicaConfig, protocol
from ..workload import AnyWorkload, Load, Micro
from .faults import FaultPlan, Skew
from .machine import CpuCost


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a simulated run depends on, as data. Made by `scenario`, which fills in timeouts."""

    protocol: str  # see `amcast protocols`
    groups: int = 2
    replicas: int  # in each group
    clients: int = 2
    messages: int = 100  # by all clients together
    outstanding: int = 1  # messages that a client has in flight
    interval_us: int = 0  # between two messages of a client, whatever is in flight (open loop); 0: closed loop
    burst: int = 1  # messages that a client of the open loop multicasts at a time
    batch: int = 1  # messages of a client to the same groups that may be ordered as one
    member_messages: int = 0  # multicast by each member of a group as well, one every interval_us on average
    reads_us: int = 0  # each member reads so often, on average; 0: never
    workload: AnyWorkload = Micro()  # what is multicast: which groups messages go to, and what is in them
    network: Latency
    client_region: str | None = None  # where all clients are; None: in all regions, in turn
    fifo: bool = True  # links keep the order of messages
    cpu: CpuCost = CpuCost()
    sync_us: int = 0  # how long the disk takes
    options: dict[str, Any] = {}  # the protocol's own, such as wrong_guesses
    paxos: PaxosConfig
    resend_us: int  # how long a group waits for another one before it sends again
    history_max: int = ReplicaConfig().history_max  # deliveries kept for replicas that were away
    history_bytes: int = ReplicaConfig().history_bytes  # the same, in bytes
    retry_us: int  # how long a client waits before it sends again
    plan: FaultPlan = FaultPlan()
    patience_us: int  # without progress for so long after the last fault, a run is stuck
    records_wire: bool = True  # the trace has wire messages as well
    seed: int = 0  # of all that is random

    def spec(self) -> ProtocolSpec:
        """What the protocol says of itself."""
        return protocol(self.protocol)

    def topology(self) -> Topology:
        """The processes and clients, in groups and regions."""
        where = (self.network.regions, self.network.spread, self.client_region)
        return grid(self.groups, self.replicas, self.clients, *where, self.workload.homes(self.groups))

    def replica_config(self) -> ReplicaConfig:
        """The configuration of the protocol's processes; `options` that do not suit it are refused."""
        fields: dict[str, Any] = {
            "paxos": self.paxos,
            "resend_us": self.resend_us,
            "history_max": self.history_max,
            "history_bytes": self.history_bytes,
        }
        try:
            return msgspec.convert({**fields, **self.options}, self.spec().config)
        except msgspec.ValidationError as error:
            own = [name for name in self.spec().config.__struct_fields__ if name not in ReplicaConfig.__struct_fields__]
            known = f"its options are {', '.join(own)}" if own else "it has none"
            raise UsageError(f"not an option of {self.protocol}: {error}; {known}") from error

    def client_config(self) -> ClientConfig:
        """The configuration of clients."""
        return ClientConfig(self.retry_us, self.batch)

    def loads(self) -> list[Load]:
        """The messages, dealt out to the clients as evenly as they go."""
        each, more = divmod(self.messages, self.clients)
        return [Load(each + (i < more), self.outstanding, self.interval_us, self.burst) for i in range(self.clients)]

    def run_id(self) -> str:
        """Names the run: the same for the same scenario."""
        digest = hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()
        return f"{self.protocol}-{self.seed}-{digest[:12]}"

    def _loses_messages(self) -> bool:
        return any(not isinstance(fault, Skew) for fault in self.plan.faults)

    def check(self) -> None:
        """Raises `UsageError` if it makes no sense."""
        problem = self.spec().problem_with_size(self.replicas)
        if problem is not None:
            raise UsageError(f"groups of {self.replicas} {problem}")
        if self.clients < 1 or self.messages < 0 or self.outstanding < 1:
            raise UsageError("a run needs at least one client, and each of them one outstanding message or more")
        if self.burst < 1 or not 1 <= self.batch <= BATCH_LIMIT:
            raise UsageError(f"clients multicast at least one message at a time, and batches hold 1 to {BATCH_LIMIT}")
        if self.batch > 1 and not self.spec().takes_batches:
            raise UsageError(f"{self.protocol} orders each message by itself: leave out --batch")
        if self.member_messages and (not self.interval_us or self._loses_messages()):
            raise UsageError("members multicast at an interval, and never twice: set one, and no faults but clock skew")
        if self.client_region is not None:
            self.network.check_region(self.client_region)
        topology = self.topology()
        self.workload.check(topology)
        length = self.workload.length
        if length is not None and self.messages > length:
            raise UsageError(f"there are {length:,} messages to replay, not {self.messages:,}: ask for fewer")
        self.replica_config()
        self.plan.check(topology, self.spec().faulty_max)
        if self.plan.traitors() and not self.spec().survives_liars:
            raise UsageError(f"{self.protocol} believes the members of its groups: leave out the fault 'byzantine'")


def scenario(protocol_name: str, network: str = "lan", **settings: Any) -> Scenario:
    """A scenario with timeouts that suit its network; `settings` are fields of `Scenario`."""
    spec = protocol(protocol_name)
    latency = latency_preset(network)
    rtt = latency.rtt_max_us()
    defaults: dict[str, Any] = {
        "replicas": spec.replicas,
        "paxos": PaxosConfig.for_rtt(rtt),
        "resend_us": max(50_000, 3 * rtt),
        "retry_us": max(200_000, 6 * rtt),
        "patience_us": max(10_000_000, 60 * rtt),
    }
    made = Scenario(protocol=protocol_name, network=latency, **{**defaults, **settings})
    made.check()
    return made
