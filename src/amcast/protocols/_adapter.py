"""The adapter: replicates a group automaton over the group's log.

Every input of the automaton, a client's message or another group's, is ordered through the log, so that all replicas
of the group make the same steps. Between groups run numbered streams: what automaton g sends to automaton h is entry
0, 1, 2... of stream g->h, kept by all replicas of g until h acknowledges that its log holds it. Only the leader
sends, to the process that it believes leads h; a new leader, or one that gets no acknowledgement, sends again to all
of h. The receiving group takes each number once and in order: no loss, no repetition, FIFO, whoever crashes.

Reads: what an automaton delivers follows from its group's log alone, other groups' messages included, since they are
entries of that log. A replica that was handed all of the log that anybody was handed has delivered all that anybody
has. So the log's read index is enough (`consensus/multipaxos/reads.py`), whoever answers clients, for any automaton.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ..consensus import Log
from ..core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    ProcessId,
    TimerKey,
    Topology,
    Wire,
    encode,
)
from ._automaton import GroupAutomaton, GroupOutbox
from ._messages import Start
from ._replica import DeliveriesState, Replica, ReplicaConfig, make_log

_RESEND = "adapter.resend"


class Submit(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="submit"):
    """A log entry: a client's message."""

    message: AppMessage


class StreamAck(Wire, frozen=True, tag="ACK"):
    """Group `group` has everything below `upto` of the receiver's stream to it."""

    group: GroupId
    upto: int


class About(Protocol):
    """A body: what one group says to another about one message."""

    @property
    def id(self) -> MessageId: ...


Body = TypeVar("Body", bound=About)


class Frame(Wire, Generic[Body], frozen=True):
    """A run of a stream's bodies, from number `first` on. Each automaton has a subclass, with a tag of its own."""

    source: GroupId
    first: int
    bodies: tuple[Body, ...]

    def about(self) -> tuple[MessageId, ...]:
        return tuple([body.id for body in self.bodies])


class FromGroup(msgspec.Struct, Generic[Body], frozen=True, array_like=True, gc=False, tag="from-group"):
    """A log entry: body number `seq` of another group's stream."""

    source: GroupId
    seq: int
    body: Body


class AutomatonTypes:
    """The wire, log and snapshot types of one automaton."""

    def __init__(self, frame: type[Frame[Any]], body: Any, state: Any) -> None:
        self.frame = frame
        self.entries: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Submit | FromGroup[body]])
        self.bodies: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(body)
        self.state: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(state)


class OutStream:
    """What this group sends to another one, from the first body that is not acknowledged on."""

    __slots__ = ("bodies", "first", "marked", "unsent")

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.bodies: deque[Any] = deque()
        self.unsent = 0  # bodies at the end that were never sent
        self.marked = -1  # `first` at the last tick: if it is the same at the next one, something was lost

    def acknowledge(self, upto: int) -> None:
        while self.first < upto and self.bodies:
            self.bodies.popleft()
            self.first += 1


class InStream:
    """How much of another group's stream this group's log holds, and what its leader has received beyond that."""

    __slots__ = ("acknowledged", "ahead", "applied", "proposed")

    def __init__(self, applied: int = 0) -> None:
        self.applied = applied
        self.proposed = applied  # volatile: what this leader has proposed
        self.ahead: dict[int, Any] = {}  # volatile: bodies 7 and 8 arrived, 6 has not
        self.acknowledged = -1


class AdapterState(msgspec.Struct, array_like=True):
    automaton: msgspec.Raw
    deliveries: DeliveriesState
    outgoing: dict[GroupId, tuple[int, list[msgspec.Raw]]]
    incoming: dict[GroupId, int]


_state_decoder = msgspec.msgpack.Decoder(AdapterState)


class ReplicatedAutomaton(Replica):
    def __init__(
        self,
        process: ProcessId,
        topology: Topology,
        config: ReplicaConfig,
        log: Log,
        automaton: GroupAutomaton,
        types: AutomatonTypes,
    ) -> None:
        super().__init__(process, topology, config, log, types.entries)
        self._config = config
        self._automaton = automaton
        self._types = types
        self._outgoing: dict[GroupId, OutStream] = {}
        self._incoming: dict[GroupId, InStream] = {}
        self._submitted: set[MessageId] = set()  # volatile: what this leader has proposed

    # -- inputs

    def on_boot(self, out: Outbox) -> None:
        out.set_timer(_RESEND, self._config.resend_us)
        super().on_boot(out)

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        out.announce(message)
        for group in self._topology.groups:
            if self._automaton.is_ingress(message, group):
                out.send(self._leader(group), Start((message,)))

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key != _RESEND:
            super().on_timer(key, out)
            return
        out.set_timer(_RESEND, self._config.resend_us)
        if self._log.is_leader:
            self._acknowledge(out)
            for group, stream in self._outgoing.items():
                if stream.bodies and stream.marked == stream.first:
                    self._resend(group, stream, out)
                stream.marked = stream.first

    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, self._types.frame):
            self._on_frame(sender, message, out)
        elif isinstance(message, Start):
            for app_message in message.messages:
                self._on_start(sender, app_message, out)
            self._send_replies(out)
        elif isinstance(message, StreamAck) and self._topology.group_of(sender) == message.group:
            self._leader_of[message.group] = sender
            if message.group in self._outgoing:
                self._outgoing[message.group].acknowledge(message.upto)

    def _on_start(self, sender: ProcessId, message: AppMessage, out: Outbox) -> None:
        if self._automaton.is_known(message.id):
            if self._group not in message.dst:
                self._pass_on(message)
            elif not self._automaton.is_pending(message.id):
                self._reply(message.sender, message.id, (self._group,))
        elif not self._automaton.is_ingress(message, self._group):
            return
        elif not self._log.is_leader:
            self._forward(sender, message)
        elif message.id not in self._submitted:
            self._submitted.add(message.id)
            self._log.propose(Submit(message), out)

    def _on_frame(self, sender: ProcessId, frame: Frame[Any], out: Outbox) -> None:
        if self._topology.group_of(sender) != frame.source:
            return
        self._leader_of[frame.source] = sender
        if not self._log.is_leader:
            return
        stream = self._in_stream(frame.source)
        stream.proposed = max(stream.proposed, stream.applied)  # an earlier leader's proposals were decided
        for seq, body in enumerate(frame.bodies, frame.first):
            if seq < stream.proposed:
                stream.acknowledged = -1  # the sender missed the acknowledgement: send it again
            elif seq < stream.proposed + self._config.ahead_max:
                stream.ahead[seq] = body
        while (body := stream.ahead.pop(stream.proposed, None)) is not None:
            self._log.propose(FromGroup(frame.source, stream.proposed, body), out)
            stream.proposed += 1

    def _in_stream(self, source: GroupId) -> InStream:
        stream = self._incoming.get(source)
        if stream is None:
            stream = self._incoming[source] = InStream()
        return stream

    # -- decided entries

    def _apply(self, entry: Any, out: Outbox) -> None:
        effects = GroupOutbox()
        if isinstance(entry, Submit):
            self._submitted.discard(entry.message.id)
            self._submit(entry.message, effects)
        else:
            stream = self._in_stream(entry.source)
            if entry.seq != stream.applied:
                return  # proposed by two leaders, or behind a gap that an old leader left
            stream.applied += 1
            self._automaton.on_group_message(entry.source, entry.body, effects)
        self._perform(effects, out)

    def _submit(self, message: AppMessage, effects: GroupOutbox) -> None:
        self._automaton.on_submit(message, effects)
        if self._group not in message.dst:
            self._pass_on(message)
        elif not effects.deliveries and not self._automaton.is_pending(message.id):
            self._refuse(message)

    def _perform(self, effects: GroupOutbox, out: Outbox) -> None:
        for group, body in effects.sends:
            stream_out = self._outgoing.get(group)
            if stream_out is None:
                stream_out = self._outgoing[group] = OutStream()
            stream_out.bodies.append(body)
            stream_out.unsent += 1
        for message, ts in effects.deliveries:
            self._deliver(message, ts, out)

    def _pass_on(self, message: AppMessage) -> None:
        """Others deliver the message, and answer. A driver that counts what a leader has not answered hears that this
        group is done with it."""
        if self.all_answer or self._log.is_leader:
            self._reply(message.sender, message.id, ())

    def _flush(self, out: Outbox) -> None:
        for group, stream in self._outgoing.items():
            if stream.unsent and self._log.is_leader:
                start = max(0, len(stream.bodies) - stream.unsent)
                bodies = tuple(islice(stream.bodies, start, None))
                frame = self._types.frame(self._group, stream.first + start, bodies)
                out.send(self._leader(group), frame)
            stream.unsent = 0

    # -- leader

    def _on_elected(self, out: Outbox) -> None:
        self._submitted = set()
        for stream in self._incoming.values():
            stream.proposed = stream.applied
            stream.ahead = {}
        for group, stream_out in self._outgoing.items():
            if stream_out.bodies:
                self._resend(group, stream_out, out)

    def _resend(self, group: GroupId, stream: OutStream, out: Outbox, skipped: int = 0) -> None:
        """Again what is not acknowledged, without the first ones that are to be skipped."""
        bodies: list[Any] = []
        size = 0
        for body in islice(stream.bodies, skipped, skipped + self._config.resend_max):
            bodies.append(body)
            size += len(encode(body))
            if size >= self._config.resend_bytes:
                break
        first = stream.first + skipped
        out.send_all(self._topology.members(group), self._types.frame(self._group, first, tuple(bodies)))

    def _acknowledge(self, out: Outbox) -> None:
        for source, stream in self._incoming.items():
            if stream.acknowledged != stream.applied:
                stream.acknowledged = stream.applied
                out.send_all(self._topology.members(source), StreamAck(self._group, stream.applied))

    # -- state

    def _dump(self) -> bytes:
        outgoing = {
            group: (stream.first, [msgspec.Raw(encode(body)) for body in stream.bodies])
            for group, stream in self._outgoing.items()
        }
        incoming = {source: stream.applied for source, stream in self._incoming.items()}
        automaton = msgspec.Raw(encode(self._automaton.dump()))
        return encode(AdapterState(automaton, self._deliveries.dump(), outgoing, incoming))

    def _load(self, state: bytes, out: Outbox) -> None:
        loaded = _state_decoder.decode(state)
        self._automaton.load(self._types.state.decode(loaded.automaton))
        self._deliveries.load(loaded.deliveries, out)
        self._outgoing = {}
        for group, (first, bodies) in loaded.outgoing.items():
            stream = self._outgoing[group] = OutStream(first)
            stream.bodies.extend(self._types.bodies.decode(body) for body in bodies)
        self._incoming = {source: InStream(applied) for source, applied in loaded.incoming.items()}
        self._submitted = set()


def replicate(
    frame: type[Frame[Any]], body: Any, state: Any, make: Callable[[GroupId, Topology, Any], GroupAutomaton]
) -> Callable[[ProcessId, Topology, Any, Random], ReplicatedAutomaton]:
    """The `build` of a protocol that is an automaton: `make(group, topology, config)`, replicated over any log."""
    types = AutomatonTypes(frame, body, state)

    def build(process: ProcessId, topology: Topology, config: ReplicaConfig, rng: Random) -> ReplicatedAutomaton:
        group = topology.group_of(process)
        assert group is not None
        log = make_log(group, process, topology, config, rng)
        return ReplicatedAutomaton(process, topology, config, log, make(group, topology, config), types)

    return build
