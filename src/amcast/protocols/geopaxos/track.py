"""A site's log as a replica has followed it: what the site has ordered, and what of it is not executed yet.

Everything here but the executed part depends on the log alone, so all replicas of all groups see the same order.

The order of a site. An operation of several sites has a final timestamp, and they are ordered by it. An operation of
this site alone comes after the operations whose STEP2 precedes it in the log, and after whatever has to precede those;
it comes before all others. So its place is (the highest final timestamp in the log before it, its number): between the
operations of several sites, where the log has it. It waits for no operation that is still without a final timestamp,
unless one that is final waits as well. (Without the optimisation against the convoy effect it takes a timestamp of its
own, and waits for all operations of several sites that got one before it.)
"""

from __future__ import annotations

from bisect import insort
from collections import deque

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId, Timestamp, clock_of, sender_of, seq_of, timestamp
from .messages import Attempt, Final, Key, Mark, Order

NOTHING: Key = (-1, -1)  # before everything
NEVER: Key = ((1 << 63) - 1, 0)  # after everything
STANDS = 4_096  # instances: more than a log gets while one site follows it and asks for an attempt


def multi_key(ts: Timestamp) -> Key:
    """The place of an operation of several sites: before the site's own ones that have this timestamp."""
    return (ts, -1)


class AdmittedOfSender(msgspec.Struct, array_like=True):
    """What the log has of one sender. Two pairs say what was forgotten: (what the sender called settled, the instance
    after the one that said so). The latest changes whenever the sender settles more; the one before it stands still for
    `STANDS` instances. So whoever asks for what is settled can follow the log as far as it must, however fast the
    sender goes on.
    """

    forgotten: list[tuple[int, int]] = []
    # By sequence number: the attempt's number, its sites, and the instance that has it.
    attempts: dict[int, list[tuple[int, tuple[GroupId, ...], int]]] = {}

    @property
    def settled(self) -> int:
        """The sender has answers for all messages with lower numbers, as it says."""
        return self.forgotten[-1][0] if self.forgotten else 0

    def forgotten_below(self, seq: int) -> int:
        """Attempts with this sequence number may be forgotten if they are in instances below this one: never less
        than it was. 0: none is."""
        return next((below for settled, below in self.forgotten if seq < settled), 0)

    def settle(self, settled: int, instance: int) -> None:
        below = instance + 1
        if len(self.forgotten) == 2:
            first = self.forgotten[0]
            del self.forgotten[0 if below - first[1] >= STANDS else 1]
        self.forgotten.append((settled, below))
        self.attempts = {
            seq: known
            for seq, known in self.attempts.items()
            if seq >= settled or known[-1][2] >= self.forgotten_below(seq)
        }


class Admitted(msgspec.Struct, array_like=True):
    """The attempts that are in the log: each counts once.

    What is settled is forgotten, and taken no more: it is in the log already, or a late copy that nobody needs. But
    another site may have ordered such a late copy, and wait for this one: what one client calls settled must not stop
    the operations of others. The site then says how far it has followed this log. If it knows all that may have been
    forgotten here, and has not seen the attempt, then the attempt is new.
    """

    senders: dict[ProcessId, AdmittedOfSender] = {}

    def is_new(self, order: Order) -> bool:
        attempt = order.attempt
        of = self.senders.get(sender_of(attempt.id))
        if of is None:
            return True
        seq = seq_of(attempt.id)
        for number, dst, _ in of.attempts.get(seq, ()):
            if number == attempt.number and dst == attempt.dst:
                return False
        below = of.forgotten_below(seq)
        return below == 0 or order.followed >= below

    def is_settled(self, id_: MessageId) -> bool:
        """Whether the log has it from the sender that it needs no answer to this message."""
        of = self.senders.get(sender_of(id_))
        return of is not None and seq_of(id_) < of.settled

    def admit(self, order: Order, instance: int) -> bool:
        if not self.is_new(order):
            return False
        attempt = order.attempt
        of = self.senders.setdefault(sender_of(attempt.id), AdmittedOfSender())
        seq = seq_of(attempt.id)
        of.attempts.setdefault(seq, []).append((attempt.number, attempt.dst, instance))
        settled = min(order.settled, seq)  # a message never settles itself
        if settled > of.settled:
            of.settle(settled, instance)
        return True


class Own(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one site orders alone: an operation, or a mark."""

    key: Key
    attempt: Attempt | None
    message: AppMessage | None
    mark: Mark | None = None


class TrackState(msgspec.Struct, array_like=True):
    group: GroupId
    position: int = 0
    clock: int = 0
    last_final: Timestamp = 0
    count: int = 0
    own: list[Own] = []
    pending: list[tuple[Attempt, Timestamp]] = []
    final: list[tuple[Timestamp, Attempt]] = []
    messages: list[tuple[Attempt, AppMessage]] = []
    admitted: Admitted = msgspec.field(default_factory=Admitted)


class Track:
    def __init__(self, state: TrackState, is_own: bool, counters_convoy: bool) -> None:
        self._is_own = is_own
        self._counters_convoy = counters_convoy
        self.group = state.group
        self.position = state.position  # the first instance that was not followed
        self.clock = state.clock
        self.last_final = state.last_final  # the highest final timestamp in the log
        self.count = state.count  # of operations of this site alone, and marks
        self.admitted = state.admitted
        # Of what is not executed:
        self.own = deque(state.own)  # by key
        self.marks = sum(each.mark is not None for each in state.own)  # among them
        self.pending = dict(state.pending)  # the site's timestamp of attempts without a final one, in their order
        self.final = {attempt: ts for ts, attempt in state.final}
        self.by_ts = list(state.final)  # the same, in their order
        self.messages = dict(state.messages)  # of those that the site was sent whole

    def dump(self) -> TrackState:
        return TrackState(
            self.group,
            self.position,
            self.clock,
            self.last_final,
            self.count,
            list(self.own),
            list(self.pending.items()),
            self.by_ts,
            list(self.messages.items()),
            self.admitted,
        )

    # -- the log

    def order(self, entry: Order, instance: int) -> bool:
        """Lines 13 to 16, and line 12. False if the attempt is known."""
        if not self.admitted.admit(entry, instance):
            return False
        attempt = entry.attempt
        if len(attempt.dst) > 1:
            self.clock += 1
            self.pending[attempt] = timestamp(self.clock, self.group)
            if entry.message is not None:
                self.messages[attempt] = entry.message
            return True
        if not self._counters_convoy:
            self.clock += 1
            self.last_final = timestamp(self.clock, self.group)
        self.own.append(Own(self._next_key(), attempt, entry.message))
        return True

    def finish(self, entry: Final) -> bool:
        """Lines 20 to 23, for this site. False if it was done before."""
        stamp = self.pending.pop(entry.attempt, None)
        if stamp is None:
            return False
        assert entry.ts >= stamp, "a final timestamp is the highest of those that the sites gave"
        self.clock = max(self.clock, clock_of(entry.ts))
        self.last_final = max(self.last_final, entry.ts)
        self.final[entry.attempt] = entry.ts
        insort(self.by_ts, (entry.ts, entry.attempt), key=_ts)
        return True

    def mark(self, entry: Mark) -> None:
        key = self._next_key()
        if self._is_own:
            self.own.append(Own(key, None, None, entry))
            self.marks += 1

    def _next_key(self) -> Key:
        self.count += 1
        return (self.last_final, self.count)

    # -- what is not executed

    @property
    def end(self) -> Key:
        """Nothing that is still to come in the log has a place before this one, but for what is pending."""
        return (self.last_final, self.count + 1)

    @property
    def first_pending(self) -> Key:
        """Nothing that is pending has a place before this one."""
        return multi_key(next(iter(self.pending.values()))) if self.pending else NEVER

    @property
    def first_own(self) -> Key:
        return self.own[0].key if self.own else NEVER

    @property
    def first_final(self) -> Key:
        return multi_key(self.by_ts[0][0]) if self.by_ts else NEVER

    def stamp(self, attempt: Attempt) -> Timestamp | None:
        """What the site has said of an attempt: its timestamp, or the final one."""
        return self.final.get(attempt, self.pending.get(attempt))

    def drop_own(self) -> Own:
        first = self.own.popleft()
        self.marks -= first.mark is not None
        return first

    def drop_final(self, attempt: Attempt) -> None:
        ts, first = self.by_ts.pop(0)
        assert first == attempt, "operations of several sites are executed in the order of their timestamps"
        assert self.final.pop(attempt) == ts
        self.messages.pop(attempt, None)

    def drop_executed(self, done: Key) -> None:
        """Drops what comes before or at this place: another replica's state says that it is executed."""
        while self.own and self.own[0].key <= done:
            self.drop_own()
        while self.by_ts and multi_key(self.by_ts[0][0]) <= done:
            self.drop_final(self.by_ts[0][1])


def _ts(pair: tuple[Timestamp, Attempt]) -> Timestamp:
    return pair[0]
