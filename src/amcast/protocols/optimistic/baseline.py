"""Baseline Atomic Multicast: every group orders its own messages, and destinations merge the logs by timestamp.

Guarantees: uniform integrity, validity, agreement, prefix and acyclic order, FIFO order. Quasi-genuine: for a message
to h, the groups of sendersTo(h) take steps. Survives f crashes in each group of 2f+1. 3 delays; 4 when the timestamp
that the sender's clock gave had to be changed.

    sender     source group g            destination h           another sender x to h
      |--FR-MCAST-->|                          |                          |      1
      |--BARRIER-REQUEST----------------------------------------------->|      1
      |             |--2a--------------------->|<----------------------2a-|      2   g orders the message, x a barrier
      |             |--2b--------------------->|<----------------------2b-|      3   the smallest timestamp, and all
                                                                                     barriers are above it: deliver

A message's timestamp is its sender's clock. The log of its source group raises it if the group's last one is not below;
destinations follow that log as remote learners of its votes. A barrier of x is x's promise that nothing earlier comes.

From: Bezerra, Pedone, Garbinato, Geyer, "Optimistic Atomic Multicast" (2013), Algorithm 1, sections III, V and VI.

Where this departs from the paper:
- **A destination does not wait for the source group to pass the message's own timestamp** (line 34 is strict): it would
  wait for ever for a lone message.
- **A timestamp is (time, group), and a raise changes the time alone** (line 26 adds one to the whole): no two messages
  have equal timestamps. A message whose time equals the last one is raised as well (line 25 is strict).
- Lines 29 to 31 hold for every decided message, not only for those that the group itself delivers.
- **A log takes each sender's messages in their order**, whatever instance they come in: parallel instances alone break
  FIFO order.
- **A barrier for a message is just above its timestamp, and the source group is not asked for one**, so that a
  request sent together with the message does not raise the message itself.
- Periodic null messages jump ahead to the latest time that the group has heard of: a clock that lags delays nobody.
- **A group always waits for its own barrier**, whether or not it is in its own sendersTo: so each replica knows, before
  it delivers anything later, who joined. A destination tells all its senders who the others are.
- Leaving: the log of the group that leaves says so; from there on nobody waits for it, until it is admitted anew.
- What a destination misses it asks for itself, after a while: no message waits for a request that got lost.
- A process that multicasts is a client of a source group, its home, and sends the requests itself.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from ...consensus import Decided, Decision, Learner, MultiPaxos, SnapshotDue, StateReceived, StateWanted
from ...consensus.base import LogWire
from ...core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    ProcessId,
    TimerKey,
    Timestamp,
    Topology,
    Wire,
    clock_of,
    encode,
    majority,
    sender_of,
    seq_of,
)
from ...core.timestamps import group_of
from .._replica import Replica
from .ingress import BaselineIngress, SendersConfig, barriers_needed, initial_senders
from .merge import Admission, Merger, decode_merge, decode_remote
from .messages import (
    Admit,
    Barrier,
    BarrierRequest,
    FrMcast,
    Join,
    JoinRequest,
    JoinResponse,
    Leave,
    MergedState,
    Positions,
    Received,
    SendersTo,
    Stamp,
    Time,
    decode_entries,
    project,
)
from .source import Link, Source, barrier_time

_RESEND = "oam.resend"
_NULL = "oam.null"
_STATE_TICKS = 32  # at most so many periods between two requests of a replica that is stuck


class BaselineConfig(SendersConfig, frozen=True, forbid_unknown_fields=True):
    null_us: int = 0  # period of null messages; 0: none
    leave_after_us: int = 0  # a group that sent nothing to another one for so long leaves its senders; 0: never
    changed_timestamps: bool = False  # leaders change every timestamp on purpose: every message takes a delay more


_no_entries: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Any])


class Baseline(Replica):
    def __init__(self, process: ProcessId, topology: Topology, config: BaselineConfig, rng: Random) -> None:
        group = topology.group_of(process)
        assert group is not None
        log = MultiPaxos(group, process, topology, config.paxos, rng, projection=project)
        super().__init__(process, topology, config, log, _no_entries)
        self._members_log = log
        self._config = config
        self._entry = self._new_entry()
        self._initial = {each: initial_senders(config, topology, each) for each in topology.groups}
        senders = sorted({*self._initial[group], group})
        sources = {each: self._new_source(each) for each in senders}
        self._merger = self._new_merger(sources, {each: Admission(count=1) for each in senders})
        self._learners = {each: self._new_learner(each) for each in senders if each != group}
        self._update_receivers()
        # Volatile
        self._arrived: dict[MessageId, FrMcast] = {}  # this group's messages that its log does not have yet
        self._senders_to: dict[GroupId, tuple[int, tuple[GroupId, ...]]] = {}
        self._stuck_on: MessageId | None = None  # the first stamped message, when the timer last looked
        self._stuck_ticks = 0
        # Volatile, of a leader
        self._clock: Time = 0  # of what it has proposed
        self._ready: dict[ProcessId, dict[int, FrMcast]] = {}  # may be proposed, in the order of sequence numbers
        self._next_seq: dict[ProcessId, int] = {}  # what it has not proposed yet
        self._reconfiguring: set[tuple[type, GroupId, int]] = set()  # proposed
        self._wanted: dict[GroupId, None] = {}  # groups that messages wait to be sent to
        self._used_at: dict[GroupId, Time] = {}  # when it last sent to a group

    def _new_source(self, group: GroupId) -> Source:
        links = {h: Link(1, True) for h, senders in self._initial.items() if group in senders and h != group}
        return Source(group, links)

    def _new_merger(self, sources: dict[GroupId, Source], admissions: dict[GroupId, Admission]) -> Merger:
        return Merger(self._group, sources, admissions)

    def _new_entry(self) -> BaselineIngress:
        return BaselineIngress(self._process, self._topology, self._config)

    def _new_learner(self, group: GroupId) -> Learner:
        return Learner(group, self._process, self._topology, self._config.paxos)

    @property
    def _own(self) -> Source:
        return self._merger.sources[self._group]

    # -- inputs

    def on_boot(self, out: Outbox) -> None:
        out.set_timer(_RESEND, self._config.resend_us)
        if self._config.null_us:
            out.set_timer(_NULL, self._config.null_us)
        super().on_boot(out)
        for learner in self._learners.values():
            learner.on_boot(out)

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, LogWire) and message.group != self._group:
            learner = self._learners.get(message.group)
            if learner is not None:
                self._act_on_learned(message.group, learner.on_message(sender, message, out), out)
        else:
            super().on_message(sender, message, out)

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _RESEND:
            out.set_timer(_RESEND, self._config.resend_us)
            self._resend(out)
        elif key == _NULL:
            out.set_timer(_NULL, self._config.null_us)
            self._propose_barrier(self._null_time(out), out)
        else:
            for learner in self._learners.values():
                learner.on_timer(key, out)
            super().on_timer(key, out)

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        """A member's home is its own group."""
        out.announce(message)
        self._entry.send(message, out)

    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        match message:
            case FrMcast():
                self._on_fr_mcast(sender, message, out)
            case BarrierRequest():
                self._on_barrier_request(message, out)
            case JoinRequest():
                self._on_join_request(sender, message, out)
            case JoinResponse():
                self._on_join_response(sender, message, out)
            case SendersTo():
                self._on_senders_to(sender, message)
            case Received():
                self._on_received(sender, message)
            case Positions():
                self._on_positions(sender, message, out)
            case MergedState():
                if self._topology.group_of(sender) == self._group:
                    self._load(message.state, out)
            case _:
                return
        self._flush(out)
        self._send_replies(out)

    # -- messages of this group, on their way into its log

    def _on_fr_mcast(self, sender: ProcessId, copy: FrMcast, out: Outbox) -> None:
        id_ = copy.message.id
        source = self._merger.sources.get(copy.source)
        if source is not None and source.is_known(id_):
            if self._group in copy.message.dst and id_ not in self._merger:
                self._reply(copy.message.sender, id_, (self._group,))
        elif copy.source == self._group and id_ not in self._arrived:
            self._arrived[id_] = copy
            self._enqueue(copy, out)

    def _enqueue(self, copy: FrMcast, out: Outbox) -> None:
        """Line 17: the baseline proposes at once."""
        self._make_ready(copy, out)

    def _make_ready(self, copy: FrMcast, out: Outbox) -> None:
        if self._log.is_leader and not self._own.is_known(copy.message.id):
            sender = copy.message.sender
            self._ready.setdefault(sender, {})[copy.message.seq] = copy
            self._propose_ready(sender, out)

    def _propose_ready(self, sender: ProcessId, out: Outbox) -> None:
        """In the order of sequence numbers, whatever came first."""
        ready = self._ready.get(sender, {})
        seq = max(self._next_seq.get(sender, 0), self._own.next_seq.get(sender, 0))
        while (copy := ready.get(seq)) is not None:
            missing = [group for group in copy.message.dst if not self._own.reaches(group)]
            if missing:
                self._want(missing, out)
                return
            del ready[seq]
            seq += 1
            self._next_seq[sender] = seq
            self._propose_stamp(copy, out)

    def _propose_stamp(self, copy: FrMcast, out: Outbox) -> None:
        message = copy.message
        self._clock = max(self._clock, self._own.clock)
        self._clock = max(copy.time + self._config.changed_timestamps, self._clock + 1)
        for group in message.dst:
            self._used_at[group] = out.now_us
        self._log.propose(Stamp(message, self._clock), out)
        # The timestamp that a leader proposes is the one that is decided, unless leaders change: ask for barriers now.
        asked = copy.asked if self._clock == copy.time else ()
        self._request_barriers(message, self._clock, asked, out)

    def _request_barriers(self, message: AppMessage, time: Time, asked: tuple[GroupId, ...], out: Outbox) -> None:
        if not self._config.requests:
            return
        request = BarrierRequest(message.id, time, self._group)
        for group in barriers_needed(message.dst, self._group, self._senders_of):
            if group not in asked:
                out.send_all(self._topology.members(group), request)

    def _senders_of(self, group: GroupId) -> tuple[GroupId, ...]:
        """sendersTo, as far as this process knows."""
        if group == self._group:
            return self._merger.senders()
        heard = self._senders_to.get(group)
        return self._initial[group] if heard is None else heard[1]

    # -- barriers

    def _on_barrier_request(self, request: BarrierRequest, out: Outbox) -> None:
        self._propose_barrier(barrier_time(self._group, request.time, request.group), out)

    def _null_time(self, out: Outbox) -> Time:
        """A null message jumps ahead to the latest time that other groups have reached."""
        return max(out.now_us, *[source.clock for source in self._merger.sources.values()])

    def _propose_barrier(self, time: Time, out: Outbox) -> None:
        if self._log.is_leader:
            self._clock = max(self._clock, self._own.clock)
            if self._clock < time:
                self._clock = time
                self._log.propose(Barrier(time), out)

    # -- decisions

    def _act_on_one(self, decision: Decision, out: Outbox) -> None:
        match decision:
            case Decided():
                self._consume(self._group, decision, out)
            case StateWanted() if self._topology.group_of(decision.peer) != self._group:
                group = self._topology.group_of(decision.peer)
                if group is not None:
                    self._log.send_state(decision.peer, encode(self._merger.remote_state(group)), out)
            case _:
                super()._act_on_one(decision, out)

    def _act_on_learned(self, group: GroupId, decisions: list[Decision], out: Outbox) -> None:
        """What another group's log decided."""
        if not decisions:
            return
        for decision in decisions:
            match decision:
                case Decided():
                    self._consume(group, decision, out)
                case StateReceived():
                    if not self._take_remote_state(decision.state, out):
                        break  # what was decided since is of no use without what came before
                case _:
                    pass
        self._flush(out)
        self._send_replies(out)
        if isinstance(decisions[-1], SnapshotDue):
            self._compact(out)

    def _apply(self, entry: Any, out: Outbox) -> None:
        raise AssertionError("instances are consumed whole")

    def _consume(self, group: GroupId, decided: Decided, out: Outbox) -> None:
        source = self._merger.sources[group]
        instance = decided.instance
        if instance < source.position:
            return
        source.position = instance + 1
        for entry in decode_entries(decided.value):
            match entry:
                case Stamp():
                    self._on_stamp(source, instance, entry, out)
                case Barrier():
                    source.raise_clock(entry.time)
                case Admit():
                    self._on_admit(source, entry, source.tick(), out)
                case Join():
                    if source.join(entry):
                        self._on_link(source, entry.group, out)
                case Leave():
                    if source.leave(entry.group, instance):
                        self._on_link(source, entry.group, out)
                case _:
                    source.stamp(entry.id, entry.dst, entry.time)

    def _on_stamp(self, source: Source, instance: int, entry: Stamp, out: Outbox) -> None:
        message = entry.message
        ts = source.stamp(message.id, message.dst, entry.time)
        if ts is not None and self._group in message.dst:
            self._merger.add(ts, message)
        if source.group == self._group:
            self._on_own_stamp(instance, entry, ts, out)

    def _on_own_stamp(self, instance: int, entry: Stamp, ts: Timestamp | None, out: Outbox) -> None:
        message = entry.message
        if ts is None:
            if not self._own.is_known(message.id):
                self._propose_again(message, out)
            return
        self._arrived.pop(message.id, None)
        if ready := self._ready.get(message.sender):
            ready.pop(message.seq, None)
            self._propose_ready(message.sender, out)  # the next one may have waited for a former leader's proposal
        for group in message.dst:
            if group != self._group:
                self._merger.keep(group, instance, message, ts)
        if self._log.is_leader and clock_of(ts) != entry.time:
            self._request_barriers(message, clock_of(ts), (), out)

    def _propose_again(self, message: AppMessage, out: Outbox) -> None:
        """It came before an earlier message of its sender, or after this group left one of its destinations."""
        if self._log.is_leader:
            sender = message.sender
            self._next_seq[sender] = self._own.next_seq.get(sender, 0)
            for id_, copy in list(self._arrived.items()):
                if sender_of(id_) == sender and seq_of(id_) <= message.seq:
                    self._ready.setdefault(sender, {}).setdefault(seq_of(id_), copy)
            self._propose_ready(sender, out)

    def _flush(self, out: Outbox) -> None:
        merger = self._merger
        if not len(merger):
            return
        horizon = merger.horizon()
        while (head := merger.head) is not None and head[0] < horizon:
            ts, message = merger.pop()
            self._deliver(message, ts, out)

    def _on_elected(self, out: Outbox) -> None:
        self._clock = self._own.clock
        self._ready, self._next_seq = {}, {}
        self._reconfiguring, self._wanted = set(), {}
        self._used_at = {}
        for copy in sorted(self._arrived.values(), key=lambda copy: (copy.time, copy.message.id)):
            self._make_ready(copy, out)

    # -- reconfiguration (section V)

    def _want(self, groups: list[GroupId], out: Outbox) -> None:
        for group in groups:
            if group not in self._wanted:
                self._wanted[group] = None
                self._ask_to_join(group, out)

    def _ask_to_join(self, group: GroupId, out: Outbox) -> None:
        link = self._own.links.get(group, Link())
        out.send_all(self._topology.members(group), JoinRequest(self._group, link.count + 1))

    def _on_join_request(self, sender: ProcessId, request: JoinRequest, out: Outbox) -> None:
        if self._topology.group_of(sender) != request.group:
            return
        admission = self._merger.admissions.get(request.group, Admission())
        if request.count == admission.count + 1:
            self._propose_once(Admit(request.group, request.count), out)
        elif request.count == admission.count:
            self._respond_to_join(request.group, out)

    def _propose_once(self, entry: Admit | Join | Leave, out: Outbox) -> None:
        count = 0 if isinstance(entry, Leave) else entry.count
        key = (type(entry), entry.group, count)
        if self._log.is_leader and key not in self._reconfiguring:
            self._reconfiguring.add(key)
            self._log.propose(entry, out)

    def _on_admit(self, source: Source, entry: Admit, ts: Timestamp, out: Outbox) -> None:
        group = entry.group
        if source.group != self._group:
            return
        if group not in self._merger.sources:
            self._merger.sources[group] = self._new_source(group)
        if self._merger.admit(group, entry.count, ts) and self._log.is_leader:
            self._respond_to_join(group, out)
            self._tell_senders(out)
        if group not in self._learners and group != self._group:
            self._learners[group] = self._new_learner(group)
            self._learners[group].on_boot(out)

    def _respond_to_join(self, group: GroupId, out: Outbox) -> None:
        admission = self._merger.admissions[group]
        since = admission.since.get(admission.count)
        if since is not None:
            response = JoinResponse(self._group, admission.count, clock_of(since), self._merger.senders())
            out.send_all(self._topology.members(group), response)

    def _tell_senders(self, out: Outbox) -> None:
        senders = self._merger.senders()
        for group in senders:
            if group != self._group:
                out.send_all(self._topology.members(group), SendersTo(self._group, self._own.position, senders))

    def _on_senders_to(self, sender: ProcessId, message: SendersTo) -> None:
        if self._topology.group_of(sender) == message.group:
            heard = self._senders_to.get(message.group)
            if heard is None or heard[0] < message.version:
                self._senders_to[message.group] = (message.version, message.senders)

    def _on_join_response(self, sender: ProcessId, response: JoinResponse, out: Outbox) -> None:
        if self._topology.group_of(sender) == response.group:
            link = self._own.links.get(response.group, Link())
            if not link.joined and response.count == link.count + 1:
                self._senders_to.setdefault(response.group, (0, response.senders))
                self._propose_once(Join(response.group, response.count, response.time), out)

    def _on_link(self, source: Source, group: GroupId, out: Outbox) -> None:
        """A group joined or left the senders to another one."""
        if source.group == self._group:
            self._wanted.pop(group, None)
            self._used_at[group] = out.now_us
            self._reconfiguring.discard((Leave, group, 0))
            self._update_receivers()
            for sender in list(self._ready):
                self._propose_ready(sender, out)
        elif group == self._group and self._log.is_leader:
            self._tell_senders(out)

    def _update_receivers(self) -> None:
        """Who follows this group's log: the groups that it sends to, and those it left until they know."""
        learners: list[ProcessId] = []
        for group in sorted(self._own.links):
            link = self._own.links[group]
            kept = self._merger.kept.get(group)
            if link.joined or (link.count and (kept is None or kept.floor <= link.left_at)):
                learners += self._topology.members(group)
        self._members_log.serve(learners)

    def _leave_idle(self, out: Outbox) -> None:
        now = out.now_us
        for group, link in self._own.links.items():
            idle_us = now - self._used_at.setdefault(group, now)
            if link.joined and idle_us >= self._config.leave_after_us and not self._waits_to_send(group):
                self._propose_once(Leave(group), out)

    def _waits_to_send(self, group: GroupId) -> bool:
        return any(group in copy.message.dst for copy in self._arrived.values())

    # -- what others hold, and what a replica misses

    def _on_received(self, sender: ProcessId, message: Received) -> None:
        group = self._topology.group_of(sender)
        if group is None or group == self._group or message.group != self._group:
            return
        self._merger.acknowledge(group, sender, message.position, majority(len(self._topology.members(group))))
        link = self._own.links.get(group)
        if link is not None and not link.joined:
            self._update_receivers()

    def _take_remote_state(self, state: bytes, out: Outbox) -> bool:
        is_whole = self._merger.join_remote(decode_remote(state))
        if not is_whole:
            self._ask_peers(True, out)  # nobody but this group's own replicas has all that it misses
        self._resume_learners()
        return is_whole

    def _resume_learners(self) -> None:
        for group, learner in self._learners.items():
            learner.resume(self._merger.sources[group].position)

    def _ask_peers(self, stuck: bool, out: Outbox) -> None:
        peers = [p for p in self._topology.members(self._group) if p != self._process]
        out.send_all(peers, Positions(self._merger.positions(), stuck))

    def _on_positions(self, sender: ProcessId, message: Positions, out: Outbox) -> None:
        """A peer that is behind gets everything if it is stuck, or if what it misses comes from nowhere else."""
        if self._topology.group_of(sender) != self._group:
            return
        for group, source in self._merger.sources.items():
            is_behind = message.positions.get(group, 0) < source.position
            if is_behind and (message.stuck or not source.reaches(self._group)):
                out.send(sender, MergedState(self._dump()))
                return

    def _resend(self, out: Outbox) -> None:
        head = self._merger.head
        stuck_on = None if head is None else head[1].id
        self._stuck_ticks = self._stuck_ticks + 1 if stuck_on == self._stuck_on and head is not None else 0
        self._stuck_on = stuck_on
        if head is not None and self._stuck_ticks:
            self._ask_for_barriers(*head, out)
        self._ask_peers(self._is_state_due(), out)
        if self._log.is_leader:
            for group in self._wanted:
                self._ask_to_join(group, out)
            if self._config.leave_after_us:
                self._leave_idle(out)
        self._send_replies(out)

    def _is_state_due(self) -> bool:
        """After two periods, then ever more seldom: where all are slow, state on top of it makes them slower."""
        ticks = self._stuck_ticks
        return ticks > 1 and (ticks.bit_count() == 1 or ticks % _STATE_TICKS == 0)

    def _ask_for_barriers(self, ts: Timestamp, message: AppMessage, out: Outbox) -> None:
        """A message has waited for a whole period: somebody's barrier, or the request for it, got lost."""
        if not self._log.is_leader:
            return
        for group in self._merger.behind(ts):
            request = BarrierRequest(message.id, clock_of(ts), group_of(ts))
            if group == self._group:
                self._on_barrier_request(request, out)
            else:
                out.send_all(self._topology.members(group), request)
                if not self._merger.sources[group].reaches(self._group):
                    self._respond_to_join(group, out)

    # -- state

    def _compact(self, out: Outbox) -> None:
        super()._compact(out)
        for group, learner in self._learners.items():
            learner.cover()
            out.send_all(self._topology.members(group), Received(group, self._merger.sources[group].position))

    def _dump(self) -> bytes:
        return encode(self._merger.dump(self._deliveries.dump()))

    def _load(self, state: bytes, out: Outbox) -> None:
        loaded = decode_merge(state)
        if loaded.delivered_ts > self._merger.delivered_ts:
            self._deliveries.load(loaded.deliveries, out)
        self._merger.join(loaded)
        for group in self._merger.sources:
            if group != self._group and group not in self._learners:
                self._learners[group] = self._new_learner(group)
                self._learners[group].on_boot(out)
        self._resume_learners()
        self._update_receivers()
        self._go_on_after_leap(out)

    def _go_on_after_leap(self, out: Outbox) -> None:
        """What the log has is no longer on its way into it, and groups that were joined are no longer wanted."""
        known = self._own.is_known
        self._arrived = {id_: copy for id_, copy in self._arrived.items() if not known(id_)}
        for sender, ready in self._ready.items():
            self._ready[sender] = {seq: copy for seq, copy in ready.items() if not known(copy.message.id)}
        self._wanted = {group: None for group in self._wanted if not self._own.reaches(group)}
        if self._log.is_leader:
            # What it proposed may have been refused in the part of the log that it never saw: once more, in order.
            for copy in self._arrived.values():
                sender, seq = copy.message.sender, copy.message.seq
                if seq < self._next_seq.get(sender, 0):
                    self._ready.setdefault(sender, {}).setdefault(seq, copy)
            self._next_seq = {}
            for sender in list(self._ready):
                self._propose_ready(sender, out)
