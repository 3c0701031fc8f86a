"""A group's replicated log, as the layer above sees it.

Composition has one rule: effects go sideways, calls go down, decisions return up. A log's handlers return what the
layer above must act on, in order; a log calls nobody back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from ..core import GroupId, Outbox, ProcessId, Record, TimerKey, Wire


class LogWire(Wire, frozen=True):
    """Base of what logs say to each other. A process may follow several groups' logs: each message names its own."""

    group: GroupId


class Decided(msgspec.Struct, frozen=True, gc=False):
    """The next instance of the log. Instances come in order, each once; an empty value decides nothing."""

    instance: int
    value: bytes  # the encoded batch of entries, as the leader proposed it


class Elected(msgspec.Struct, frozen=True):
    """This process leads the group from now on. What earlier leaders may have decided is on its way."""


class StateWanted(msgspec.Struct, frozen=True):
    """A replica needs state from before this log begins: answer with `send_state`."""

    peer: ProcessId


class StateReceived(msgspec.Struct, frozen=True):
    """State of another replica to replace one's own with; later instances follow."""

    state: bytes
    next: int = 0  # it covers all instances below, as far as it is known


class SnapshotDue(msgspec.Struct, frozen=True):
    """Enough was decided since the last snapshot: call `compact` when all decisions of this round are applied."""


class Proposed(msgspec.Struct, frozen=True, gc=False):
    """A leader that is not believed proposes this value. The log votes for it after `approve`."""

    view: int
    instance: int
    value: bytes


Decision = Decided | Elected | StateWanted | StateReceived | SnapshotDue | Proposed


class Log(ABC):
    """`entries` that are proposed may be any msgspec value; a batch of them is encoded once, by the leader."""

    group: GroupId

    @property
    @abstractmethod
    def is_leader(self) -> bool: ...

    @property
    @abstractmethod
    def leader(self) -> ProcessId | None:
        """Who leads, as far as this process knows."""

    @property
    def is_silent(self) -> bool:
        """Whether this member lost its disk, and its group has not taken it back yet."""
        return False

    @abstractmethod
    def recover(self, records: Sequence[Record]) -> None: ...

    @abstractmethod
    def on_boot(self, out: Outbox) -> list[Decision]: ...

    @abstractmethod
    def propose(self, entry: Any, out: Outbox, lazy: bool = False) -> None:
        """Orders an entry if this process leads; otherwise it is dropped, and whoever needs it tries again.

        Everything proposed until the end of the turn goes into one instance. A lazy entry waits for company.
        """

    def propose_all(self, entries: Sequence[Any], out: Outbox) -> None:
        for entry in entries:
            self.propose(entry, out)

    @abstractmethod
    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> list[Decision]: ...

    @abstractmethod
    def on_timer(self, key: TimerKey, out: Outbox) -> list[Decision]: ...

    # -- reads

    @abstractmethod
    def begin_read(self, read: int, out: Outbox) -> None:
        """A read begins now. Its number is higher than those before it, and none that an earlier life used."""

    @abstractmethod
    def reads_done(self, out: Outbox) -> int:
        """The latest read that is done, to be asked for after decisions were acted on. It means: whatever any process
        was handed by this log before the read began, this one has been handed."""

    @property
    @abstractmethod
    def freshness(self) -> int | None:
        """Rises whenever this process hears from its group that all that the leader knows to be decided was handed up
        here. None: it is always so. A log reads no clock: the driver knows when it rose."""

    @abstractmethod
    def compact(self, state: bytes, out: Outbox) -> None:
        """The state after everything decided so far: makes it durable and forgets what it covers."""

    @abstractmethod
    def send_state(self, peer: ProcessId, state: bytes, out: Outbox) -> None: ...
