"""Election: which member leads, and with which ballot. Phase 1 of Paxos, and the timeouts that start it.

    candidate                the other members
       |--1a PREPARE-------------->|   ballot b: promise to vote for nothing below b any more
       |<--1b PROMISE--------------|   promised, and durably so; with it, all votes that this member has cast
       |                           |   a majority promised: lead with b, and propose again what those votes hold

At most one member leads with a ballot, since its owner is part of its number. A candidate that wins knows every value
that may have been decided below its ballot: some member of its majority voted for it and said so.

A member that hears no leader for one to two election times campaigns; the wait is drawn at random, so that members do
not campaign against each other for ever. Departures from the textbook: the first member leads ballot 0 without phase 1,
since no ballot is below it. A member that hears a leader ignores other candidates, so that a member that was cut off
for a while can't depose a leader that serves the others. A leader that a majority no longer answers steps down.
"""

from __future__ import annotations

from random import Random

from ...core import Outbox, ProcessId
from .acceptor import Acceptor
from .config import PaxosConfig
from .learner import Learner
from .messages import Ballot, Nack, Prepare, Promise, Vote, ballot_of, decode_readd, owner_of, round_of

FOLLOWER, CANDIDATE, LEADER = range(3)

Votes = dict[int, Vote]  # what a new leader must propose again: of each instance, the vote of the highest ballot


class Election:
    def __init__(
        self, process: ProcessId, config: PaxosConfig, rng: Random, learner: Learner, acceptor: Acceptor
    ) -> None:
        self._process = process
        self._election_ticks = config.election_ticks
        self._rng = rng
        self._learner = learner
        self._acceptor = acceptor
        self.role = FOLLOWER
        self.ballot: Ballot = -1  # of this process's own candidacy or leadership
        # Followers and candidates
        self._heard_tick = 0
        self._patience = 0
        self._promises: dict[ProcessId, Promise] = {}
        # Leaders
        self._outranked: Ballot = -1  # the highest ballot that a member holds against this leader
        self._rise_tick = 0  # when to rise above it

    @property
    def leads(self) -> bool:
        return self.role == LEADER

    def be_patient(self) -> None:
        self._heard_tick = self._learner.ticks
        self._patience = self._election_ticks + self._rng.randrange(self._election_ticks + 1)

    def step_down(self) -> None:
        self.role = FOLLOWER
        self.be_patient()

    def start(self) -> bool:
        """The first start of the group: the first member leads ballot 0 at once, since no ballot is below it."""
        is_first = owner_of(self._learner.leader_ballot) == self._process
        if is_first:
            self.role, self.ballot = LEADER, self._learner.leader_ballot
        return is_first

    def follow(self, ballot: Ballot) -> None:
        """Someone leads with this ballot, which is no lower than what this process promised."""
        learner = self._learner
        if owner_of(ballot) != self._process:
            self.role = FOLLOWER
        if ballot > learner.leader_ballot:
            learner.leader_ballot = ballot
        self._heard_tick = learner.ticks

    def on_tick(self, out: Outbox) -> Votes | None:
        """For members that do not lead. Like `campaign`, if it is time for that."""
        if self._learner.ticks - self._heard_tick > self._patience:
            return self.campaign(out)
        if self.role == CANDIDATE:
            missing = [p for p in self._learner.others if p not in self._promises]
            out.send_all(missing, Prepare(self._learner.group, self.ballot, self._learner.next))
        return None

    def must_rise(self) -> bool:
        """Whether this leader has waited long enough for the owner of the higher ballot to show itself."""
        return self._outranked > self.ballot and self._learner.ticks >= self._rise_tick

    def rise(self, out: Outbox) -> Votes | None:
        return self.campaign(out, above=self._outranked)

    def campaign(self, out: Outbox, above: Ballot = -1) -> Votes | None:
        """Phase 1 with a new ballot. What to propose again if that wins at once, as in a group of one."""
        learner, acceptor = self._learner, self._acceptor
        self.role = CANDIDATE
        self.be_patient()
        round_ = round_of(max(acceptor.promised, learner.leader_ballot, above)) + 1
        self.ballot = ballot_of(round_, self._process)
        acceptor.promise(self.ballot, out)
        self._promises = {self._process: self._promise(self.ballot, learner.next)}
        out.send_all(learner.others, Prepare(learner.group, self.ballot, learner.next))
        return self._count_promises()

    def _promise(self, ballot: Ballot, first: int) -> Promise:
        learner, acceptor = self._learner, self._acceptor
        return Promise(learner.group, ballot, acceptor.incarnation, learner.floor, acceptor.votes_from(first))

    def on_prepare(self, sender: ProcessId, message: Prepare, out: Outbox) -> None:
        acceptor = self._acceptor
        if owner_of(message.ballot) != sender or not self._learner.is_member(sender):
            return
        if self._hears_a_leader() and sender != self._learner.leader:
            return
        if message.ballot < acceptor.promised:
            out.send(sender, Nack(self._learner.group, acceptor.promised))
            return
        if message.ballot > acceptor.promised:
            acceptor.promise(message.ballot, out)
        self.step_down()
        out.send(sender, self._promise(message.ballot, message.first))

    def _hears_a_leader(self) -> bool:
        if self.role == LEADER:
            return True
        heard_recently = self._learner.ticks - self._heard_tick < self._election_ticks
        return self.role == FOLLOWER and heard_recently and self._learner.leader_ballot >= self._acceptor.promised

    def on_promise(self, sender: ProcessId, message: Promise, out: Outbox) -> Votes | None:
        """What to propose again if this promise makes the majority."""
        if self.role != CANDIDATE or message.ballot != self.ballot or not self._learner.is_member(sender):
            return None
        if message.floor > self._learner.next:
            # That member has forgotten what this one never learned: learn first, lead later.
            self.step_down()
            self._learner.ask(sender, out)
            return None
        self._promises[sender] = message
        return self._count_promises()

    def _count_promises(self) -> Votes | None:
        votes = self._best_votes()
        incarnations = dict(self._learner.incarnations)
        for instance in sorted(votes):
            if (readd := decode_readd(votes[instance].value)) is not None:
                readd.apply_to(incarnations)
        counter = self._learner.counter
        mask = 0
        for process, promise in self._promises.items():
            if promise.incarnation == incarnations.get(process, 0):
                mask |= counter.bit(process)
            # Otherwise the promise is of a disk that is lost: see the acceptor's law.
        if not counter.is_quorum(mask):
            return None
        self.role = LEADER
        self._learner.leader_ballot = self.ballot
        self._promises = {}
        return votes

    def _best_votes(self) -> Votes:
        best: Votes = {}
        for promise in self._promises.values():
            for vote in promise.votes:
                known = best.get(vote.instance)
                if vote.instance >= self._learner.next and (known is None or known.ballot < vote.ballot):
                    best[vote.instance] = vote
        return best

    def on_nack(self, sender: ProcessId, message: Nack) -> None:
        if self.role == FOLLOWER or message.promised <= self.ballot or not self._learner.is_member(sender):
            return
        if self.role == CANDIDATE:
            self.step_down()  # a duel: the random patience decides who tries next
            return
        # Either another leader is coming up, who will be heard soon; or a member promised more while it was cut off,
        # and only a higher ballot brings it back. A random wait tells, and keeps two from duelling for ever.
        if self._outranked <= self.ballot:
            self._rise_tick = self._learner.ticks + 1 + self._rng.randrange(self._election_ticks)
        self._outranked = max(self._outranked, message.promised)
