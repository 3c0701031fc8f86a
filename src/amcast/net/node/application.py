"""Applications inside a node: a deterministic state machine whose `apply` is called for each message, in order.

    class Counter(StateMachine):
        def apply(self, position, message): self.count += int(message.payload)
        def snapshot(self): return str(self.count).encode()
        def restore(self, state): self.count = int(state)

The node keeps what it delivered, so after a restart the machine gets its last snapshot and then all messages since.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ...core import AppMessage, UsageError
from ..disk.deliveries import DeliveryLog
from ..disk.files import write_file
from ..system import system
from ..wire.control import AppState

_CHUNK = 1 << 20


class StateMachine(ABC):
    @abstractmethod
    def apply(self, position: int, message: AppMessage) -> None:
        """Every replica applies the same messages in the same order. What `apply` does must depend on nothing else."""

    @abstractmethod
    def snapshot(self) -> bytes: ...

    @abstractmethod
    def restore(self, state: bytes) -> None: ...

    def opt_apply(self, position: int, message: AppMessage) -> None:
        """Only optimistic protocols call this: the message will probably be delivered at this position."""
        return


class ApplicationError(Exception):
    """What the application raised, and at which position. Its state may be anything now, so its node stops."""

    def __init__(self, position: int, action: str, error: Exception) -> None:
        super().__init__(f"the application failed to {action} at position {position}: {type(error).__name__}: {error}")


@contextmanager
def _failing_at(position: int, action: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ApplicationError(position, action, error) from error


class Host:
    """Feeds a machine from the delivery log, and keeps its snapshots."""

    def __init__(self, machine: StateMachine, deliveries: DeliveryLog, folder: Path, snapshot_every: int) -> None:
        self._machine = machine
        self._deliveries = deliveries
        self._path = folder / "application.state"
        self._snapshot_every = snapshot_every
        self._snapshot_position = 0
        self.position = 0  # the next one to apply
        self._recover()

    def _recover(self) -> None:
        if system().exists(self._path):
            self.load(read_state(self._path))
        self.catch_up()

    def take_over(self, state: AppState) -> None:
        if state.position > self.position:
            self.load(state)
            self.save()
            self.catch_up()

    @property
    def is_behind(self) -> bool:
        """The next message to apply is no longer in this node's log: another replica has to hand over its state."""
        return self.position < self._deliveries.first

    def load(self, state: AppState) -> None:
        """Restores the machine's own snapshot, or another replica's state. `catch_up` applies what came after it."""
        with _failing_at(state.position, "restore a state"):
            self._machine.restore(state.state)
        self.position = self._snapshot_position = state.position

    def dump(self) -> AppState:
        with _failing_at(self.position, "save its state"):
            return AppState(self.position, self._machine.snapshot())

    def catch_up(self) -> None:
        while not self.is_behind and self.position < self._deliveries.next:
            for message, _ in self._deliveries.read(self.position, _CHUNK):
                self._apply(message)

    def deliver(self, position: int, message: AppMessage) -> None:
        if position == self.position:
            self._apply(message)

    def opt_deliver(self, position: int, message: AppMessage) -> None:
        with _failing_at(position, "apply a message early"):
            self._machine.opt_apply(position, message)

    def _apply(self, message: AppMessage) -> None:
        try:
            self._machine.apply(self.position, message)
        except Exception as error:
            raise ApplicationError(self.position, "apply a message", error) from error
        self.position += 1
        if self.position - self._snapshot_position >= self._snapshot_every:
            self.save()

    def save(self) -> None:
        write_state(self._path, self.dump())
        self._snapshot_position = self.position


def write_state(path: Path, state: AppState) -> None:
    data = msgspec.msgpack.encode(state)
    write_file(path, zlib.crc32(data).to_bytes(4, "big"), data)


def read_state(path: Path) -> AppState:
    content = system().read_file(path)
    if int.from_bytes(content[:4], "big") != zlib.crc32(content[4:]):
        raise UsageError(f"{path} is damaged: remove it, and the application is rebuilt from the delivered messages")
    return msgspec.msgpack.decode(content[4:], type=AppState)
