"""A sequencer with delay compensation: optimistic order that holds in wide-area networks too.

Guarantees for final deliveries: uniform integrity, validity, agreement, prefix and acyclic order. No process delivers a
message optimistically after its final delivery. The sequencer is the leader of the first group: it survives f crashes
in that group of 2f+1. Not genuine: one group orders everything, and all processes learn the whole order. 1 delay
optimistic; final 2 with one process a group, 3 with more (a majority decides on a sequence number before anyone acts).

    sender     destinations          sequencer            all processes
      |--DATA------>|                     |                     |     1   delivered optimistically, when it is due
      |--DATA---------------------------->|                     |     1
      |                                   |--SEQ (2a, 2b)------>|     2   deliver

The final order is that in which messages came to the sequencer. Where they come in another order, a process holds up
the messages of senders that are relatively too close, by what the intervals between sequence numbers tell it. The
sequencer holds up its own messages, by the largest delay that others ask for: otherwise every other process would have
to hold up everything else until the sequence numbers are there.

From: Sousa, Pereira, Moura, Oliveira, "Optimistic Total Order in Wide Area Networks" (2002), Figure 4. Without
`compensates` it is the plain sequencer of the paper's section 2.

Where this departs from the paper:
- The sequencer's counter is a replicated log, so that nothing depends on a membership service. SEQ carries the message
  itself: a process that missed DATA delivers all the same.
- A new sequencer forgets what was asked of the old one, and holds up nobody else's messages: a requested delay that is
  never cleared would outlive a process that has fallen silent.
- Two messages of one sender tell nothing about relative distances: delays are not adjusted by them.
- A message whose DATA did not arrive is passed over when intervals are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any

from ..core import AppMessage, GroupId, MessageId, Outbox, ProcessId, TimerKey, Topology, Wire
from ._client import Ingress
from ._in_flight import InFlight
from ._messages import IngressMessage
from ._spec import ORDER, SAMPLE, ProtocolSpec
from .multipaxos import Held, OrderingConfig, OrderingGroup, _fuzz_options, ordering_group

_DUE = "sequencer.due"


class SequencerConfig(OrderingConfig, frozen=True, forbid_unknown_fields=True):
    compensates: bool = True  # false: the plain sequencer
    inertia: float = 0.95  # the paper's alpha: how little one observation changes a delay


class Data(IngressMessage, frozen=True, tag="DATA"):
    """`requested_us` is how long its sender would have the sequencer hold up its own messages."""

    message: AppMessage
    requested_us: int

    def about(self) -> tuple[MessageId, ...]:
        return (self.message.id,)

    def handed_over(self) -> tuple[AppMessage, ...]:
        return (self.message,)

    def problem_with_fields(self, client: ProcessId, topology: Topology) -> str | None:
        return None if self.requested_us == 0 else "a client delivers nothing, and so asks for no delay"


def receivers(message: AppMessage, topology: Topology) -> list[ProcessId]:
    """The ordering group first: its leader is the sequencer."""
    groups = dict.fromkeys((topology.groups[0], *message.dst))
    return [process for group in groups for process in topology.members(group)]


class DataIngress(Ingress):
    """A client delivers nothing, and so asks for no delay."""

    def __init__(self, process: ProcessId, topology: Topology, config: SequencerConfig) -> None:
        self._topology = topology

    def send(self, message: AppMessage, out: Outbox) -> Data:
        data = Data(message, 0)
        out.send_all(receivers(message, self._topology), data)
        return data

    def send_again(self, sent: Data, silent: Sequence[GroupId], out: Outbox) -> None:
        out.send_all(self._topology.members(self._topology.groups[0]), sent)


class Compensation:
    """How long this process holds up each sender's messages before it delivers them optimistically."""

    def __init__(self, inertia: float) -> None:
        self._inertia = inertia
        self._delay: dict[ProcessId, float] = {}

    def of(self, sender: ProcessId) -> int:
        return round(self._delay.get(sender, 0.0))

    def requested(self, sequencer: ProcessId) -> int:
        """Line 10: by how much the sequencer should hold up its own messages, so that this process need not hold up all
        others."""
        return max(0, round(max(self._delay.values(), default=0.0) - self._delay.get(sequencer, 0.0)))

    def set(self, sender: ProcessId, delay_us: int) -> None:
        self._delay[sender] = float(delay_us)

    def adjust(self, closer: ProcessId, further: ProcessId, by_us: int) -> None:
        """Lines 33 to 39: brings one sender closer, or where that can't be, the other one further away."""
        value = self._delay.get(closer, 0.0) - by_us * (1 - self._inertia)
        if value > 0:
            self._delay[closer] = value
        else:
            self._delay[closer] = 0.0
            self._delay[further] = self._delay.get(further, 0.0) - value


class Sequencer(OrderingGroup):
    def __init__(self, process: ProcessId, topology: Topology, config: SequencerConfig, rng: Random) -> None:
        super().__init__(process, topology, config, rng)
        self._config = config
        self._compensation = Compensation(config.inertia)
        self._received: InFlight[tuple[Data, int]] = InFlight()  # with the time of optimistic delivery; not final yet
        self._held: list[tuple[int, int, Data]] = []  # by that time
        self._held_count = 0
        self._opt_position = 0
        self._last_ordered: tuple[ProcessId, int, int] | None = None  # sender, when its SEQ came, when it was due
        self._requested: dict[ProcessId, int] = {}  # of a sequencer: the delays that others ask for

    # -- inputs

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        out.announce(message)
        sequencer = self._log.leader
        asks = self._config.compensates and sequencer is not None and sequencer != self._process
        requested = self._compensation.requested(sequencer) if asks and sequencer is not None else 0
        out.send_all(receivers(message, self._topology), Data(message, requested))

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _DUE:
            self._release(out)
            self._send_replies(out)
        else:
            super().on_timer(key, out)

    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Data):
            self._on_data(message, out)
            self._send_replies(out)
        else:
            super()._on_peer_message(sender, message, out)

    def _on_data(self, data: Data, out: Outbox) -> None:
        """Line 12."""
        message = data.message
        if self._seen.is_known(message.id):
            if self._log.is_leader:
                self._on_known(message)
        elif message.id not in self._received:
            due = out.now_us + self._compensation.of(message.sender)
            if self._received.add(message, (data, due)):
                self._held_count += 1
                heappush(self._held, (due, self._held_count, data))
                self._release(out)
        elif self._log.is_leader and self._received[message.id][1] <= out.now_us:
            self._propose(message, out)  # it found no room before, or it is on its way into the log

    # -- optimistic delivery, and the sequencer's order

    def _release(self, out: Outbox) -> None:
        now = out.now_us
        while self._held and self._held[0][0] <= now:
            data = heappop(self._held)[2]
            if data.message.id in self._received:
                self._on_due(data, out)
        if self._held:
            out.set_timer(_DUE, self._held[0][0] - now)

    def _on_due(self, data: Data, out: Outbox) -> None:
        """Lines 13 to 20."""
        if self._group in data.message.dst:
            out.opt_deliver(self._opt_position, data.message)
            self._opt_position += 1
        if self._log.is_leader:
            self._order(data, out)

    def _order(self, data: Data, out: Outbox) -> None:
        message = data.message
        self._propose(message, out)
        if self._config.compensates and self._topology.group_of(message.sender) is not None:
            self._requested[message.sender] = data.requested_us
            self._compensation.set(self._process, max(self._requested.values()))

    # -- final delivery

    def _apply(self, entry: Any, out: Outbox) -> None:
        id_ = entry.message.id
        received = self._received.pop(id_)
        super()._apply(entry, out)
        if received is not None and self._config.compensates and not self._log.is_leader:
            self._learn(entry.message.sender, out.now_us, received[1])

    def _learn(self, sender: ProcessId, now: int, due: int) -> None:
        """Lines 25 to 31."""
        last, self._last_ordered = self._last_ordered, (sender, now, due)
        if last is None or last[0] == sender:
            return
        delta = (now - last[1]) - (due - last[2])
        if delta > 0:
            self._compensation.adjust(last[0], sender, delta)
        else:
            self._compensation.adjust(sender, last[0], -delta)

    def _on_elected(self, out: Outbox) -> None:
        super()._on_elected(out)
        self._requested = {}
        self._compensation = Compensation(self._config.inertia)
        for data, _ in self._received.values():
            self._propose(data.message, out)

    def _on_room(self, out: Outbox) -> None:
        for data, due in self._received.values():
            if due <= out.now_us:
                self._propose(data.message, out)

    def _load(self, state: bytes, out: Outbox) -> None:
        super()._load(state, out)
        self._last_ordered = None
        known = self._seen.is_known
        self._received.drop(lambda id_, _: known(id_))


SPEC = ProtocolSpec(
    name="sequencer",
    title="Sequencer with delay compensation",
    paper="Sousa, Pereira, Moura, Oliveira 2002, Figure 4",
    survives="f crashes of 2f+1 in the ordering group",
    replicas=1,
    claims=(*ORDER, "local-order"),
    delays={"optimistic": 1, "local": 2, "global": 2},
    build=Sequencer,
    config=SequencerConfig,
    messages=Data | Held,
    samples=(Data(SAMPLE, 5), Held(5)),
    fuzz_options=_fuzz_options,
    ingress_groups=ordering_group,
    ingress=DataIngress,
    ingress_messages=Data,
)
