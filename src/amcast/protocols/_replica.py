"""What all members of replicated groups have in common: a log below, deliveries above, state that can be handed over.

A protocol says what to do with a decided entry (`_apply`); this class feeds it the log's decisions, numbers deliveries,
answers clients, takes snapshots, and brings a replica up to date that was away too long. Restart is an ordinary path:
decisions since the last snapshot come again, and with them the same deliveries at the same positions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

import msgspec

from ..consensus import (
    Decided,
    Decision,
    Elected,
    Log,
    LogWire,
    MultiPaxos,
    PaxosConfig,
    Proposed,
    SnapshotDue,
    Solo,
    StateReceived,
    StateWanted,
)
from ..core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    Process,
    ProcessId,
    Record,
    TimerKey,
    Timestamp,
    Topology,
    UsageError,
    Wire,
)
from ..core.batch import count_messages
from ..core.ids import SEQ_BITS
from ._messages import Reply, Start
from ._owed import OwedMessage


class ReplicaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paxos: PaxosConfig = PaxosConfig()  # of the log inside each group
    resend_us: int = 50_000  # how long a group waits for another one to answer before it sends again
    history_max: int = 4_096  # deliveries kept for replicas that were away
    history_bytes: int = 4 << 20  # fewer are kept if their payloads are larger than this together
    resend_max: int = 512  # what one group tells another, in one frame that is sent again
    resend_bytes: int = 4 << 20  # less, if it reaches so many bytes
    ahead_max: int = 4_096  # what is kept of another group's that arrived before its turn
    data_independent: ClassVar[frozenset[str]] = frozenset()  # options of a protocol that may change while data stays


class DeliveriesState(msgspec.Struct, array_like=True):
    counts: dict[GroupId, int]
    latest: list[tuple[AppMessage, Timestamp | None]]


class Deliveries:
    """Numbers deliveries and keeps the latest, so that a replica that was away can still deliver them itself.

    A batch takes as many positions as it has messages.
    """

    def __init__(self, group: GroupId, config: ReplicaConfig) -> None:
        self._group = group
        self._counts: dict[GroupId, int] = {}
        self._latest: deque[tuple[AppMessage, Timestamp | None]] = deque()
        self._config = config
        self._latest_count = 0  # of messages, in batches or not
        self._latest_bytes = 0

    def add(self, message: AppMessage, ts: Timestamp | None, groups: Sequence[GroupId], out: Outbox) -> None:
        """Counts a delivery in these groups, and delivers the message if this process's group is one of them."""
        for group in groups:
            position = self._counts.get(group, 0)
            self._counts[group] = position + message.count
            if group == self._group:
                out.deliver(position, message, ts)
        self._latest.append((message, ts))
        self._forget(message.count, len(message.payload))

    def add_own(self, message: AppMessage, ts: Timestamp | None, out: Outbox) -> None:
        """The same, for this process's group alone."""
        position = self._counts.get(self._group, 0)
        self._counts[self._group] = position + message.count
        self._latest.append((message, ts))
        self._forget(message.count, len(message.payload))
        out.deliver(position, message, ts)

    def add_own_batch(self, batch: list[tuple[AppMessage, Timestamp]], out: Outbox) -> None:
        count = size = 0
        for message, _ in batch:
            count += message.count
            size += len(message.payload)
        position = self._counts.get(self._group, 0)
        self._counts[self._group] = position + count
        self._latest.extend(batch)
        self._forget(count, size)
        out.deliver_all(position, batch)

    def _forget(self, count: int, size: int) -> None:
        """Counts what was added, and drops the oldest deliveries while a limit is exceeded."""
        config = self._config
        count += self._latest_count
        size += self._latest_bytes
        while count > config.history_max or size > config.history_bytes:
            message, _ = self._latest.popleft()
            count -= message.count
            size -= len(message.payload)
        self._latest_count, self._latest_bytes = count, size

    def count(self, group: GroupId) -> int:
        """How many messages were delivered in a group: the position of its next one."""
        return self._counts.get(group, 0)

    def dump(self) -> DeliveriesState:
        return DeliveriesState(self._counts, list(self._latest))

    def load(self, state: DeliveriesState, out: Outbox, owed: Sequence[OwedMessage] = ()) -> None:
        """Takes over another replica's deliveries, and delivers those that this process has not delivered yet.

        `owed` are deliveries of this process's group up to its last one; some may be older than the latest.
        """
        behind = self._counts.get(self._group, 0)
        mine = [(message, ts) for message, ts in state.latest if self._group in message.dst]
        position = state.counts.get(self._group, 0) - sum(message.count for message, _ in mine)
        older = [each for each in owed if each.position < position]
        first = older[0].position if older else position
        if behind < first:
            out.restored(first)
        for each in older:
            if each.position >= behind:
                out.deliver(each.position, each.message, each.ts)
        for message, ts in mine:
            if position >= behind:
                out.deliver(position, message, ts)
            position += message.count
        self._counts = dict(state.counts)
        self._latest = deque(state.latest)
        self._latest_count = self._latest_bytes = 0
        messages = [message for message, _ in state.latest]
        self._forget(count_messages(messages), sum(len(message.payload) for message in messages))


def make_log(group: GroupId, process: ProcessId, topology: Topology, config: ReplicaConfig, rng: Random) -> Log:
    if len(topology.members(group)) == 1:
        return Solo(group, process, config.paxos)
    return MultiPaxos(group, process, topology, config.paxos, rng)


def _known(*numbers: int | None) -> tuple[int, ...]:
    return tuple(number for number in numbers if number is not None)


class Replica(Process):
    all_answer = False  # whether all members answer clients, not the leader alone: clients believe f+1 of them

    def __init__(
        self,
        process: ProcessId,
        topology: Topology,
        config: ReplicaConfig,
        log: Log,
        entries: msgspec.msgpack.Decoder[list[Any]],
    ) -> None:
        group = topology.group_of(process)
        if group is None:
            raise UsageError(f"process {process} is in no group: only members of groups run a protocol")
        self._process = process
        self._group: GroupId = group
        self._own_groups = (group,)
        self._topology = topology
        self._log = log
        self._entries = entries
        self._deliveries = Deliveries(group, config)
        self._forwarding: list[AppMessage] = []
        self._replies: dict[tuple[ProcessId, tuple[GroupId, ...]], list[MessageId]] = {}
        self._read_done = -1  # the latest read whose log is handed up
        self._is_reading = False
        self._latest_read = -1
        self._leader_of: dict[GroupId, ProcessId] = {}  # other groups' leaders, as far as this process knows

    # -- inputs

    @property
    def is_leader(self) -> bool:
        return self._log.is_leader

    @property
    def leader(self) -> ProcessId | None:
        return self._log.leader

    @property
    def is_silent(self) -> bool:
        return self._log.is_silent

    def recover(self, records: Sequence[Record]) -> None:
        self._log.recover(records)

    def on_boot(self, out: Outbox) -> None:
        self._act_on(self._log.on_boot(out), out)

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        """A member may multicast as well: it hands its message to the leaders as a client does."""
        out.announce(message)
        for group in message.dst:
            out.send(self._leader(group), Start((message,)))

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, LogWire):
            log = self._log
            if message.group == log.group and (decisions := log.on_message(sender, message, out)):
                self._act_on(decisions, out)
        else:
            self._on_peer_message(sender, message, out)
        if self._is_reading:
            self._serve_reads(out)

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        self._act_on(self._log.on_timer(key, out), out)
        if self._is_reading:
            self._serve_reads(out)

    # -- reads

    @property
    def delivered(self) -> int:
        return self._deliveries.count(self._group)

    @property
    def freshness(self) -> tuple[int, ...]:
        return _known(self._log.freshness)

    def on_read(self, read: int, out: Outbox) -> None:
        self._latest_read = read
        self._is_reading = True
        self._begin_read(read, out)
        self._serve_reads(out)

    def _begin_read(self, read: int, out: Outbox) -> None:
        self._log.begin_read(read, out)

    def _serve_reads(self, out: Outbox) -> None:
        """Tells the driver of reads that are done, and remembers whether some are not."""
        done = self._reads_done(out)
        if done > self._read_done:
            self._read_done = done
            out.readable(done, self.delivered)
        self._is_reading = done < self._latest_read

    def _reads_done(self, out: Outbox) -> int:
        """The latest read for which this process has delivered whatever any member of the group had when it began.

        Where deliveries follow from the log alone, that is so when the log is handed up as far as the read asks:
        whoever delivered more than this process was handed more of the log. A protocol whose deliveries depend on more
        than this log waits for more.
        """
        return self._log.reads_done(out)

    # -- what a protocol provides

    @abstractmethod
    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None: ...

    @abstractmethod
    def _apply(self, entry: Any, out: Outbox) -> None:
        """A decided entry: every replica of the group gets the same ones in the same order."""

    def _apply_all(self, entries: list[Any], out: Outbox) -> None:
        """The entries of one instance."""
        for entry in entries:
            self._apply(entry, out)

    @abstractmethod
    def _on_elected(self, out: Outbox) -> None:
        """This process leads now: it sends again what the leader before it may not have sent."""

    def _flush(self, out: Outbox) -> None:
        """After a round of decisions: sends what they left to send, one message for each receiver."""

    @abstractmethod
    def _dump(self) -> bytes: ...

    @abstractmethod
    def _load(self, state: bytes, out: Outbox) -> None: ...

    # -- decisions

    def _act_on(self, decisions: list[Decision], out: Outbox) -> None:
        if not decisions:
            return
        for decision in decisions:
            self._act_on_one(decision, out)
        self._flush(out)
        self._send_replies(out)
        if isinstance(decisions[-1], SnapshotDue):
            self._compact(out)

    def _compact(self, out: Outbox) -> None:
        self._log.compact(self._dump(), out)

    def _act_on_one(self, decision: Decision, out: Outbox) -> None:
        match decision:
            case Decided():
                self._apply_all(self._entries.decode(decision.value), out)
            case Elected():
                self._on_elected(out)
            case StateReceived():
                self._load(decision.state, out)
            case StateWanted():
                self._log.send_state(decision.peer, self._dump(), out)
            case SnapshotDue():
                pass  # `_act_on` does it when the whole round is applied
            case Proposed():
                raise AssertionError("this replica believes its leader, and its log asks for no approval")

    def _deliver(self, message: AppMessage, ts: Timestamp | None, out: Outbox) -> None:
        self._deliveries.add_own(message, ts, out)
        if self.all_answer or self._log.is_leader:
            id_ = message.id
            self._reply(id_ >> SEQ_BITS, id_, self._own_groups)

    def _deliver_all(self, batch: list[tuple[AppMessage, Timestamp]], out: Outbox) -> None:
        self._deliveries.add_own_batch(batch, out)
        if self.all_answer or self._log.is_leader:
            for message, _ in batch:
                id_ = message.id
                self._reply(id_ >> SEQ_BITS, id_, self._own_groups)

    def _reply(self, client: ProcessId, id_: MessageId, groups: tuple[GroupId, ...]) -> None:
        key = (client, groups)
        ids = self._replies.get(key)
        if ids is None:
            self._replies[key] = [id_]
        else:
            ids.append(id_)

    def _refuse(self, message: AppMessage) -> None:
        """The log has a message that the group does not order: it is known, or its sender lies. A driver that counts
        what a leader has not answered hears that nothing more comes of it."""
        if self.all_answer or self._log.is_leader:
            self._reply(message.sender, message.id, ())

    def _send_replies(self, out: Outbox) -> None:
        self._send_forwarded(out)
        if self._replies:
            leader = self._log.leader if self.all_answer else None
            for (client, groups), ids in self._replies.items():
                out.send(client, Reply(groups, tuple(ids), leader))
            self._replies = {}

    def _forward(self, sender: ProcessId, message: AppMessage) -> None:
        """A client sent to a member that does not lead: hand its message to the leader, sooner than its retry would."""
        leader = self._log.leader
        if leader is not None and leader != self._process and self._topology.group_of(sender) is None:
            self._forwarding.append(message)

    def _send_forwarded(self, out: Outbox) -> None:
        if self._forwarding:
            forwarding, self._forwarding = self._forwarding, []
            assert self._log.leader is not None, "a message is forwarded to a leader that is known"
            out.send(self._log.leader, Start(tuple(forwarding)))

    def _leader(self, group: GroupId) -> ProcessId:
        """Who leads a group, as far as this process knows. Whoever answers for the group corrects a wrong guess."""
        if group == self._group and self._log.leader is not None:
            return self._log.leader
        return self._leader_of.get(group, self._topology.members(group)[0])
