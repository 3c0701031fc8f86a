"""Reads: how far a process must have followed a log before it may answer a read, without an entry in the log.

    reader (any learner)     leader                   the other members
       |--READ-INDEX------------>|                          |   read 7 has begun
       |                         |--CONFIRM---------------->|   round 3 of ballot b: for all reads of this turn
       |                         |<--CONFIRMED--------------|   I have promised nothing above b
       |<--READ-AT---------------|                          |   a majority said so: read 7 waits for instance n
       |  all below n is handed up here: read 7 is done

The law: **whatever any learner was handed before a read began is handed up here when the read is done.** Why:

- n is the first instance for which the leader had proposed nothing, after the read began. So everything that was
  decided in its ballot b before the read began is below n; not only what the leader knows to be decided, since another
  learner may have counted the votes first, and told a client.
- What was decided in a ballot below b is below n as well: a leader begins with everything that its majority's promises
  tell of, and proposes it again before it serves anybody (`Leadership.begin`).
- Nothing was decided in a ballot above b before the read began: its owner needed a majority of promises first. Of that
  majority, one member at least confirmed b after the read began, and said that it had promised nothing higher. A member
  that forgot its promise with its disk confirms nothing until the group has taken it back. By the acceptor's law the
  higher candidate sees that decision, if it was made in b or below, and drops the promise that was forgotten.

No clock is asked. A read costs a round of messages, all reads that begin in a turn share one, and rounds overlap. The
first round after each tick asks all members. Those that confirm it first, as many as a majority needs, are asked alone
in the rounds that follow until the next tick: a busy group has half the work, and an idle one asks all every time.

If a message is lost or the leader changes, readers ask again: any later answer does for an earlier read too. An
instance that a leader proposed and that its successor knows nothing of may stay empty for long; the next answer is
lower.

Numbers of reads only rise in one life of a process, and no two of its lives use the same: an answer to an earlier life
would tell too little.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...core import Outbox, ProcessId, majority
from .messages import Ballot, Confirm, Confirmed, ReadAt

if TYPE_CHECKING:
    from .election import Election
    from .leadership import Leadership
    from .learner import Learner

_OVERLAP_MAX = 64  # rounds of a leader, and questions of a reader: what comes meanwhile goes into the next one


class Reads:
    """The reader's side: the reads of one process that are not done yet."""

    def __init__(self) -> None:
        self.done = -1  # this read is done, and all before it
        self._open: dict[int, int | None] = {}  # reads that were asked for: the instance to wait for, once it is known
        self._next: int | None = None  # a read that was begun, and has to wait until others are done
        self.latest = -1  # the last one that was begun
        self._marked = -1  # `latest` at the last tick

    def begin(self, read: int) -> bool:
        """Whether the leader is to be asked now."""
        assert read > self.latest, "numbers of reads only rise"
        self.latest = read
        if len(self._open) >= _OVERLAP_MAX:
            self._next = read
            return False
        self._open[read] = None
        return True

    def take(self, answer: ReadAt) -> None:
        if answer.read in self._open:
            known = self._open[answer.read]
            self._open[answer.read] = answer.next if known is None else min(known, answer.next)

    def advance(self, next_: int) -> int | None:
        """All instances below `next_` are handed up. Returns a read that the leader is to be asked for now, if any."""
        for read in reversed(self._open):
            wanted = self._open[read]
            if wanted is not None and wanted <= next_:
                self.done = read
                self._open = {each: at for each, at in self._open.items() if each > read}
                break
        if self._next is None or len(self._open) >= _OVERLAP_MAX:
            return None
        read, self._next = self._next, None
        self._open[read] = None
        return read

    @property
    def is_waiting(self) -> bool:
        return bool(self._open)

    def overdue(self) -> int | None:
        """With every tick: the read to ask for again, if some have waited since the last tick."""
        marked, self._marked = self._marked, self.latest
        return next(reversed(self._open)) if self._open and next(iter(self._open)) <= marked else None

    def lacks(self, next_: int) -> bool:
        """Whether a read waits for an instance that is not handed up."""
        return any(wanted is not None and wanted > next_ for wanted in self._open.values())


class ReadRounds:
    """The leader's side."""

    def __init__(self, learner: Learner, election: Election, leadership: Leadership) -> None:
        self._group = learner.group
        self._learner = learner
        self._election = election
        self._leadership = leadership
        self._ballot: Ballot = -1  # of what follows
        self._asking: dict[ProcessId, int] = {}  # readers that no round was begun for: the latest read of each
        self._rounds: deque[tuple[int, int, dict[ProcessId, int]]] = deque()  # number, instance, readers
        self._round = 0
        self._confirmed: dict[ProcessId, int] = {}  # the latest round that a member confirmed
        self._marked = 0  # the latest round at the last tick
        self._fastest: list[ProcessId] = []  # who confirmed first since the last tick, as many as are needed
        self.confirm_key = f"log.{learner.group}.confirm"

    def ask(self, reader: ProcessId, read: int, out: Outbox) -> None:
        """All reads of this turn share a round."""
        self._begin_ballot()
        if not self._asking:
            out.set_timer(self.confirm_key, 0)
        self._asking[reader] = max(read, self._asking.get(reader, read))

    def _begin_ballot(self) -> None:
        if self._ballot != self._election.ballot:
            self._ballot = self._election.ballot
            self._asking, self._confirmed = {}, {}
            self._rounds.clear()
            self._round = self._marked = 0
            self._fastest = []

    @property
    def _is_current(self) -> bool:
        return self._election.leads and self._ballot == self._election.ballot

    @property
    def _knows_fastest(self) -> bool:
        """With this one they are a majority."""
        return len(self._fastest) + 1 >= majority(len(self._learner.members))

    def begin_round(self, out: Outbox) -> None:
        if not self._is_current or not self._asking or len(self._rounds) >= _OVERLAP_MAX:
            return
        self._round += 1
        asking, self._asking = self._asking, {}
        self._rounds.append((self._round, self._leadership.next_free, asking))
        asked = self._fastest if self._knows_fastest else self._learner.others
        out.send_all(asked, Confirm(self._group, self._ballot, self._round))
        self._answer(out)

    def on_confirmed(self, sender: ProcessId, message: Confirmed, out: Outbox) -> None:
        if self._is_current and message.ballot == self._ballot and self._learner.is_member(sender):
            self._confirmed[sender] = max(message.round, self._confirmed.get(sender, 0))
            if message.round > self._marked and not self._knows_fastest and sender not in self._fastest:
                self._fastest.append(sender)
            self._answer(out)

    def _answer(self, out: Outbox) -> None:
        """Who confirmed a round has confirmed all before it."""
        before = len(self._rounds)
        while self._rounds and self._is_confirmed(self._rounds[0][0]):
            _, next_, readers = self._rounds.popleft()
            for reader, read in readers.items():
                answer = ReadAt(self._group, read, next_)
                if reader == self._learner.process:
                    self._learner.reads.take(answer)
                else:
                    out.send(reader, answer)
        if len(self._rounds) < before and self._asking:
            out.set_timer(self.confirm_key, 0)

    def _is_confirmed(self, round_: int) -> bool:
        counter = self._learner.counter
        mask = counter.bit(self._learner.process)
        for member, confirmed in self._confirmed.items():
            if confirmed >= round_:
                mask |= counter.bit(member)
        return counter.is_quorum(mask)

    def on_tick(self, out: Outbox) -> None:
        """Asks all members, if a round has waited since the last tick, or was not asked of all."""
        if not self._is_current:
            return
        if self._rounds and (self._fastest or self._rounds[0][0] <= self._marked):
            out.send_all(self._learner.others, Confirm(self._group, self._ballot, self._round))
        self._marked = self._round
        self._fastest = []
        if self._asking:
            out.set_timer(self.confirm_key, 0)
