"""Damages for generated traces: each one puts a violation, which its name says, into the middle of a correct chunk.

A damage may break other properties too: two messages that are swapped also contradict their timestamps. Damages of
order insert messages of their own and swap those, so that they do the same to every trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..core import message_id

Int64s = npt.NDArray[np.int64]

_DAMAGE_CLIENT = 1 << 20  # the sender of the messages that damages insert


@dataclass
class Chunk:
    """Some messages of a trace, each column indexed by the message's number, and who delivers them in which order."""

    replicas: int
    msg: Int64s
    sender: Int64s
    seq: Int64s
    t_us: Int64s
    ts: Int64s
    ordered_us: Int64s
    member: npt.NDArray[np.bool_]  # [message, group]: whether it is a destination
    delivered: list[Int64s]  # of each process: numbers of messages, in the order of delivery
    gaps: dict[int, int] = field(default_factory=dict)  # process -> index of the delivery before which a position lacks
    forged: dict[int, Int64s] = field(default_factory=dict)  # process -> what is added to the timestamps it reports
    inserted: int = 0

    @property
    def groups(self) -> int:
        return int(self.member.shape[1])

    def members(self, group: int) -> range:
        return range(group * self.replicas, (group + 1) * self.replicas)

    def add_message(self, groups: tuple[int, ...]) -> int:
        """A new message in the middle of the order, which nobody delivers yet. Without a group it is not multicast."""
        like = (len(self.member) - self.inserted) // 2
        number = len(self.msg)
        member = np.zeros((1, self.groups), np.bool_)
        member[0, list(groups)] = True
        self.inserted += 1
        self.msg = np.append(self.msg, message_id(_DAMAGE_CLIENT, self.inserted))
        self.sender = np.append(self.sender, _DAMAGE_CLIENT)
        self.seq = np.append(self.seq, self.inserted)
        self.t_us = np.append(self.t_us, self.t_us[like])
        self.ts = np.append(self.ts, self.ts[like] + self.inserted)
        self.ordered_us = np.append(self.ordered_us, self.ordered_us[like])
        self.member = np.concatenate((self.member, member))
        return number

    def insert(self, process: int, numbers: list[int]) -> None:
        """Lets a process deliver these messages, in this order, where the timestamp of the first one belongs."""
        before = self.delivered[process]
        middle = int(np.searchsorted(self.ts[before], self.ts[numbers].min()))
        self.delivered[process] = np.insert(before, middle, numbers)


def _two_groups(chunk: Chunk, rng: np.random.Generator) -> tuple[int, int]:
    one, other = rng.choice(chunk.groups, 2, replace=False) if chunk.groups > 1 else (0, 0)
    return int(one), int(other)


def _swap_replica(chunk: Chunk, rng: np.random.Generator) -> None:
    """One replica delivers two messages in the opposite order of the other replicas."""
    group, _ = _two_groups(chunk, rng)
    pair = [chunk.add_message((group,)), chunk.add_message((group,))]
    for process in chunk.members(group):
        chunk.insert(process, pair[::-1] if process == group * chunk.replicas else pair)


def _swap_groups(chunk: Chunk, rng: np.random.Generator) -> None:
    """Two groups deliver two messages in different orders; the replicas of each agree."""
    _cycle(chunk, rng, 2)


def _cycle(chunk: Chunk, rng: np.random.Generator, length: int) -> None:
    """Message i goes to groups i and i + 1; group i delivers message i - 1 before message i.

    With three messages or more no two groups contradict each other: only all of them together do.
    """
    groups = rng.choice(chunk.groups, length, replace=False).tolist()
    numbers = [chunk.add_message((groups[i], groups[(i + 1) % length])) for i in range(length)]
    for i, group in enumerate(groups):
        for process in chunk.members(group):
            chunk.insert(process, [numbers[i - 1], numbers[i]])


def _lose(chunk: Chunk, rng: np.random.Generator, everywhere: bool) -> None:
    """A message to two groups is delivered by all but one replica of the first group, or by none of them."""
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
        once = chunk.delivered[process]
        chunk.delivered[process] = np.insert(once, len(once) // 2 + 1, once[len(once) // 2])


def _wrong_destination(chunk: Chunk, rng: np.random.Generator) -> None:
    """A message to one group is delivered by another group as well."""
    one, other = _two_groups(chunk, rng)
    number = chunk.add_message((one,))
    for group in (one, other):
        for process in chunk.members(group):
            chunk.insert(process, [number])


def _unknown(chunk: Chunk, rng: np.random.Generator) -> None:
    """A group delivers a message that nobody multicast."""
    group, _ = _two_groups(chunk, rng)
    number = chunk.add_message(())
    for process in chunk.members(group):
        chunk.insert(process, [number])


def _gap(chunk: Chunk, rng: np.random.Generator) -> None:
    """A process skips a position."""
    process = int(rng.integers(len(chunk.delivered)))
    chunk.gaps[process] = len(chunk.delivered[process]) // 2


def _tail(chunk: Chunk, rng: np.random.Generator) -> None:
    """One replica delivers the last three messages in the opposite order."""
    process = int(rng.integers(len(chunk.delivered)))
    right = chunk.delivered[process]
    chunk.delivered[process] = np.concatenate((right[:-3], right[-3:][::-1]))


def _forged(chunk: Chunk, rng: np.random.Generator) -> None:
    """One replica reports another timestamp for one message; the order stays."""
    process = int(rng.integers(len(chunk.delivered)))
    extra = np.zeros(len(chunk.delivered[process]), np.int64)
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
