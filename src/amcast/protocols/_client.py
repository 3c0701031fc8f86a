"""The client: a process that multicasts, tries again until every destination group has answered, and never twice.

It sends START to the process that it believes leads each entry group (one delay, one copy); only when no answer comes
does it bother every member. A message keeps its id through all retries, and groups order an id once. With each message
goes the mark below which all its earlier messages are settled, so that groups may forget them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
    seq_of,
)
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


class ClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    retry_us: int = 200_000


class Outstanding:
    __slots__ = ("message", "missing", "sent", "ticks")

    def __init__(self, message: AppMessage, sent: Wire) -> None:
        self.message = message
        self.sent = sent
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
        self._outstanding: dict[MessageId, Outstanding] = {}  # in the order of sequence numbers
        self._leader: dict[GroupId, ProcessId] = {}
        self._retrying = False

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    def new_message(self, dst: tuple[GroupId, ...], payload: bytes) -> AppMessage:
        self._topology.check_destinations(dst)
        oldest = next(iter(self._outstanding), None)
        settled = self._next_seq if oldest is None else seq_of(oldest)
        message = app_message(self._process, self._next_seq, dst, payload, settled)
        self._next_seq += 1
        return message

    def on_start(self, out: Outbox) -> None:
        """A client waits for something to send."""

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        out.multicast(message)
        self._outstanding[message.id] = Outstanding(message, self._send(message, out))
        if not self._retrying:
            self._retrying = True
            out.set_timer(_RETRY, self._config.retry_us)

    def _send(self, message: AppMessage, out: Outbox) -> Wire:
        if self._entry is not None:
            return self._entry.send(message, out)
        start = Start((message,))
        for group in self._entry_groups(message, self._topology):
            out.send(self._leader.get(group, self._topology.members(group)[0]), start)
        return start

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
        return completed

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key != _RETRY:
            return
        self._retrying = bool(self._outstanding)
        if self._retrying:
            out.set_timer(_RETRY, self._config.retry_us)
        for entry in self._outstanding.values():
            entry.ticks += 1
            if entry.ticks > 1:  # it has waited for a whole period at least
                self._retry(entry, out)

    def _retry(self, entry: Outstanding, out: Outbox) -> None:
        if self._entry is not None:
            self._entry.send_again(entry.sent, [g for g in entry.message.dst if g in entry.missing], out)
            return
        entries = self._entry_groups(entry.message, self._topology)
        # Where clients enter at the destinations themselves, only those that have not answered are asked again.
        silent = [group for group in entries if group in entry.missing] or entries
        for group in silent:
            out.send_all(self._topology.members(group), entry.sent)


def destinations(message: AppMessage, topology: Topology) -> tuple[GroupId, ...]:
    """Entry groups of a genuine protocol: the client sends to the destinations themselves."""
    return message.dst
