"""Violations to order: each damage breaks one thing in the middle of a chunk of a correct trace.

What it breaks is in its name; whatever else follows (a swap also contradicts the timestamps) follows. Damages of
order put in messages of their own, so that they do the same to every trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

_STRANGE_CLIENT = 1 << 20  # sends what damages put in


@dataclass
class Chunk:
    """Messages by number, and the log of each process as numbers of messages."""

    replicas: int
    msg: Int64s
    sender: Int64s
    seq: Int64s
    t_us: Int64s
    ts: Int64s
    ordered_us: Int64s
    member: npt.NDArray[np.bool_]
    logs: list[Int64s]
    gaps: dict[int, int] = field(default_factory=dict)  # the row of a process from which positions are one too large
    forged: dict[int, Int64s] = field(default_factory=dict)  # what is added to the timestamps of a process
    inserted: int = 0

    @property
    def groups(self) -> int:
        return int(self.member.shape[1])

    def members(self, group: int) -> range:
        return range(group * self.replicas, (group + 1) * self.replicas)

    def add_message(self, groups: tuple[int, ...]) -> int:
        """A new message in the middle of the order, in no log yet. Without any group it is never multicast."""
        like = (len(self.member) - self.inserted) // 2
        number = len(self.msg)
        member = np.zeros((1, self.groups), np.bool_)
        member[0, list(groups)] = True
        self.inserted += 1
        self.msg = np.append(self.msg, _STRANGE_CLIENT << 32 | self.inserted)
        self.sender = np.append(self.sender, _STRANGE_CLIENT)
        self.seq = np.append(self.seq, self.inserted)
        self.t_us = np.append(self.t_us, self.t_us[like])
        self.ts = np.append(self.ts, self.ts[like] + self.inserted)
        self.ordered_us = np.append(self.ordered_us, self.ordered_us[like])
        self.member = np.concatenate((self.member, member))
        return number

    def insert(self, process: int, numbers: list[int]) -> None:
        log = self.logs[process]
        middle = int(np.searchsorted(self.ts[log], self.ts[numbers].min()))
        self.logs[process] = np.insert(log, middle, numbers)


def apply_damage(name: str, chunk: Chunk, rng: np.random.Generator) -> None:
    DAMAGES[name](chunk, rng)


def _two_groups(chunk: Chunk, rng: np.random.Generator) -> tuple[int, int]:
    one, other = rng.choice(chunk.groups, 2, replace=False) if chunk.groups > 1 else (0, 0)
    return int(one), int(other)


def _swap_replica(chunk: Chunk, rng: np.random.Generator) -> None:
    """One replica delivers two messages in an order that is not the others'."""
    group, _ = _two_groups(chunk, rng)
    pair = [chunk.add_message((group,)), chunk.add_message((group,))]
    for process in chunk.members(group):
        chunk.insert(process, pair[::-1] if process == group * chunk.replicas else pair)


def _swap_groups(chunk: Chunk, rng: np.random.Generator) -> None:
    """Two groups deliver two messages in different orders; the replicas of each agree."""
    _cycle(chunk, rng, 2)


def _cycle(chunk: Chunk, rng: np.random.Generator, length: int) -> None:
    """Message i goes to groups i and i + 1, and group i has message i - 1 before message i: no two disagree alone."""
    groups = rng.choice(chunk.groups, length, replace=False).tolist()
    numbers = [chunk.add_message((groups[i], groups[(i + 1) % length])) for i in range(length)]
    for i, group in enumerate(groups):
        for process in chunk.members(group):
            chunk.insert(process, [numbers[i - 1], numbers[i]])


def _lose(chunk: Chunk, rng: np.random.Generator, everywhere: bool) -> None:
    one, other = _two_groups(chunk, rng)
    number = chunk.add_message((one, other))
    for group in {one, other}:
        for process in chunk.members(group):
            if group != one or not (everywhere or process == one * chunk.replicas):
                chunk.insert(process, [number])


def _duplicate(chunk: Chunk, rng: np.random.Generator) -> None:
    """All replicas of a group deliver a message twice."""
    group, _ = _two_groups(chunk, rng)
    for process in chunk.members(group):
        log = chunk.logs[process]
        chunk.logs[process] = np.insert(log, len(log) // 2 + 1, log[len(log) // 2])


def _wrong_destination(chunk: Chunk, rng: np.random.Generator) -> None:
    one, other = _two_groups(chunk, rng)
    number = chunk.add_message((one,))
    for group in (one, other):
        for process in chunk.members(group):
            chunk.insert(process, [number])


def _unknown(chunk: Chunk, rng: np.random.Generator) -> None:
    """A group delivers what nobody multicast."""
    group, _ = _two_groups(chunk, rng)
    number = chunk.add_message(())
    for process in chunk.members(group):
        chunk.insert(process, [number])


def _gap(chunk: Chunk, rng: np.random.Generator) -> None:
    process = int(rng.integers(len(chunk.logs)))
    chunk.gaps[process] = len(chunk.logs[process]) // 2


def _tail(chunk: Chunk, rng: np.random.Generator) -> None:
    """The last messages of one replica come in another order."""
    process = int(rng.integers(len(chunk.logs)))
    log = chunk.logs[process]
    chunk.logs[process] = np.concatenate((log[:-3], log[-3:][::-1]))


def _forged(chunk: Chunk, rng: np.random.Generator) -> None:
    """One replica reports another timestamp for one message; the order stays."""
    process = int(rng.integers(len(chunk.logs)))
    extra = np.zeros(len(chunk.logs[process]), np.int64)
    extra[len(extra) // 2] = 1
    chunk.forged[process] = extra


DAMAGES: dict[str, Callable[[Chunk, np.random.Generator], None]] = {
    "swap-replica": _swap_replica,
    "swap-groups": _swap_groups,
    "lose-replica": lambda chunk, rng: _lose(chunk, rng, everywhere=False),
    "lose-group": lambda chunk, rng: _lose(chunk, rng, everywhere=True),
    "duplicate": _duplicate,
    "wrong-destination": _wrong_destination,
    "unknown": _unknown,
    "gap": _gap,
    "cycle3": lambda chunk, rng: _cycle(chunk, rng, 3),
    "cycle4": lambda chunk, rng: _cycle(chunk, rng, 4),
    "cycle5": lambda chunk, rng: _cycle(chunk, rng, 5),
    "cycle6": lambda chunk, rng: _cycle(chunk, rng, 6),
    "tail": _tail,
    "forged": _forged,
}
