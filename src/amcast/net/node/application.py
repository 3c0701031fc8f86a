"""Applications inside a node: a deterministic state machine whose `apply` is called for each message, in order.

    class Counter(StateMachine):
        def apply(self, position, message):
            self.count += int(message.payload)
            return str(self.count).encode()
        def snapshot(self): return str(self.count).encode()
        def restore(self, state): self.count = int(state)

What a node promises to its application:

- Each position is applied once, in order and without a gap, through any crash. After a restart the machine gets its
  last durable snapshot, and then all messages since. Those are in the node's delivery log, which drops none of them
  before a later snapshot is durable, even if there are more than `keep_messages`.
- What `apply` returns is the result for the client that called (`client.call`). It is computed once, and kept with the
  application's state until the client has it: a client that asks again, or after a fail-over, gets the same bytes.
- A snapshot is written whole and synced under a checksum, after each `limits.snapshot_messages` messages and at an
  orderly stop. A full disk is no reason to stop: the last snapshot stays, and saving is tried again.
- A machine that raises stops its node, with the error and the position. Nothing is applied or acknowledged by that
  node any more, and no snapshot is saved: the machine's state may be anything. A restart goes on at this position.
- A machine whose snapshot is damaged, or that misses messages that no member of its group has any more, takes over the
  state of another member's machine, of any size. If the log begins at 0, it is replayed instead.

In memory mode nothing is saved: a machine that restarts gets the state of another member.
"""

from __future__ import annotations

import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from ...core import AppMessage
from ..disk.deliveries import DeliveryLog
from ..disk.files import write_file
from ..system import system
from .results import RESULT_LIMIT, Result, Results

_CHUNK = 1 << 20
_MAGIC = b"amc-app"
_VERSION = 2
_WITHOUT_RESULTS = 1  # an earlier version
_HEADER = struct.Struct("<7sBQQ")  # magic, version, position, size of the state
_CHECKSUM = 4
_LENGTH = 8  # bytes of the number that says how long the results are, which come before the machine's state

logger = logging.getLogger("amcast.node")


class StateMachine(ABC):
    """An application inside a node: make a class of it, with `apply`, `snapshot` and `restore`.

    It is made with the name of its group, as `Bank("g1")`. Each replica of a group has one, and all of them apply the
    same messages in the same order, each once, through any crash. One that raises stops its node.
    """

    @abstractmethod
    def apply(self, position: int, message: AppMessage) -> bytes | None:
        """Every replica applies the same messages in the same order. What `apply` does must depend on nothing else.

        Returns the result for the client, of at most a megabyte.
        """

    @abstractmethod
    def snapshot(self) -> bytes:
        """The whole state: it is saved now and then, so that the messages before it need not be applied again."""

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Takes over a state that `snapshot` returned, here or at another replica, in place of the one it has."""

    def opt_apply(self, position: int, message: AppMessage) -> None:
        """Only optimistic protocols call this: the message will probably be delivered at this position."""
        return


class ApplicationError(Exception):
    """What the application raised, and at which position. Its state may be anything now, so its node stops."""

    def __init__(self, position: int, action: str, error: Exception) -> None:
        super().__init__(f"the application failed to {action} at position {position}: {type(error).__name__}: {error}")


class Host:
    """Feeds a machine from the delivery log, and keeps its snapshots in a folder, if there is one."""

    def __init__(
        self,
        machine: StateMachine,
        deliveries: DeliveryLog,
        folder: Path | None,
        snapshot_every: int,
        results_bytes: int = 64 << 20,
    ) -> None:
        self._machine = machine
        self._deliveries = deliveries
        self._path = None if folder is None else folder / "application.state"
        self._snapshot_every = snapshot_every
        self._saved = 0  # all positions below are in the durable snapshot
        self._is_taken_over = False  # the state is another member's, and not saved yet
        self._failure: ApplicationError | None = None
        self.position = 0  # the next one to apply
        self.problem: str | None = None  # for people
        self.results = Results(results_bytes)
        self.on_result: Callable[[AppMessage, Result], None] = lambda message, result: None

    def recover(self) -> None:
        """Restores the last snapshot. `catch_up` applies what came after it."""
        if self._path is None:
            return
        found = read_snapshot(self._path)
        if found is not None:
            self._restore(*found)
            self._saved = self.position
        self._deliveries.keep_from = self._saved

    @contextmanager
    def _attempt(self, action: str, position: int) -> Iterator[None]:
        """Once the machine has raised, its state may be anything: it is neither used nor saved any more."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except Exception as error:
            self._failure = ApplicationError(position, action, error)
            raise self._failure from error

    # -- applying

    @property
    def is_behind(self) -> bool:
        """The next message to apply is missing in this node's log."""
        return self.position < self._deliveries.next and not self._deliveries.has(self.position)

    def catch_up(self) -> bool:
        """Applies some of what the log has and the machine has not. False if there was none."""
        if self.position >= self._deliveries.next or not self._deliveries.has(self.position):
            return False
        for message, _ in self._deliveries.read(self.position, _CHUNK):
            self._apply(message)
        return True

    def deliver(self, position: int, message: AppMessage) -> None:
        """A machine that is behind gets it later, from the log."""
        if position == self.position:
            self._apply(message)

    def opt_deliver(self, position: int, message: AppMessage) -> None:
        with self._attempt("apply a message early", position):
            self._machine.opt_apply(position, message)

    def _apply(self, message: AppMessage) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            result = _checked(self._machine.apply(self.position, message))
        except Exception as error:
            self._failure = ApplicationError(self.position, "apply a message", error)
            raise self._failure from error
        self.position += 1
        self.results.add(message, result)
        self.on_result(message, result)

    # -- states

    def dump(self) -> tuple[int, bytes]:
        with self._attempt("save its state", self.position):
            state = self._machine.snapshot()
        return self.position, join_state(self.results.dump(), state)

    def take_over(self, position: int, state: bytes) -> None:
        """Another member's state, if it is further."""
        if position > self.position:
            self._restore(position, state)
            self._is_taken_over = True
            self.problem = None
            logger.info("the application goes on at position %s, with the state of another member", position)

    def _restore(self, position: int, state: bytes) -> None:
        results, machine_state = split_state(state)
        with self._attempt("restore a state", position):
            self._machine.restore(machine_state)
        self.results.load(results)
        self.position = position

    @property
    def is_save_due(self) -> bool:
        is_due = self._is_taken_over or self.position - self._saved >= self._snapshot_every
        return is_due and self._path is not None

    def write(self, position: int, state: bytes) -> None:
        """Any thread may call it. When it returns, the snapshot is durable: then `saved_at` is called."""
        assert self._path is not None
        write_snapshot(self._path, position, state)

    def saved_at(self, position: int) -> None:
        self._saved = self._deliveries.keep_from = position
        self._is_taken_over = False
        self.problem = None

    def save(self) -> None:
        """At an orderly stop."""
        if self._path is not None and self.position > self._saved:
            position, state = self.dump()
            self.write(position, state)
            self.saved_at(position)


def _checked(result: Any) -> Result:
    if result is None:
        return None
    if not isinstance(result, bytes | bytearray | memoryview):
        raise TypeError(f"a result is bytes or None, not {type(result).__name__}")
    if len(result) > RESULT_LIMIT:
        raise ValueError(f"a result of {len(result)} bytes is over the limit of {RESULT_LIMIT}")
    return bytes(result)


def join_state(results: bytes, machine_state: bytes) -> bytes:
    return len(results).to_bytes(_LENGTH, "little") + results + machine_state


def split_state(state: bytes) -> tuple[bytes, bytes]:
    """What was kept for clients, and the machine's own state."""
    end = _LENGTH + int.from_bytes(state[:_LENGTH], "little")
    return state[_LENGTH:end], state[end:]


def write_snapshot(path: Path, position: int, state: bytes) -> None:
    header = _HEADER.pack(_MAGIC, _VERSION, position, len(state))
    write_file(path, header, crc32(state, crc32(header)).to_bytes(_CHECKSUM, "little"), state)


def read_snapshot(path: Path) -> tuple[int, bytes] | None:
    """Position and state; none if there is no snapshot, or a damaged one."""
    if not system().exists(path):
        return None
    try:
        content = system().read_file(path)
    except OSError as error:
        logger.warning("%s can't be read: the application is rebuilt: %s", path, error)
        return None
    header, state = content[: _HEADER.size], content[_HEADER.size + _CHECKSUM :]
    checksum = int.from_bytes(content[_HEADER.size : _HEADER.size + _CHECKSUM], "little")
    if len(content) < _HEADER.size + _CHECKSUM or crc32(state, crc32(header)) != checksum:
        logger.warning("%s is damaged: the application is rebuilt", path)
        return None
    magic, version, position, _ = _HEADER.unpack(header)
    if (magic, version) == (_MAGIC, _WITHOUT_RESULTS):
        return position, join_state(Results(0).dump(), state)
    if (magic, version) != (_MAGIC, _VERSION):
        logger.warning("%s is of another version: the application is rebuilt", path)
        return None
    return position, state
