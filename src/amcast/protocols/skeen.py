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
- **Clients are not believed.** One may give two messages the same id, or say that messages are settled which nobody has
  seen. So a stamp names its message by a digest as well, and a group that will never stamp that message, since it has
  ordered another one with this id (or, of a batch, with one of its ids) or counts the id as settled, says so with
  REJECT. The message can't become final anywhere then, and all its destinations drop it: what is delivered is the same
  message in all of them.
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
    digest,
    timestamp,
)
from ._adapter import Frame, StreamAck, replicate
from ._automaton import GroupAutomaton, GroupOutbox
from ._spec import ORDER, SAMPLE, ProtocolSpec


class SendHard(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="hard"):
    """The timestamp that the sending group gave this message."""

    id: MessageId
    ts: Timestamp
    digest: bytes


class Need(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="need"):
    """The sending group knows a stamp of this message, and not the message."""

    id: MessageId
    digest: bytes


class Reject(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="reject"):
    """The sending group did not stamp the message with this digest, and never will."""

    id: MessageId
    digest: bytes


class Relay(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="relay"):
    """The message that was needed."""

    message: AppMessage

    @property
    def id(self) -> MessageId:
        return self.message.id


SkeenBody = SendHard | Need | Relay | Reject

Stamp = tuple[Timestamp, bytes]  # with the digest of the message that was stamped
_LOCAL = b""  # for the digest of a message that no other group has to recognise


class SkeenFrame(Frame[SkeenBody], frozen=True, tag="SEND-HARD"):
    """In the log its bodies are SYNC-HARD, in the paper's words."""


class SkeenState(msgspec.Struct, array_like=True):
    clock: int
    seen: dict[ProcessId, SeenOfSender]
    pending: list[tuple[MessageId, Timestamp, bool]]
    messages: list[AppMessage]
    stamps: dict[MessageId, dict[GroupId, Stamp]]


class SkeenAutomaton(GroupAutomaton):
    def __init__(self, group: GroupId) -> None:
        self._group = group
        self._clock = 0
        self._seen = SeenMessages()
        self._pending = PendingSet()
        self._messages: dict[MessageId, AppMessage] = {}  # pending ones
        # Stamps of pending messages, and of messages that this group has not seen yet.
        self._stamps: dict[MessageId, dict[GroupId, Stamp]] = {}

    def is_known(self, message: MessageId) -> bool:
        return self._seen.is_known(message)

    def is_pending(self, message: MessageId) -> bool:
        return message in self._messages

    def on_submit(self, message: AppMessage, out: GroupOutbox) -> None:
        """SET-HARD (lines 19-25): stamps the message with this group's clock."""
        if not self._seen.admit_new(message):
            return
        self._clock += 1
        own = timestamp(self._clock, self._group)
        name = digest(message) if len(message.dst) > 1 else _LOCAL
        self._reject(message.id, name, out)
        self._messages[message.id] = message
        self._pending.add(message.id, own)
        self._stamps.setdefault(message.id, {})[self._group] = (own, name)
        for group in message.dst:
            if group != self._group:
                out.send(group, SendHard(message.id, own, name))
        self._settle(message.id, out)

    def on_group_message(self, source: GroupId, body: SkeenBody, out: GroupOutbox) -> None:
        match body:
            case SendHard():
                self._on_hard(source, body, out)
            case Need():
                # This group can't have delivered it: delivery waits for the stamp of the group that asks.
                message = self._messages.get(body.id)
                out.send(source, Reject(body.id, body.digest) if message is None else Relay(message))
            case Relay():
                self._on_relay(body.message, out)
            case Reject():
                self._on_reject(source, body, out)

    def _on_hard(self, source: GroupId, body: SendHard, out: GroupOutbox) -> None:
        """SYNC-HARD (lines 26-29): the clock passes every stamp, so that later messages are ordered after it."""
        self._clock = max(self._clock, clock_of(body.ts))
        stamps = self._stamps.get(body.id, {})
        is_here = body.id in self._messages
        if (stamps[self._group][1] != body.digest) if is_here else self._seen.is_known(body.id):
            out.send(source, Reject(body.id, body.digest))
            return
        if all(name != body.digest for _, name in stamps.values()):
            out.send(source, Need(body.id, body.digest))
        self._stamps.setdefault(body.id, stamps)[source] = (body.ts, body.digest)
        if is_here:
            self._settle(body.id, out)

    def _on_relay(self, message: AppMessage, out: GroupOutbox) -> None:
        self.on_submit(message, out)
        if message.id not in self._messages:
            # Its sender has said meanwhile that it is settled, or has used an id in it for another message.
            self._reject(message.id, _LOCAL, out)

    def _reject(self, id_: MessageId, name: bytes, out: GroupOutbox) -> None:
        """Rejects what other groups have stamped under this id, but for the message with this digest."""
        stamps = self._stamps.pop(id_, {})
        kept = {group: stamp for group, stamp in stamps.items() if stamp[1] == name}
        for group, stamp in stamps.items():
            if group not in kept:
                out.send(group, Reject(id_, stamp[1]))
        if kept:
            self._stamps[id_] = kept

    def _on_reject(self, source: GroupId, body: Reject, out: GroupOutbox) -> None:
        """A message that one of its destinations will never stamp is dropped; its id stays known."""
        stamps = self._stamps.get(body.id, {})
        if body.id in self._messages:
            if stamps[self._group][1] == body.digest:
                assert not self._pending.is_final(body.id), "a message is final with the stamps of all destinations"
                self._pending.discard(body.id)
                del self._messages[body.id], self._stamps[body.id]
                self._deliver_ready(out)
        elif source in stamps and stamps[source][1] == body.digest:  # it was needed here, and is dropped there
            del stamps[source]
            if not stamps:
                del self._stamps[body.id]

    def _settle(self, id_: MessageId, out: GroupOutbox) -> None:
        """Task 5: with the stamps of all destinations, the maximum is final."""
        stamps = self._stamps[id_]
        if len(stamps) == len(self._messages[id_].dst):
            final = max([ts for ts, _ in stamps.values()])
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
    samples=(
        SkeenFrame(1, 0, (SendHard(SAMPLE.id, 5, b"d"), Need(SAMPLE.id, b"d"), Relay(SAMPLE), Reject(SAMPLE.id, b"d"))),
    ),
    fuzz_replicas=(1, 3, 5),
)
