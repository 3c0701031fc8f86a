"""Multi-Paxos as atomic multicast: one fixed group orders everything, and every process learns the whole order.

Guarantees: uniform integrity, validity, agreement, prefix and acyclic order. Survives f crashes in the ordering group
of 2f+1. Not genuine: the ordering group works for every message, and all processes learn all of them. 3 delays.

    client    leader      ordering group     all processes
      |--START-->|              |                  |     1
      |          |--2a--------->|----------------->|     2
      |          |              |--2b------------->|     3   deliver if the process's group is a destination
      |          |<--------------------------HELD--|         its own disk has what its group delivered so far
      |<--REPLY--|                                           for each destination, when a majority of it holds it

A client that has its answer for a group can have the message from that group, even if all of it crashed right after,
and whatever the ordering group forgot meanwhile: see `_owed.py`.

Reads: what a group delivers follows from the ordering group's log alone, and everybody learns that log. So a read of
any group waits until its reader has followed the log as far as the leader of the ordering group says, who confirms its
ballot first (`consensus/multipaxos/reads.py`). Whatever a member of the group had delivered before, or a client was
told that the group holds, was decided, and so is covered.

The first group of the topology is the ordering group, and may be a destination like any other. It is what the FastCast
paper compares against: best when messages go to all groups, and no faster with more groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import msgspec

from ..consensus import Decision, Log, MultiPaxos, RemoteLearner, Solo, StateWanted
from ..core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    ProcessId,
    SeenMessages,
    SeenOfSender,
    TimerKey,
    Topology,
    Wire,
    encode,
    majority,
)
from ._adapter import Submit
from ._messages import Start
from ._owed import Debt, OwedMessage
from ._replica import DeliveriesState, Replica, ReplicaConfig
from ._spec import ORDER, ProtocolSpec


def ordering_group(message: AppMessage, topology: Topology) -> tuple[GroupId, ...]:
    return (topology.groups[0],)


class OrderingConfig(ReplicaConfig, frozen=True, forbid_unknown_fields=True):
    owed_max: int = 65_536  # messages for a group that does not take them: beyond that, no more are ordered for it
    owed_bytes: int = 16 << 20  # or as many bytes of them, if they are reached first


class Held(Wire, frozen=True, tag="HELD"):
    """The sender has what its group delivers below this position, and has it on disk."""

    position: int


class OrderedState(msgspec.Struct, array_like=True):
    ordered: int
    seen: dict[ProcessId, SeenOfSender]
    deliveries: DeliveriesState
    owed: dict[GroupId, list[OwedMessage]] = {}


_HELD = "ordering.held"
_RESEND = "ordering.resend"

_entries: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Submit])
_state = msgspec.msgpack.Decoder(OrderedState)


def _make_log(process: ProcessId, topology: Topology, config: ReplicaConfig, rng: Random) -> Log:
    ordering = topology.groups[0]
    remote = [p for p in topology.processes if topology.group_of(p) != ordering]
    if topology.group_of(process) != ordering:
        return RemoteLearner(ordering, process, topology, config.paxos)
    if len(topology.members(ordering)) == 1 and not remote:
        return Solo(ordering, process, config.paxos)
    return MultiPaxos(ordering, process, topology, config.paxos, rng, remote)


class OrderingGroup(Replica):
    """The same object at every process: a member of the ordering group votes, the others learn."""

    def __init__(self, process: ProcessId, topology: Topology, config: OrderingConfig, rng: Random) -> None:
        super().__init__(process, topology, config, _make_log(process, topology, config, rng), _entries)
        self._limits = config
        self._ordered = 0  # the position in the one total order: the final timestamp
        self._seen = SeenMessages()
        # A member of the ordering group: what it owes to the other groups. Nothing, if it is no member.
        others = [group for group in topology.groups if group != self._group]
        self._debts = {group: Debt() for group in others} if self._group == self._log.group else {}
        self._proposed: dict[MessageId, AppMessage] = {}  # volatile
        self._has_refused = False  # volatile: a message found no room, and may find some later
        self._told_held = 0  # a process of another group: what the leader was last told that this one holds

    # -- inputs

    def on_boot(self, out: Outbox) -> None:
        out.set_timer(_RESEND, self._limits.resend_us)
        super().on_boot(out)

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _HELD:
            if self._log.leader is not None:
                self._tell_held((self._log.leader,), out)
        elif key == _RESEND:
            out.set_timer(_RESEND, self._limits.resend_us)
            self._tell_held(self._topology.members(self._log.group), out)
            if self._log.is_leader:
                self._tell_to_wait(out)
        else:
            super().on_timer(key, out)

    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Held):
            self._on_held(sender, message, out)
            self._send_replies(out)
        elif isinstance(message, Start):
            for app_message in message.messages:
                self._on_start(sender, app_message, out)
            self._send_replies(out)

    def _on_start(self, sender: ProcessId, message: AppMessage, out: Outbox) -> None:
        if not self._log.is_leader:
            self._forward(sender, message)  # from other groups too: the ordering group answers for all
        elif self._seen.is_known(message.id):
            self._on_known(message)
        else:
            self._propose(message, out)

    def _on_known(self, message: AppMessage) -> None:
        """A client tries again. It hears who has the message; if nobody does, at least that it is ordered."""
        debts, id_ = self._debts, message.id
        self._reply(message.sender, id_, tuple([g for g in message.dst if g not in debts or id_ not in debts[g]]))

    def _propose(self, message: AppMessage, out: Outbox) -> None:
        if message.id in self._proposed:
            return
        debts = [self._debts[group] for group in message.dst if group in self._debts]
        if not all(debt.has_room(self._limits.owed_max, self._limits.owed_bytes) for debt in debts):
            self._has_refused = True
            self._reply(message.sender, message.id, ())  # its client tries again: it is open no more
            return
        for debt in debts:
            debt.count(message, 1)
        self._proposed[message.id] = message
        self._log.propose(Submit(message), out)

    # -- decided entries

    def _act_on(self, decisions: list[Decision], out: Outbox) -> None:
        super()._act_on(decisions, out)
        if isinstance(self._log, RemoteLearner):
            self._log.hold(decisions, out)
            if self._told_held != self._deliveries.count(self._group):
                out.set_timer(_HELD, 0)

    def _act_on_one(self, decision: Decision, out: Outbox) -> None:
        if isinstance(decision, StateWanted):
            group = self._topology.group_of(decision.peer)
            groups = self._debts if group == self._group else [group]
            self._log.send_state(decision.peer, self._dump_for(groups), out)
        else:
            super()._act_on_one(decision, out)

    def _apply(self, entry: Any, out: Outbox) -> None:
        message: AppMessage = entry.message
        self._forget_proposal(message.id)
        if not self._seen.admit_new(message):
            self._refuse(message)
            return
        self._ordered += 1
        holding = self._owe(message)
        self._deliveries.add(message, self._ordered, message.dst, out)
        if holding and self._log.is_leader:
            self._reply(message.sender, message.id, holding)

    def _forget_proposal(self, id_: MessageId) -> None:
        proposed = self._proposed.pop(id_, None)
        if proposed is not None:
            for group in proposed.dst:
                if group in self._debts:
                    self._debts[group].count(proposed, -1)

    def _owe(self, message: AppMessage) -> tuple[GroupId, ...]:
        """Keeps a message for the groups that do not hold it yet; returns the others. The ordering group itself holds
        what is decided."""
        holding = []
        for group in message.dst:
            debt = self._debts.get(group)
            if debt is None or not debt.add(OwedMessage(self._deliveries.count(group), message, self._ordered)):
                holding.append(group)
        return tuple(holding)

    def _on_elected(self, out: Outbox) -> None:
        for id_ in list(self._proposed):
            self._forget_proposal(id_)

    # -- what the other groups hold

    def _tell_held(self, to: Sequence[ProcessId], out: Outbox) -> None:
        """All that this process delivered is on disk when this leaves."""
        held = self._deliveries.count(self._group)
        if held and self._group != self._log.group:
            self._told_held = held
            out.send_all(to, Held(held))

    def _on_held(self, sender: ProcessId, message: Held, out: Outbox) -> None:
        group = self._topology.group_of(sender)
        if group is None or group not in self._debts:
            return
        settled = self._debts[group].hold(sender, message.position, majority(len(self._topology.members(group))))
        if settled and self._log.is_leader:
            for each in settled:
                self._reply(each.sender, each.id, (group,))
            if self._has_refused:
                self._has_refused = False
                self._on_room(out)

    def _on_room(self, out: Outbox) -> None:
        """Messages that found no room may find some now. Their clients send them again."""

    def _tell_to_wait(self, out: Outbox) -> None:
        """Tells clients of messages that a group does not take yet, once, that these are ordered: a driver that counts
        what a leader has not answered must not count them for as long as a group is down."""
        for debt in self._debts.values():
            for message in debt.overdue():
                self._reply(message.sender, message.id, ())
        self._send_replies(out)

    # -- state

    def _dump(self) -> bytes:
        return self._dump_for(self._debts)

    def _dump_for(self, groups: Iterable[GroupId | None]) -> bytes:
        """With what is owed to these groups."""
        owed = {group: list(debt.owed) for group, debt in self._debts.items() if group in groups}
        return encode(OrderedState(self._ordered, self._seen.dump(), self._deliveries.dump(), owed))

    def _load(self, state: bytes, out: Outbox) -> None:
        loaded = _state.decode(state)
        self._ordered = loaded.ordered
        self._seen.load(loaded.seen)
        self._deliveries.load(loaded.deliveries, out, loaded.owed.get(self._group, ()))
        known = self._seen.is_known
        self._proposed = {id_: message for id_, message in self._proposed.items() if not known(id_)}
        for group, debt in self._debts.items():
            proposed = [message for message in self._proposed.values() if group in message.dst]
            debt.load(loaded.owed.get(group, ()), proposed)


def _fuzz_options(groups: int, is_adverse: bool, rng: Random) -> dict[str, Any]:
    """In one of three runs little may be owed to a group."""
    if rng.random() < 0.67:
        return {}
    return {"owed_max": rng.randint(1, 20), "owed_bytes": rng.choice((1, 100, 1 << 20))}


SPEC = ProtocolSpec(
    name="multipaxos",
    title="Multi-Paxos, one ordering group",
    paper="Lamport 1998; as compared in Coelho et al. 2017",
    survives="f crashes of 2f+1 in the ordering group",
    replicas=3,
    claims=ORDER,
    delays={"local": 3, "global": 3},
    build=OrderingGroup,
    config=OrderingConfig,
    messages=Held,
    samples=(Held(5),),
    fuzz_replicas=(3, 5),
    fuzz_options=_fuzz_options,
    ingress_groups=ordering_group,
)
