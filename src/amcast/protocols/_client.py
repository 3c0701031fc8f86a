"""The client: a process that multicasts, and sends each message again until every destination group has answered.

It sends START to the process that it believes leads each ingress group: one delay, one copy. What is multicast in one
turn goes into one START, and messages to the same groups become one batch. Only when no answer comes does it send to
every member of a group. What a group had no room for it sends again as the group's answers make room. A message keeps
its id through all retries, and groups order an id once. Each message carries the sequence number below which all of the
client's messages are settled, so that groups may forget those.

The sequence numbers of a sender id are many, but not endless. When three quarters are used, the client asks its driver
for another id. It changes to it when it has no message in flight, since order is kept between messages of one id only.
A client that always has some in flight changes when the numbers are used up, and the old id ends with its last reply.
Groups take no message that is too far ahead of the first one without an answer (`UNSETTLED_MAX`): a client that gets so
far, say since one group is down, changes its id in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ..core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    Process,
    ProcessId,
    TimerKey,
    Topology,
    Wire,
    app_message,
    liars_max,
    pack,
    seq_of,
    signed_part,
)
from ..core.errors import UsageError
from ..core.ids import SEQ_BITS, SEQ_LIMIT, UNSETTLED_MAX
from ..core.message import PAYLOAD_LIMIT
from ._entry_numbers import next_number
from ._messages import Reply, Start

IngressGroups = Callable[[AppMessage, Topology], tuple[GroupId, ...]]


class Ingress(ABC):
    """How a sender's messages enter a protocol that wants more than a START at some groups' leaders."""

    @abstractmethod
    def send(self, message: AppMessage, out: Outbox) -> Wire:
        """Sends a message where it must go first, and returns what to send again if no reply comes."""

    @abstractmethod
    def send_again(self, sent: Any, silent: Sequence[GroupId], out: Outbox) -> None:
        """`silent` are the destinations that have not answered."""


_RETRY = "client.retry"
_SEND = "client.send"
_RETRY_TICKS = (2, 3, 4, 8)  # periods after which a message is sent again; then after as many as the last
_START_BYTES = 1 << 20  # payload of one START, at most
_TURN_MESSAGES = 1_024  # messages that leave in one turn, at most: many at a time share one sync of a disk
_BATCH_BYTES = 64 << 10  # payload of one batch, at most: beyond that a batch gets slower, and saves nothing more
_CHECKED_MAX = 10_000
ID_MESSAGES = SEQ_LIMIT  # messages under one sender id; tests use fewer


class ClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    retry_us: int = 200_000
    batch: int = 1  # messages to the same groups that may be ordered as one


class Outstanding:
    """A message or a batch that was sent, and that not all destinations have answered yet."""

    __slots__ = ("answers", "ingress", "is_done", "kept", "message", "missing", "parts", "sent", "ticks")

    def __init__(
        self, message: AppMessage, parts: Sequence[AppMessage], sent: Wire | None, ingress: Ingress | None
    ) -> None:
        self.message = message
        self.parts = parts  # what the application multicast: more than one is a batch
        self.sent = sent  # what an ingress has to send again
        self.ingress = ingress
        self.missing = set(message.dst)
        self.answers: dict[GroupId, set[ProcessId]] = {}  # members that have answered, where one is not enough
        self.ticks = 0  # how often the retry timer has found it unanswered
        self.is_done = False
        self.kept = 0  # messages of it that are delivered, and not released yet


class Client(Process):
    def __init__(
        self,
        process: ProcessId,
        topology: Topology,
        ingress_groups: IngressGroups,
        config: ClientConfig,
        make_ingress: Callable[[ProcessId], Ingress] | None = None,  # of a sender id
        fears_liars: bool = False,  # signs what it sends, and believes f+1 members of a group that say the same
        numbers_by_entry: bool = False,  # see `_entry_numbers.py`
    ) -> None:
        self._entry_of: dict[tuple[GroupId, ...], GroupId] | None = {} if numbers_by_entry else None
        self._fears_liars = fears_liars
        self._leader_said: dict[GroupId, dict[ProcessId, ProcessId]] = {}  # by each member, if some may lie
        self._make_ingress = make_ingress
        self._ingress = None if make_ingress is None else make_ingress(process)
        self._process = process
        self._topology = topology
        self._ingress_groups = ingress_groups
        self._config = config
        self.ask_for_id: Callable[[], None] = lambda: None  # the driver answers with `take_id`
        self.give_up_id: Callable[[ProcessId], None] = lambda id_: None
        self.no_id = "none was asked for"  # why `take_id` was not called yet
        self._spare_id: ProcessId | None = None
        self._earlier: dict[ProcessId, int] = {}  # ids that it has changed from -> messages that wait for answers
        self._seq_limit = ID_MESSAGES
        self._ask_from = ID_MESSAGES * 3 // 4
        self._ahead_limit = UNSETTLED_MAX
        self._ask_ahead = UNSETTLED_MAX * 3 // 4
        self._next_seq = 0
        self._settled = 0  # all sequence numbers below are done
        self._checked: dict[tuple[GroupId, ...], tuple[GroupId, ...]] = {}  # destinations as given -> sorted, checked
        self._unsent: list[AppMessage] = []  # leave at the end of this turn, or of a later one
        self._outstanding: dict[MessageId, Outstanding] = {}
        self._in_order: deque[Outstanding] = deque()  # by sequence number, from the first that is not done
        self._leader: dict[GroupId, ProcessId] = {}
        self._delivered: dict[MessageId, tuple[Outstanding, AppMessage]] = {}  # settled when `release` is called
        self._turned_away: dict[GroupId, dict[MessageId, None]] = {}  # by groups that have no room for them
        self._retrying = False
        self.outstanding = 0  # messages

    @property
    def sender(self) -> ProcessId:
        """The id under which it multicasts now."""
        return self._process

    def settled_of(self, id_: ProcessId) -> int:
        """All messages under this id with lower sequence numbers were answered. Of an earlier id it is not known."""
        return self._settled if id_ == self._process else 0

    def new_message(self, dst: tuple[GroupId, ...], payload: bytes) -> AppMessage:
        seq, checked = self._next_seq, self._checked.get(dst)
        if self._entry_of is not None and checked is not None:
            seq = self._number_for(seq, checked)
        is_usual = seq < self._ask_from and seq - self._settled < self._ask_ahead and len(payload) <= PAYLOAD_LIMIT
        if checked is None or not is_usual:
            return self._new_messages(((dst, payload),))[0]
        self._next_seq = seq + 1
        return AppMessage(self._process << SEQ_BITS | seq, checked, payload, self._settled)

    def new_messages(self, wanted: Sequence[tuple[tuple[GroupId, ...], bytes]]) -> list[AppMessage]:
        if len(wanted) == 1:
            return [self.new_message(*wanted[0])]
        return self._new_messages(wanted)

    def _new_messages(self, wanted: Sequence[tuple[tuple[GroupId, ...], bytes]]) -> list[AppMessage]:
        if self._entry_of is not None:
            return self._new_numbered_messages(wanted)
        last = self._next_seq + len(wanted)
        if last > self._ask_from or last - self._settled > self._ask_ahead:
            self._change_id_for(len(wanted))
        seq, settled, checked = self._next_seq, self._settled, self._checked
        first = self._process << SEQ_BITS | seq
        try:
            made = [AppMessage(id_, checked[dst], payload, settled) for id_, (dst, payload) in enumerate(wanted, first)]
        except KeyError:  # destinations that are new here
            made = []
        if not made or _largest(made) > PAYLOAD_LIMIT:
            checked = {dst: self._check(dst, payload) for dst, payload in wanted}
            made = [AppMessage(id_, checked[dst], payload, settled) for id_, (dst, payload) in enumerate(wanted, first)]
        self._next_seq = seq + len(wanted)
        return made

    def _new_numbered_messages(self, wanted: Sequence[tuple[tuple[GroupId, ...], bytes]]) -> list[AppMessage]:
        """The same where a number says at which group a message enters."""
        checked = self._checked
        if any(dst not in checked or len(payload) > PAYLOAD_LIMIT for dst, payload in wanted):
            checked = {dst: self._check(dst, payload) for dst, payload in wanted}
        count = self._numbers_for(wanted, checked)[-1] + 1 - self._next_seq
        last = self._next_seq + count
        if last > self._ask_from or last - self._settled > self._ask_ahead:
            self._change_id_for(count)
        settled, base, numbers = self._settled, self._process << SEQ_BITS, self._numbers_for(wanted, checked)
        self._next_seq = numbers[-1] + 1
        return [
            AppMessage(base | seq, checked[dst], payload, settled)
            for seq, (dst, payload) in zip(numbers, wanted, strict=True)
        ]

    def _numbers_for(
        self,
        wanted: Sequence[tuple[tuple[GroupId, ...], bytes]],
        checked: Mapping[tuple[GroupId, ...], tuple[GroupId, ...]],
    ) -> Sequence[int]:
        seq = self._next_seq
        numbers: list[int] = []
        for dst, _ in wanted:
            seq = self._number_for(seq, checked[dst])
            numbers.append(seq)
            seq += 1
        return numbers

    def _number_for(self, seq: int, dst: tuple[GroupId, ...]) -> int:
        """The first number from this one on that a message to these groups may have."""
        assert self._entry_of is not None
        entry = self._entry_of.get(dst)
        if entry is None:
            [entry] = self._ingress_groups(AppMessage(0, dst, b""), self._topology)
            if len(self._entry_of) < _CHECKED_MAX:
                self._entry_of[dst] = entry
        return next_number(seq, entry, self._topology)

    def _change_id_for(self, count: int) -> None:
        """Before so many numbers are used. An error if there are none."""
        last = self._next_seq + count
        is_used_up = last > self._seq_limit or last - self._settled > self._ahead_limit
        if self._spare_id is None:
            self.ask_for_id()
        elif is_used_up or not self.outstanding:
            self._change_id(self._spare_id)
            is_used_up = count > min(self._seq_limit, self._ahead_limit)
        if is_used_up:
            numbers = f"used up the {self._seq_limit:,} numbers of its id"
            many = numbers if last > self._seq_limit else f"{self._ahead_limit:,} messages without an answer"
            raise UsageError(f"this client has {many}, and got no other id: {self.no_id}")

    def _change_id(self, id_: ProcessId) -> None:
        old, self._process, self._spare_id = self._process, id_, None
        self._next_seq = self._settled = 0
        if self._make_ingress is not None:
            self._ingress = self._make_ingress(id_)
        waiting = self.outstanding - sum(self._earlier.values())
        if waiting:
            self._earlier[old] = waiting
        else:
            self.give_up_id(old)

    def take_id(self, id_: ProcessId) -> None:
        """For messages to come, when the numbers of its id run out."""
        self._spare_id = id_

    def _check(self, dst: tuple[GroupId, ...], payload: bytes) -> tuple[GroupId, ...]:
        """The destinations, sorted and without repetition; an error if the message can't be sent."""
        self._topology.check_destinations(dst)
        checked = app_message(self._process, 0, dst, payload).dst
        if len(self._checked) < _CHECKED_MAX:
            self._checked[dst] = checked
        return checked

    def sent_with(self, id_: MessageId) -> Sequence[AppMessage]:
        """The messages of a batch that waits for answers."""
        outstanding = self._outstanding.get(id_)
        return () if outstanding is None else outstanding.parts

    def on_boot(self, out: Outbox) -> None:
        """A client waits for something to send."""

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        self.on_multicast_all((message,), out)

    def on_multicast_all(self, messages: Sequence[AppMessage], out: Outbox) -> None:
        out.announce_all(messages)
        self.outstanding += len(messages)
        if self._ingress is not None:
            for message in messages:
                self._remember(message, (message,), self._ingress.send(message, out))
        else:
            if not self._unsent:
                out.set_timer(_SEND, 0)
            self._unsent.extend(messages)
        if not self._retrying:
            self._retrying = True
            out.set_timer(_RETRY, self._config.retry_us)

    def _remember(self, message: AppMessage, parts: Sequence[AppMessage], sent: Wire | None) -> None:
        outstanding = self._outstanding[message.id] = Outstanding(message, parts, sent, self._ingress)
        self._in_order.append(outstanding)

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Reply):
            self.on_reply(sender, message)

    def on_reply(self, sender: ProcessId, reply: Reply) -> list[AppMessage]:
        """Returns the messages that all their destinations have delivered, now that this reply has come."""
        group = self._topology.group_of(sender)
        if group is None:
            return []
        fears_liars, waiting = self._fears_liars, self._outstanding
        if fears_liars:
            self._hear_of_leader(group, sender, reply)
        else:
            self._leader[group] = sender
        completed: list[AppMessage] = []
        for id_ in reply.ids:
            outstanding = waiting.get(id_)
            if outstanding is not None:
                if not fears_liars:
                    outstanding.missing.difference_update(reply.groups)
                elif group in reply.groups:
                    self._count_answer(outstanding, group, sender)
                if not outstanding.missing:
                    kept = self.unfinished(outstanding.parts)
                    if kept:
                        self._keep_delivered(outstanding, kept)
                    else:
                        outstanding.is_done = True
                    del waiting[id_]
                    completed += outstanding.parts
        if completed:
            self.outstanding -= len(completed)
            self._move_mark()
            if self._earlier:
                self._answered([message for message in completed if message.id not in self._delivered])
        return completed

    # -- groups in which some may lie

    def _hear_of_leader(self, group: GroupId, sender: ProcessId, reply: Reply) -> None:
        said = self._leader_said.setdefault(group, {})
        if reply.leader == self._leader.get(group):
            said.pop(sender, None)
        elif reply.leader is not None and self._topology.group_of(reply.leader) == group:
            said[sender] = reply.leader
            if sum([each == reply.leader for each in said.values()]) > liars_max(len(self._topology.members(group))):
                self._leader[group] = reply.leader

    def _count_answer(self, outstanding: Outstanding, group: GroupId, sender: ProcessId) -> None:
        """A member speaks for its own group, and f+1 of them tell the truth."""
        answers = outstanding.answers.setdefault(group, set())
        answers.add(sender)
        if len(answers) > liars_max(len(self._topology.members(group))):
            outstanding.missing.discard(group)

    # -- messages that a group had no room for

    def on_turned_away(self, group: GroupId, ids: Sequence[MessageId]) -> None:
        """A group has too many open messages: it gets these again as its answers make room, or by the retry timer."""
        self._turned_away.setdefault(group, {}).update(dict.fromkeys(ids))

    @property
    def was_turned_away(self) -> bool:
        """Whether some group had no room for messages, and has not got them since."""
        return bool(self._turned_away)

    def send_turned_away(self, process: ProcessId, answered: int, out: Outbox) -> None:
        """A process has answered so many messages, and has room for as many."""
        group = self._topology.group_of(process) if self._turned_away else None
        waiting = {} if group is None else self._turned_away.get(group, {})
        again: list[AppMessage] = []
        while waiting and len(again) < answered:
            id_ = next(iter(waiting))
            del waiting[id_]
            outstanding = self._outstanding.get(id_)
            if outstanding is not None and outstanding.ingress is None and group in self._silent(outstanding):
                outstanding.ticks = 0
                again.append(outstanding.message)
        if group is not None and not waiting:
            self._turned_away.pop(group, None)
        if again:
            for start in start_all(again):
                out.send(process, start)

    # -- messages that are not over when they are delivered

    def unfinished(self, delivered: Sequence[AppMessage]) -> Sequence[AppMessage]:
        """Those that are not settled before `release` is called, so that groups keep their results."""
        return ()

    def release(self, id_: MessageId) -> None:
        """Such a message is finished, perhaps before it is delivered."""
        if id_ in self._delivered:
            outstanding, message = self._delivered.pop(id_)
            outstanding.kept -= 1
            if not outstanding.kept:
                outstanding.is_done = True
                self._move_mark()
            if self._earlier:
                self._answered([message])

    def _keep_delivered(self, outstanding: Outstanding, kept: Sequence[AppMessage]) -> None:
        for part in kept:
            self._delivered[part.id] = (outstanding, part)
        outstanding.kept = len(kept)

    def leader_of(self, group: GroupId) -> ProcessId:
        """As far as the client knows."""
        return self._leader.get(group, self._topology.members(group)[0])

    def _answered(self, completed: Sequence[AppMessage]) -> None:
        """Gives up an earlier id with its last answer."""
        for message in completed:
            id_ = message.sender
            if id_ in self._earlier:
                self._earlier[id_] -= 1
                if not self._earlier[id_]:
                    del self._earlier[id_]
                    self.give_up_id(id_)

    def _move_mark(self) -> None:
        in_order = self._in_order
        while in_order and in_order[0].is_done:
            in_order.popleft()
        if in_order:
            self._settled = self._settled_before(in_order[0].message.id)
        else:
            self._settled = self._settled_before(self._unsent[0].id) if self._unsent else self._next_seq

    def _settled_before(self, first: MessageId) -> int:
        """`first` is the first message without an answer. While it is one of an earlier id, nothing is promised."""
        return seq_of(first) if first >> SEQ_BITS == self._process else 0

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _SEND:
            self._send_unsent(out)
        elif key == _RETRY:
            self._retry_all(out)

    def _send_unsent(self, out: Outbox) -> None:
        leaving = self._unsent
        if len(leaving) > _TURN_MESSAGES:
            leaving, self._unsent = leaving[:_TURN_MESSAGES], leaving[_TURN_MESSAGES:]
            out.set_timer(_SEND, 0)
        else:
            self._unsent = []
        starting: dict[ProcessId, list[AppMessage]] = {}
        for parts in self._batches(leaving):
            message = pack(parts)
            if self._fears_liars:
                message = msgspec.structs.replace(message, proof=out.sign(signed_part(message), message.sender))
            self._remember(message, parts, None)
            for group in self._ingress_groups(message, self._topology):
                leader = self._leader.get(group)
                if leader is None:
                    leader = self._topology.members(group)[0]
                if leader in starting:
                    starting[leader].append(message)
                else:
                    starting[leader] = [message]
        for leader, messages in starting.items():
            for start in start_all(messages):
                out.send(leader, start)

    def _batches(self, messages: list[AppMessage]) -> list[list[AppMessage]]:
        """Messages to the same groups, cut into batches. Batches are sorted by the sequence number of their first."""
        if len(messages) == 1:
            return [messages]
        if messages[0].id >> SEQ_BITS != messages[-1].id >> SEQ_BITS:  # a batch has one sender
            earlier = [message for message in messages if message.id >> SEQ_BITS == messages[0].id >> SEQ_BITS]
            return self._batches(earlier) + self._batches(messages[len(earlier) :])
        if [message.dst for message in messages].count(messages[0].dst) == len(messages):
            return _cut(messages, _BATCH_BYTES, self._config.batch)
        by_dst: dict[tuple[GroupId, ...], list[AppMessage]] = {}
        for message in messages:
            by_dst.setdefault(message.dst, []).append(message)
        batches: list[list[AppMessage]] = []
        for same in by_dst.values():
            batches += _cut(same, _BATCH_BYTES, self._config.batch)
        batches.sort(key=_first_id)
        return batches

    def _retry_all(self, out: Outbox) -> None:
        self._retrying = bool(self.outstanding)
        if self._retrying:
            out.set_timer(_RETRY, self._config.retry_us)
        again: dict[GroupId, list[AppMessage]] = {}
        for each in self._outstanding.values():
            each.ticks += 1
            # A retry comes after a whole period at least, later ones less and less often: a cluster that is slow under
            # load must not get more load for being slow.
            if each.ticks not in _RETRY_TICKS and each.ticks % _RETRY_TICKS[-1]:
                continue
            if each.ingress is not None:
                each.ingress.send_again(each.sent, [g for g in each.message.dst if g in each.missing], out)
            else:
                for group in self._silent(each):
                    again.setdefault(group, []).append(each.message)
        for group, messages in again.items():
            for start in start_all(messages):
                out.send_all(self._topology.members(group), start)

    def on_reconnected(self, process: ProcessId, out: Outbox) -> None:
        """The connection to a process broke, and there is another one. What was on its way may be lost, both ways.

        If the process leads its group, as far as the client knows, it gets at once what the group has not answered.
        """
        group = self._topology.group_of(process)
        if group is None or self.leader_of(group) != process:
            return
        unanswered = [each for each in self._outstanding.values() if each.ingress is None]
        for start in start_all([each.message for each in unanswered if group in self._silent(each)]):
            out.send(process, start)

    def _silent(self, outstanding: Outstanding) -> list[GroupId]:
        """The groups to send a message to again: all that it goes to first or is addressed to, and that did not answer.

        A destination that is no ingress group can't order the message for a client. But it may have delivered it, and
        its answer was lost: then it answers again.
        """
        dst, ingress = outstanding.message.dst, self._ingress_groups(outstanding.message, self._topology)
        silent = [group for group in ingress if group in outstanding.missing or group not in dst]
        return silent + [group for group in dst if group in outstanding.missing and group not in ingress]


def start_all(messages: list[AppMessage]) -> list[Start]:
    """These messages in as few STARTs as their size allows; none if there are no messages.

    A protocol with an ingress of its own refuses every START, also one without messages.
    """
    if len(messages) == 1:
        return [Start((messages[0],))]
    return [Start(tuple(some)) for some in _cut(messages, _START_BYTES, len(messages))] if messages else []


def _largest(messages: list[AppMessage]) -> int:
    return max(map(len, [message.payload for message in messages]))


def _first_id(parts: list[AppMessage]) -> MessageId:
    return parts[0].id


def _cut(messages: list[AppMessage], bytes_max: int, count_max: int) -> list[list[AppMessage]]:
    """Cuts a list of messages into as few pieces as the limits allow, in order."""
    if len(messages) == 1:
        return [messages]
    if len(messages) <= count_max and sum(map(len, [message.payload for message in messages])) <= bytes_max:
        return [messages]
    cut: list[list[AppMessage]] = []
    size = 0
    for message in messages:
        length = len(message.payload)
        if not cut or len(cut[-1]) == count_max or size + length > bytes_max:
            cut.append([])
            size = 0
        cut[-1].append(message)
        size += length
    return cut


def destinations(message: AppMessage, topology: Topology) -> tuple[GroupId, ...]:
    """Ingress groups of a genuine protocol: the client sends to the destinations themselves."""
    return message.dst
