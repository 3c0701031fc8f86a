"""The protocols by name. Adding one means writing its file and adding its line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from ..consensus import PaxosMessage, PaxosRecord, SoloRecord
from ..core import Codec, GroupId, Process, ProcessId, Topology, UsageError
from . import flexcast, tree
from ._adapter import StreamAck
from ._client import Ingress, IngressGroups, destinations
from ._messages import ClientMessage
from ._replica import ReplicaConfig
from .fastcast import FastCast, FastCastConfig, FastCastMessage
from .multipaxos import OrderingGroup, ordering_group
from .optimistic import (
    Baseline,
    BaselineConfig,
    BaselineIngress,
    Optimistic,
    OptimisticConfig,
    OptimisticIngress,
    OptimisticMessage,
    home_group,
    senders_facts,
)
from .optimistic.messages import BarrierRequest, FrMcast
from .sequencer import Data, DataIngress, Sequencer, SequencerConfig
from .skeen import SkeenFrame
from .skeen import build as build_skeen

ORDER = ("integrity", "validity", "agreement", "prefix", "acyclic")


@dataclass(frozen=True)
class ProtocolSpec:
    name: str
    title: str
    paper: str
    survives: str
    replicas: int  # processes a group, unless the user says otherwise
    claims: tuple[str, ...]
    config: type[ReplicaConfig]
    build: Callable[[ProcessId, Topology, Any, Random], Process]
    ingress_groups: IngressGroups  # where clients send a message first
    delays: dict[str, int]  # claimed: case -> message delays
    messages: Any = ClientMessage  # the union of its own wire messages
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)  # configuration that brings a case about
    records: Any = PaxosRecord | SoloRecord
    # What run.json says of a run besides its configuration: (configuration, topology, who multicast to which groups)
    facts: Callable[[Any, Topology, Iterable[tuple[ProcessId, GroupId]]], dict[str, Any]] | None = None
    ingress: Callable[[ProcessId, Topology, Any], Ingress] | None = None  # how messages enter, if not by a START
    ingress_messages: Any = None  # the union of what clients send then
    ingress_from: Callable[[Any], IngressGroups] | None = None  # ingress groups, where they depend on the configuration

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

    def codec(self) -> Codec:
        return Codec(PaxosMessage | ClientMessage | self.messages, self.records)


_SPECS = (
    ProtocolSpec(
        name="skeen",
        title="Skeen",
        paper="Birman and Joseph 1987",
        survives="restarts (one process a group)",
        replicas=1,
        claims=(*ORDER, "genuine"),
        config=ReplicaConfig,
        build=build_skeen,
        messages=SkeenFrame | StreamAck,
        ingress_groups=destinations,
        delays={"local": 1, "global": 2},
    ),
    ProtocolSpec(
        name="basecast",
        title="BaseCast",
        paper="Coelho, Schiper, Pedone 2017, Algorithm 1",
        survives="f crashes of 2f+1 in each group",
        replicas=3,
        claims=(*ORDER, "genuine"),
        config=ReplicaConfig,
        build=build_skeen,
        messages=SkeenFrame | StreamAck,
        ingress_groups=destinations,
        delays={"local": 3, "global": 6},
    ),
    ProtocolSpec(
        name="fastcast",
        title="FastCast",
        paper="Coelho, Schiper, Pedone 2017, Algorithm 2",
        survives="f crashes of 2f+1 in each group",
        replicas=3,
        claims=(*ORDER, "genuine"),
        config=FastCastConfig,
        build=FastCast,
        messages=FastCastMessage,
        ingress_groups=destinations,
        delays={"local": 3, "global": 4, "slow": 6},
        cases={"slow": {"wrong_guesses": True}},
    ),
    ProtocolSpec(
        name="multipaxos",
        title="Multi-Paxos, one ordering group",
        paper="Lamport 1998; as compared in Coelho et al. 2017",
        survives="f crashes of 2f+1 in the ordering group",
        replicas=3,
        claims=ORDER,
        config=ReplicaConfig,
        build=OrderingGroup,
        ingress_groups=ordering_group,
        delays={"local": 3, "global": 3},
    ),
    ProtocolSpec(
        name="flexcast",
        title="FlexCast",
        paper="Batista, Coelho, Alchieri, Dotti, Pedone 2023",
        survives="f crashes of 2f+1 in each group; restarts with one process a group",
        replicas=1,
        claims=(*ORDER, "minimality"),
        config=flexcast.FlexCastConfig,
        build=flexcast.build,
        messages=flexcast.FlexCastFrame | StreamAck,
        ingress_groups=flexcast.ingress_at_lca(flexcast.FlexCastConfig()),
        ingress_from=flexcast.ingress_at_lca,
        delays={"local": 1, "global": 2},
    ),
    ProtocolSpec(
        name="tree",
        title="Tree, hierarchical",
        paper="Coelho 2019, Algorithm 3, for crashes",
        survives="f crashes of 2f+1 in each group; restarts with one process a group",
        replicas=1,
        claims=(*ORDER, "partially-genuine"),
        config=tree.TreeConfig,
        build=tree.build,
        messages=tree.TreeFrame | StreamAck,
        ingress_groups=tree.ingress_at_lca(tree.TreeConfig()),
        ingress_from=tree.ingress_at_lca,
        delays={"local": 1, "global": 2},
    ),
    ProtocolSpec(
        name="oam-baseline",
        title="Baseline Atomic Multicast",
        paper="Bezerra, Pedone, Garbinato, Geyer 2013, Algorithm 1",
        survives="f crashes of 2f+1 in each group",
        replicas=3,
        claims=(*ORDER, "fifo", "quasi-genuine"),
        config=BaselineConfig,
        build=Baseline,
        messages=OptimisticMessage,
        ingress_groups=home_group,
        ingress=BaselineIngress,
        ingress_messages=FrMcast | BarrierRequest,
        facts=senders_facts,
        delays={"local": 3, "global": 3, "slow": 4},
        cases={"slow": {"changed_timestamps": True}},
    ),
    ProtocolSpec(
        name="oam",
        title="Optimistic Atomic Multicast",
        paper="Bezerra, Pedone, Garbinato, Geyer 2013, section IV",
        survives="f crashes of 2f+1 in each group",
        replicas=3,
        claims=(*ORDER, "fifo", "quasi-genuine", "local-order"),
        config=OptimisticConfig,
        build=Optimistic,
        messages=OptimisticMessage,
        ingress_groups=home_group,
        ingress=OptimisticIngress,
        ingress_messages=FrMcast | BarrierRequest,
        facts=senders_facts,
        delays={"optimistic": 1, "local": 3, "global": 3, "slow": 4},
        cases={"slow": {"changed_timestamps": True}},
    ),
    ProtocolSpec(
        name="sequencer",
        title="Sequencer with delay compensation",
        paper="Sousa, Pereira, Moura, Oliveira 2002, Figure 4",
        survives="f crashes of 2f+1 in the ordering group",
        replicas=1,
        claims=(*ORDER, "local-order"),
        config=SequencerConfig,
        build=Sequencer,
        messages=Data,
        ingress_groups=ordering_group,
        ingress=DataIngress,
        ingress_messages=Data,
        delays={"optimistic": 1, "local": 1, "global": 2},  # local: to the sequencer's own group
    ),
)

PROTOCOLS: dict[str, ProtocolSpec] = {spec.name: spec for spec in _SPECS}


def markdown_table() -> str:
    """The table of the README: generated, so that it is never out of date."""
    lines = [
        "| name | protocol | survives | message delays | genuine | from |",
        "|---|---|---|---|---|---|",
    ]
    for spec in PROTOCOLS.values():
        delays = ", ".join(f"{case} {count}" for case, count in spec.delays.items())
        genuine = spec.genuineness
        lines.append(f"| `{spec.name}` | {spec.title} | {spec.survives} | {delays} | {genuine} | {spec.paper} |")
    return "\n".join(lines)


def protocol(name: str) -> ProtocolSpec:
    spec = PROTOCOLS.get(name)
    if spec is None:
        raise UsageError(f"there is no protocol '{name}': choose one of {', '.join(PROTOCOLS)}")
    return spec
