"""The chain: genuine atomic multicast without timestamps, one message at a time in each group.

Guarantees: uniform integrity, validity, agreement, prefix and acyclic order; genuine. Survives f crashes in each group
of 2f+1, and restarts with one process a group. With one process a group, 1 delay to the first destination, and 1 more
to each further one.

    client       g1          g2          g3        m to {g1, g2, g3}
      |--START--->|           |           |   1    g1 delivers m, and takes no other message until m is done
      |           |--PASS---->|           |   2    so does g2
      |           |           |--PASS---->|   3    g3 delivers m: it is the last, and m is done
      |           |<----------|<--DONE----|   4    g1 and g2 take their next message

A message takes its destinations one after another, lowest group first, and keeps them until it has all of them. There
is a moment at which it has all of them, and no two messages with a destination in common have the same such moment:
these moments are one total order that every group follows. Since all messages take groups in the same order, they never
wait for each other in a circle.

From: Delporte-Gallet, Fauconnier, "Fault-tolerant genuine atomic multicast to multiple groups" (2000). Replication of a
group is amcast's: the automaton below is written as if a group were one process that never fails.
"""

from __future__ import annotations

import msgspec

from amcast.core import AppMessage, GroupId, MessageId, ProcessId, SeenMessages, SeenOfSender, Topology
from amcast.protocols import (
    ORDER,
    SAMPLE,
    Frame,
    GroupAutomaton,
    GroupOutbox,
    ProtocolSpec,
    StreamAck,
    replicate,
)


class Pass(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="pass"):
    """To the next destination: it is your turn."""

    message: AppMessage

    @property
    def id(self) -> MessageId:
        return self.message.id


class Done(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="done"):
    """From the last destination to the others: all have it, go on."""

    id: MessageId


Body = Pass | Done


class ChainFrame(Frame[Body], frozen=True, tag="PASS"):
    pass


class ChainState(msgspec.Struct, array_like=True):
    seen: dict[ProcessId, SeenOfSender]
    waiting: list[AppMessage]
    current: MessageId | None


class ChainAutomaton(GroupAutomaton):
    def __init__(self, group: GroupId) -> None:
        self._group = group
        self._seen = SeenMessages()
        self._waiting: dict[MessageId, AppMessage] = {}  # in the order in which they came
        self._current: MessageId | None = None  # delivered here, and not everywhere yet

    def is_ingress(self, message: AppMessage, group: GroupId) -> bool:
        return group == message.dst[0]

    def is_known(self, message: MessageId) -> bool:
        return self._seen.is_known(message)

    def is_pending(self, message: MessageId) -> bool:
        return message in self._waiting

    def on_submit(self, message: AppMessage, out: GroupOutbox) -> None:
        if self._seen.admit_new(message):
            self._take(message, out)

    def on_group_message(self, source: GroupId, body: Body, out: GroupOutbox) -> None:
        if isinstance(body, Pass):
            self._seen.admit(body.message)
            self._take(body.message, out)
        else:
            assert body.id == self._current, "a group has one message at a time"
            self._current = None
            self._go_on(out)

    def _take(self, message: AppMessage, out: GroupOutbox) -> None:
        self._waiting[message.id] = message
        self._go_on(out)

    def _go_on(self, out: GroupOutbox) -> None:
        while self._waiting and self._current is None:
            message = self._waiting.pop(next(iter(self._waiting)))
            out.deliver(message, None)
            later = [group for group in message.dst if group > self._group]
            if later:
                self._current = message.id
                out.send(later[0], Pass(message))
            else:
                for group in message.dst[:-1]:
                    out.send(group, Done(message.id))

    def dump(self) -> ChainState:
        return ChainState(self._seen.dump(), list(self._waiting.values()), self._current)

    def load(self, state: ChainState) -> None:
        self._seen.load(state.seen)
        self._waiting = {message.id: message for message in state.waiting}
        self._current = state.current


def first_destination(message: AppMessage, topology: Topology) -> tuple[GroupId, ...]:
    return (message.dst[0],)


SPEC = ProtocolSpec(
    name="chain",
    title="Chain, one message at a time",
    paper="Delporte-Gallet and Fauconnier 2000",
    survives="f crashes of 2f+1 in each group; restarts with one process a group",
    replicas=1,
    claims=(*ORDER, "genuine"),
    delays={"local": 1, "global": 2},
    build=replicate(ChainFrame, Body, ChainState, lambda group, topology, config: ChainAutomaton(group)),
    messages=ChainFrame | StreamAck,
    samples=(ChainFrame(1, 0, (Pass(SAMPLE), Done(SAMPLE.id))),),
    ingress_groups=first_destination,
)
