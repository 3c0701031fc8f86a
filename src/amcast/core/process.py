"""The one interface: a protocol is a sans-IO state machine, one object a process, all effects through an outbox.

A process never reads a clock, draws a global random number, opens a socket, awaits or logs. A driver does it: the
simulated machine, the node of a cluster, or one of your own. What a driver has to do, with a driver of sixty lines that
works, is in docs/driver.md. In short:

- It calls `on_boot` once in each life of the process, then `on_multicast`, `on_message` and `on_timer`, one at a time.
- It performs effects in the order in which they were issued. What was issued after `persist` or `snapshot` happens only
  when that record is durable; one sync may do for the records of many inputs.
- It may ask which position shows everything, with `on_read`; the answer is `readable`.
- It drops deliveries at positions that the application has: they come again after a restart.
- It restarts a process as a new object: `recover` with the durable records, then `on_boot`. A lost disk is `recover`
  with no records; only the very first start is without `recover`.
- It knows who sent a message. Links may lose, repeat and reorder messages.
- It runs a client as it runs a member: a client is a process in no group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from .ids import ProcessId
from .message import AppMessage, Record, Wire
from .timestamps import Timestamp

TimerKey = str


class Outbox(ABC):
    """Where effects go.

    Since `persist` is a barrier, a process may count its own vote at once: nobody sees what follows from the vote
    before the disk has it.
    """

    @property
    @abstractmethod
    def now_us(self) -> int:
        """This process's own clock, which may be skewed."""

    @property
    def persists_at_once(self) -> bool:
        """Whether a record is as durable as it will ever be when `persist` returns: nothing then waits for a disk."""
        return False

    @abstractmethod
    def send(self, to: ProcessId, message: Wire) -> None: ...

    @abstractmethod
    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None:
        """Encoded once. The sender itself may be among them: it hears itself like anyone else."""

    def sign(self, data: bytes, sender: ProcessId | None = None) -> bytes:
        """A proof that this process said so: anybody can verify it, and nobody else can make it. A driver covers which
        cluster it is. A client that has several ids names the one that it signs for; its driver may leave the proof
        empty, and put it into the message when that leaves. Only protocols for liars ask for proofs."""
        raise NotImplementedError(f"{type(self).__name__} signs nothing: it can't run protocols that survive liars")

    def verify(self, process: ProcessId, data: bytes, proof: bytes) -> bool:
        """Whether the proof is one that this process or client has made, of these data."""
        raise NotImplementedError(f"{type(self).__name__} verifies nothing: it can't run protocols that survive liars")

    def key_of(self, proof: bytes) -> bytes:
        """By which key a client made this proof, where the ids of two clients could be the same by chance. Empty where
        they can't."""
        return b""

    @abstractmethod
    def announce(self, message: AppMessage) -> None:
        """Announces, for the trace, that this process multicasts the message now."""

    def announce_all(self, messages: Sequence[AppMessage]) -> None:
        for message in messages:
            self.announce(message)

    @abstractmethod
    def deliver(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None:
        """Delivers the message at a position of this process's log; a batch at as many as it has messages.

        After a restart the positions since the last snapshot are delivered again; drivers compare and drop them.
        """

    def deliver_all(self, first: int, batch: Sequence[tuple[AppMessage, Timestamp]]) -> None:
        """Delivers messages at positions from `first` on; a driver that can do it for less each overrides this."""
        for message, final_ts in batch:
            self.deliver(first, message, final_ts)
            first += message.count

    @abstractmethod
    def opt_deliver(self, position: int, message: AppMessage) -> None: ...

    @abstractmethod
    def set_timer(self, key: TimerKey, after_us: int) -> None:
        """Setting a key again replaces it. A timer of 0 fires after everything that is waiting now."""

    @abstractmethod
    def cancel_timer(self, key: TimerKey) -> None: ...

    @abstractmethod
    def persist(self, record: Record) -> None: ...

    @abstractmethod
    def snapshot(self, record: Record) -> None:
        """Like persist, and everything persisted before may be forgotten: recovery starts here."""

    @abstractmethod
    def restored(self, position: int) -> None:
        """State was handed over that covers all positions below this one: they are not delivered here."""

    def readable(self, read: int, position: int) -> None:
        """Answers `on_read`, of this read and all before it: what any member of the group had delivered when they began
        is below this position. A driver that reads nothing has nothing to do here."""
        return


class Process(ABC):
    """One process of a protocol, or a client."""

    @property
    def is_leader(self) -> bool:
        """Whether it leads its group, for those who watch (and those who kill leaders)."""
        return False

    @property
    def leader(self) -> ProcessId | None:
        """Who orders for its group, as far as it knows; for those who watch."""
        return None

    @property
    def is_silent(self) -> bool:
        """Whether it lost its disk and its group has not taken it back yet; for those who watch."""
        return False

    @property
    def delivered(self) -> int:
        """The position that it delivers next."""
        return 0

    @property
    def freshness(self) -> tuple[int, ...] | None:
        """For reads that may be old. A number for each log that this process follows: each rises when the process hears
        that it has all of that log, as far as the leader knows. No numbers: it always has. None: it can't tell."""
        return None

    def on_read(self, read: int, out: Outbox) -> None:
        """Somebody reads: which position shows everything that any member of this group has delivered by now?

        Nothing is ordered or written for it. Without an answer, as while there is no leader, the driver waits, or
        begins another read; numbers only rise, and no two lives of a process use the same.
        """
        raise NotImplementedError(f"{type(self).__name__} answers no reads")

    def recover(self, records: Sequence[Record]) -> None:
        """Called before `on_boot` on every start but the very first, with what was persisted, oldest first.

        No records at all means that the disk was lost: a process that voted before must not vote again until its
        group has taken it back. A process that persists nothing has nothing to do here.
        """
        return

    @abstractmethod
    def on_boot(self, out: Outbox) -> None: ...

    @abstractmethod
    def on_multicast(self, message: AppMessage, out: Outbox) -> None: ...

    @abstractmethod
    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        """`sender` is what the driver authenticated, never a field of the message."""

    @abstractmethod
    def on_timer(self, key: TimerKey, out: Outbox) -> None: ...
