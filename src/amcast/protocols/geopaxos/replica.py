"""GeoPaxos: each site orders the operations on its own objects, and every replica executes all of them.

Guarantees: every replica executes every operation once; operations that share an object are executed in the same order
everywhere. An operation that begins after another one was answered comes after it, if they share an object. Survives f
crashes in each group of 2f+1. An operation whose objects belong to one site is ordered by that site alone, two delays
from its leader; one whose objects belong to several takes four delays from their leaders. A client hop, or a leader
that is elsewhere, costs a delay more.

    client    replica r      site g              site h             all replicas
      |--REQUEST->|             |                  |                    |
      |           |--STEP1----->|----------------->|                    |      psite(op) = {g, h}
      |           |             |--2a, 2b: STEP1---|------------------->|   2  each site gives a timestamp
      |           |             |                  |--2a, 2b: STEP1---->|   2
      |           |             |--2a, 2b: STEP2---|------------------->|   4  the highest is final
      |           |             |                  |--2a, 2b: STEP2---->|   4  execute, in the order of each site
      |<--REPLY---|

Every replica follows the logs of all sites, as a remote learner of the votes. Which operation comes when is decided in
`track` (the order of a site) and `execution` (the order of a group's replicas).

From: Coelho, "On the many faces of atomic multicast" (2019), chapter 4, Algorithm 4 and section 4.4.

Where this departs from the thesis:
- **An operation is moved to Ordered once** (line 21 holds again with every later STEP2: it would be executed twice).
- **A site's clock gives (i + 1, own site)** (line 14): after the maximum with another site's timestamp, an increment
  that keeps the other's id gives two operations equal timestamps, and both wait for ever.
- **An operation of one site waits for those whose STEP2 precedes it in the site's log** (line 12 executes it at once).
  As published, a replica that has the other sites' STEP2 executes the one of several sites first, and a replica that
  has not executes the other one first.
- **Whether the sites of an operation were right is seen when it is executed** (`Execution.take`). An object may have
  moved since; then all replicas drop the attempt alike, and the replica that has the client's request tries again. As
  published, an operation with an old site and one with the new site are ordered by nobody together.
- **All replicas of a group execute in the same order** (see `execution`); the thesis lets each have its own. What a
  group's replicas execute of other sites is marked in the group's log: two delays more, inside the region, where
  nothing of the own site waits for it.
- One site of an operation gets all of it, the others its id (section 4.4.3). If the one that got it never orders it,
  say since its proposer crashed, the others have it ordered without: the attempt is void, and nobody waits for ever.
- What a client calls settled is forgotten, and not ordered again (see `Admitted`). The thesis remembers all operations.
  A site that waits for another one which refuses an attempt so has it ordered without, too: clients may lie.
- A group that is no site, if `sites` names others, only learns: it orders nothing but its own marks.

A site keeps the values of its log until a majority of each other group has them on disk, whatever its log forgets. When
a group is down it keeps up to `owed_max` of them, and orders no new operations then.

Reads: a replica answers when it has executed whatever any replica, of any group, had executed before. It asks the
leader of each site how far that log goes, and waits until it has executed all that is final there. One site that is
down holds up all reads; an operation that only reads, ordered like any other, needs only the sites of its objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec

from ...consensus import Decided, Decision, Learner, MultiPaxos, SnapshotDue, StateReceived, StateWanted
from ...consensus.base import LogWire
from ...core import (
    AppMessage,
    GroupId,
    Outbox,
    ProcessId,
    TimerKey,
    Timestamp,
    Topology,
    Wire,
    encode,
    majority,
)
from .._in_flight import InFlight
from .._replica import Replica
from .execution import Execution
from .messages import (
    Attempt,
    Final,
    Followed,
    HoldThis,
    Key,
    Mark,
    Operation,
    Order,
    Places,
    Request,
    SiteState,
    Step1,
    decode_entries,
    decode_operation,
)
from .placer import ObjectPlacement, PlacementStatus, Placer, PlacerStatus, is_move_id, regions_of
from .policy import Move, make_policy
from .state import GeoConfig, GeoState, Kept, decode_kept, decode_state, sites_of
from .track import Track, TrackState

_RESEND = "geopaxos.resend"
_PATIENCE = 3  # periods that a site waits for another one's STEP1 before it has the attempt ordered without its content
_ASKED_TICKS = 64  # periods for which a replica sees to an operation
_TELL_TICKS = 8  # periods after which others hear again how far a replica has followed them


class Asked:
    """A client's operation that this replica sees to."""

    __slots__ = ("attempt", "message", "ticks")

    def __init__(self, message: AppMessage, attempt: Attempt) -> None:
        self.message = message
        self.attempt = attempt
        self.ticks = 0


_no_entries: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Any])


class GeoPaxos(Replica):
    _track_type = Track
    _execution_type = Execution

    def __init__(self, process: ProcessId, topology: Topology, config: GeoConfig, rng: Random) -> None:
        group = topology.group_of(process)
        assert group is not None
        self._sites = sites = sites_of(config, topology)
        others = [p for p in topology.processes if topology.group_of(p) != group]
        log = MultiPaxos(group, process, topology, config.paxos, rng, others if group in sites else ())
        super().__init__(process, topology, config, log, _no_entries)
        self._paxos = log
        self._config = config
        self._is_site = group in sites
        followed = sorted({*sites, group})
        tracks = {each: self._new_track(TrackState(each)) for each in followed}
        self._execution = self._execution_type(group, sites, tracks)
        self._learners = {each: Learner(each, process, topology, config.paxos) for each in followed if each != group}
        self._kept = Kept()
        # Volatile:
        self._placer = self._make_placer()
        self._acked: dict[GroupId, dict[ProcessId, int]] = {}  # who of other groups has how much of this log
        self._asked: InFlight[Asked] = InFlight()
        self._proposed: set[Attempt | tuple[str, Attempt]] = set()  # by this leader: STEP1, and STEP2
        self._marking = False  # a mark is on its way through the log
        self._waiting: dict[Attempt, int] = {}  # attempts that lack another site's STEP1 -> periods
        self._lacks = False  # the sites have forgotten what this replica needs
        self._told: dict[GroupId, int] = {}
        self._ticks = 0
        self._reads_waiting: list[tuple[int, dict[GroupId, Key]]] = []
        self._reads_followed = -1

    def _new_track(self, state: TrackState) -> Track:
        return self._track_type(state, state.group == self._group, self._config.counters_convoy)

    def _make_placer(self) -> Placer | None:
        """Where operations are ordered, if somebody asked for it."""
        config = self._config
        if not config.placement:
            return None
        regions = regions_of(self._sites, self._topology)
        if not self._is_site:
            make_policy(config.placement, {})  # it is an error here as well if there is no such policy
            return None
        return Placer(config.placement, self._group, regions, config.moves_per_second, config.placement_objects)

    @property
    def _tracks(self) -> dict[GroupId, Track]:
        return self._execution.tracks

    @property
    def _own(self) -> Track:
        return self._execution.tracks[self._group]

    # -- inputs

    def on_boot(self, out: Outbox) -> None:
        out.set_timer(_RESEND, self._config.resend_us)
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
            self._on_resend(out)
        else:
            for learner in self._learners.values():
                learner.on_timer(key, out)
            super().on_timer(key, out)

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        out.announce(message)
        self._on_request(message, out)

    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        match message:
            case Request():
                self._on_request(message.message, out)
            case Step1():
                for order in message.orders:
                    self._propose_order(order, out)
            case Followed():
                self._on_followed(sender, message.position)
            case HoldThis():
                self._on_hold(sender, out)
            case Places():
                self._on_places(sender, message, out)
            case SiteState():
                if self._topology.group_of(sender) == self._group:
                    self._load(message.state, out)
                    self._flush(out)
            case _:
                return
        self._send_replies(out)

    # -- operations, on their way into the logs: Task 0

    def _on_request(self, message: AppMessage, out: Outbox) -> None:
        if self._is_executed(message):
            self._reply(message.sender, message.id, message.dst)
        elif message.id not in self._asked:
            asked = Asked(message, self._new_attempt(message))
            if not self._is_given_up(asked.attempt) and self._asked.add(message, asked):
                self._submit(asked, asked.attempt.dst, False, out)

    def _is_executed(self, message: AppMessage) -> bool:
        return self._execution.executed.has(message.id, decode_operation(message.payload))

    def _new_attempt(self, message: AppMessage) -> Attempt:
        """With the sites as this replica knows them: if they are not the right ones any more, the attempt is void."""
        number = self._execution.void.get(message.id, -1) + 1
        return Attempt(message.id, number, self._execution.placement.sites_of(decode_operation(message.payload)))

    def _is_given_up(self, attempt: Attempt) -> bool:
        """Whether a site has it from the client that the operation needs no answer. That site takes it only without its
        content any more, if another one waits for it: attempt after attempt would hold up the others, and be void."""
        return any(self._tracks[site].admitted.is_settled(attempt.id) for site in attempt.dst)

    def _submit(self, asked: Asked, sites: Iterable[GroupId], is_again: bool, out: Outbox) -> None:
        """STEP1 to these sites: to the leader, or if that did not help to all of them."""
        attempt, message = asked.attempt, asked.message
        whole = self._group if self._group in attempt.dst else attempt.dst[0]
        for site in sites:
            order = Order(attempt, message.settled, message if site == whole else None, home=self._process)
            if site == self._group and self._log.is_leader:
                self._propose_order(order, out)
            elif is_again:
                out.send_all(self._topology.members(site), Step1((order,)))
            else:
                out.send(self._leader_of_site(site), Step1((order,)))

    def _leader_of_site(self, site: GroupId) -> ProcessId:
        learner = self._learners.get(site)
        return self._leader(site) if learner is None else learner.leader_id

    def _propose_order(self, order: Order, out: Outbox) -> None:
        attempt = order.attempt
        if not self._log.is_leader or self._group not in attempt.dst or attempt in self._proposed:
            return
        if order.followed < 0 and len(self._kept.values) >= self._config.owed_max:
            return  # a group is down, and has enough to catch up with
        if self._own.admitted.is_new(order):
            self._proposed.add(attempt)
            self._log.propose(order, out)

    # -- decisions

    def _act_on_one(self, decision: Decision, out: Outbox) -> None:
        match decision:
            case Decided():
                self._consume(self._group, decision.instance, decision.value, out)
            case StateWanted() if self._topology.group_of(decision.peer) != self._group:
                self._log.send_state(decision.peer, encode(self._kept), out)
            case _:
                super()._act_on_one(decision, out)

    def _act_on_learned(self, group: GroupId, decisions: list[Decision], out: Outbox) -> None:
        """Acts on what another site's log decided."""
        if not decisions:
            return
        for decision in decisions:
            match decision:
                case Decided():
                    self._consume(group, decision.instance, decision.value, out)
                case StateReceived():
                    if not self._take_kept(group, decision, out):
                        break  # instances after a gap can't be applied
                case _:
                    pass
        self._flush(out)
        self._send_replies(out)
        if isinstance(decisions[-1], SnapshotDue):
            self._compact(out)

    def _apply(self, entry: Any, out: Outbox) -> None:
        raise AssertionError("instances are consumed whole")

    def _consume(self, group: GroupId, instance: int, value: bytes, out: Outbox) -> None:
        track = self._tracks[group]
        if instance < track.position:
            return
        track.position = instance + 1
        if group == self._group and self._is_site and len(self._topology.groups) > 1:
            self._kept.values.append((instance, value))
        for entry in decode_entries(value):
            match entry:
                case Order():
                    if track.order(entry, instance) and self._placer is not None:
                        self._watch_use(self._placer, entry, out)
                    self._on_stamp(entry.attempt, out)
                case Final():
                    track.finish(entry)
                    self._on_stamp(entry.attempt, out)
                case Mark():
                    track.mark(entry)
                    self._marking = self._marking and group != self._group
            if group == self._group and not isinstance(entry, Mark):
                self._proposed.discard(entry.attempt if isinstance(entry, Order) else ("step2", entry.attempt))

    def _on_stamp(self, attempt: Attempt, out: Outbox) -> None:
        """Lines 17 and 18: with the timestamps of all sites, or one that is final, this site can say its STEP2."""
        if not self._log.is_leader or attempt not in self._own.pending or ("step2", attempt) in self._proposed:
            return
        ts = self._final_ts(attempt)
        if ts is not None:
            self._proposed.add(("step2", attempt))
            self._log.propose(Final(attempt, ts), out)

    def _final_ts(self, attempt: Attempt) -> Timestamp | None:
        stamps = []
        for site in attempt.dst:
            track = self._tracks[site]
            if attempt in track.final:
                return track.final[attempt]
            stamps.append(track.pending.get(attempt))
        known = [stamp for stamp in stamps if stamp is not None]
        return max(known) if len(known) == len(stamps) else None

    def _forget_proposals(self) -> None:
        """What this leader proposed may not come to it through its log. If it proposes it again and both come, the
        second one changes nothing; if it never did, others would wait for ever for what the first one did not do."""
        self._proposed, self._marking = set(), False

    def _on_elected(self, out: Outbox) -> None:
        self._forget_proposals()
        self._waiting = {}
        for attempt in list(self._own.pending):
            self._on_stamp(attempt, out)
        for asked in self._asked.values():
            if self._group in asked.attempt.dst:
                self._submit(asked, self._own_groups, False, out)
        self._propose_mark(out)

    # -- execution: Task 2

    def _flush(self, out: Outbox) -> None:
        execution = self._execution
        while steps := execution.next_steps():
            for step in steps:
                operation = execution.take(step)
                if operation is not None:
                    assert step.message is not None
                    self._execute(step.message, operation, out)
                elif step.attempt is not None:
                    self._on_void(step.attempt, out)
        self._propose_mark(out)

    def _execute(self, message: AppMessage, operation: Operation, out: Outbox) -> None:
        if operation.site and self._placer is not None:
            self._tell_moved(self._placer, operation, out)
        if is_move_id(message.id):
            self._asked.pop(message.id)
            return
        self._deliveries.add_own(message, None, out)
        if self._asked.pop(message.id) is not None:
            self._reply(message.sender, message.id, message.dst)

    def _on_void(self, attempt: Attempt, out: Outbox) -> None:
        if is_move_id(attempt.id):
            self._asked.pop(attempt.id)  # the object is elsewhere by now: that site decides
        elif attempt.id in self._asked and self._asked[attempt.id].attempt.number <= attempt.number:
            self._try_again(self._asked[attempt.id], out)

    def _try_again(self, asked: Asked, out: Outbox) -> None:
        attempt = self._new_attempt(asked.message)
        if self._is_given_up(attempt):
            self._asked.pop(attempt.id)
            return
        asked.attempt, asked.ticks = attempt, 0
        self._submit(asked, attempt.dst, False, out)

    def _propose_mark(self, out: Outbox) -> None:
        """One at a time: what comes meanwhile shares the next one."""
        if self._log.is_leader and not self._marking and not self._own.marks:
            bounds = self._execution.executable()
            if bounds:
                self._marking = True
                self._log.propose(Mark(bounds), out)

    # -- placement: see `placer`

    def _watch_use(self, placer: Placer, order: Order, out: Outbox) -> None:
        """An operation was ordered: which objects of this site are used, and from where?"""
        message = order.message
        if message is None or is_move_id(message.id) or self._topology.group_of(order.home) is None:
            return
        operation, placement = decode_operation(message.payload), self._execution.placement
        if operation.site:
            return  # whoever moves an object does not use it
        region, now_us = self._topology.region(order.home), out.now_us
        mine = [name for name in dict.fromkeys(operation.objects) if placement.site(name) == self._group]
        for name in mine:
            placer.saw(name, region, now_us)
        if self._log.is_leader:
            for name in mine:
                for move in placer.wishes(name, placement.is_placed(name), now_us):
                    self._submit_move(placer, move, out)

    def _submit_move(self, placer: Placer, move: Move, out: Outbox) -> None:
        """It is seen to as an operation of a client is."""
        message = placer.submit(move, self._process, self._paxos.leads_round, self._topology.groups, out.now_us)
        site = decode_operation(message.payload).site
        asked = Asked(message, Attempt(message.id, 0, tuple(sorted((self._group, site)))))
        if self._asked.add(message, asked):
            self._submit(asked, asked.attempt.dst, False, out)

    def _tell_moved(self, placer: Placer, operation: Operation, out: Outbox) -> None:
        for name in operation.objects:
            note = self._execution.placement.notes.get(name)
            if note is not None and self._execution.placement.site(name) == operation.site:
                placer.moved(name, note.source, operation.site, note.moves, out.now_us)

    def placement_of(self, name: str) -> ObjectPlacement:
        """Where an object is, and why, as far as this replica knows."""
        placement = self._execution.placement
        recent = {} if self._placer is None else self._placer.recent(name)
        return ObjectPlacement(name, placement.site(name), placement.is_placed(name), placement.notes.get(name), recent)

    def placement_status(self, moves: int) -> PlacementStatus:
        """How placement goes here, with so many of the latest moves."""
        placement = self._execution.placement
        latest = [ObjectPlacement(name, placement.site(name), True, note) for name, note in placement.notes.items()]
        status = PlacerStatus("") if self._placer is None else self._placer.status
        return PlacementStatus(status, len(placement.moved), tuple(latest[-moves:] if moves else ()))

    # -- reads

    @property
    def freshness(self) -> tuple[int, ...]:
        return (*super().freshness, *(learner.freshness for learner in self._learners.values()))

    def _begin_read(self, read: int, out: Outbox) -> None:
        super()._begin_read(read, out)
        for learner in self._learners.values():
            learner.begin_read(read, out)

    def _reads_done(self, out: Outbox) -> int:
        followed = min([super()._reads_done(out), *(learner.reads_done(out) for learner in self._learners.values())])
        if followed > self._reads_followed:
            self._reads_followed = followed
            self._reads_waiting.append((followed, {site: track.end for site, track in self._tracks.items()}))
        done = self._read_done
        while self._reads_waiting and self._is_shown(self._reads_waiting[0][1]):
            done = self._reads_waiting.pop(0)[0]
        return done

    def _is_shown(self, ends: dict[GroupId, Key]) -> bool:
        """Whether all that was final at these places of the sites' orders is executed."""
        tracks = self._tracks
        return all(end <= min(tracks[site].first_own, tracks[site].first_final) for site, end in ends.items())

    # -- what others have, and what a replica lacks

    def _on_followed(self, sender: ProcessId, position: int) -> None:
        group = self._topology.group_of(sender)
        if group is None or group == self._group:
            return
        acked = self._acked.setdefault(group, {})
        acked[sender] = max(position, acked.get(sender, 0))
        floor = min(self._held(other) for other in self._topology.groups if other != self._group)
        if floor > self._kept.floor:
            self._kept.floor = floor
            self._kept.values = [each for each in self._kept.values if each[0] >= floor]

    def _held(self, group: GroupId) -> int:
        """What a majority of a group has on disk of this log."""
        acked, needed = self._acked.get(group, {}), majority(len(self._topology.members(group)))
        return sorted(acked.values(), reverse=True)[needed - 1] if len(acked) >= needed else 0

    def _on_hold(self, sender: ProcessId, out: Outbox) -> None:
        """A snapshot before its time: what is on disk here, a site need not keep."""
        site = self._topology.group_of(sender)
        if site in self._learners:
            if self._tracks[site].position > self._told.get(site, 0):
                self._compact(out)
            else:
                self._tell_followed(out)

    def _ask_to_hold(self, out: Outbox) -> None:
        if self._kept.values and 2 * len(self._kept.values) >= self._config.owed_max:
            behind = self._kept.values[-1][0]
            slow = [group for group in self._topology.groups if group != self._group and self._held(group) <= behind]
            for group in slow:
                out.send_all(self._topology.members(group), HoldThis())

    def _tell_followed(self, out: Outbox) -> None:
        for site, position in self._told.items():
            out.send_all(self._topology.members(site), Followed(position))

    def _take_kept(self, group: GroupId, received: StateReceived, out: Outbox) -> bool:
        """Values that a site has kept for those who lag, in place of instances that its log has forgotten."""
        kept, track = decode_kept(received.state), self._tracks[group]
        is_whole = track.position >= kept.floor
        if is_whole:
            for instance, value in kept.values:
                self._consume(group, instance, value, out)
            track.position = max(track.position, received.next)
        else:
            self._lacks = True  # this group's other replicas have it
        self._learners[group].resume(track.position)
        return is_whole

    def _on_places(self, sender: ProcessId, message: Places, out: Outbox) -> None:
        is_behind = any(message.positions.get(site, 0) < track.position for site, track in self._tracks.items())
        if is_behind and self._topology.group_of(sender) == self._group:
            out.send(sender, SiteState(self._dump()))

    def _on_resend(self, out: Outbox) -> None:
        self._ticks += 1
        if self._lacks:
            self._lacks = False
            peers = [p for p in self._topology.members(self._group) if p != self._process]
            out.send_all(peers, Places({site: track.position for site, track in self._tracks.items()}))
        if self._ticks % _TELL_TICKS == 0:
            self._tell_followed(out)
        self._submit_again(out)
        if self._log.is_leader:
            self._ask_for_step1(out)
            self._ask_to_hold(out)
        self._flush(out)
        self._send_replies(out)

    def _submit_again(self, out: Outbox) -> None:
        """What the sites have not ordered for a whole period. After many, only if the client asks again."""
        for asked in self._asked.values():
            asked.ticks += 1
            if asked.ticks > 1:
                order = Order(asked.attempt, 0, None)
                missing = [site for site in asked.attempt.dst if self._tracks[site].admitted.is_new(order)]
                self._submit(asked, missing, True, out)
        self._asked.drop(lambda _, asked: asked.ticks > _ASKED_TICKS)
        if self._placer is not None:
            self._placer.keep_under_way(id_ for id_, _ in self._asked.items() if is_move_id(id_))

    def _ask_for_step1(self, out: Outbox) -> None:
        """Attempts that another site has not ordered for long: their proposer may be gone."""
        waiting = {attempt: self._waiting.get(attempt, 0) + 1 for attempt in self._own.pending}
        self._waiting = waiting
        for attempt, ticks in waiting.items():
            self._on_stamp(attempt, out)
            if ticks >= _PATIENCE:
                for site in attempt.dst:
                    track = self._tracks[site]
                    if track.stamp(attempt) is None:
                        order = Order(attempt, 0, None, track.position)
                        out.send_all(self._topology.members(site), Step1((order,)))

    # -- state

    def _compact(self, out: Outbox) -> None:
        super()._compact(out)
        if not self._log.is_silent:
            for site, learner in self._learners.items():
                learner.cover()
                self._told[site] = self._tracks[site].position
            self._tell_followed(out)

    def _dump(self) -> bytes:
        tracks = {site: track.dump() for site, track in self._tracks.items()}
        return encode(GeoState(tracks, self._kept, self._execution.dump(), self._deliveries.dump()))

    def _load(self, state: bytes, out: Outbox) -> None:
        """Takes over what another replica of the group has and this one lacks: the longer part of each log, and the
        longer sequence of steps. All replicas of a group make the same steps."""
        loaded = decode_state(state)
        if loaded.tracks[self._group].position > self._own.position:
            self._kept = loaded.kept
            self._forget_proposals()  # they may be in the part that is taken over, and are not seen to come then
        for site, track in loaded.tracks.items():
            if track.position > self._tracks[site].position:
                self._tracks[site] = self._new_track(track)
        if loaded.execution.steps > self._execution.steps:
            self._execution.load(loaded.execution)
            self._deliveries.load(loaded.deliveries, out)
        self._execution.drop_executed()
        for site, learner in self._learners.items():
            learner.resume(self._tracks[site].position)
        self._answer_executed(out)

    def _answer_executed(self, out: Outbox) -> None:
        """The state of another replica may have brought operations that clients wait for here, or void attempts."""
        for id_, asked in list(self._asked.items()):
            if is_move_id(id_):
                continue  # it does no harm if it comes again
            if self._is_executed(asked.message):
                self._asked.pop(id_)
                self._reply(asked.message.sender, id_, asked.message.dst)
            elif self._execution.void.get(id_, -1) >= asked.attempt.number:
                self._try_again(asked, out)
