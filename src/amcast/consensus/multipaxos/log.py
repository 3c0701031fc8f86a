"""Multi-Paxos for a group of 2f+1 processes: a log that survives f crashes, and the restart of any number.

Guarantees: all members (and remote learners) are handed the same values in the same order; what was decided stays
decided, through any number of crashes and restarts with the disk intact, and through the loss of the disks of up to f
members at a time. Progress when a majority is up and messages arrive in bounded time. Two message delays from the
leader to all learners; a stable leader runs phase 1 once.

Departures from the textbook: the first member leads ballot 0 without phase 1, since no ballot is below it. A member
that hears a live leader does not answer other candidates, so that a member that was cut off can't depose a leader
that serves the others. A leader that a majority no longer answers steps down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from ...core import GroupId, Outbox, ProcessId, Record, TimerKey, Topology, Wire, encode
from ..base import Decision, Elected, SnapshotDue, StateReceived, StateWanted
from .acceptor import Acceptor
from .config import PaxosConfig
from .learner import Learner, Slot
from .messages import (
    NOTHING,
    Accept,
    Accepted,
    Ballot,
    CatchUp,
    Heartbeat,
    HeartbeatAck,
    Learn,
    Nack,
    Prepare,
    Promise,
    Readd,
    Readmission,
    Rejoin,
    Vote,
    ballot_of,
    decode_readd,
    encode_readd,
    has_entries,
    owner_of,
    round_of,
)

FOLLOWER, CANDIDATE, LEADER = range(3)

Projection = Callable[[bytes, GroupId], bytes]  # a value, as the processes of another group get to see it


class MultiPaxos(Learner):
    def __init__(
        self,
        group: GroupId,
        process: ProcessId,
        topology: Topology,
        config: PaxosConfig,
        rng: Random,
        remote_learners: Sequence[ProcessId] = (),
        projection: Projection | None = None,
    ) -> None:
        super().__init__(group, process, topology, config)
        self._rng = rng
        self._remote_learners = tuple(remote_learners)
        self._projection = projection
        self._remote_groups: dict[GroupId, list[ProcessId]] = {}
        self._acceptor = Acceptor(promised=self._leader_ballot)
        self._role = FOLLOWER
        self._ballot: Ballot = -1  # of this process's own candidacy or leadership
        self._welcome: Readmission | None = None
        # Followers and candidates
        self._heard_tick = 0
        self._patience = 0
        self._promises: dict[ProcessId, Promise] = {}
        # Leaders
        self._batch: list[Any] = []
        self._values: deque[bytes] = deque()  # what was cut off the batch, and waits for room in the window
        self._urgent = False  # the batch holds an entry that should not wait for company
        self._timer_set = False
        self._next_free = 0  # the first instance that nothing was proposed for
        self._in_flight: dict[int, int] = {}  # instance -> tick of its last 2a
        self._heard_from: dict[ProcessId, int] = {}
        self._applied_by: dict[ProcessId, int] = {}
        self._readding: dict[ProcessId, int] = {}
        self._outranked: Ballot = -1  # the highest ballot that a member holds against this leader
        self._rise_tick = 0  # when to rise above it
        self._propose_key = f"log.{group}.propose"

    # -- what the layer above sees

    @property
    def is_leader(self) -> bool:
        return self._role == LEADER

    def recover(self, records: Sequence[Record]) -> None:
        snapshot, votes = self._acceptor.recover(records)
        self._is_first_start = False
        if not self._acceptor.is_member:
            self._acceptor.incarnation = self._rng.getrandbits(62) | 1
        if snapshot is not None:
            self._next = self._floor = self._snapshot_next = snapshot.next
            self._incarnations = dict(snapshot.incarnations)
            self._recovered = [StateReceived(snapshot.state)]
        for vote in votes:
            if vote.instance >= self._next:
                slot = self._slot(vote.instance)
                if vote.ballot >= slot.ballot:
                    slot.ballot, slot.value = vote.ballot, vote.value

    def on_boot(self, out: Outbox) -> list[Decision]:
        decisions = super().on_boot(out)
        self._be_patient()
        if not self._is_first_start:
            return decisions
        self._acceptor.format(out)
        if owner_of(self._leader_ballot) == self._process:
            self._ballot = self._leader_ballot
            return self._lead(out)
        return []

    def propose(self, entry: Any, out: Outbox, lazy: bool = False) -> None:
        if self._role != LEADER:
            return
        self._batch.append(entry)
        if not lazy:
            self._urgent = True
            self._set_propose_timer(out)

    def propose_all(self, entries: Sequence[Any], out: Outbox) -> None:
        if self._role == LEADER and entries:
            self._batch.extend(entries)
            self._urgent = True
            self._set_propose_timer(out)

    def compact(self, state: bytes, out: Outbox) -> None:
        if self._welcome is not None and not self._acceptor.is_member and self._may_return():
            self._return_to_group(self._welcome)
        if not self._acceptor.is_member:
            return
        self.cover()
        votes = tuple(self._votes_from(self._next))
        self._acceptor.snapshot(self._next, dict(self._incarnations), state, votes, out)
        self._truncate(self._lag_floor())

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> list[Decision]:
        match message:
            case Accepted():
                return self._on_accepted(sender, message, out)
            case Accept():
                return self._on_accept(sender, message, out)
            case HeartbeatAck():
                self._on_heartbeat_ack(sender, message)
                return []
            case CatchUp():
                return self._on_catch_up(sender, message, out)
            case Prepare():
                return self._on_prepare(sender, message, out)
            case Promise():
                return self._on_promise(sender, message, out)
            case Nack():
                return self._on_nack(sender, message, out)
            case Rejoin():
                return self._on_rejoin(sender, message, out)
            case Readmission():
                return self._on_readmission(sender, message, out)
            case _:
                return super().on_message(sender, message, out)

    def on_timer(self, key: TimerKey, out: Outbox) -> list[Decision]:
        if key == self._propose_key:
            self._timer_set = False
            return self._propose_batch(out)
        return super().on_timer(key, out)

    def _on_tick(self, out: Outbox) -> list[Decision]:
        if not self._acceptor.is_member:
            out.send_all(self._others, Rejoin(self.group, self._acceptor.incarnation))
            return []
        if self._role == LEADER:
            return self._tick_leader(out)
        if self._ticks - self._heard_tick > self._patience:
            return self._campaign(out)
        if self._role == CANDIDATE:
            missing = [p for p in self._others if p not in self._promises]
            out.send_all(missing, Prepare(self.group, self._ballot, self._next))
        return []

    def _learners(self) -> tuple[ProcessId, ...]:
        """Everyone else who is sent 2a and 2b."""
        return self._others + self._remote_learners

    @property
    def _two_decide(self) -> bool:
        """Whether the leader's vote and one more are a majority."""
        return len(self._members) <= 3

    def serve(self, remote_learners: Sequence[ProcessId]) -> None:
        """From now on these processes of other groups follow the log."""
        self._remote_learners = tuple(remote_learners)
        self._remote_groups = {}
        for process in remote_learners:
            group = self._topology.group_of(process)
            assert group is not None, "learners are members of groups"
            self._remote_groups.setdefault(group, []).append(process)

    def _send_accept(self, instance: int, value: bytes, out: Outbox) -> None:
        voted = out.persists_at_once
        if self._projection is None:
            out.send_all(self._learners(), Accept(self.group, self._ballot, instance, value, voted))
            return
        out.send_all(self._others, Accept(self.group, self._ballot, instance, value, voted))
        for group, learners in self._remote_groups.items():
            seen = self._projection(value, group) if has_entries(value) else value
            out.send_all(learners, Accept(self.group, self._ballot, instance, seen, voted))

    def _be_patient(self) -> None:
        """Randomised, so that members do not campaign against each other for ever."""
        self._heard_tick = self._ticks
        self._patience = self._config.election_ticks + self._rng.randrange(self._config.election_ticks + 1)

    # -- acceptor

    def _on_accept(self, sender: ProcessId, message: Accept, out: Outbox) -> list[Decision]:
        acceptor = self._acceptor
        if not acceptor.is_member:
            return super()._on_accept(sender, message, out)
        if owner_of(message.ballot) != sender or not self._is_member(sender):
            return []
        if message.ballot < acceptor.promised:
            out.send(sender, Nack(self.group, acceptor.promised))
            return []
        self._follow(message.ballot)
        if message.instance < self._floor:
            return [StateWanted(sender)]  # decided and forgotten here, and its leader does not know
        slot = self._vote(message.ballot, message.instance, message.value, out)
        if message.voted and not slot.decided:
            self._count_vote(slot, message.ballot, sender)
        # A repeated 2a means that a vote was lost: it is told again, for a decided instance as well.
        told = (sender, *self._remote_learners) if message.voted and self._two_decide else self._learners()
        out.send_all(told, Accepted(self.group, message.ballot, message.instance))
        return self._advance(out)

    def _vote(self, ballot: Ballot, instance: int, value: bytes, out: Outbox) -> Slot:
        slot = self._slot(instance)
        if slot.ballot < ballot and not slot.decided:
            self._acceptor.vote(Vote(instance, ballot, value), out)
            self._hold_value(slot, ballot, value)
        if not slot.decided:
            self._count_vote(slot, ballot, self._process)
        return slot

    def _on_prepare(self, sender: ProcessId, message: Prepare, out: Outbox) -> list[Decision]:
        acceptor = self._acceptor
        if not acceptor.is_member or owner_of(message.ballot) != sender or not self._is_member(sender):
            return []
        if self._hears_a_leader() and sender != self.leader:
            return []
        if message.ballot < acceptor.promised:
            out.send(sender, Nack(self.group, acceptor.promised))
            return []
        if message.ballot > acceptor.promised:
            acceptor.promise(message.ballot, out)
        self._role = FOLLOWER
        self._be_patient()
        votes = tuple(self._votes_from(message.first))
        out.send(sender, Promise(self.group, message.ballot, acceptor.incarnation, self._floor, votes))
        return []

    def _votes_from(self, first: int) -> list[Vote]:
        slots = self._slots
        return [Vote(i, slots[i].ballot, slots[i].value) for i in sorted(slots) if i >= first and slots[i].ballot >= 0]

    def _hears_a_leader(self) -> bool:
        if self._role == LEADER:
            return True
        heard_recently = self._ticks - self._heard_tick < self._config.election_ticks
        return self._role == FOLLOWER and heard_recently and self._leader_ballot >= self._acceptor.promised

    # -- election

    def _campaign(self, out: Outbox, above: Ballot = -1) -> list[Decision]:
        self._role = CANDIDATE
        self._be_patient()
        round_ = round_of(max(self._acceptor.promised, self._leader_ballot, above)) + 1
        self._ballot = ballot_of(round_, self._process)
        self._acceptor.promise(self._ballot, out)
        votes = tuple(self._votes_from(self._next))
        own = Promise(self.group, self._ballot, self._acceptor.incarnation, self._floor, votes)
        self._promises = {self._process: own}
        out.send_all(self._others, Prepare(self.group, self._ballot, self._next))
        return self._try_to_lead(out)

    def _on_promise(self, sender: ProcessId, message: Promise, out: Outbox) -> list[Decision]:
        if self._role != CANDIDATE or message.ballot != self._ballot or not self._is_member(sender):
            return []
        if message.floor > self._next:
            # That member has forgotten what this one never learned: learn first, lead later.
            self._role = FOLLOWER
            self._be_patient()
            self._ask(sender, out)
            return []
        self._promises[sender] = message
        return self._try_to_lead(out)

    def _try_to_lead(self, out: Outbox) -> list[Decision]:
        values = self._best_votes()
        incarnations = dict(self._incarnations)
        for instance in sorted(values):
            if (readd := decode_readd(values[instance].value)) is not None:
                incarnations[readd.process] = readd.incarnation
        mask = 0
        for process, promise in self._promises.items():
            if promise.incarnation == incarnations.get(process, 0):
                mask |= self._counter.bit(process)
            # Otherwise the promise is of a disk that is lost: see the acceptor's law.
        if not self._counter.is_quorum(mask):
            return []
        decisions = self._lead(out)
        for instance in range(self._next, max(values, default=-1) + 1):
            vote = values.get(instance)
            decisions += self._propose_value(instance, vote.value if vote else NOTHING, out)
        return decisions

    def _best_votes(self) -> dict[int, Vote]:
        best: dict[int, Vote] = {}
        for promise in self._promises.values():
            for vote in promise.votes:
                if vote.instance >= self._next and (
                    vote.instance not in best or best[vote.instance].ballot < vote.ballot
                ):
                    best[vote.instance] = vote
        return best

    def _lead(self, out: Outbox) -> list[Decision]:
        self._role = LEADER
        self._leader_ballot = self._ballot
        self._batch = []
        self._values.clear()
        self._in_flight = {}
        self._readding = {}
        self._next_free = self._next
        self._heard_from = dict.fromkeys(self._others, self._ticks)
        self._applied_by = {}
        self._promises = {}
        self._send_heartbeat(out)
        return [Elected()]

    def _follow(self, ballot: Ballot) -> None:
        """Someone leads with this ballot, which is no lower than what this process promised."""
        if owner_of(ballot) != self._process:
            self._role = FOLLOWER
        self._leader_ballot = max(self._leader_ballot, ballot)
        self._heard_tick = self._ticks

    def _on_nack(self, sender: ProcessId, message: Nack, out: Outbox) -> list[Decision]:
        if self._role == FOLLOWER or message.promised <= self._ballot or not self._is_member(sender):
            return []
        if self._role == LEADER:
            # Either another leader is coming up, who will be heard soon; or a member promised more while it was cut
            # off, and only a higher ballot brings it back. A random wait tells, and keeps two from duelling for ever.
            if self._outranked <= self._ballot:
                self._rise_tick = self._ticks + 1 + self._rng.randrange(self._config.election_ticks)
            self._outranked = max(self._outranked, message.promised)
            return []
        self._role = FOLLOWER  # a duel: the random patience decides who tries next
        self._be_patient()
        return []

    def _on_heartbeat(self, sender: ProcessId, message: Heartbeat, out: Outbox) -> list[Decision]:
        if not self._acceptor.is_member:
            return super()._on_heartbeat(sender, message, out)
        if owner_of(message.ballot) != sender:
            return []
        if message.ballot < self._acceptor.promised:
            out.send(sender, Nack(self.group, self._acceptor.promised))
            return []
        self._follow(message.ballot)
        return super()._on_heartbeat(sender, message, out)

    # -- leader

    def _tick_leader(self, out: Outbox) -> list[Decision]:
        # Followers wait for one to two election times: a leader gives up no earlier than they would replace it.
        silence = 2 * self._config.election_ticks
        heard = sum(self._ticks - tick <= silence for tick in self._heard_from.values())
        if 2 * (heard + 1) <= len(self._members):
            self._role = FOLLOWER
            self._be_patient()
            return []
        if self._outranked > self._ballot and self._ticks >= self._rise_tick:
            return self._campaign(out, above=self._outranked)
        self._send_heartbeat(out)
        self._retransmit(out)
        if self._batch or self._values:
            self._set_propose_timer(out)
        return []

    def _send_heartbeat(self, out: Outbox) -> None:
        learners = self._learners()
        applied = min((self._applied_by.get(p, 0) for p in learners), default=self._next)
        floor = max(applied, self._lag_floor())
        # What a member forgets must be in its snapshot, and no earlier than that.
        floor = min(floor, self._snapshot_next)
        out.send_all(learners, Heartbeat(self.group, self._ballot, self._next, floor))
        self._truncate(floor)

    def _on_heartbeat_ack(self, sender: ProcessId, message: HeartbeatAck) -> None:
        if self._role == LEADER and message.ballot == self._ballot:
            if sender in self._heard_from:
                self._heard_from[sender] = self._ticks
            self._applied_by[sender] = max(message.applied, self._applied_by.get(sender, 0))

    def _retransmit(self, out: Outbox) -> None:
        for instance, tick in self._in_flight.items():
            if self._ticks - tick >= self._config.retransmit_ticks:
                self._in_flight[instance] = self._ticks
                self._send_accept(instance, self._slots[instance].value, out)

    def _set_propose_timer(self, out: Outbox) -> None:
        if not self._timer_set:
            self._timer_set = True
            out.set_timer(self._propose_key, 0)

    def _propose_batch(self, out: Outbox) -> list[Decision]:
        decisions: list[Decision] = []
        while self._role == LEADER and (self._values or self._batch) and self._has_room():
            if not self._values:
                self._values.extend(self._cut(self._batch))
                self._batch, self._urgent = [], False
            decisions += self._propose_value(self._next_free, self._values.popleft(), out)
        return decisions

    def _has_room(self) -> bool:
        in_flight, config = self._in_flight, self._config
        if len(in_flight) >= config.window:
            return False
        return sum([len(self._slots[instance].value) for instance in in_flight]) < config.window_bytes

    def _cut(self, entries: list[Any]) -> list[bytes]:
        """As few values as the limit allows: links and disks take many of a moderate size better than a huge one."""
        value = encode(entries)
        if len(value) <= self._config.value_bytes or len(entries) == 1:
            return [value]
        parts: list[list[msgspec.Raw]] = []
        size = self._config.value_bytes
        for entry in entries:
            data = msgspec.Raw(encode(entry))
            size += len(data)
            if size > self._config.value_bytes:
                parts.append([])
                size = len(data)
            parts[-1].append(data)
        return [encode(part) for part in parts]

    def _propose_value(self, instance: int, value: bytes, out: Outbox) -> list[Decision]:
        assert self._role == LEADER and instance >= self._next
        self._next_free = instance + 1
        self._in_flight[instance] = self._ticks
        if out.persists_at_once:
            self._vote(self._ballot, instance, value, out)
            self._send_accept(instance, value, out)
        else:
            self._send_accept(instance, value, out)
            self._vote(self._ballot, instance, value, out)
            out.send_all(self._learners(), Accepted(self.group, self._ballot, instance))
        return self._advance(out)

    def _advance(self, out: Outbox) -> list[Decision]:
        before = self._next
        decisions = super()._advance(out)
        if self._role == LEADER and self._next > before:
            self._next_free = max(self._next_free, self._next)
            for instance in range(before, self._next):
                self._in_flight.pop(instance, None)
            if self._urgent or self._values:
                self._set_propose_timer(out)  # the window may have opened
        return decisions

    def _skip_to(self, next_: int) -> None:
        super()._skip_to(next_)
        self._next_free = max(self._next_free, next_)
        self._in_flight = {instance: tick for instance, tick in self._in_flight.items() if instance >= next_}

    def _is_snapshot_due(self) -> bool:
        return super()._is_snapshot_due() if self._acceptor.is_member else self._may_return()

    # -- members that lag, or come back without a disk

    def _on_catch_up(self, sender: ProcessId, message: CatchUp, out: Outbox) -> list[Decision]:
        if message.first < self._floor:
            return [StateWanted(sender)]
        last = min(self._next, message.first + self._config.learn_chunk)
        if message.first < last:
            out.send(sender, Learn(self.group, message.first, self._values_for(sender, range(message.first, last))))
        return []

    def _values_for(self, learner: ProcessId, instances: range) -> tuple[bytes, ...]:
        """As many as one answer has room for."""
        group = self._topology.group_of(learner)
        projection = None if group == self.group else self._projection
        values: list[bytes] = []
        size = 0
        for instance in instances:
            value = self._slots[instance].value
            if projection is not None and group is not None and has_entries(value):
                value = projection(value, group)
            values.append(value)
            size += len(value)
            if size >= self._config.learn_bytes:
                break
        return tuple(values)

    def _on_rejoin(self, sender: ProcessId, message: Rejoin, out: Outbox) -> list[Decision]:
        if self._role != LEADER or not self._is_member(sender):
            return []
        if self._incarnations.get(sender) == message.incarnation:
            answer = Readmission(self.group, message.incarnation, self._ballot, self._next)
            out.send(sender, answer)
            return []
        if self._readding.get(sender) != message.incarnation:
            self._readding[sender] = message.incarnation
            readd = encode_readd(Readd(sender, message.incarnation))
            return self._propose_value(self._next_free, readd, out)
        return []

    def _on_readmission(self, sender: ProcessId, message: Readmission, out: Outbox) -> list[Decision]:
        if self._acceptor.is_member or message.incarnation != self._acceptor.incarnation:
            return []
        if self._welcome is None or message.ballot > self._welcome.ballot:
            self._welcome = message
        if self._next < message.decided:
            self._ask(sender, out)
            return []
        return [SnapshotDue()]

    def _may_return(self) -> bool:
        """Its state is made durable in the same step: see `compact`."""
        return self._welcome is not None and self._next >= self._welcome.decided

    def _return_to_group(self, welcome: Readmission) -> None:
        self._acceptor.promised = max(self._acceptor.promised, welcome.ballot)
        self._acceptor.is_member = True
        self._welcome = None
        # Values that it overheard were no votes, and must not look like votes from now on.
        for instance in [i for i, slot in self._slots.items() if not slot.decided]:
            del self._slots[instance]
        self._be_patient()
