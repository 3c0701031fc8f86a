"""Which processes the messages of a run involve: questions about many wire rows at once.

A message involves its sender and the members of its destinations.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..core import ProcessId
from ..trace.run import Int64s
from ._messages import Bools, MessageIndex


class Involved:
    def __init__(self, index: MessageIndex) -> None:
        self._index = index
        self._members = np.array(sorted(index.group_of))
        self._member_group = np.array([index.group_of[process].index for process in self._members.tolist()])
        self._senders = np.unique(index.sender)
        self._joined: dict[tuple[str, int], Bools] = {}

    def group(self, process: Int64s) -> Int64s:
        """The indexes of the groups of processes; -1 for a client."""
        at = np.minimum(np.searchsorted(self._members, process), len(self._members) - 1)
        return np.where(self._members[at] == process, self._member_group[at], -1)

    def by(self, message: Int64s, process: Int64s) -> Bools:
        """Element by element: does the message involve the process?"""
        index = self._index
        found: Bools = index.sender[message] == process
        group = self.group(process)
        left = np.flatnonzero(~found)
        for nth in range(int(index.sizes.max(initial=0))):
            left = left[index.sizes[message[left]] > nth]
            hit = index.dst[index.dst_start[message[left]] + nth] == group[left]
            found[left[hit]] = True
            left = left[~hit]
        return found

    def by_any(self, process: Int64s) -> Bools:
        """Element by element: does any message of the run involve the process?"""
        reached = np.zeros(len(self._index.groups) + 1, np.bool_)
        reached[self._index.dst] = True
        reached[-1] = False  # clients
        return reached[self.group(process)] | np.isin(process, self._senders)

    # ------------------------------------------------------------------------- two ends of one message

    def both(self, one: ProcessId, other: ProcessId) -> bool:
        """Does some one message involve both?"""
        groups = [int(group) for group in self.group(np.array([one, other]))]
        if groups[0] >= 0 and groups[1] >= 0 and self._with_group(groups[0])[groups[1]]:
            return True
        if groups[1] >= 0 and self._with_sender(one)[groups[1]]:
            return True
        return groups[0] >= 0 and bool(self._with_sender(other)[groups[0]])

    def _with_group(self, group: int) -> Bools:
        """All groups that are addressed together with this one."""
        if ("group", group) not in self._joined:
            self._joined["group", group] = self._destinations(self._index.groups[group].messages)
        return self._joined["group", group]

    def _with_sender(self, sender: ProcessId) -> Bools:
        """All groups that this process multicast to."""
        if ("sender", sender) not in self._joined:
            self._joined["sender", sender] = self._destinations(np.flatnonzero(self._index.sender == sender))
        return self._joined["sender", sender]

    def _destinations(self, messages: Int64s) -> Bools:
        index = self._index
        chosen = np.zeros(index.multicast_count, np.bool_)
        chosen[messages] = True
        found = np.zeros(len(index.groups), np.bool_)
        found[index.dst[np.repeat(chosen, index.sizes)]] = True
        return found

    # -------------------------------------------------------------------------------------- sendersTo

    @cached_property
    def may_send(self) -> Bools:
        """may_send[x, h]: group x is in sendersTo(h), or is h itself."""
        index = {group.id: group.index for group in self._index.groups}
        declared: dict[str, Any] = self._index.info.extra["senders_to"]
        may_send = np.eye(len(index), dtype=np.bool_)
        for receiver, senders in declared.items():
            for sender in senders:
                may_send[index[int(sender)], index[int(receiver)]] = True
        return may_send

    def concerned(self, message: Int64s, process: Int64s) -> Bools:
        """Element by element: is the process the message's sender, or in a group that may send to a destination?"""
        index = self._index
        found: Bools = index.sender[message] == process
        group = self.group(process)
        for nth in range(int(index.sizes.max(initial=0))):
            rows = np.flatnonzero((index.sizes[message] > nth) & (group >= 0))
            found[rows] |= self.may_send[group[rows], index.dst[index.dst_start[message[rows]] + nth]]
        return found
