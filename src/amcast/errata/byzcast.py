"""ByzCast as published: Coelho, "On the many faces of atomic multicast" (2019), chapter 3, Algorithm 3."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from ..consensus import Bft, PaxosConfig
from ..core import GroupId, Latency, Outbox, ProcessId, Topology, encode, liars_max
from ..protocols import Frame, GroupOutbox, Submit
from ..protocols._adapter import FromGroup
from ..protocols._byzantine import Acked, ByzantineReplica, ByzantineTypes, Judgement
from ..protocols.tree import Relay, TreeConfig, TreeFrame, TreeState, tree_automaton
from ..sim import FaultPlan, Scenario
from ..sim.byzantine import Lying
from ..sim.faults import Traitor
from ..workload import Micro
from ._erratum import Erratum, Simulated


class Copy(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="copy"):
    """A log entry: what one replica of the parent relayed, as the `seq`-th of its messages to this group."""

    source: GroupId
    replica: ProcessId
    seq: int
    body: Relay


class CopiesCounted(ByzantineReplica):
    """Orders each replica's copies, in the order in which it relayed them, and handles a message when f+1 are there.

    What it counts is in no state: its schedule has no member that must take one over.
    """

    def __init__(self, process: ProcessId, topology: Topology, config: TreeConfig, rng: Random) -> None:
        group = topology.group_of(process)
        assert group is not None
        types = ByzantineTypes(TreeFrame, Relay, TreeState)
        log = Bft(group, process, topology, config.paxos, rng)
        super().__init__(process, topology, config, log, tree_automaton(group, topology, config), types)
        self._entries = msgspec.msgpack.Decoder(list[Submit | FromGroup[Relay] | Acked | Copy])
        self._copies: dict[ProcessId, dict[int, Relay]] = {}  # what each replica told this member
        self._ordered: dict[ProcessId, int] = {}  # how many copies of each replica the log holds
        self._asked: dict[ProcessId, int] = {}
        self._counted: dict[bytes, set[ProcessId]] = {}

    def _on_frame(self, sender: ProcessId, frame: Frame[Any], out: Outbox) -> None:
        if self._topology.group_of(sender) != frame.source:
            return
        told = self._copies.setdefault(sender, {})
        for seq, body in enumerate(frame.bodies, frame.first):
            told.setdefault(seq, body)
        self._propose_copies(sender, frame.source, out)
        self._judge_again(out)

    def _propose_copies(self, replica: ProcessId, source: GroupId, out: Outbox) -> None:
        if self._log.is_leader:
            at = max(self._asked.get(replica, 0), self._ordered.get(replica, 0))
            while at in self._copies[replica]:
                self._log.propose(Copy(source, replica, at, self._copies[replica][at]), out)
                at += 1
            self._asked[replica] = at

    def _on_elected(self, out: Outbox) -> None:
        super()._on_elected(out)
        self._asked = {}
        for replica in self._copies:
            group = self._topology.group_of(replica)
            assert group is not None
            self._propose_copies(replica, group, out)

    def _judge_entry(self, entry: Any, out: Outbox) -> Judgement:
        if not isinstance(entry, Copy):
            return super()._judge_entry(entry, out)
        told = self._copies.get(entry.replica, {}).get(entry.seq)
        if told is None:
            return Judgement.WAIT
        return Judgement.GOOD if told == entry.body else Judgement.BAD

    def _apply(self, entry: Any, out: Outbox) -> None:
        if not isinstance(entry, Copy):
            super()._apply(entry, out)
            return
        if entry.seq != self._ordered.get(entry.replica, 0):
            return
        self._ordered[entry.replica] = entry.seq + 1
        senders = self._counted.setdefault(encode(entry.body), set())
        senders.add(entry.replica)
        needed = liars_max(len(self._topology.members(entry.source))) + 1
        ordered = [count for r, count in self._ordered.items() if self._topology.group_of(r) == entry.source]
        if len(ordered) >= needed:  # so that the parent hears what is ordered, and stops repeating it
            self._heard_of(entry.source).applied = sorted(ordered, reverse=True)[needed - 1]
        if len(senders) == needed:
            effects = GroupOutbox()
            self._automaton.on_group_message(entry.source, entry.body, effects)
            self._perform(effects, out)


_SCENARIO = Scenario(
    protocol="byzcast",
    groups=3,
    replicas=4,
    clients=2,
    messages=6,
    interval_us=1_500,
    workload=Micro(2, 2, 8),
    network=Latency("erratum", 300, sigma=1.0),
    options={"parents": [0, 1, 1]},
    paxos=PaxosConfig(tick_us=2_000, election_ticks=8),
    resend_us=10_000,
    retry_us=20_000,
    patience_us=3_000_000,
    seed=65,
    plan=FaultPlan((Traitor(0, 1, Lying(("forged-relay",), 1.0, 65)),)),
)

ERRATA = (
    Erratum(
        name="byzcast-copies",
        protocol="byzcast",
        paper="Coelho 2019, Algorithm 3, line 9, and Lemma 10",
        published="Each replica of a group broadcasts a message in the child group, which orders the copies, those of"
        " one replica in FIFO order. The child handles a message when it has delivered it f+1 times.",
        problem="Of two messages, the second may have its f+1 copies first: one of a correct replica, which sent the"
        " other before it, and one of a liar, which did not. Other children, and the parent, handle them in the other"
        " order.",
        mend="Number what a group relays to a child. The child handles number k when f+1 replicas of its parent told it"
        " the same for k, and numbers in order.",
        breaks=frozenset({"prefix", "acyclic"}),
        schedule=Simulated(_SCENARIO, CopiesCounted),
    ),
)
