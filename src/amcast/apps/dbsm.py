"""The database state machine: transactions execute at one replica, and all replicas certify them in one order.

A replica executes a transaction on its own copy without locks, and multicasts what it read, in which versions, and what
it would write. Every replica that delivers it certifies it: it commits if nothing that it read was written since, and
aborts otherwise. Certification depends on the order of deliveries alone, so all replicas decide alike.

With optimistic delivery a transaction is certified in advance. Other transactions read its writes only when its commit
is confirmed, so undoing a commit costs nothing but the work of certifying again.

From: Sousa, Pereira, Moura, Oliveira, "Optimistic Total Order in Wide Area Networks" (2002), section 2.2.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec

from ..core import AppMessage, encode
from .optimistic import Application

Outcome = Literal["commit", "abort"]


class Transaction(msgspec.Struct, frozen=True, array_like=True):
    """The read set with the versions read, and the write set."""

    reads: dict[str, int]
    writes: dict[str, bytes]

    def payload(self) -> bytes:
        return encode(self)


_decode = msgspec.msgpack.Decoder(Transaction).decode


class Database:
    """A replica's copy: what is committed, each item with the number of the commit that wrote it."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[int, bytes]] = {}

    def read(self, key: str) -> tuple[int, bytes | None]:
        """Version 0: nobody has written it."""
        return self._items.get(key, (0, None))

    def begin(self) -> Execution:
        return Execution(self)

    def items(self) -> dict[str, tuple[int, bytes]]:
        return dict(self._items)

    def write(self, key: str, version: int, value: bytes) -> None:
        self._items[key] = (version, value)


class Execution:
    """A transaction while it runs at one replica: it sees what is committed, and its own writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: dict[str, int] = {}
        self._writes: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        if key in self._writes:
            return self._writes[key]
        version, value = self._database.read(key)
        self._reads.setdefault(key, version)
        return value

    def write(self, key: str, value: bytes) -> None:
        self._writes[key] = value

    def end(self) -> Transaction:
        """What is to be multicast."""
        return Transaction(self._reads, self._writes)


class Certifier(Application[Outcome]):
    """Certifies transactions in the order in which they come, tentative ones on top of those that are confirmed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._certified: deque[tuple[Transaction, Outcome]] = deque()  # not confirmed yet
        self._versions: dict[str, list[int]] = {}  # of items with tentative writes
        self._commits = 0  # confirmed and tentative ones: the number of a commit is the version of what it writes
        self._confirmed_commits = 0

    def execute(self, message: AppMessage) -> Outcome:
        transaction = _decode(message.payload)
        is_current = all(self._version(key) == version for key, version in transaction.reads.items())
        outcome: Outcome = "commit" if is_current else "abort"
        if outcome == "commit":
            self._commits += 1
            for key in transaction.writes:
                self._versions.setdefault(key, []).append(self._commits)
        self._certified.append((transaction, outcome))
        return outcome

    def _version(self, key: str) -> int:
        tentative = self._versions.get(key)
        return tentative[-1] if tentative else self._database.read(key)[0]

    def undo(self, message: AppMessage) -> None:
        transaction, outcome = self._certified.pop()
        assert transaction == _decode(message.payload), "the latest one is undone first"
        if outcome == "commit":
            self._commits -= 1
            for key in transaction.writes:
                self._versions[key].pop()
                self._drop_if_empty(key)

    def confirm(self, message: AppMessage) -> None:
        transaction, outcome = self._certified.popleft()
        assert transaction == _decode(message.payload), "the earliest one is confirmed first"
        if outcome == "commit":
            self._confirmed_commits += 1
            for key, value in transaction.writes.items():
                version = self._versions[key].pop(0)
                assert version == self._confirmed_commits, "commits are confirmed in the order of their numbers"
                self._database.write(key, version, value)
                self._drop_if_empty(key)

    def _drop_if_empty(self, key: str) -> None:
        if not self._versions[key]:
            del self._versions[key]
