"""Quorums of a group as bit masks over its members: one integer operation a vote."""

from __future__ import annotations

from collections.abc import Sequence

from .ids import ProcessId


def majority(size: int) -> int:
    return size // 2 + 1


def liars_max(size: int) -> int:
    """How many members of a group of this size may lie: f of 3f+1."""
    return (size - 1) // 3


class VoteCounter:
    """Turns voters into bits. A process that is not a member has no bit, so its vote does not count."""

    def __init__(self, members: Sequence[ProcessId]) -> None:
        # Both are for those who count a vote of every message, and save the calls.
        self.bits = {process: 1 << index for index, process in enumerate(members)}
        self.needed = majority(len(members))

    def bit(self, process: ProcessId) -> int:
        return self.bits.get(process, 0)

    def is_quorum(self, mask: int) -> bool:
        return mask.bit_count() >= self.needed
