"""Proposals: the messages of this group, from their arrival until the group's log has stamped them; and barriers.

Every replica keeps the copies that arrived, since it may lead one day. The leader proposes each of them with a
timestamp, in the order of each sender's sequence numbers, and once more if the log refuses it. The log takes a message
only if all earlier ones of its sender are in it, and if the group sends to all destinations at that point: it refuses
a sender's message 8 if message 7, which a former leader proposed, got lost. Together with a message, the leader asks
for the barriers that its destinations will wait for.
"""

from __future__ import annotations

from ...consensus import MultiPaxos
from ...core import AppMessage, GroupId, Outbox, ProcessId, Timestamp, Topology, clock_of, sender_of, seq_of
from .._in_flight import InFlight
from .ingress import SendersConfig, barriers_needed
from .merge import Merger
from .messages import BARRIER_MAX, TIME_MAX, Barrier, BarrierRequest, FrMcast, Stamp, Time
from .reconfiguration import Reconfiguration

_NULLS_LEFT_OUT_MAX = 20
_REFUSED_LEFT_OUT_MAX = 200


class Proposals:
    def __init__(
        self,
        group: GroupId,
        topology: Topology,
        config: SendersConfig,
        log: MultiPaxos,
        merger: Merger,
        reconfiguration: Reconfiguration,
        raise_by: Time,
    ) -> None:
        self._group = group
        self._topology = topology
        self._requests = config.requests
        self._log = log
        self._merger = merger
        self._reconfiguration = reconfiguration
        self._raise_by = raise_by  # added to the time of every message, on purpose
        self.arrived: InFlight[FrMcast] = InFlight()  # this group's messages that its log does not have yet
        # While this process leads:
        self._clock: Time = 0  # of what it has proposed
        self._ready: dict[ProcessId, dict[int, FrMcast]] = {}  # may be proposed, in the order of sequence numbers
        self._next_seq: dict[ProcessId, int] = {}  # what it has not proposed yet
        self._again: dict[ProcessId, Time] = {}  # its clock when it last proposed all of a sender's messages again
        self._has_leapt = False  # and has not proposed again since what may have been refused meanwhile
        self._left_out = 0  # how often it did not do so though it was time
        self._proposed_again: Time = -1  # its clock after it last did so
        self._null: Time = 0  # of the last null message
        self._nulls_left_out = 0  # since then

    def on_elected(self, out: Outbox) -> None:
        self._clock = self._merger.own.clock
        self._ready, self._next_seq, self._again = {}, {}, {}
        self._has_leapt, self._proposed_again = False, -1
        self._null = 0
        for copy in sorted(self.arrived.values(), key=lambda copy: (copy.time, copy.message.id)):
            self.make_ready(copy, out)

    # -- messages

    def make_ready(self, copy: FrMcast, out: Outbox) -> None:
        if self._log.is_leader and not self._merger.own.is_known(copy.message.id):
            sender = copy.message.sender
            self._ready.setdefault(sender, {})[copy.message.seq] = copy
            self._propose_ready(sender, out)

    def _propose_ready(self, sender: ProcessId, out: Outbox) -> None:
        """In the order of sequence numbers, whatever came first."""
        ready = self._ready.get(sender, {})
        seq = max(self._next_seq.get(sender, 0), self._merger.own.next_seq.get(sender, 0))
        while (copy := ready.get(seq)) is not None:
            missing = [group for group in copy.message.dst if not self._merger.own.reaches(group)]
            if missing:
                self._reconfiguration.want(missing, out)
                return
            del ready[seq]
            seq += 1
            self._next_seq[sender] = seq
            self._propose_stamp(copy, out)

    def propose_all_ready(self, out: Outbox) -> None:
        """The group has joined others, perhaps those that messages waited for."""
        for sender in list(self._ready):
            self._propose_ready(sender, out)

    def _propose_stamp(self, copy: FrMcast, out: Outbox) -> None:
        message = copy.message
        self._clock = max(self._clock, self._merger.own.clock)
        self._clock = max(min(copy.time + self._raise_by, TIME_MAX), self._clock + 1)
        for group in message.dst:
            self._reconfiguration.used_at[group] = out.now_us
        self._log.propose(Stamp(message, self._clock), out)
        # The timestamp that a leader proposes is the one that is decided, unless leaders change: ask for barriers now.
        asked = copy.asked if self._clock == copy.time else ()
        self._request_barriers(message, self._clock, asked, out)

    def _request_barriers(self, message: AppMessage, time: Time, asked: tuple[GroupId, ...], out: Outbox) -> None:
        if not self._requests:
            return
        request = BarrierRequest(message.id, time, self._group)
        for group in barriers_needed(message.dst, self._group, self._reconfiguration.senders_of):
            if group not in asked:
                out.send_all(self._topology.members(group), request)

    def on_stamp(self, entry: Stamp, ts: Timestamp | None, out: Outbox) -> None:
        """The group's log has the message, with this timestamp; or it has refused it."""
        message = entry.message
        if ts is None:
            if not self._merger.own.is_known(message.id):
                self._propose_again(message, entry.time, out)
            return
        self.arrived.pop(message.id)
        if ready := self._ready.get(message.sender):
            ready.pop(message.seq, None)
            self._propose_ready(message.sender, out)  # the next one may have waited for a former leader's proposal
        if self._log.is_leader and clock_of(ts) != entry.time:
            self._request_barriers(message, clock_of(ts), (), out)

    def _propose_again(self, message: AppMessage, time: Time, out: Outbox) -> None:
        """The message came before an earlier one of its sender, or after this group left one of its destinations.

        With message 6 the log refuses 7 to 20 as well, if they were proposed after it. All of them are proposed again
        at once, with the first refusal; the others, of proposals that are older than that, say nothing new.
        """
        sender = message.sender
        if self._log.is_leader and time > self._again.get(sender, -1):
            self._again[sender] = self._clock
            end = max(self._next_seq.get(sender, 0), message.seq + 1)
            self._next_seq[sender] = self._merger.own.next_seq.get(sender, 0)
            for id_, copy in list(self.arrived.items()):
                if sender_of(id_) == sender and seq_of(id_) < end:
                    self._ready.setdefault(sender, {}).setdefault(seq_of(id_), copy)
            self._propose_ready(sender, out)

    def on_leap(self, out: Outbox) -> None:
        """Another replica's state took this one ahead in the log: what the log has is no longer on its way into it."""
        known = self._merger.own.is_known
        self.arrived.drop(lambda id_, _: known(id_))
        for sender, ready in self._ready.items():
            self._ready[sender] = {seq: copy for seq, copy in ready.items() if not known(copy.message.id)}
        self._has_leapt = True
        self.propose_refused(out)

    def propose_refused(self, out: Outbox) -> None:
        """After a leap, and then every so often. What it proposed may have been refused in the part of the log that it
        never saw: once more, in order.

        Not before the log has come as far as this leader's last proposals of that kind, or a long time has passed. A
        leader whose log is slow leaps again and again, and would only make it slower: its proposals would outnumber
        what the log decides.
        """
        if not self._has_leapt or not self._log.is_leader:
            return
        self._left_out += 1
        if self._merger.own.clock < self._proposed_again and self._left_out < _REFUSED_LEFT_OUT_MAX:
            return
        self._has_leapt, self._left_out = False, 0
        for copy in self.arrived.values():
            sender, seq = copy.message.sender, copy.message.seq
            if seq < self._next_seq.get(sender, 0):
                self._ready.setdefault(sender, {}).setdefault(seq, copy)
        self._next_seq, self._again = {}, {}
        self.propose_all_ready(out)
        self._proposed_again = self._clock

    # -- barriers

    def propose_null(self, time: Time, out: Outbox) -> None:
        """Not while the last one is on its way: a log that is slower than the period would never catch up.

        Should a proposal get lost, another one follows after some periods.
        """
        self._nulls_left_out += 1
        if self._null <= self._merger.own.clock or self._nulls_left_out >= _NULLS_LEFT_OUT_MAX:
            self._null, self._nulls_left_out = time, 0
            self.propose_barrier(time, out)

    def propose_barrier(self, time: Time, out: Outbox) -> None:
        if self._log.is_leader:
            time = min(time, BARRIER_MAX)
            self._clock = max(self._clock, self._merger.own.clock)
            if self._clock < time:
                self._clock = time
                self._log.propose(Barrier(time), out)
