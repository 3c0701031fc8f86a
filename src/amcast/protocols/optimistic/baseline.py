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
- **A sender's clock is believed only as far as a second ahead of the replica's own** (`believed`), before its time
  enters the log: one sender with a wrong clock must not take all groups years ahead, beyond what a timestamp holds. Its
  messages are ordered all the same, a delay later.
- A process that multicasts is a client of a source group, its home, and sends the requests itself.

Reads: what a replica delivers is a merge of its senders' logs, and follows from how far it has followed each. So a read
asks for the read index of all these logs at a time, and is done when this replica has followed every one of them that
far: it then knows at least what any replica knew when the read began, and has delivered at least as much, since what is
below a barrier stays below it. The senders are those of the group's own log, as far as its read index: nobody can have
delivered messages of a group that is admitted later, since they are above that admission, and a group delivers nothing
above its own barrier. A group that left, as this replica knows from its log, is not waited for until the own log
admits it anew. Nothing is added to any log: no barrier is asked for.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

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
)
from ...core.timestamps import group_of
from .._replica import Replica
from .ingress import BaselineIngress, SendersConfig, initial_senders
from .merge import END_OF_TIME, Admission, Merger, decode_merge, decode_remote
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
    believed,
    decode_entries,
    project,
)
from .proposals import Proposals
from .reconfiguration import Reconfiguration
from .source import Link, Source, barrier_time

_RESEND = "oam.resend"
_NULL = "oam.null"
_STATE_TICKS = 32  # at most so many periods between two states for a replica that is stuck


class BaselineConfig(SendersConfig, frozen=True, forbid_unknown_fields=True):
    null_us: int = 0  # period of null messages; 0: none
    leave_after_us: int = 0  # a group that sent nothing to another one for so long leaves its senders; 0: never
    changed_timestamps: bool = False  # leaders change every timestamp on purpose: every message takes a delay more


def _believed_copy(copy: FrMcast, now_us: int) -> FrMcast:
    """The message as if its sender's clock were right, or nearly so: then the sender has asked for no barrier above."""
    time = believed(copy.time, now_us)
    return copy if time == copy.time else replace(copy, time=time, asked=())


def _is_state_due(periods: int) -> bool:
    """After 2, 4, 8, 16 and 32 periods, then every 32: where all replicas are slow, state makes them slower."""
    return periods > 1 and (periods.bit_count() == 1 or periods % _STATE_TICKS == 0)


class LeftBehind(NamedTuple):
    """A peer that is behind in logs of groups that no longer send to this one."""

    positions: dict[GroupId, int]  # where it is in them
    periods: int  # for which it has not moved there


_no_entries: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Any])


class Baseline(Replica):
    """Takes inputs and what logs decide, and hands each to the merger, the proposals or the reconfiguration."""

    _proposals_type = Proposals
    _reconfiguration_type = Reconfiguration

    def __init__(self, process: ProcessId, topology: Topology, config: BaselineConfig, rng: Random) -> None:
        group = topology.group_of(process)
        assert group is not None
        log = MultiPaxos(group, process, topology, config.paxos, rng, projection=project)
        super().__init__(process, topology, config, log, _no_entries)
        self._config = config
        self._ingress = self._new_ingress()
        self._initial = {each: initial_senders(config, topology, each) for each in topology.groups}
        senders = sorted({*self._initial[group], group})
        sources = {each: self._new_source(each) for each in senders}
        self._merger = merger = self._new_merger(sources, {each: Admission(count=1) for each in senders})
        self._learners = {each: self._new_learner(each) for each in senders if each != group}
        self._reconfiguration = self._reconfiguration_type(group, topology, self._initial, log, merger)
        self._proposals = self._proposals_type(
            group, topology, config, log, merger, self._reconfiguration, raise_by=int(config.changed_timestamps)
        )
        self._stuck_on: MessageId | None = None  # the first stamped message, when the timer last looked
        self._stuck_ticks = 0
        self._left_behind: dict[ProcessId, LeftBehind] = {}
        self._read_ready = -1

    def _new_source(self, group: GroupId) -> Source:
        links = {h: Link(1, True) for h, senders in self._initial.items() if group in senders and h != group}
        return Source(group, links)

    def _new_merger(self, sources: dict[GroupId, Source], admissions: dict[GroupId, Admission]) -> Merger:
        return Merger(self._group, sources, admissions)

    def _new_ingress(self) -> BaselineIngress:
        return BaselineIngress(self._process, self._topology, self._config)

    def _new_learner(self, group: GroupId) -> Learner:
        return Learner(group, self._process, self._topology, self._config.paxos)

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
                if self._is_reading:
                    self._serve_reads(out)
        else:
            super().on_message(sender, message, out)

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _RESEND:
            out.set_timer(_RESEND, self._config.resend_us)
            self._resend(out)
        elif key == _NULL:
            out.set_timer(_NULL, self._config.null_us)
            self._proposals.propose_null(self._null_time(out), out)
        else:
            for learner in self._learners.values():
                learner.on_timer(key, out)
            super().on_timer(key, out)

    # -- reads

    @property
    def freshness(self) -> tuple[int, ...]:
        """Groups that left are not heard any more, and have nothing to tell."""
        learners = [each for group, each in self._learners.items() if self._merger.barrier(group) != END_OF_TIME]
        return (*super().freshness, *(learner.freshness for learner in learners))

    def _begin_read(self, read: int, out: Outbox) -> None:
        super()._begin_read(read, out)
        for learner in self._learners.values():
            learner.begin_read(read, out)

    def _reads_done(self, out: Outbox) -> int:
        done = super()._reads_done(out)
        if done > self._read_ready:
            followed = [self._followed(group, done, out) for group in self._learners]
            self._read_ready = max(self._read_ready, min(followed, default=done))
        return self._read_ready

    def _followed(self, group: GroupId, own: int, out: Outbox) -> int:
        """The latest read for which another group's log is followed as far as it must be, up to `own`: for this one the
        group's own log is."""
        learner = self._learners[group]
        done = min(own, learner.reads_done(out))
        if done < own and self._merger.barrier(group) == END_OF_TIME:
            return own
        if learner.reads.latest < own:  # admitted since the read began
            learner.begin_read(own, out)
        return done

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        """A member's home is its own group."""
        out.announce(message)
        self._ingress.send(message, out)

    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        match message:
            case FrMcast():
                self._on_fr_mcast(sender, _believed_copy(message, out.now_us), out)
            case BarrierRequest():
                if self._topology.group_of(sender) is None:  # what a group asks for, a log has ordered
                    message = replace(message, time=believed(message.time, out.now_us))
                self._on_barrier_request(message, out)
            case JoinRequest():
                self._reconfiguration.on_join_request(sender, message, out)
            case JoinResponse():
                self._reconfiguration.on_join_response(sender, message, out)
            case SendersTo():
                self._reconfiguration.on_senders_to(sender, message)
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
            return
        arrived = self._proposals.arrived
        if copy.source == self._group and id_ not in arrived and arrived.add(copy.message, copy):
            self._enqueue(copy, out)

    def _enqueue(self, copy: FrMcast, out: Outbox) -> None:
        """Line 17: the baseline proposes at once."""
        self._proposals.make_ready(copy, out)

    def _on_barrier_request(self, request: BarrierRequest, out: Outbox) -> None:
        self._proposals.propose_barrier(barrier_time(self._group, request.time, request.group), out)

    def _null_time(self, out: Outbox) -> Time:
        """A null message jumps ahead to the latest time that other groups have reached."""
        return max(out.now_us, *[source.clock for source in self._merger.sources.values()])

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
        """Acts on what another group's log decided."""
        if not decisions:
            return
        for decision in decisions:
            match decision:
                case Decided():
                    self._consume(group, decision, out)
                case StateReceived():
                    if not self._take_remote_state(group, decision, out):
                        break  # instances after a gap can't be applied
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
            if ts is not None:
                for group in message.dst:
                    if group != self._group:
                        self._merger.keep(group, instance, message, ts)
            self._proposals.on_stamp(entry, ts, out)

    def _on_admit(self, source: Source, entry: Admit, ts: Timestamp, out: Outbox) -> None:
        if source.group == self._group:
            if entry.group not in self._merger.sources:
                self._merger.sources[entry.group] = self._new_source(entry.group)
            self._reconfiguration.on_admit(entry, ts, out)
            self._follow_senders(out)

    def _on_link(self, source: Source, group: GroupId, out: Outbox) -> None:
        """A group joined or left the senders to another one."""
        if source.group == self._group:
            self._reconfiguration.on_own_link(group, out)
            self._proposals.propose_all_ready(out)
        elif group == self._group and self._log.is_leader:
            self._reconfiguration.tell_senders(out)

    def _follow_senders(self, out: Outbox) -> None:
        """Follows the logs of groups that have become senders to this one."""
        for group in self._merger.sources:
            if group != self._group and group not in self._learners:
                self._learners[group] = self._new_learner(group)
                self._learners[group].on_boot(out)

    def _flush(self, out: Outbox) -> None:
        merger = self._merger
        if not len(merger):
            return
        horizon = merger.horizon()
        while (head := merger.head) is not None and head[0] < horizon:
            ts, message = merger.pop()
            self._deliver(message, ts, out)

    def _on_elected(self, out: Outbox) -> None:
        self._reconfiguration.on_elected()
        self._proposals.on_elected(out)

    # -- what others hold, and what a replica misses

    def _on_received(self, sender: ProcessId, message: Received) -> None:
        group = self._topology.group_of(sender)
        if group is None or group == self._group or message.group != self._group:
            return
        self._merger.acknowledge(group, sender, message.position, majority(len(self._topology.members(group))))
        self._reconfiguration.on_acknowledged(group)

    def _take_remote_state(self, group: GroupId, received: StateReceived, out: Outbox) -> bool:
        is_whole = self._merger.join_remote(decode_remote(received.state))
        if is_whole:
            source = self._merger.sources[group]  # it counts instances with entries, and the last ones may have none
            source.position = max(source.position, received.next)
        else:
            self._ask_peers(True, out)  # the sender has forgotten a part; this group's replicas may have it
        self._resume_learners()
        return is_whole

    def _resume_learners(self) -> None:
        for group, learner in self._learners.items():
            learner.resume(self._merger.sources[group].position)

    def _ask_peers(self, stuck: bool, out: Outbox) -> None:
        peers = [p for p in self._topology.members(self._group) if p != self._process]
        out.send_all(peers, Positions(self._merger.positions(), stuck))

    def _on_positions(self, sender: ProcessId, message: Positions, out: Outbox) -> None:
        """A peer that is behind gets this replica's state if it is stuck, or if it is behind in the log of a group that
        no longer sends to this one, and would not send it the rest."""
        if self._topology.group_of(sender) != self._group:
            return
        behind = {
            group: message.positions.get(group, 0)
            for group, source in self._merger.sources.items()
            if message.positions.get(group, 0) < source.position
        }
        unreached = {group: at for group, at in behind.items() if not self._merger.sources[group].reaches(self._group)}
        stays = self._stays_behind(sender, unreached)
        if behind and (message.stuck or stays):
            out.send(sender, MergedState(self._dump()))

    def _stays_behind(self, peer: ProcessId, unreached: dict[GroupId, int]) -> bool:
        """Whether a peer has stood where it is in logs that nobody will send it the rest of, and for so long that it
        needs a state. Often the rest, or the state before this one, is on its way: over a slow link, a state for each
        period in which the peer is behind would fill the link with states, and nothing would arrive any more."""
        known = self._left_behind.get(peer)
        periods = known.periods + 1 if known is not None and known.positions == unreached else 0
        self._left_behind[peer] = LeftBehind(unreached, periods)
        return bool(unreached) and _is_state_due(periods)

    def _resend(self, out: Outbox) -> None:
        head = self._merger.head
        stuck_on = None if head is None else head[1].id
        self._stuck_ticks = self._stuck_ticks + 1 if stuck_on == self._stuck_on and head is not None else 0
        self._stuck_on = stuck_on
        if head is not None and self._stuck_ticks:
            self._ask_for_barriers(*head, out)
        self._ask_peers(_is_state_due(self._stuck_ticks), out)
        if self._log.is_leader:
            self._reconfiguration.ask_again(out)
            self._proposals.propose_refused(out)
            if idle_us := self._config.leave_after_us:
                waiting = {group for copy in self._proposals.arrived.values() for group in copy.message.dst}
                self._reconfiguration.leave_idle(idle_us, waiting, out)
        self._send_replies(out)

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
                    self._reconfiguration.respond_to_join(group, out)

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
        self._follow_senders(out)
        self._resume_learners()
        self._reconfiguration.on_leap()
        self._proposals.on_leap(out)
