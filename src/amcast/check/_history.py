"""A run arranged for checking: messages and groups numbered densely, one log for each process.

Messages are numbered by id, those that were multicast first; what was delivered but never multicast comes
after them. Each group lists the messages addressed to it, and a *slot* is an index into that list: that
makes "is it addressed here", "how often" and "what is missing" array operations over the group's own
messages only.

Destinations come from the multicasts table, never from a delivery, and positions from the `pos` column,
never from the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..core import GroupId, MessageId, ProcessId, message_name
from ..trace import FINAL, OPTIMISTIC, Run
from ..trace.run import Int64s
from ..trace.schema import CRASH, RESTART
from .report import listing

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Group:
    index: int
    id: GroupId
    members: tuple[ProcessId, ...]
    messages: Int64s  # numbers of the messages addressed to it, ascending


@dataclass(frozen=True, slots=True)
class Log:
    """What one process delivered, final or optimistic, by position."""

    process: ProcessId
    kind: int
    group: Group | None  # None: a stranger delivered something
    start: int  # its rows of the deliveries table
    stop: int
    pos: Int64s
    message: Int64s
    slot: Int64s  # -1: not addressed to this group

    def __len__(self) -> int:
        return self.stop - self.start


class History:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.info = run.info
        self.complete = run.info.complete
        self.correct = frozenset(run.info.correct)
        self._names = {
            process: f"g{group.id}.p{index}"
            for group in run.info.groups
            for index, process in enumerate(group.processes)
        }
        self._number_messages()
        self._arrange_groups()
        self._find_logs()

    # ------------------------------------------------------------------------------- messages

    def _number_messages(self) -> None:
        rows = self.run.multicasts
        self.ids, self.row = np.unique(rows.msg, return_index=True)  # the first row of each message
        self.multicast_count = len(self.ids)
        self.sender = rows.sender[self.row].astype(np.int64)
        self.sizes = np.diff(rows.dst_start)[self.row]
        self.dst_start = np.concatenate(([0], np.cumsum(self.sizes)))
        indexes = np.repeat(rows.dst_start[self.row] - self.dst_start[:-1], self.sizes)
        self._dst_ids = rows.dst[indexes + np.arange(self.dst_start[-1])]

    def id_of(self, message: int) -> MessageId:
        return int(self.ids[message])

    def message_name(self, message: int) -> str:
        return message_name(self.id_of(message))

    def name(self, process: ProcessId) -> str:
        return self._names.get(process, f"c{process}")

    def names(self, processes: list[ProcessId]) -> str:
        return listing([self.name(process) for process in processes])

    def is_addressed(self, message: Int64s, group: Int64s) -> Bools:
        """Element by element, for messages that were multicast; `group` is an index, -1 for none."""
        found = np.zeros(len(message), np.bool_)
        open_rows = np.arange(len(message))
        for nth in range(int(self.sizes.max(initial=0))):
            open_rows = open_rows[self.sizes[message[open_rows]] > nth]
            hit = self.dst[self.dst_start[message[open_rows]] + nth] == group[open_rows]
            found[open_rows[hit]] = True
            open_rows = open_rows[~hit]
        return found

    @cached_property
    def sender_is_correct(self) -> Bools:
        """A member is correct if the run says so; a client unless it crashed and did not come back."""
        down: dict[ProcessId, bool] = {}
        for fault in self.run.faults:
            if fault.what in (CRASH, RESTART):
                down[fault.process] = fault.what == CRASH
        faulty = {process for process, is_down in down.items() if is_down and process not in self._names}
        faulty |= set(self._names) - self.correct
        return ~np.isin(self.sender, np.array(sorted(faulty), np.int64))

    # --------------------------------------------------------------------------------- groups

    def _arrange_groups(self) -> None:
        described = self.info.groups
        ids = np.array([group.id for group in described])
        by_id = np.argsort(ids)
        self.dst = by_id[np.searchsorted(ids, self._dst_ids, sorter=by_id)]  # group indexes
        message_of = np.repeat(np.arange(self.multicast_count), self.sizes)
        by_group = np.argsort(self.dst, kind="stable")
        bounds = np.searchsorted(self.dst[by_group], np.arange(len(described) + 1))
        self.groups = [
            Group(index, group.id, group.processes, message_of[by_group[bounds[index] : bounds[index + 1]]])
            for index, group in enumerate(described)
        ]
        self.group_of = {process: group for group in self.groups for process in group.members}

    # ----------------------------------------------------------------------------------- logs

    def _find_logs(self) -> None:
        rows = self.run.deliveries
        changes = np.flatnonzero(np.diff(rows.process) | np.diff(rows.kind)) + 1
        bounds = [0, *changes.tolist(), len(rows)] if len(rows) else [0]
        self.message = np.full(len(rows), -1, np.int64)
        slots = np.full(len(rows), -1, np.int64)
        spans: list[tuple[int, int]] = []
        latest: dict[int, tuple[int, int]] = {}
        for start, stop in pairwise(bounds):
            spans.append((start, stop))
            group = self.group_of.get(int(rows.process[start]))
            if group is not None:
                self._find_slots(group, slots, start, stop, latest.get(group.index))
                latest[group.index] = (start, stop)
        self._number_strays(slots)
        self.logs = [self._log(slots, start, stop) for start, stop in spans]
        self._by_process = {(log.process, log.kind): log for log in self.logs}

    def _find_slots(self, group: Group, slots: Int64s, start: int, stop: int, latest: tuple[int, int] | None) -> None:
        msg = self.run.deliveries.msg
        if latest is not None and np.array_equal(msg[latest[0] : latest[1]], msg[start:stop]):
            # Replicas mostly agree: what was found for one of them holds for the next.
            slots[start:stop] = slots[latest[0] : latest[1]]
            self.message[start:stop] = self.message[latest[0] : latest[1]]
        elif len(group.messages):
            ids = self.ids[group.messages]
            slot = np.minimum(np.searchsorted(ids, msg[start:stop]), len(ids) - 1)
            found = ids[slot] == msg[start:stop]
            slots[start:stop] = np.where(found, slot, -1)
            self.message[start:stop] = np.where(found, group.messages[slot], -1)

    def _number_strays(self, slots: Int64s) -> None:
        """Deliveries at a wrong place get the number of their message, unknown messages a new one."""
        strays = np.flatnonzero(slots < 0)
        msg = self.run.deliveries.msg[strays]
        unknown = np.setdiff1d(msg, self.ids)
        is_unknown = np.isin(msg, unknown)
        number = np.where(
            is_unknown, self.multicast_count + np.searchsorted(unknown, msg), np.searchsorted(self.ids, msg)
        )
        self.message[strays] = number
        self.ids = np.concatenate((self.ids, unknown))

    def _log(self, slots: Int64s, start: int, stop: int) -> Log:
        rows = self.run.deliveries
        process, kind = int(rows.process[start]), int(rows.kind[start])
        part = slice(start, stop)
        group = self.group_of.get(process)
        return Log(process, kind, group, start, stop, rows.pos[part], self.message[part], slots[part])

    def final_log(self, process: ProcessId) -> Log:
        """A member that delivered nothing has an empty log."""
        log = self._by_process.get((process, FINAL))
        if log is not None:
            return log
        nothing = np.empty(0, np.int64)
        return Log(process, FINAL, self.group_of[process], 0, 0, nothing, nothing, nothing)

    def optimistic_logs(self) -> Iterator[Log]:
        return (log for log in self.logs if log.kind == OPTIMISTIC)
