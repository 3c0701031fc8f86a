"""Reads: how far a member must have been handed the log before it may answer one, without an entry in the log.

    reader                          all members
       |--ASK-READ------------------->|   read 7 has begun
       |<--READ-UP-TO-----------------|   all that I took part in is below instance n
       |  n-f members said so: read 7 waits until all below their highest n is handed up here

The law: **whatever any member was handed before a read began is handed up here when the read is done.** What was
decided was written by f+1 members that tell the truth, and one of these is among any n-f. So the highest end that n-f
members put is no lower than the end of what was decided. Liars may put it too high; then a later answer of another
member lowers it.
"""

from __future__ import annotations

from ...core import Outbox, ProcessId
from ..multipaxos.messages import ReadAt
from ..multipaxos.reads import Reads
from .ledger import Ledger
from .members import Members
from .messages import AskRead, ReadUpTo
from .rejoin import Rejoin
from .views import Views


class QuorumReads:
    def __init__(self, members: Members, ledger: Ledger, views: Views, rejoin: Rejoin) -> None:
        self._members = members
        self._ledger = ledger
        self._views = views
        self._rejoin = rejoin
        self._reads = Reads()
        self._ends: dict[int, dict[ProcessId, int]] = {}  # what members put as the end, for each read
        self._since = 0  # the tick since which no read was done
        self._done = -1
        self._fresh: set[ProcessId] = set()  # members that were not ahead of this one when they last said so
        self.freshness = 0  # how often n-f members, this one included, were not

    # -- the reader

    def begin(self, read: int, ticks: int, out: Outbox) -> None:
        if not self._reads.is_waiting:
            self._since = ticks
        if self._reads.begin(read):
            self._ask(read, out)

    def done(self, ticks: int, out: Outbox) -> int:
        """The latest read that is done."""
        read = self._reads.advance(self._ledger.next)
        if read is not None:
            self._ask(read, out)
        done = self._reads.done
        if done > self._done:
            self._done, self._since = done, ticks
        self._ends = {each: ends for each, ends in self._ends.items() if each > done}
        return done

    def on_tick(self, out: Outbox) -> None:
        read = self._reads.overdue()
        if read is not None:
            self._ask(read, out)

    def give_time(self, ticks: int) -> None:
        """A view begins: what waits does so from now on."""
        self._since = ticks

    def is_overdue(self, ticks: int) -> bool:
        return self._reads.is_waiting and ticks - self._since > self._views.patience

    def _ask(self, read: int, out: Outbox) -> None:
        self._ends.setdefault(read, {})
        out.send_all(self._members.others, AskRead(self._members.group, read))
        if self._may_answer:
            self.on_answer(self._members.process, ReadUpTo(self._members.group, read, self._end()))

    def on_answer(self, sender: ProcessId, message: ReadUpTo) -> None:
        ends = self._ends.get(message.read)
        if ends is None:
            return
        ends[sender] = message.next
        if len(ends) >= self._members.quorum:
            end = sorted(ends.values())[self._members.quorum - 1]
            self._reads.take(ReadAt(self._members.group, message.read, end))

    # -- all members

    def on_ask(self, sender: ProcessId, message: AskRead, out: Outbox) -> None:
        if self._may_answer:
            out.send(sender, ReadUpTo(self._members.group, message.read, self._end()))

    @property
    def _may_answer(self) -> bool:
        return self._rejoin.is_member and self._views.installed

    def _end(self) -> int:
        """All that was decided and that this member took part in is below: what it was handed, what its view began
        with, and what it wrote in it. Or knows to be decided: that may wait behind an instance that is not."""
        return max(self._ledger.next, self._views.choice.end, self._ledger.end_of_votes(self._views.view))

    def on_next(self, sender: ProcessId, next_: int) -> None:
        """A member says how far it is."""
        if next_ <= self._ledger.next:
            self._fresh.add(sender)
            if len(self._fresh) + 1 >= self._members.quorum:
                self._fresh = set()
                self.freshness += 1
