"""FastCast: genuine atomic multicast in four message delays.

Guarantees: uniform integrity, validity, agreement, prefix and acyclic order; genuine. Survives f crashes in each
group of 2f+1. 3 delays to one group; 4 to several while leaders are stable; 6 when a guess was wrong (the slow path).

    client    leader of g1              leader of g2
      |--START-->|------------------------->|         1
      |          |--2a SET-HARD             |         2   the group decides the message's hard timestamp
      |          |--SEND-SOFT-------------->|         2   meanwhile the leader guesses it and tells the others
      |          |  2b SET-HARD             |         3
      |          |              2a SYNC-SOFT|         3   the guess is ordered in each group's log
      |          |--SEND-HARD-------------->|         4   the true one follows, to every process of the group
      |          |              2b SYNC-SOFT|         4   guess = truth: final, deliver
      |          |   2a, 2b SYNC-HARD       |      5, 6   otherwise the true one is ordered first

From: Coelho, Schiper, Pedone, "Fast Atomic Multicast" (2017), Algorithm 2.

Where this departs from the paper:
- **The group's own hard timestamp is pending from the moment it is set.** Published, only BaseCast does that; without
  it a later message overtakes one whose other timestamps are still on the way (`amcast errata fastcast-no-pending`).
- **A soft timestamp of a message that is already final is ignored**, but for the clock. Published, it enters the buffer
  and blocks every later message (`amcast errata fastcast-late-soft`).
- Each message is stamped once per leader; rescanning tuples in flight, as Task 4 does, makes the guesses run ahead
  (`amcast errata fastcast-rescanning`).
- The first soft timestamp of a group that the log orders is the one that counts: replicas never disagree on a match.
- SYNC-HARD is proposed for every message, but lazily when the guess was right: delivery does not wait for it, and the
  log alone holds all that a replica needs that missed a SEND-HARD or takes over as leader.
- A timestamp is (clock, group): no ties.
- What is lost is said again, by the leader of a group that waits, and a group that gets a hard timestamp of a message
  that it does not know asks for the message at once (WANTED). A group keeps the timestamp that it gave until the
  log of every other destination has it (SYNCED), whatever the client says: a leader may ask for it that took over after
  its group had delivered the message by a guess.
- **Clients are not believed.** One may give two messages the same id, or say that messages are settled which nobody has
  seen. So a timestamp names its message by a digest as well, and a group that is asked for one that it never gave,
  since it has ordered another message with this id (or, of a batch, with one of its ids) or counts the id as settled,
  says so with REJECT. The asking group orders that in its log. Unless the log has the timestamp already (then the one
  who asked was behind), the message can't become final anywhere, and every destination drops it: what is delivered is
  the same message in all of them.

**Reads.** A replica delivers by what the log holds, and by what other groups have told it directly: that a guess in the
log was right. So another replica may have delivered a message which this one, with the same log, has not. A read
therefore waits for more than the log (`_perhaps_delivered`): for each pending message of which the log holds a
timestamp of every destination, guessed or not, unless a message is before it of which the log does not. No other can
have been delivered: a message is final only by timestamps in the log, and whatever has a lower timestamp and is not
final holds it up at every replica alike. What the log gets later has higher timestamps. The read waits until these
messages are delivered here, or dropped. That is needed: whoever delivered one may be gone, and its client be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import msgspec

from ..core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    PendingSet,
    ProcessId,
    SeenMessages,
    TimerKey,
    Timestamp,
    Topology,
    Wire,
    clock_of,
    digest,
    encode,
    timestamp,
)
from ..core.ids import GROUP_ID_LIMIT, SEQ_BITS
from ._fastcast_messages import (
    FastCastEntry,
    FastCastMessage,
    Given,
    Reject,
    SendHard,
    SendSoft,
    SetHard,
    Stamp,
    Synced,
    SyncHard,
    SyncReject,
    SyncSoft,
    Wanted,
)
from ._fastcast_state import LOCAL, FastCastState, Kept, Retold, Tracked
from ._messages import Start
from ._replica import Replica, ReplicaConfig, make_log
from ._spec import ORDER, SAMPLE, ProtocolSpec

_RESEND = "fastcast.resend"

_TOLD_AFTER_TICKS = (2, 4)  # periods after which a message that still waits is told again
_TOLD_EVERY_TICKS = 8  # and then every so many
_READS_MAX = 64  # that wait for messages, each for its own
_KEPT_TICKS = 4  # periods after which a timestamp that is kept is sent again


class FastCastConfig(ReplicaConfig, frozen=True, forbid_unknown_fields=True):
    wrong_guesses: bool = False  # leaders guess wrong on purpose: every global message takes the slow path


_entries: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[FastCastEntry])


def _highest_clock(stamps: Sequence[Stamp]) -> int:
    highest = 0
    for _, ts, _ in stamps:
        if ts > highest:
            highest = ts
    return highest // GROUP_ID_LIMIT


_state: msgspec.msgpack.Decoder[FastCastState] = msgspec.msgpack.Decoder(FastCastState)


class FastCast(Replica):
    def __init__(self, process: ProcessId, topology: Topology, config: FastCastConfig, rng: Random) -> None:
        group = topology.group_of(process)
        assert group is not None
        log = make_log(group, process, topology, config, rng)
        super().__init__(process, topology, config, log, _entries)
        self._config = config
        self._hard_clock = 0
        self._seen = SeenMessages()
        self._pending = PendingSet()
        self._has_final = False  # a message became final since `_deliver_ready` last ran
        self._tracked: dict[MessageId, Tracked] = {}
        # Delivered by a guess that was right, before the log had the hard timestamps: a leader must see to it that the
        # log gets them, for replicas that missed a SEND-HARD.
        self._ahead: dict[MessageId, dict[GroupId, Given]] = {}
        # The timestamps are the log's. Who has them, each replica hears by itself.
        self._kept: dict[MessageId, Kept] = {}
        # Volatile: reads for which the log is handed up, and messages that may have been delivered when each began.
        self._read_waits: list[tuple[int, set[MessageId]]] = []
        self._read_logged = self._read_ready = -1
        # Volatile, of a leader: what it has stamped and proposed, and its guess of the clock
        self._soft_clock = 0
        self._stamped: set[MessageId] = set()
        self._soft_proposed: dict[GroupId, dict[MessageId, Given]] = {}
        self._hard_proposed: dict[GroupId, set[MessageId]] = {}
        self._reject_proposed: set[MessageId] = set()
        self._soft_out: dict[GroupId, list[Stamp]] = {}
        self._hard_out: dict[GroupId, list[Stamp]] = {}
        self._reject_out: dict[GroupId, list[Reject]] = {}
        self._synced_out: dict[GroupId, list[MessageId]] = {}

    # -- inputs

    def on_boot(self, out: Outbox) -> None:
        out.set_timer(_RESEND, self._config.resend_us)
        super().on_boot(out)

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _RESEND:
            out.set_timer(_RESEND, self._config.resend_us)
            self._resend(out)
            return
        self._send_soft(out)  # guesses leave in the turn in which their SET-HARD is proposed
        super().on_timer(key, out)

    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        match message:
            case SendHard():
                self._on_send_hard(sender, message, out)
            case SendSoft():
                self._on_send_soft(sender, message, out)
            case Start():
                self._on_starts(sender, message.messages, out)
            case Synced():
                self._on_synced(sender, message)
            case Reject():
                self._on_reject(sender, message, out)
            case Wanted():
                self._on_wanted(sender, message, out)
            case _:
                return
        self._flush(out)
        self._send_replies(out)

    def _on_starts(self, sender: ProcessId, messages: tuple[AppMessage, ...], out: Outbox) -> None:
        """Task 1, and the stamping of Task 4."""
        is_leader, group, stamped, is_known = self._log.is_leader, self._group, self._stamped, self._seen.is_known
        entries: list[SetHard] = []
        self._soft_clock = max(self._soft_clock, self._hard_clock)
        for message in messages:
            id_, dst = message.id, message.dst
            if group not in dst:
                continue
            if is_known(id_):
                self._on_known(sender, message, out)
            elif not is_leader:
                self._forward(sender, message)
            elif id_ not in stamped:
                stamped.add(id_)
                self._soft_clock += 1
                entries.append(SetHard(message))
                if len(dst) > 1:
                    self._guess(message)
        self._log.propose_all(entries, out)

    def _guess(self, message: AppMessage) -> None:
        guess = timestamp(self._soft_clock + self._config.wrong_guesses, self._group)
        stamp = (message.id, guess, digest(message))
        for group in message.dst:
            if group != self._group:
                self._soft_out.setdefault(group, []).append(stamp)

    def _on_known(self, sender: ProcessId, message: AppMessage, out: Outbox) -> None:
        """A client tries again, or another group waits for this one's timestamp."""
        if self._topology.group_of(sender) in (None, self._group):
            if message.id not in self._tracked:
                self._reply(message.sender, message.id, self._own_groups)
            return
        kept, name = self._kept.get(message.id), digest(message)
        if kept is not None and kept.given[1] == name:
            out.send(sender, SendHard(self._group, ((message.id, *kept.given),)))
        elif self._log.is_leader:
            out.send(sender, Reject(message.id, name))

    def _on_send_soft(self, sender: ProcessId, message: SendSoft, out: Outbox) -> None:
        """Task 2."""
        if self._topology.group_of(sender) != message.group:
            return
        self._leader_of[message.group] = sender
        if not self._log.is_leader:
            return
        proposed = self._soft_proposed.setdefault(message.group, {})
        new: list[Stamp] = []
        for stamp in message.stamps:
            id_, ts, name = stamp
            if id_ not in proposed and (id_ in self._tracked or not self._seen.is_known(id_)):
                proposed[id_] = (ts, name)
                new.append(stamp)
        clock = _highest_clock(message.stamps)
        if clock > self._soft_clock:
            self._soft_clock = clock
        if new:
            self._log.propose(SyncSoft(message.group, tuple(new)), out)

    def _on_send_hard(self, sender: ProcessId, message: SendHard, out: Outbox) -> None:
        """Task 3, and Task 6 where the guess is in the log already."""
        group = message.group
        if self._topology.group_of(sender) != group:
            return
        new: list[Stamp] = []
        wanted: list[MessageId] = []
        for stamp in message.stamps:
            id_, ts, name = stamp
            tracked = self._tracked.get(id_)
            if tracked is None:
                if self._seen.is_known(id_):
                    self._on_late_hard(sender, group, stamp, out)
                    continue
                tracked = self._tracked[id_] = Tracked()
            if tracked.message is None and id_ not in self._stamped and group not in tracked.hard:
                wanted.append(id_)
            known = tracked.hard.setdefault(group, (ts, name))
            assert known == (ts, name), "a group gives a message one hard timestamp"
            new.append(stamp)
            if tracked.message is not None:
                if tracked.digest == name:
                    self._settle(id_, tracked)
                elif self._log.is_leader:
                    out.send(sender, Reject(id_, name))
        if self._log.is_leader:
            self._propose_hard(group, new, out)
            if wanted:
                out.send(sender, Wanted(self._group, tuple(wanted)))

    def _on_wanted(self, sender: ProcessId, message: Wanted, out: Outbox) -> None:
        """A client's message came to this group, which has ordered it meanwhile, and not to the other: it was lost, or
        the client lies. What is delivered after it waits in both groups."""
        tracked = [self._tracked[id_] for id_ in message.ids if id_ in self._tracked]
        messages = [each.message for each in tracked if each.message is not None and message.group in each.message.dst]
        if messages and self._topology.group_of(sender) == message.group:
            out.send(sender, Start(tuple(messages)))

    def _on_late_hard(self, sender: ProcessId, group: GroupId, stamp: Stamp, out: Outbox) -> None:
        """The message is delivered here, or dropped, or was never ordered: its sender told a lie."""
        id_, _, name = stamp
        if not self._log.is_leader or group in self._ahead.get(id_, ()):
            return
        kept = self._kept.get(id_)
        if kept is not None and kept.given[1] == name:
            self._synced_out.setdefault(group, []).append(id_)
        else:
            out.send(sender, Reject(id_, name))

    def _on_synced(self, sender: ProcessId, message: Synced) -> None:
        if self._topology.group_of(sender) == message.group:
            for id_ in message.ids:
                self._has_synced(message.group, id_)

    def _has_synced(self, group: GroupId, id_: MessageId) -> None:
        kept = self._kept.get(id_)
        if kept is not None and group in kept.groups:
            kept.groups.remove(group)
            if not kept.groups:
                del self._kept[id_]

    def _on_reject(self, sender: ProcessId, message: Reject, out: Outbox) -> None:
        group, id_ = self._topology.group_of(sender), message.id
        if group is None:
            return
        kept = self._kept.get(id_)
        if kept is not None and kept.given[1] == message.digest:
            self._has_synced(group, id_)
        tracked = self._tracked.get(id_)
        if not self._log.is_leader or id_ in self._reject_proposed or tracked is None:
            return
        if tracked.lacks(group, message.digest):
            self._reject_proposed.add(id_)
            self._log.propose(SyncReject(group, id_, message.digest), out)

    # -- proposals

    def _propose_hard(self, group: GroupId, stamps: list[Stamp], out: Outbox) -> None:
        """Proposes each timestamp once; lazily where the guess was right, since delivery does not wait for it then."""
        proposed = self._hard_proposed.setdefault(group, set())
        guesses = self._soft_proposed.get(group, {})
        right: list[Stamp] = []
        wrong: list[Stamp] = []
        for stamp in stamps:
            id_, ts, name = stamp
            tracked = self._tracked.get(id_)
            if id_ in proposed or (tracked is not None and group in tracked.synced):
                continue
            proposed.add(id_)
            guess = tracked.soft.get(group) if tracked is not None else (ts, name)  # delivered by it
            is_right = (guess or guesses.get(id_)) == (ts, name)
            (right if is_right else wrong).append(stamp)
        clock = _highest_clock(stamps)
        if clock > self._soft_clock:
            self._soft_clock = clock
        if wrong:
            self._log.propose(SyncHard(group, tuple(wrong)), out)
        if right:
            self._log.propose(SyncHard(group, tuple(right)), out, lazy=True)

    # -- decided entries (Task 5)

    def _apply(self, entry: Any, out: Outbox) -> None:
        self._apply_all([entry], out)

    def _apply_all(self, entries: list[Any], out: Outbox) -> None:
        ready: list[tuple[AppMessage, Timestamp]] = []
        is_pending = bool(self._pending)
        for entry in entries:
            if type(entry) is SetHard:
                message = entry.message
                if len(message.dst) == 1 and not is_pending:
                    self._take_local(message, ready)
                    continue
                self._apply_set_hard(message)
            elif type(entry) is SyncReject:
                self._apply_reject(entry)
            else:
                self._apply_sync(entry)
            is_pending = bool(self._pending)
        if ready:
            self._stamped.difference_update([message.id for message, _ in ready])
            self._deliver_all(ready, out)

    def _take_local(self, message: AppMessage, ready: list[tuple[AppMessage, Timestamp]]) -> None:
        """A local message's hard timestamp is final, and while nothing is pending it is the lowest: deliver at once."""
        ts = (self._hard_clock + 1) * GROUP_ID_LIMIT + self._group
        if self._seen.admit_new(message):
            self._hard_clock += 1
            ready.append((message, ts))
            if self._tracked and message.id in self._tracked:
                self._reject_others(message.id, self._tracked[message.id], LOCAL)
        else:
            self._stamped.discard(message.id)
            self._on_refused(message)

    def _apply_set_hard(self, message: AppMessage) -> None:
        self._stamped.discard(message.id)
        if not self._seen.admit_new(message):
            self._on_refused(message)
            return
        self._hard_clock += 1
        own = timestamp(self._hard_clock, self._group)
        tracked = self._track(message.id)
        tracked.message = message
        self._pending.add(message.id, own)
        if len(message.dst) > 1:
            self._give(message, own, tracked)
        else:
            tracked.hard[self._group] = (own, LOCAL)
        if len(tracked.hard) > 1:
            self._reject_others(message.id, tracked, tracked.digest)
        self._settle_or_drop(message.id, tracked)

    def _on_refused(self, message: AppMessage) -> None:
        """It is known, or an id in it is another message's: this group never stamps it. Others that did must hear."""
        tracked = self._tracked.get(message.id)
        if tracked is not None and tracked.message is None:
            self._reject_others(message.id, tracked, LOCAL)
        self._refuse(message)

    def _reject_others(self, id_: MessageId, tracked: Tracked, name: bytes) -> None:
        """This group has ordered another message with this id than those did whose timestamps came before."""
        for group, given in tracked.hard.items():
            if group != self._group and given[1] != name:
                self._reject_out.setdefault(group, []).append(Reject(id_, given[1]))

    def _give(self, message: AppMessage, own: Timestamp, tracked: Tracked) -> None:
        """This group's timestamp of a message that other groups wait for."""
        id_, name = message.id, digest(message)
        tracked.digest = name
        tracked.hard[self._group] = (own, name)
        others = [group for group in message.dst if group != self._group]
        self._kept[id_] = Kept((own, name), others)
        if self._log.is_leader:
            stamp = (id_, own, name)
            for group in others:
                self._hard_out.setdefault(group, []).append(stamp)

    def _apply_sync(self, entry: SyncSoft | SyncHard) -> None:
        clock = _highest_clock(entry.stamps)
        if clock > self._hard_clock:
            self._hard_clock = clock
        if isinstance(entry, SyncSoft):
            self._apply_sync_soft(entry.group, entry.stamps)
        else:
            self._apply_sync_hard(entry.group, entry.stamps)

    def _apply_sync_soft(self, group: GroupId, stamps: tuple[Stamp, ...]) -> None:
        proposed = self._soft_proposed.get(group)
        for id_, ts, name in stamps:
            if proposed:
                proposed.pop(id_, None)
            tracked = self._tracked.get(id_)
            if tracked is None:
                if self._seen.is_known(id_):
                    continue  # delivered
                tracked = self._tracked[id_] = Tracked()
            tracked.soft.setdefault(group, (ts, name))
            if tracked.message is not None:
                self._settle(id_, tracked)

    def _apply_sync_hard(self, group: GroupId, stamps: tuple[Stamp, ...]) -> None:
        proposed = self._hard_proposed.get(group)
        if self._log.is_leader:
            self._synced_out.setdefault(group, []).extend([stamp[0] for stamp in stamps])
        for id_, ts, name in stamps:
            if proposed:
                proposed.discard(id_)
            tracked = self._tracked.get(id_)
            if tracked is None:
                if self._seen.is_known(id_):
                    self._catch_up(group, id_)
                    continue
                tracked = self._tracked[id_] = Tracked()
            tracked.synced.setdefault(group, (ts, name))
            if tracked.message is not None:
                self._settle_or_drop(id_, tracked)

    def _catch_up(self, group: GroupId, id_: MessageId) -> None:
        """This message was delivered before the log had all its hard timestamps; now it has the one of `group`."""
        ahead = self._ahead.get(id_)
        if ahead is not None:
            ahead.pop(group, None)
            if not ahead:
                del self._ahead[id_]

    def _apply_reject(self, entry: SyncReject) -> None:
        id_ = entry.id
        self._reject_proposed.discard(id_)
        tracked = self._tracked.get(id_)
        if tracked is not None and tracked.lacks(entry.group, entry.digest):
            self._drop(id_)

    def _settle_or_drop(self, id_: MessageId, tracked: Tracked) -> None:
        """The log has another group's timestamp: of this message, or of another one with this id."""
        message, synced = tracked.message, tracked.synced
        assert message is not None
        for group in message.dst:
            if group in synced and synced[group][1] != tracked.digest:
                self._drop(id_)
                return
        self._settle(id_, tracked)

    def _drop(self, id_: MessageId) -> None:
        """A message that one of its destinations will never stamp is dropped; its id stays known."""
        assert not self._pending.is_final(id_), "a message is final with the timestamps of all destinations"
        self._pending.discard(id_)
        self._has_final = True  # perhaps it was in the way of others
        del self._tracked[id_]
        self._kept.pop(id_, None)
        if self._log.is_leader:
            self._reply(id_ >> SEQ_BITS, id_, ())  # nothing more comes of it

    def _settle(self, id_: MessageId, tracked: Tracked) -> None:
        message = tracked.message
        if message is None or len(tracked.hard) + len(tracked.synced) < len(message.dst) or self._pending.is_final(id_):
            return
        final = tracked.final(self._group)
        if final is not None:
            assert clock_of(final) <= self._hard_clock, "every timestamp of a final message went through the log"
            self._pending.finalize(id_, final)
            self._has_final = True

    def _deliver_ready(self, out: Outbox) -> None:
        self._has_final = False
        batch: list[tuple[AppMessage, Timestamp]] = []
        own = self._group
        while (ready := self._pending.pop_deliverable()) is not None:
            id_, final = ready
            tracked = self._tracked.pop(id_)
            message = tracked.message
            assert message is not None
            if len(tracked.synced) < len(message.dst) - 1:
                synced, hard = tracked.synced, tracked.hard
                self._ahead[id_] = {group: hard[group] for group in message.dst if group != own and group not in synced}
            batch.append((message, final))
        if batch:
            self._deliver_all(batch, out)

    def _track(self, id_: MessageId) -> Tracked:
        tracked = self._tracked.get(id_)
        if tracked is None:
            tracked = self._tracked[id_] = Tracked()
        return tracked

    # -- reads

    def _reads_done(self, out: Outbox) -> int:
        logged, waits = super()._reads_done(out), self._read_waits
        if logged > self._read_logged:
            self._read_logged = logged
            if len(waits) >= _READS_MAX:
                waits.pop()  # what does for a later read does for this one
            waits.append((logged, self._perhaps_delivered()))
        for at in reversed(range(len(waits))):
            read, ids = waits[at]
            if self._tracked.keys().isdisjoint(ids):
                self._read_ready = read
                del waits[: at + 1]
                break
        return self._read_ready

    def _perhaps_delivered(self) -> set[MessageId]:
        """Pending messages that another replica with the same log, or less of it, may have delivered."""
        if not self._pending:
            return set()
        possible: list[tuple[Timestamp, MessageId]] = []
        held_up: Timestamp | None = None  # by the lowest message that is final nowhere
        for id_, bound, _ in self._pending.dump():
            final = self._tracked[id_].possible_final(self._group)
            if final is not None:
                possible.append((final, id_))
            elif held_up is None or bound < held_up:
                held_up = bound
        return {id_ for final, id_ in possible if held_up is None or final < held_up}

    # -- what leaves

    def _send_soft(self, out: Outbox) -> None:
        if self._soft_out:
            for group, stamps in self._soft_out.items():
                out.send(self._leader(group), SendSoft(self._group, tuple(stamps)))
            self._soft_out = {}

    def _flush(self, out: Outbox) -> None:
        if self._has_final:
            self._deliver_ready(out)
        if self._hard_out:
            for group, stamps in self._hard_out.items():
                out.send_all(self._topology.members(group), SendHard(self._group, tuple(stamps)))
            self._hard_out = {}
        if self._reject_out:
            rejects, self._reject_out = self._reject_out, {}
            if self._log.is_leader:
                for group, each in rejects.items():
                    for reject in each:
                        out.send_all(self._topology.members(group), reject)

    def _resend(self, out: Outbox) -> None:
        """Sends a message that has waited for a whole period again, to the groups whose timestamps are missing."""
        never = [id_ for id_, each in self._tracked.items() if each.message is None and self._seen.is_known(id_)]
        for id_ in never:  # this group will not order what others stamped: its sender has lied to it, or to them
            del self._tracked[id_]
        if not self._log.is_leader:
            return
        self._tell_again(self._due(), out)
        for group, ids in self._synced_out.items():
            out.send_all(self._topology.members(group), Synced(self._group, tuple(ids)))
        self._synced_out = {}
        self._ask_who_synced(out)

    def _ask_who_synced(self, out: Outbox) -> None:
        """Sends timestamps again that are kept for long: a SYNCED got lost. Their messages are delivered here, and
        who has them as well answers."""
        again: dict[GroupId, list[Stamp]] = {}
        for id_, kept in self._kept.items():
            kept.ticks += 1
            if kept.ticks % _KEPT_TICKS == 0 and id_ not in self._tracked:
                for group in kept.groups:
                    again.setdefault(group, []).append((id_, *kept.given))
        for group, stamps in again.items():
            some = tuple(stamps[: self._config.resend_max])
            out.send_all(self._topology.members(group), SendHard(self._group, some))

    def _due(self) -> list[Tracked]:
        """The messages that are to be told again: each after two periods, then less and less often, and only so many in
        a period. Where everybody is slow, not deaf, whatever is said twice makes them slower."""
        due: list[Tracked] = []
        for id_, tracked in self._tracked.items():
            if tracked.message is None or self._pending.is_final(id_):
                continue
            ticks = tracked.ticks + 1
            if ticks in _TOLD_AFTER_TICKS or ticks % _TOLD_EVERY_TICKS == 0:
                if len(due) == self._config.resend_max:
                    continue  # its turn comes in the next period
                due.append(tracked)
            tracked.ticks = ticks
        return due

    def _tell_again(self, due: Iterable[Tracked], out: Outbox) -> None:
        """Tells the destinations whose timestamps the log lacks of these messages, in frames of a limited size."""
        frames: dict[GroupId, Retold] = {}
        for tracked in due:
            message = tracked.message
            assert message is not None
            for group in message.dst:
                if group != self._group and group not in tracked.synced:
                    retold = frames.setdefault(group, Retold())
                    retold.add(message, tracked.hard[self._group])
                    if retold.is_full(self._config):
                        self._send_retold(group, frames.pop(group), out)
        for group, retold in frames.items():
            self._send_retold(group, retold, out)

    def _send_retold(self, group: GroupId, retold: Retold, out: Outbox) -> None:
        members = self._topology.members(group)
        out.send_all(members, Start(tuple(retold.messages)))
        out.send_all(members, SendHard(self._group, tuple(retold.stamps)))

    def _on_elected(self, out: Outbox) -> None:
        self._soft_clock = self._hard_clock
        self._stamped = set()
        self._soft_proposed = {}
        self._hard_proposed = {}
        self._reject_proposed = set()
        self._soft_out = {}
        self._synced_out = {}
        known: dict[GroupId, list[Stamp]] = {}
        for id_, tracked in self._tracked.items():
            for group, given in tracked.hard.items():
                if group != self._group and group not in tracked.synced:
                    known.setdefault(group, []).append((id_, *given))
        waiting = [t for id_, t in self._tracked.items() if t.message is not None and not self._pending.is_final(id_)]
        self._tell_again(waiting, out)
        for id_, ahead in self._ahead.items():
            for group, given in ahead.items():
                known.setdefault(group, []).append((id_, *given))
        for group, stamps in known.items():
            self._propose_hard(group, stamps, out)

    # -- state

    def _dump(self) -> bytes:
        return encode(
            FastCastState(
                self._hard_clock,
                self._seen.dump(),
                self._pending.dump(),
                self._tracked,
                self._ahead,
                self._kept,
                self._deliveries.dump(),
            )
        )

    def _load(self, state: bytes, out: Outbox) -> None:
        loaded = _state.decode(state)
        self._hard_clock = loaded.clock
        self._seen.load(loaded.seen)
        self._pending.load(loaded.pending)
        self._has_final = True
        self._tracked = loaded.tracked
        self._ahead = loaded.ahead
        self._kept = loaded.kept
        self._deliveries.load(loaded.deliveries, out)


def _fuzz_options(groups: int, is_adverse: bool, rng: Random) -> dict[str, Any]:
    return {"wrong_guesses": True} if is_adverse else {}


SPEC = ProtocolSpec(
    name="fastcast",
    title="FastCast",
    paper="Coelho, Schiper, Pedone 2017, Algorithm 2",
    survives="f crashes of 2f+1 in each group",
    replicas=3,
    claims=(*ORDER, "genuine"),
    delays={"local": 3, "global": 4, "slow": 6},
    build=FastCast,
    config=FastCastConfig,
    messages=FastCastMessage,
    samples=(
        SendSoft(1, ((SAMPLE.id, 5, b"d"),)),
        SendHard(1, ((SAMPLE.id, 5, b"d"), (SAMPLE.id, 5, b"d"))),
        Synced(1, (SAMPLE.id,)),
        Wanted(1, (SAMPLE.id,)),
        Reject(SAMPLE.id, b"d"),
    ),
    cases={"slow": {"wrong_guesses": True}},
    fuzz_replicas=(3, 5),
    fuzz_options=_fuzz_options,
)
