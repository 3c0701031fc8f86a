"""What a protocol says of itself. Every protocol's file ends with its `SPEC`; commands, fuzzer and tests read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any, get_args

from ..consensus import PaxosMessage, PaxosRecord, SoloRecord
from ..core import AppMessage, Codec, GroupId, Process, ProcessId, Topology, Wire, app_message, liars_max
from ._client import Ingress, IngressGroups, destinations
from ._messages import ClientMessage, IngressMessage, Start
from ._replica import ReplicaConfig

Build = Callable[[ProcessId, Topology, Any, Random], Process]

ORDER = ("integrity", "validity", "agreement", "prefix", "acyclic")  # what makes a protocol atomic multicast
EXECUTION = ("integrity", "validity", "agreement", "conflict-order")  # what operations on objects need
SAMPLE = app_message(9, 7, (1, 2), b"payload", 3)  # for the samples of wire messages


@dataclass(frozen=True)
class ProtocolSpec:
    name: str
    title: str
    paper: str
    survives: str
    replicas: int  # processes a group, unless the user says otherwise
    claims: tuple[str, ...]
    delays: dict[str, int]  # claimed: case -> message delays
    build: Build
    config: type[ReplicaConfig] = ReplicaConfig
    messages: Any = ClientMessage  # the union of its own wire messages
    samples: tuple[Wire, ...] = ()  # one of each of them at least: the tests send them through the codec
    records: Any = PaxosRecord | SoloRecord
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)  # configuration that brings a case of `delays` about
    survives_liars: bool = False  # up to f members of a group of 3f+1, and any client, may do whatever they like
    fuzz_replicas: tuple[int, ...] = (1, 3)  # processes a group, one long fuzz each
    # Options for one run of the fuzzer: (number of groups, is_adverse, rng) -> options. `is_adverse` is true in one of
    # five runs: a protocol that has a slow path may force it then.
    fuzz_options: Callable[[int, bool, Random], dict[str, Any]] | None = None
    # What run.json says of a run besides its configuration: (configuration, topology, who multicast to which groups)
    facts: Callable[[Any, Topology, Iterable[tuple[ProcessId, GroupId]]], dict[str, Any]] | None = None
    ingress_groups: IngressGroups = destinations  # where clients send a message first
    ingress_from: Callable[[Any], IngressGroups] | None = None  # ingress groups, where they depend on the configuration
    ingress: Callable[[ProcessId, Topology, Any], Ingress] | None = None  # how messages enter, if not by a START
    # Where messages are operations on objects: what a workload means by (destinations, payload, objects of each group,
    # share of moves, topology, configuration, rng), and the numbers of the objects that a message touches.
    draw_operation: Callable[..., tuple[tuple[GroupId, ...], bytes]] | None = None
    # The same where a workload says what is done to which objects: (what, topology, configuration).
    operation_on: Callable[..., tuple[tuple[GroupId, ...], bytes]] | None = None
    objects_of: Callable[[AppMessage], tuple[int, ...]] | None = None
    ingress_messages: Any = None  # the union of what clients send then, each an `IngressMessage`

    @cached_property
    def client_messages(self) -> tuple[type[IngressMessage], ...]:
        """What a group takes from clients. Everything else comes from other processes alone."""
        own = self.ingress_messages
        return (Start,) if own is None else get_args(own) or (own,)

    def problem_with(self, client: ProcessId, message: Wire, topology: Topology) -> str | None:
        """Why a group refuses this message from a client; none if it takes it. Drivers ask before the process gets it,
        and see to what a message's size and a client's rights allow."""
        if not isinstance(message, self.client_messages):
            return f"no client sends {message.__struct_config__.tag} in {self.name}"
        if not self.takes_batches and any(each.count != 1 for each in message.handed_over()):
            return f"{self.name} orders each message by itself: no batch, please"
        return message.problem(client, topology)

    @property
    def orders_operations(self) -> bool:
        """Whether messages are operations on objects, which all groups execute. Otherwise they go to groups."""
        return self.draw_operation is not None

    @property
    def takes_batches(self) -> bool:
        """Whether several messages may be ordered as one: not where they enter one by one, at times of their own."""
        return self.ingress is None

    @property
    def genuineness(self) -> str:
        """For people: who takes steps for a message besides its sender and its destinations."""
        words = {
            "genuine": "yes",
            "minimality": "by minimality",
            "quasi-genuine": "quasi",
            "partially-genuine": "partially",
        }
        return next((word for claim, word in words.items() if claim in self.claims), "no")

    def configured(self, config: ReplicaConfig) -> ProtocolSpec:
        """With the ingress groups that this configuration makes."""
        return self if self.ingress_from is None else replace(self, ingress_groups=self.ingress_from(config))

    def ingress_maker(self, topology: Topology, config: ReplicaConfig) -> Callable[[ProcessId], Ingress] | None:
        """Makes the ingress of a sender."""
        make = self.ingress
        return None if make is None else lambda sender: make(sender, topology, config)

    def problem_with_size(self, size: int) -> str | None:
        """Why groups can't have this many members; none if they can."""
        if self.survives_liars:
            more = 4 + 3 * ((size - 2) // 3)
            return None if size % 3 == 1 else f"are not 3f+1: use 4, 7, 10 or so replicas, here {more}"
        if size > 1 and size % 2 == 0:
            return f"have no majority that survives a tie: use an odd number of replicas, such as {size + 1}"
        return None

    def faulty_max(self, size: int) -> int:
        """How many members of a group of this size may be gone for good, or lie if the protocol survives liars."""
        return liars_max(size) if self.survives_liars else (size - 1) // 2

    def liars_max(self, size: int) -> int:
        """How many members of a group of this size may lie. What one more of them say alike is true."""
        return liars_max(size) if self.survives_liars else 0

    def codec(self) -> Codec:
        return Codec(PaxosMessage | ClientMessage | self.messages, self.records)
