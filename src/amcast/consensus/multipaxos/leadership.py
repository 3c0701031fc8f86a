"""Leadership: what the elected member does. It gives each value an instance, and sees to it that it is decided.

    leader                   the audience
       |--2a ACCEPT--------------->|   value, ballot, instance; repeated until the instance is decided
       |--HEARTBEAT--------------->|   with every tick: who leads, what is decided, what may be forgotten
       |<--heartbeat-ack-----------|   and how much of the log a restart of this process would not need

Entries that are proposed in one turn make one value (a batch), or a few if they are large. At most `window` instances
are in flight; what is proposed meanwhile makes the next batch. A new leader begins with the values that may have been
decided before it, under their old instances. A leader that a majority no longer answers is none.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ...core import Outbox, ProcessId
from ..base import Decision, Elected
from ..values import cut_into_values
from .acceptor import Acceptor
from .audience import Audience
from .config import PaxosConfig
from .election import LEADER, Election, Votes
from .learner import Learner
from .messages import (
    NOTHING,
    Accepted,
    Ballot,
    Heartbeat,
    HeartbeatAck,
    Incarnation,
    Outdated,
    Readd,
    Readmission,
    Rejoin,
    encode_readd,
    number_of,
)

_RETRANSMIT_FACTOR_MAX = 8  # the longest wait for the next 2a of an instance, in `retransmit_ticks`


class Leadership:
    def __init__(
        self, config: PaxosConfig, learner: Learner, acceptor: Acceptor, election: Election, audience: Audience
    ) -> None:
        self._group = learner.group
        self._config = config
        self._learner = learner
        self._acceptor = acceptor
        self._election = election
        self._audience = audience
        self.batch: list[Any] = []  # entries that were proposed and are in no value yet
        self._values: deque[bytes] = deque()  # what was cut off the batch, and waits for room in the window
        self._urgent = False  # the batch holds an entry that should not wait for company
        self._timer_set = False
        self.next_free = 0  # the first instance that nothing was proposed for
        self.handed_up = 0  # the learner's `next`, when this leader last looked: nothing below is in flight
        self._in_flight: dict[int, tuple[int, int]] = {}  # instance -> tick of its last 2a, ticks until the next one
        self._heard_from: dict[ProcessId, int] = {}  # the tick of each member's last answer
        self._answered: set[ProcessId] = set()  # members that answered since `freshness` rose
        self.freshness = 0  # rises whenever a majority has answered
        self._applied_by: dict[ProcessId, int] = {}  # a restart of this process needs no instance below
        self._readding: dict[ProcessId, Incarnation] = {}  # incarnations of members that the log is about to take back
        self.propose_key = f"log.{learner.group}.propose"

    def begin(self, votes: Votes, out: Outbox) -> list[Decision]:
        """This process was elected; `votes` are what may have been decided before."""
        learner = self._learner
        self.batch = []
        self._values.clear()
        self._in_flight = {}
        self._readding = {}
        self.next_free = self.handed_up = learner.next
        self._heard_from = dict.fromkeys(learner.others, learner.ticks)
        self._answered = set()
        self._applied_by = {}
        self._send_heartbeat(out)
        decisions: list[Decision] = [Elected()]
        for instance in range(learner.next, max(votes, default=-1) + 1):
            vote = votes.get(instance)
            decisions += self._propose_value(instance, vote.value if vote else NOTHING, out)
        return decisions

    # -- proposals

    def hurry(self, out: Outbox) -> None:
        """The batch leaves at the end of this turn."""
        self._urgent = True
        self._set_propose_timer(out)

    def _set_propose_timer(self, out: Outbox) -> None:
        if not self._timer_set:
            self._timer_set = True
            out.set_timer(self.propose_key, 0)

    def on_propose_timer(self, out: Outbox) -> list[Decision]:
        self._timer_set = False
        decisions: list[Decision] = []
        while self._election.role == LEADER and (self._values or self.batch) and self._has_room():
            if not self._values:
                self._values.extend(cut_into_values(self.batch, self._config.value_bytes))
                self.batch, self._urgent = [], False
            decisions += self._propose_value(self.next_free, self._values.popleft(), out)
        return decisions

    def _has_room(self) -> bool:
        in_flight, slots = self._in_flight, self._learner.slots
        if len(in_flight) >= self._config.window:
            return False
        return sum([len(slots[instance].value) for instance in in_flight]) < self._config.window_bytes

    def _propose_value(self, instance: int, value: bytes, out: Outbox) -> list[Decision]:
        learner, ballot = self._learner, self._election.ballot
        assert self._election.role == LEADER and instance >= learner.next
        self.next_free = instance + 1
        self._in_flight[instance] = (learner.ticks, self._config.retransmit_ticks)
        if out.persists_at_once:
            self._acceptor.vote(ballot, instance, value, out)
            self._audience.send_accept(ballot, instance, value, out)
        else:
            self._audience.send_accept(ballot, instance, value, out)
            self._acceptor.vote(ballot, instance, value, out)
            out.send_all(self._audience.all(), Accepted(self._group, ballot, instance))
        decisions = learner.advance()
        if learner.next > self.handed_up:
            self.on_handed_up(out)
        return decisions

    def on_handed_up(self, out: Outbox) -> None:
        """Instances were decided and handed up: the window may have opened."""
        self.skip_to(self._learner.next)
        if self._urgent or self._values:
            self._set_propose_timer(out)

    def skip_to(self, next_: int) -> None:
        """All instances below are decided."""
        for instance in range(self.handed_up, next_):
            self._in_flight.pop(instance, None)
        self.handed_up = max(self.handed_up, next_)
        self.next_free = max(self.next_free, next_)

    # -- with every tick

    def is_answered(self) -> bool:
        """Whether a majority was heard lately."""
        # Followers wait for one to two election times: a leader gives up no earlier than they would replace it.
        silence, ticks = 2 * self._config.election_ticks, self._learner.ticks
        heard = sum(ticks - tick <= silence for tick in self._heard_from.values())
        return 2 * (heard + 1) > len(self._learner.members)

    def on_tick(self, out: Outbox) -> None:
        self._send_heartbeat(out)
        self._retransmit(out)
        if self.batch or self._values:
            self._set_propose_timer(out)

    def _send_heartbeat(self, out: Outbox) -> None:
        learner, audience = self._learner, self._audience.all()
        applied = min((self._applied_by.get(p, 0) for p in audience), default=learner.next)
        floor = max(applied, learner.lag_floor())
        floor = min(floor, learner.snapshot_next)  # a member forgets only what is in its snapshot
        out.send_all(audience, Heartbeat(self._group, self._election.ballot, learner.next, floor))
        learner.truncate(floor)

    def on_sign_of_life(self, sender: ProcessId, ballot: Ballot) -> None:
        """The member follows this ballot. Its votes say so as well: where much waits, acks of heartbeats come late."""
        if sender in self._heard_from and ballot == self._election.ballot:
            self._heard_from[sender] = self._learner.ticks

    def on_heartbeat_ack(self, sender: ProcessId, message: HeartbeatAck) -> None:
        if self._election.role == LEADER and message.ballot == self._election.ballot:
            self.on_sign_of_life(sender, message.ballot)
            self._count_answer(sender)
            self._applied_by[sender] = max(message.applied, self._applied_by.get(sender, 0))

    def _count_answer(self, sender: ProcessId) -> None:
        if sender in self._heard_from:
            self._answered.add(sender)
            if 2 * (len(self._answered) + 1) > len(self._learner.members):
                self._answered = set()
                self.freshness += 1

    def _retransmit(self, out: Outbox) -> None:
        """The same instance less and less often: members that are slow, not deaf, would only become slower."""
        ticks, wait_max = self._learner.ticks, _RETRANSMIT_FACTOR_MAX * self._config.retransmit_ticks
        for instance, (tick, wait) in self._in_flight.items():
            if ticks - tick >= wait:
                self._in_flight[instance] = (ticks, min(2 * wait, wait_max))
                value = self._learner.slots[instance].value
                self._audience.send_accept(self._election.ballot, instance, value, out)

    # -- members that come back without a disk

    def on_rejoin(self, sender: ProcessId, message: Rejoin, out: Outbox) -> list[Decision]:
        """The log itself must hold the decision to take a member back: see the acceptor's law."""
        learner, incarnation = self._learner, message.incarnation
        if self._election.role != LEADER or not learner.is_member(sender):
            return []
        known = learner.incarnations.get(sender, 0)
        if known == incarnation:
            out.send(sender, Readmission(self._group, incarnation, self._election.ballot, learner.next))
            return []
        if number_of(incarnation) <= number_of(known):
            out.send(sender, Outdated(self._group, known))
            return []
        if self._readding.get(sender) == incarnation:
            return []
        self._readding[sender] = incarnation
        return self._propose_value(self.next_free, encode_readd(Readd(sender, incarnation)), out)
