"""The members of a group of 3f+1, as one of them sees them."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import GroupId, ProcessId, Topology, liars_max
from .messages import View


class Members:
    def __init__(self, group: GroupId, process: ProcessId, topology: Topology) -> None:
        self.group = group
        self.process = process
        self.all = topology.members(group)
        self.others: Sequence[ProcessId] = tuple(member for member in self.all if member != process)
        self.liars = liars = liars_max(len(self.all))
        self.quorum = len(self.all) - liars  # n-f: two of them share a member that tells the truth
        self.some = liars + 1  # f+1: one of them tells the truth

    def leader(self, view: View) -> ProcessId:
        return self.all[view % len(self.all)]
