"""Multi-Paxos as atomic multicast: one fixed group orders everything, and every process learns the whole order.

Guarantees: uniform integrity, validity, agreement, prefix and acyclic order. Survives f crashes in the ordering group
of 2f+1. Not genuine: the ordering group works for every message, and all processes learn all of them. 3 delays.

    client    leader      ordering group     all processes
      |--START-->|              |                  |     1
      |          |--2a--------->|----------------->|     2
      |          |              |--2b------------->|     3   deliver if the process's group is a destination

The first group of the topology is the ordering group, and may be a destination like any other. It is what the FastCast
paper compares against: best when messages go to all groups, and no faster with more groups.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from ..consensus import Learner, Log, MultiPaxos, Solo
from ..core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    ProcessId,
    SeenMessages,
    SeenOfSender,
    Topology,
    Wire,
    encode,
)
from ._adapter import Submit
from ._messages import Start
from ._replica import DeliveriesState, Replica, ReplicaConfig
from ._spec import ORDER, ProtocolSpec


def ordering_group(message: AppMessage, topology: Topology) -> tuple[GroupId, ...]:
    return (topology.groups[0],)


class OrderedState(msgspec.Struct, array_like=True):
    ordered: int
    seen: dict[ProcessId, SeenOfSender]
    deliveries: DeliveriesState


_entries: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Submit])
_state = msgspec.msgpack.Decoder(OrderedState)


def _make_log(process: ProcessId, topology: Topology, config: ReplicaConfig, rng: Random) -> Log:
    ordering = topology.groups[0]
    remote = [p for p in topology.processes if topology.group_of(p) != ordering]
    if topology.group_of(process) != ordering:
        return Learner(ordering, process, topology, config.paxos)
    if len(topology.members(ordering)) == 1 and not remote:
        return Solo(ordering, process, config.paxos)
    return MultiPaxos(ordering, process, topology, config.paxos, rng, remote)


class OrderingGroup(Replica):
    """The same object at every process: a member of the ordering group votes, the others learn."""

    def __init__(self, process: ProcessId, topology: Topology, config: ReplicaConfig, rng: Random) -> None:
        super().__init__(process, topology, config, _make_log(process, topology, config, rng), _entries)
        self._ordered = 0  # the position in the one total order: the final timestamp
        self._seen = SeenMessages()
        self._proposed: set[MessageId] = set()  # volatile

    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Start):
            for app_message in message.messages:
                self._on_start(sender, app_message, out)
            self._send_replies(out)

    def _on_start(self, sender: ProcessId, message: AppMessage, out: Outbox) -> None:
        if self._group != self._log.group:
            return  # the ordering group answers for all
        if not self._log.is_leader:
            self._forward(sender, message)
        elif self._seen.is_known(message.id):
            self._reply(message.sender, message.id, message.dst)
        else:
            self._propose(message, out)

    def _propose(self, message: AppMessage, out: Outbox) -> None:
        if message.id not in self._proposed:
            self._proposed.add(message.id)
            self._log.propose(Submit(message), out)

    def _apply(self, entry: Any, out: Outbox) -> None:
        message: AppMessage = entry.message
        self._proposed.discard(message.id)
        if self._seen.is_known(message.id):
            return
        self._ordered += 1
        self._seen.admit(message, self._ordered)
        self._deliveries.add(message, self._ordered, message.dst, out)
        if self._log.is_leader:
            # Decided is as good as delivered: every process learns the one log.
            self._reply(message.sender, message.id, message.dst)

    def _on_elected(self, out: Outbox) -> None:
        self._proposed = set()

    def _dump(self) -> bytes:
        return encode(OrderedState(self._ordered, self._seen.dump(), self._deliveries.dump()))

    def _load(self, state: bytes, out: Outbox) -> None:
        loaded = _state.decode(state)
        self._ordered = loaded.ordered
        self._seen.load(loaded.seen)
        self._deliveries.load(loaded.deliveries, out)


SPEC = ProtocolSpec(
    name="multipaxos",
    title="Multi-Paxos, one ordering group",
    paper="Lamport 1998; as compared in Coelho et al. 2017",
    survives="f crashes of 2f+1 in the ordering group",
    replicas=3,
    claims=ORDER,
    delays={"local": 3, "global": 3},
    build=OrderingGroup,
    fuzz_replicas=(3, 5),
    ingress_groups=ordering_group,
)
