"""The client: a process that multicasts, tries again until every destination group has answered, and never twice.

It sends START to the process that it believes leads each entry group (one delay, one copy; what is multicast in one
turn goes in one message). Only when no answer comes does it bother every member. A message keeps its id through all
retries, and groups order an id once. With each message goes the mark below which all its earlier messages are settled,
so that groups may forget them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
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
)
from ..core.ids import SEQ_BITS, SEQ_LIMIT
from ..core.message import PAYLOAD_LIMIT
from ._messages import Reply, Start

EntryGroups = Callable[[AppMessage, Topology], tuple[GroupId, ...]]


class Entry(ABC):
    """How a sender's messages enter a protocol that wants more than a START at some groups' leaders."""

    @abstractmethod
    def send(self, message: AppMessage, out: Outbox) -> Wire:
        """Sends it where it must go first; answers what to send again if no reply comes."""

    @abstractmethod
    def send_again(self, sent: Any, silent: Sequence[GroupId], out: Outbox) -> None:
        """`silent` are the destinations that have not answered."""


_RETRY = "client.retry"
_SEND = "client.send"
_RETRY_TICKS = (2, 3, 4, 8)  # periods after which a message is sent again; then after as many as the last
_START_BYTES = 1 << 20  # of payload in one START
_CHECKED_MAX = 10_000


class ClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    retry_us: int = 200_000


class Outstanding:
    __slots__ = ("message", "missing", "sent", "ticks")

    def __init__(self, message: AppMessage, sent: Wire | None) -> None:
        self.message = message
        self.sent = sent  # what an entry has to send again
        self.missing = set(message.dst)
        self.ticks = 0  # how often the retry timer has found it unanswered


class Client(Process):
    def __init__(
        self,
        process: ProcessId,
        topology: Topology,
        entry_groups: EntryGroups,
        config: ClientConfig,
        entry: Entry | None = None,
    ) -> None:
        self._entry = entry
        self._process = process
        self._topology = topology
        self._entry_groups = entry_groups
        self._config = config
        self._next_seq = 0
        self._settled = 0  # all sequence numbers below are done
        self._checked: dict[tuple[GroupId, ...], tuple[GroupId, ...]] = {}  # destinations as given, and in good order
        self._outstanding: dict[MessageId, Outstanding] = {}  # in the order of sequence numbers
        self._leader: dict[GroupId, ProcessId] = {}
        self._retrying = False
        self._starting: dict[ProcessId, list[AppMessage]] = {}  # what leaves at the end of this turn

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    def new_message(self, dst: tuple[GroupId, ...], payload: bytes) -> AppMessage:
        seq = self._next_seq
        checked = self._checked.get(dst)
        if checked is None or len(payload) > PAYLOAD_LIMIT or seq >= SEQ_LIMIT:
            self._topology.check_destinations(dst)
            checked = app_message(self._process, seq, dst, payload).dst
            if len(self._checked) < _CHECKED_MAX:
                self._checked[dst] = checked
        self._next_seq = seq + 1
        return AppMessage(self._process << SEQ_BITS | seq, checked, payload, self._settled)

    def on_start(self, out: Outbox) -> None:
        """A client waits for something to send."""

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        out.multicast(message)
        self._outstanding[message.id] = Outstanding(message, self._send(message, out))
        if not self._retrying:
            self._retrying = True
            out.set_timer(_RETRY, self._config.retry_us)

    def _send(self, message: AppMessage, out: Outbox) -> Wire | None:
        if self._entry is not None:
            return self._entry.send(message, out)
        if not self._starting:
            out.set_timer(_SEND, 0)
        for group in self._entry_groups(message, self._topology):
            leader = self._leader.get(group, self._topology.members(group)[0])
            self._starting.setdefault(leader, []).append(message)
        return None

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Reply):
            self.on_reply(sender, message)

    def on_reply(self, sender: ProcessId, reply: Reply) -> list[AppMessage]:
        """The messages that are delivered everywhere now."""
        group = self._topology.group_of(sender)
        if group is None:
            return []
        self._leader[group] = sender
        completed: list[AppMessage] = []
        for id_ in reply.ids:
            entry = self._outstanding.get(id_)
            if entry is not None:
                entry.missing.difference_update(reply.groups)
                if not entry.missing:
                    del self._outstanding[id_]
                    completed.append(entry.message)
        self._move_mark()
        return completed

    def _move_mark(self) -> None:
        base, outstanding = self._process << SEQ_BITS, self._outstanding
        while self._settled < self._next_seq and base | self._settled not in outstanding:
            self._settled += 1

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _SEND:
            self._send_starts(out)
        elif key == _RETRY:
            self._retry_all(out)

    def _send_starts(self, out: Outbox) -> None:
        starting, self._starting = self._starting, {}
        for leader, messages in starting.items():
            for start in _batches(messages):
                out.send(leader, start)

    def _retry_all(self, out: Outbox) -> None:
        self._retrying = bool(self._outstanding)
        if self._retrying:
            out.set_timer(_RETRY, self._config.retry_us)
        again: dict[GroupId, list[AppMessage]] = {}
        for entry in self._outstanding.values():
            entry.ticks += 1
            # When it has waited for a whole period at least, then ever more seldom: a cluster that is slow because it
            # has much to do must not get more to do for it.
            if entry.ticks not in _RETRY_TICKS and entry.ticks % _RETRY_TICKS[-1]:
                continue
            if self._entry is not None:
                self._entry.send_again(entry.sent, [g for g in entry.message.dst if g in entry.missing], out)
            else:
                for group in self._silent(entry):
                    again.setdefault(group, []).append(entry.message)
        for group, messages in again.items():
            for start in _batches(messages):
                out.send_all(self._topology.members(group), start)

    def _silent(self, entry: Outstanding) -> list[GroupId]:
        """Who is to be asked again."""
        dst, entries = entry.message.dst, self._entry_groups(entry.message, self._topology)
        # Not the destinations that answered. Where clients do not enter, the message may be, and its answer was lost.
        silent = [group for group in entries if group in entry.missing or group not in dst]
        return silent + [group for group in dst if group in entry.missing and group not in entries]


def _batches(messages: list[AppMessage]) -> Iterator[Start]:
    batch: list[AppMessage] = []
    size = 0
    for message in messages:
        if batch and size + len(message.payload) > _START_BYTES:
            yield Start(tuple(batch))
            batch, size = [], 0
        batch.append(message)
        size += len(message.payload)
    yield Start(tuple(batch))


def destinations(message: AppMessage, topology: Topology) -> tuple[GroupId, ...]:
    """Entry groups of a genuine protocol: the client sends to the destinations themselves."""
    return message.dst
