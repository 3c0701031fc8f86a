"""The log of a group of one process: an entry is decided when it is on its own disk.

Survives a crash and restart, and nothing else: a process that lost its disk keeps silent for ever, since it
can't know what it promised to other groups. Snapshots come as often as Multi-Paxos takes them, by number of entries and
by their bytes, so that neither the disk nor the time that a restart takes grows with the age of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core import GroupId, Outbox, ProcessId, Record, TimerKey, Wire, encode
from .base import Decided, Decision, Log, SnapshotDue, StateReceived
from .multipaxos import PaxosConfig


class SoloStart(Record, frozen=True, tag="solo-start"):
    """The first record of a disk: without it, the disk is not the one that this process had."""


class SoloEntry(Record, frozen=True, tag="solo-entry"):
    instance: int
    value: bytes


class SoloSnapshot(Record, frozen=True, tag="solo-snapshot"):
    next: int
    state: bytes


SoloRecord = SoloStart | SoloEntry | SoloSnapshot


class Solo(Log):
    def __init__(self, group: GroupId, process: ProcessId, config: PaxosConfig) -> None:
        self.group = group
        self._process = process
        self._config = config
        self._next = 0
        self._snapshot_next = 0
        self._new_bytes = 0  # of values since the last snapshot
        self._batch: list[Any] = []
        self._lost_disk = False
        self._read = -1
        self._recovered: list[Decision] | None = None
        self._propose_key = f"log.{group}.propose"

    @property
    def is_leader(self) -> bool:
        return not self._lost_disk

    @property
    def leader(self) -> ProcessId | None:
        return None if self._lost_disk else self._process

    @property
    def is_silent(self) -> bool:
        return self._lost_disk

    def recover(self, records: Sequence[Record]) -> None:
        self._lost_disk = not records
        self._recovered = []
        for record in records:
            if isinstance(record, SoloSnapshot):
                self._recovered = [StateReceived(record.state)]
                self._next = self._snapshot_next = record.next
                self._new_bytes = 0
            elif isinstance(record, SoloEntry):
                self._recovered.append(Decided(record.instance, record.value))
                self._next = record.instance + 1
                self._new_bytes += len(record.value)

    def on_boot(self, out: Outbox) -> list[Decision]:
        if self._recovered is None:
            out.persist(SoloStart())
        decisions, self._recovered = self._recovered or [], None
        return decisions + self._snapshot_if_due()

    def _snapshot_if_due(self) -> list[Decision]:
        config = self._config
        is_due = self._next - self._snapshot_next >= config.snapshot_every or self._new_bytes >= config.snapshot_bytes
        return [SnapshotDue()] if is_due else []

    def propose(self, entry: Any, out: Outbox, lazy: bool = False) -> None:
        if self._lost_disk:
            return
        if not self._batch:
            out.set_timer(self._propose_key, 0)
        self._batch.append(entry)

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> list[Decision]:
        return []

    def on_timer(self, key: TimerKey, out: Outbox) -> list[Decision]:
        if key != self._propose_key or not self._batch:
            return []
        value, self._batch = encode(self._batch), []
        instance, self._next = self._next, self._next + 1
        out.persist(SoloEntry(instance, value))
        self._new_bytes += len(value)
        return [Decided(instance, value), *self._snapshot_if_due()]

    def begin_read(self, read: int, out: Outbox) -> None:
        """Nobody else hands out this log. What is not durable yet, nobody has seen."""
        if not self._lost_disk:
            self._read = read

    def reads_done(self, out: Outbox) -> int:
        return self._read

    @property
    def freshness(self) -> int | None:
        return 0 if self._lost_disk else None

    def compact(self, state: bytes, out: Outbox) -> None:
        self._snapshot_next = self._next
        self._new_bytes = 0
        out.snapshot(SoloSnapshot(self._next, state))

    def send_state(self, peer: ProcessId, state: bytes, out: Outbox) -> None:
        raise AssertionError("a group of one has no peer to send state to")
