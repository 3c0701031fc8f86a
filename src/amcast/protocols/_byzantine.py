"""The adapter for groups in which f of 3f+1 members may lie: replicates a group automaton over a Byzantine log.

As in `_adapter.py`, every input of the automaton is ordered through the group's log, and between groups run numbered
streams. Where members may lie, nobody is believed alone:

- **Clients** sign their messages, destinations included. A member approves of a proposal only if the signature of each
  message in it is good, so a leader can't invent or alter one. An id belongs to the key that first signed for it here:
  if two clients have drawn the same id, messages of the second are no messages of the first that come again. And it
  enters at one group, if messages may enter at several: `_entry_numbers.py` says why, and how.
- **Other groups**: all members of g send stream g->h to all members of h. All members of g that tell the truth have
  the same stream, for it follows from g's log. So what f+1 members of g say is entry k of the stream is entry k: one of
  them tells the truth. A member of h approves of a proposal to take in entry k if f+1 members of g told the same to it;
  until they have, the proposal waits. Entries are taken in by number: copies that are early, late, repeated or
  reordered change nothing.
- **Acknowledgements** go through the log as well, when f+1 members of h said so: what a group still keeps of a stream
  is then the same at all members, and so is their state, whose digests the log compares.
- **The leader** is replaced if it lets anything wait that a member knows of and that could be ordered: a client's
  message, an entry of a stream, a proposal. A client that gets no answer sends to all members.
- **Answers** come from all members, and clients believe f+1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice
from random import Random
from typing import Any

import msgspec

from ..consensus import Bft, Decision, Proposed
from ..core import (
    AppMessage,
    GroupId,
    Outbox,
    ProcessId,
    TimerKey,
    Topology,
    Wire,
    encode,
    liars_max,
    signed_part,
)
from ..core.batch import problem_with_batch
from ..core.message import PAYLOAD_LIMIT
from ._adapter import (
    AdapterState,
    AutomatonTypes,
    Frame,
    FromGroup,
    ReplicatedAutomaton,
    StreamAck,
    Submit,
)
from ._automaton import GroupAutomaton, GroupOutbox
from ._entry_numbers import is_number_of
from ._in_flight import InFlight
from ._messages import Start, problem_with_destinations, problem_with_number
from ._replica import ReplicaConfig

_RESEND = "adapter.resend"
_PAYLOAD_BYTES = 2 * PAYLOAD_LIMIT  # of a message or a batch: a larger value would have its leader replaced
_HEARD_BYTES = 16 << 20  # of bodies that one member of another group may leave here before others said the same
_OBJECT_BYTES = 64  # of anything, besides what is in it


_GOOD_DST_MAX = 10_000


class Acked(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="acked"):
    """A log entry: group `group` has everything below `upto` of this group's stream to it."""

    group: GroupId
    upto: int


class ByzantineState(msgspec.Struct, array_like=True):
    adapter: bytes  # an AdapterState
    owners: dict[ProcessId, bytes]  # the key of each client that this group has ordered a message of


_state_decoder = msgspec.msgpack.Decoder(ByzantineState)


class Judgement(Enum):
    GOOD = 0
    WAIT = 1  # what would prove it may still come
    BAD = 2


class ByzantineTypes(AutomatonTypes):
    def __init__(self, frame: type[Frame[Any]], body: Any, state: Any) -> None:
        super().__init__(frame, body, state)
        self.entries = msgspec.msgpack.Decoder(list[Submit | FromGroup[body] | Acked])


class Heard:
    """What members of another group told of their stream to this one."""

    def __init__(self, applied: int = 0) -> None:
        self.applied = applied  # replicated: entries below are in this group's log
        self.proposed = applied  # by this leader
        self.acknowledged = -1
        self.backed: dict[int, Any] = {}  # entries that f+1 members told alike
        self.since = 0  # the tick since which the next entry is backed and not in the log
        # What was told, who told it first, and who has told the same: until enough did
        self._told: dict[int, list[tuple[Any, ProcessId, set[ProcessId]]]] = {}
        self._bytes: dict[ProcessId, int] = {}

    def hear(self, sender: ProcessId, seq: int, body: Any, needed: int) -> bool:
        """Whether this makes the entry a backed one."""
        if seq in self.backed:
            return False
        told = self._told.setdefault(seq, [])
        for known, _, senders in told:
            if sender in senders:
                return False  # it has told its one version of this entry
            if known == body:
                senders.add(sender)
                return self._back(seq, body, senders, needed)
        size = body_bytes(body)
        held = self._bytes.get(sender, 0)
        if held and held + size > _HEARD_BYTES and seq != self.applied:
            return False
        self._bytes[sender] = held + size
        told.append((body, sender, {sender}))
        return self._back(seq, body, {sender}, needed)

    def _back(self, seq: int, body: Any, senders: set[ProcessId], needed: int) -> bool:
        if len(senders) < needed:
            return False
        self.backed[seq] = body
        self._forget(seq)
        return True

    def _forget(self, seq: int) -> None:
        for body, first, _ in self._told.pop(seq, ()):
            self._bytes[first] -= body_bytes(body)

    def apply(self, ticks: int) -> None:
        self.backed.pop(self.applied, None)
        self._forget(self.applied)
        self.applied += 1
        self.since = ticks


def body_bytes(body: Any) -> int:
    message = getattr(body, "message", None)
    if message is None:
        return _OBJECT_BYTES
    return _OBJECT_BYTES * (1 + len(message.dst)) + len(message.payload) + len(message.proof)


class ByzantineReplica(ReplicatedAutomaton):
    all_answer = True
    _log: Bft

    def __init__(
        self,
        process: ProcessId,
        topology: Topology,
        config: ReplicaConfig,
        log: Bft,
        automaton: GroupAutomaton,
        types: ByzantineTypes,
        numbers_by_entry: bool = False,
    ) -> None:
        super().__init__(process, topology, config, log, automaton, types)
        self._numbers_by_entry = numbers_by_entry
        self._heard: dict[GroupId, Heard] = {}
        self._acks: dict[GroupId, dict[ProcessId, int]] = {}
        self._acks_proposed: dict[GroupId, int] = {}
        self._ack_since: dict[GroupId, int] = {}  # the tick since which an acknowledgement waits to be ordered
        self._requests: InFlight[tuple[AppMessage, int]] = InFlight()  # of clients, with the tick of their arrival
        self._owners: dict[ProcessId, bytes] = {}  # replicated
        self._good_dst: set[tuple[GroupId, ...]] = set()  # destinations that were checked before
        self._waiting: dict[int, Proposed] = {}  # proposals that are neither good nor bad yet
        self._watched_view = 0
        self._watched_tick = 0

    # -- inputs

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        """A member may multicast as well, and signs as a client does. It tells all: any leader will do."""
        out.announce(message)
        signed = msgspec.structs.replace(message, proof=out.sign(signed_part(message)))
        for group in self._topology.groups:
            if self._automaton.is_ingress(message, group):
                out.send_all(self._topology.members(group), Start((signed,)))

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key != _RESEND:
            super().on_timer(key, out)
            self._watch_leader(out)
            return
        out.set_timer(_RESEND, self._config.resend_us)
        if self._log.is_silent:
            return
        self._acknowledge(out)
        self._propose_acks(out)
        for group, stream in self._outgoing.items():
            # From where f+1 members of the group say that they are: a leader may not have ordered that yet.
            at = max(stream.first, self._acked(group))
            if at < stream.first + len(stream.bodies) and stream.marked == at:
                self._resend(group, stream, out, at - stream.first)
            stream.marked = at

    def _on_peer_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, StreamAck):
            if self._topology.group_of(sender) == message.group:
                acks = self._acks.setdefault(message.group, {})
                acks[sender] = max(message.upto, acks.get(sender, 0))
                self._judge_again(out)
        else:
            super()._on_peer_message(sender, message, out)

    def _on_start(self, sender: ProcessId, message: AppMessage, out: Outbox) -> None:
        if not self._is_genuine(message, out) or not self._is_owner(message, out):
            return
        if self._group not in message.dst and not self._automaton.is_ingress(message, self._group):
            return  # a liar passed on what does not concern this group
        if self._automaton.is_known(message.id):
            if self._group not in message.dst:
                self._pass_on(message)
            elif not self._automaton.is_pending(message.id):
                self._reply(message.sender, message.id, (self._group,))
        elif self._enters_here(message):  # not where another group hands it down
            if message.id not in self._requests:
                self._requests.add(message, (message, self._log.ticks))
            self._order(message, out)
            self._forward(sender, message)

    def _order(self, message: AppMessage, out: Outbox) -> None:
        if self._log.is_leader and message.id not in self._submitted:
            self._submitted.add(message.id)
            self._log.propose(Submit(message), out)

    def _on_frame(self, sender: ProcessId, frame: Frame[Any], out: Outbox) -> None:
        source = frame.source
        if self._topology.group_of(sender) != source or source == self._group:
            return
        heard = self._heard_of(source)
        needed = liars_max(len(self._topology.members(source))) + 1
        has_more = False
        for seq, body in enumerate(frame.bodies, frame.first):
            if seq < heard.applied:
                heard.acknowledged = -1  # the sender missed the acknowledgement: send it again
            elif seq < heard.applied + self._config.ahead_max and heard.hear(sender, seq, body, needed):
                has_more = True
                if seq == heard.applied:
                    heard.since = self._log.ticks
        if has_more:
            self._propose_heard(source, heard, out)
            self._judge_again(out)

    def _heard_of(self, source: GroupId) -> Heard:
        heard = self._heard.get(source)
        if heard is None:
            heard = self._heard[source] = Heard()
        return heard

    # -- the leader

    def _propose_heard(self, source: GroupId, heard: Heard, out: Outbox) -> None:
        if not self._log.is_leader:
            return
        heard.proposed = max(heard.proposed, heard.applied)
        while heard.proposed in heard.backed:
            self._log.propose(FromGroup(source, heard.proposed, heard.backed[heard.proposed]), out)
            heard.proposed += 1

    def _propose_acks(self, out: Outbox) -> None:
        if self._log.is_leader:
            for group, stream in self._outgoing.items():
                upto = self._acked(group)
                if upto > max(stream.first, self._acks_proposed.get(group, 0)):
                    self._acks_proposed[group] = upto
                    self._log.propose(Acked(group, upto), out)

    def _acked(self, group: GroupId) -> int:
        """What f+1 members of a group say that it has of the stream to it."""
        said = sorted(self._acks.get(group, {}).values(), reverse=True)
        liars = liars_max(len(self._topology.members(group)))
        return said[liars] if len(said) > liars else 0

    def _on_elected(self, out: Outbox) -> None:
        self._submitted = set()
        self._acks_proposed = {}
        for source, heard in self._heard.items():
            heard.proposed = heard.applied
            self._propose_heard(source, heard, out)
        for message, _ in list(self._requests.values()):
            self._order(message, out)

    # -- what others propose

    def _act_on(self, decisions: list[Decision], out: Outbox) -> None:
        while decisions:
            more: list[Decision] = []
            for decision in decisions:
                if isinstance(decision, Proposed):
                    more += self._consider(decision, out)
            super()._act_on([decision for decision in decisions if not isinstance(decision, Proposed)], out)
            decisions = more

    def _consider(self, proposed: Proposed, out: Outbox) -> list[Decision]:
        match self._judge(proposed.value, out):
            case Judgement.GOOD:
                self._waiting.pop(proposed.instance, None)
                return self._log.approve(proposed.view, proposed.instance, out)
            case Judgement.BAD:
                self._waiting.pop(proposed.instance, None)
                return self._log.suspect(out) if proposed.view == self._log.view else []
            case _:
                self._waiting[proposed.instance] = proposed
                return []

    def _judge_again(self, out: Outbox) -> None:
        """Something came that a proposal may have waited for."""
        for proposed in list(self._waiting.values()):
            if proposed.view != self._log.view:
                del self._waiting[proposed.instance]
            else:
                self._act_on(self._consider(proposed, out), out)

    def _judge(self, value: bytes, out: Outbox) -> Judgement:
        try:
            entries = self._entries.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Judgement.BAD
        if encode(entries) != value:
            return Judgement.BAD  # there is more in it, and that may not decode where the stack is deeper
        judgement = Judgement.GOOD
        for entry in entries:
            each = self._judge_entry(entry, out)
            if each is Judgement.BAD:
                return each
            if each is Judgement.WAIT:
                judgement = each
        return judgement

    def _judge_entry(self, entry: Any, out: Outbox) -> Judgement:
        match entry:
            case Submit():
                message = entry.message
                is_good = self._is_genuine(message, out) and self._enters_here(message)
                return Judgement.GOOD if is_good else Judgement.BAD
            case FromGroup():
                if not self._topology.has_group(entry.source) or entry.source == self._group:
                    return Judgement.BAD
                heard = self._heard_of(entry.source)
                if entry.seq < heard.applied:
                    return Judgement.GOOD  # it is in the log already, and changes nothing
                if entry.seq not in heard.backed:
                    return Judgement.WAIT
                return Judgement.GOOD if heard.backed[entry.seq] == entry.body else Judgement.BAD
            case _:
                if entry.group not in self._outgoing:
                    return Judgement.WAIT
                return Judgement.GOOD if entry.upto <= self._acked(entry.group) else Judgement.WAIT

    def _is_genuine(self, message: AppMessage, out: Outbox) -> bool:
        """Whether its sender said so, and a group may order it."""
        if message.id < 0 or len(message.payload) > _PAYLOAD_BYTES or not self._may_go_to(message.dst):
            return False
        if problem_with_number(message) is not None:
            return False
        problem = None
        if message.count != 1:
            problem = problem_with_batch(message, PAYLOAD_LIMIT)
        elif len(message.payload) > PAYLOAD_LIMIT:
            return False
        return problem is None and out.verify(message.sender, signed_part(message), message.proof)

    def _may_go_to(self, dst: tuple[GroupId, ...]) -> bool:
        if dst in self._good_dst:
            return True
        is_good = problem_with_destinations(dst, self._topology) is None
        if is_good and len(self._good_dst) < _GOOD_DST_MAX:
            self._good_dst.add(dst)
        return is_good

    def _enters_here(self, message: AppMessage) -> bool:
        """Whether this group, and no other one, orders it for its client."""
        if not self._automaton.is_ingress(message, self._group):
            return False
        return not self._numbers_by_entry or is_number_of(message, self._group, self._topology)

    def _is_owner(self, message: AppMessage, out: Outbox) -> bool:
        """Whether nobody else has used its sender's id here."""
        key = out.key_of(message.proof)
        return self._owners.get(message.sender, key) == key

    # -- decided entries

    def _apply(self, entry: Any, out: Outbox) -> None:
        effects = GroupOutbox()
        match entry:
            case Submit():
                if not self._is_owner(entry.message, out):
                    return
                self._owners[entry.message.sender] = out.key_of(entry.message.proof)
                message = msgspec.structs.replace(entry.message, proof=b"")
                self._submitted.discard(message.id)
                self._requests.pop(message.id)
                self._submit(message, effects)
            case FromGroup():
                heard = self._heard_of(entry.source)
                if entry.seq != heard.applied:
                    return  # in the log already, or a leader left something out before it
                heard.apply(self._log.ticks)
                self._automaton.on_group_message(entry.source, entry.body, effects)
            case _:
                stream = self._outgoing.get(entry.group)
                if stream is not None and entry.upto > stream.first:  # a leader that orders old ones does no work
                    self._ack_since.pop(entry.group, None)
                    stream.acknowledge(entry.upto)
        self._perform(effects, out)

    # -- streams to other groups

    def _flush(self, out: Outbox) -> None:
        for group, stream in self._outgoing.items():
            if stream.unsent and not self._log.is_silent:
                count = min(stream.unsent, len(stream.bodies))
                bodies = tuple(islice(reversed(stream.bodies), count))[::-1]
                first = stream.first + len(stream.bodies) - count
                out.send_all(self._topology.members(group), self._types.frame(self._group, first, bodies))
            stream.unsent = 0

    def _acknowledge(self, out: Outbox) -> None:
        for source, heard in self._heard.items():
            if heard.acknowledged != heard.applied:
                heard.acknowledged = heard.applied
                out.send_all(self._topology.members(source), StreamAck(self._group, heard.applied))

    # -- whether the leader does its work

    def _watch_leader(self, out: Outbox) -> None:
        """Once a tick."""
        log = self._log
        if self._watched_tick == log.ticks:
            return
        self._watched_tick = log.ticks
        if self._watched_view != log.view:
            self._watched_view = log.view
            self._give_time(out)
        elif any(log.ticks - since > log.patience for since in self._work_since()):
            self._act_on(log.suspect(out), out)
        else:
            self._tell_of_overdue(out)

    def _tell_of_overdue(self, out: Outbox) -> None:
        """Half of the time has passed. A client may have told this member alone: the others must hear of its message
        before they can be asked to replace a leader for it."""
        half = self._log.ticks - self._log.patience // 2
        overdue = [message for message, since in self._requests.values() if since == half]
        if overdue and not self._log.is_silent:
            others = [member for member in self._topology.members(self._group) if member != self._process]
            out.send_all(others, Start(tuple(overdue)))

    def _work_since(self) -> Iterable[int]:
        """The ticks since which something waits that this member knows of."""
        oldest = next(iter(self._requests.values()), None)
        if oldest is not None:
            yield oldest[1]
        for heard in self._heard.values():
            if heard.applied in heard.backed:
                yield heard.since
        for group, stream in self._outgoing.items():
            if self._acked(group) > stream.first:  # otherwise a liar that leads could have streams grow for ever
                yield self._ack_since.setdefault(group, self._log.ticks)

    def _give_time(self, out: Outbox) -> None:
        """A new leader has not had any yet, and may not know of what clients sent to this member."""
        ticks = self._log.ticks
        waiting = [message for message, _ in self._requests.values()]
        self._requests = InFlight()
        for message in waiting:
            if not self._automaton.is_known(message.id):
                self._requests.add(message, (message, ticks))
        self._ack_since = {}
        for heard in self._heard.values():
            heard.since = ticks
        leader = self._log.leader
        if leader is not None and leader != self._process and self._requests:
            out.send(leader, Start(tuple([message for message, _ in self._requests.values()])))

    # -- state

    def _dump(self) -> bytes:
        """The same at all members that tell the truth, after the same instance."""
        outgoing = {
            group: (stream.first, [msgspec.Raw(encode(body)) for body in stream.bodies])
            for group, stream in sorted(self._outgoing.items())
        }
        incoming = {source: heard.applied for source, heard in sorted(self._heard.items()) if heard.applied}
        automaton = msgspec.Raw(encode(self._automaton.dump()))
        adapter = encode(AdapterState(automaton, self._deliveries.dump(), outgoing, incoming))
        return encode(ByzantineState(adapter, dict(sorted(self._owners.items()))))

    def _load(self, state: bytes, out: Outbox) -> None:
        loaded = _state_decoder.decode(state)
        self._owners = loaded.owners
        super()._load(loaded.adapter, out)
        for source, stream in self._incoming.items():
            heard = self._heard_of(source)
            while heard.applied < stream.applied:
                heard.apply(self._log.ticks)
            if heard.applied > stream.applied:
                self._heard[source] = Heard(stream.applied)
        for source in set(self._heard) - set(self._incoming):
            self._heard[source] = Heard()
        self._waiting = {}
        self._ack_since = {}
        self._requests.drop(lambda id_, _: self._automaton.is_known(id_))


def replicate_among_liars(
    frame: type[Frame[Any]],
    body: Any,
    state: Any,
    make: Callable[[GroupId, Topology, Any], GroupAutomaton],
    numbers_by_entry: bool = False,
) -> Callable[[ProcessId, Topology, Any, Random], ByzantineReplica]:
    """The `build` of a protocol that is an automaton, `make(group, topology, config)`, over a Byzantine log."""
    types = ByzantineTypes(frame, body, state)

    def build(process: ProcessId, topology: Topology, config: Any, rng: Random) -> ByzantineReplica:
        group = topology.group_of(process)
        assert group is not None
        log = Bft(group, process, topology, config.paxos, rng, config.two_phases)
        automaton = make(group, topology, config)
        return ByzantineReplica(process, topology, config, log, automaton, types, numbers_by_entry)

    return build
