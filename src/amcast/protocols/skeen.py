"""Skeen's algorithm, and BaseCast, which is Skeen with every group replicated.

Guarantees: uniform integrity, validity, agreement, prefix and acyclic order; genuine. Skeen with one process a group
survives restarts; BaseCast survives f crashes in each group of 2f+1.

    client      g1              g2              Skeen: one process a group, 1 delay to one group, 2 to several
      |--START-->|-------------->|
      |          |--SEND-HARD--->|              each group stamps the message with its clock, tells the others,
      |          |<--SEND-HARD---|              and takes the maximum as the final timestamp

    client    g1 (leader, others)        g2     BaseCast: 3 delays to one group, 6 to several
      |--START-->|                         |
      |          |--2a-->2b--> SET-HARD    |    consensus in the group decides the stamp (3 delays so far)
      |          |--SEND-HARD------------->|    4
      |          |--2a-->2b--> SYNC-HARD   |    5, 6: the other groups' stamps are ordered too; deliver

From: Skeen, as told by Birman and Joseph (1987), and Coelho, Schiper and Pedone's Algorithm 1 (BaseCast).

Where this departs from the paper:
- A timestamp is (clock, group), so final timestamps never tie. Comparing clocks alone, as Task 5 does, leaves two
  messages with equal timestamps waiting for each other for ever.
- A group's own stamp needs no second consensus: it was decided when the clock gave it.
- A stamp travels without its message. A group that is told a stamp of a message it never saw (the sender crashed on
  the way) asks for it with NEED.
"""

from __future__ import annotations

import msgspec

from ..core import (
    AppMessage,
    GroupId,
    MessageId,
    PendingSet,
    ProcessId,
    SeenMessages,
    SeenOfSender,
    Timestamp,
    clock_of,
    timestamp,
)
from ._adapter import Frame, StreamAck, replicate
from ._automaton import GroupAutomaton, GroupOutbox
from ._spec import ORDER, SAMPLE, ProtocolSpec


class SendHard(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="hard"):
    """The timestamp that the sending group gave this message."""

    id: MessageId
    ts: Timestamp


class Need(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="need"):
    """The sending group knows a stamp of this message, and not the message."""

    id: MessageId


class Relay(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="relay"):
    """The message that was needed."""

    message: AppMessage

    @property
    def id(self) -> MessageId:
        return self.message.id


SkeenBody = SendHard | Need | Relay


class SkeenFrame(Frame[SkeenBody], frozen=True, tag="SEND-HARD"):
    """In the log its bodies are SYNC-HARD, in the paper's words."""


class SkeenState(msgspec.Struct, array_like=True):
    clock: int
    seen: dict[ProcessId, SeenOfSender]
    pending: list[tuple[MessageId, Timestamp, bool]]
    messages: list[AppMessage]
    stamps: dict[MessageId, dict[GroupId, Timestamp]]


class SkeenAutomaton(GroupAutomaton):
    def __init__(self, group: GroupId) -> None:
        self._group = group
        self._clock = 0
        self._seen = SeenMessages()
        self._pending = PendingSet()
        self._messages: dict[MessageId, AppMessage] = {}  # pending ones
        # Stamps of pending messages, and of messages that this group has not seen yet.
        self._stamps: dict[MessageId, dict[GroupId, Timestamp]] = {}

    def is_known(self, message: MessageId) -> bool:
        return self._seen.is_known(message)

    def is_pending(self, message: MessageId) -> bool:
        return message in self._messages

    def on_submit(self, message: AppMessage, out: GroupOutbox) -> None:
        """SET-HARD (lines 19-25): stamps the message with this group's clock."""
        if self._seen.is_known(message.id):
            return
        self._clock += 1
        own = timestamp(self._clock, self._group)
        self._seen.admit(message, own)
        self._messages[message.id] = message
        self._pending.add(message.id, own)
        self._stamps.setdefault(message.id, {})[self._group] = own
        for group in message.dst:
            if group != self._group:
                out.send(group, SendHard(message.id, own))
        self._settle(message.id, out)

    def on_group_message(self, source: GroupId, body: SkeenBody, out: GroupOutbox) -> None:
        match body:
            case SendHard():
                self._on_hard(source, body, out)
            case Need():
                # This group can't have delivered it: delivery waits for the stamp of the group that asks.
                if (message := self._messages.get(body.id)) is not None:
                    out.send(source, Relay(message))
            case Relay():
                self.on_submit(body.message, out)

    def _on_hard(self, source: GroupId, body: SendHard, out: GroupOutbox) -> None:
        """SYNC-HARD (lines 26-29): the clock passes every stamp, so that later messages are ordered after it."""
        self._clock = max(self._clock, clock_of(body.ts))
        if body.id not in self._messages:
            if self._seen.is_known(body.id):
                return
            if body.id not in self._stamps:
                out.send(source, Need(body.id))
        self._stamps.setdefault(body.id, {})[source] = body.ts
        if body.id in self._messages:
            self._settle(body.id, out)

    def _settle(self, id_: MessageId, out: GroupOutbox) -> None:
        """Task 5: with the stamps of all destinations, the maximum is final."""
        stamps = self._stamps[id_]
        if len(stamps) == len(self._messages[id_].dst):
            final = max(stamps.values())
            assert clock_of(final) <= self._clock, "the clock has passed every stamp it was told"
            self._pending.finalize(id_, final)
            self._deliver_ready(out)

    def _deliver_ready(self, out: GroupOutbox) -> None:
        while (ready := self._pending.pop_deliverable()) is not None:
            id_, final = ready
            del self._stamps[id_]
            out.deliver(self._messages.pop(id_), final)

    def dump(self) -> SkeenState:
        messages = list(self._messages.values())
        return SkeenState(self._clock, self._seen.dump(), self._pending.dump(), messages, self._stamps)

    def load(self, state: SkeenState) -> None:
        self._clock = state.clock
        self._seen.load(state.seen)
        self._pending.load(state.pending)
        self._messages = {message.id: message for message in state.messages}
        self._stamps = state.stamps


SPEC = ProtocolSpec(
    name="skeen",
    title="Skeen",
    paper="Birman and Joseph 1987",
    survives="restarts (one process a group)",
    replicas=1,
    claims=(*ORDER, "genuine"),
    delays={"local": 1, "global": 2},
    build=replicate(SkeenFrame, SkeenBody, SkeenState, lambda group, topology, config: SkeenAutomaton(group)),
    messages=SkeenFrame | StreamAck,
    samples=(SkeenFrame(1, 0, (SendHard(SAMPLE.id, 5), Need(SAMPLE.id), Relay(SAMPLE))),),
    fuzz_replicas=(1, 3, 5),
)
