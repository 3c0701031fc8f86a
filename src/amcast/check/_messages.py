"""The messages of a run, numbered densely by id, and the groups that they are addressed to.

Each group lists the numbers of its messages, and a *slot* is an index into that list. So "is it addressed here", "how
often was it delivered" and "what is missing" are array operations over the group's own messages only.

Destinations come from the multicasts table, never from a delivery.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..core import GroupId, MessageId, ProcessId
from ..trace import Multicasts
from ..trace.run import Int64s
from ..trace.schema import CRASH, RESTART, UNKNOWN, settled_below
from .report import listing
from .source import RunSource

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Group:
    index: int
    id: GroupId
    members: tuple[ProcessId, ...]
    messages: Int64s  # numbers of the messages addressed to it, ascending


class MessageIndex:
    def __init__(self, source: RunSource) -> None:
        self.info = source.info
        self.correct = frozenset(source.info.correct)
        self.restored = source.restored
        self.delivery_rows = source.delivery_rows
        self._faults = source.faults
        self._members = {process for group in source.info.groups for process in group.processes}
        self._names = source.names
        self._number_messages(source.multicasts())
        self._arrange_groups()

    def _number_messages(self, rows: Multicasts) -> None:
        self.ids, self.row = np.unique(rows.msg, return_index=True)  # the first row of each message
        self.multicast_count = len(self.ids)
        self.repeated_ids = _repeated(rows.msg) if len(rows) > len(self.ids) else []
        self.sender = rows.sender[self.row]
        self.seq = rows.client_seq[self.row]
        self.sizes = np.diff(rows.dst_start)[self.row]
        self.dst_start = np.concatenate(([0], np.cumsum(self.sizes)))
        entries = np.repeat(rows.dst_start[self.row] - self.dst_start[:-1], self.sizes)
        entries += np.arange(self.dst_start[-1])
        ids = np.array([group.id for group in self.info.groups])
        by_id = np.argsort(ids)
        self.dst = by_id[np.searchsorted(ids, rows.dst[entries], sorter=by_id)]  # indexes of groups

    def _arrange_groups(self) -> None:
        described = self.info.groups
        message_of = np.repeat(np.arange(self.multicast_count), self.sizes)
        by_group = np.argsort(self.dst, kind="stable")
        bounds = np.searchsorted(self.dst[by_group], np.arange(len(described) + 1))
        self.groups = [
            Group(index, group.id, group.processes, message_of[by_group[bounds[index] : bounds[index + 1]]])
            for index, group in enumerate(described)
        ]
        self.group_of = {process: group for group in self.groups for process in group.members}

    @cached_property
    def sender_is_correct(self) -> Bools:
        """A member is correct if the run says so; a client unless it crashed and did not come back.

        Of a sender that the trace does not name nobody can say it, so it does not count as correct.

        A client that crashed counts as correct for the messages that it had an answer to: those must not be lost.
        """
        down: dict[ProcessId, int] = {}  # clients that crashed, and below which number their messages are settled
        for fault in self._faults:
            if fault.what == CRASH and fault.process not in self._members:
                down[fault.process] = settled_below(fault.detail)
            elif fault.what == RESTART:
                down.pop(fault.process, None)
        down |= dict.fromkeys(self._members - self.correct, 0)
        is_known: Bools = self.sender != UNKNOWN
        if not down:
            return is_known
        faulty = np.array(sorted(down), np.int64)
        settled = np.array([down[process] for process in faulty.tolist()], np.int64)
        at = np.minimum(np.searchsorted(faulty, self.sender), len(faulty) - 1)
        is_answered = (self.seq < settled[at]) & (self.seq != UNKNOWN)
        is_correct: Bools = is_known & ((faulty[at] != self.sender) | is_answered)
        return is_correct

    # ------------------------------------------------------------------------------------------ words

    def id_of(self, message: int) -> MessageId:
        return int(self.ids[message])

    def message_name(self, message: int) -> str:
        return self.name_of(self.id_of(message))

    def name_of(self, id_: MessageId) -> str:
        return self._names.message(id_)

    def name(self, process: ProcessId) -> str:
        return self._names.process(int(process))

    def group_name(self, group: GroupId) -> str:
        return self._names.group(group)

    def names(self, processes: list[ProcessId]) -> str:
        return listing([self.name(process) for process in processes])

    def destinations(self, message: int) -> str:
        groups = self.dst[self.dst_start[message] : self.dst_start[message + 1]].tolist()
        return listing([self.group_name(self.groups[group].id) for group in groups], limit=8)


def _repeated(msg: Int64s) -> list[tuple[MessageId, int]]:
    """Ids that were multicast more than once, and how often."""
    ids, counts = np.unique(msg, return_counts=True)
    again = counts > 1
    return list(zip(ids[again].tolist(), counts[again].tolist(), strict=True))
