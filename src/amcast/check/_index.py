"""A run arranged for checking: what each process delivered, as numbers of messages, by position.

Messages that were delivered but never multicast are numbered after all others. Positions come from the `pos` column,
never from the order of rows.

Replicas mostly deliver the same: then they share the arrays of the first one. So a run takes the memory of about one
replica of each group, and what was found out about one holds for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..core import GroupId, ProcessId
from ..trace import FINAL, NULL, OPTIMISTIC
from ..trace.run import Int32s, Int64s
from ._messages import Group, MessageIndex
from .source import DeliveryColumns, RunSource


@dataclass(frozen=True, slots=True)
class ProcessDeliveries:
    """What one process delivered, final or optimistic, by position."""

    process: ProcessId
    kind: int
    group: Group | None  # None: a process of no group delivered something
    message: Int64s
    slot: Int32s  # -1: not addressed to this group
    is_clean: bool  # every message is addressed to the group, and was delivered once
    odd_pos: Int64s | None  # None: the positions are 0, 1, 2, ...
    ts: Int64s | None  # None: no row has a timestamp
    t_us: Int64s | None  # None: the run does not claim local order, which alone needs it
    wrong_group: tuple[int, GroupId] | None  # the first row that names another group than the process's, and that group

    def __len__(self) -> int:
        return len(self.message)

    @property
    def pos(self) -> Int64s:
        return np.arange(len(self)) if self.odd_pos is None else self.odd_pos


@dataclass(frozen=True, slots=True)
class _Stray:
    """Deliveries of messages that are not addressed to the process's group."""

    message: Int64s  # the array in which their numbers are still to be written,
    rows: Int64s  # where in it,
    msg: Int64s  # and their ids


class RunIndex(MessageIndex):
    def __init__(self, source: RunSource) -> None:
        super().__init__(source)
        strays: list[_Stray] = []
        self.by_process = list(self._arranged(source.deliveries(), strays))
        self._number_strays(strays)
        self._found = {(each.process, each.kind): each for each in self.by_process}

    def _arranged(self, parts: Iterator[DeliveryColumns], strays: list[_Stray]) -> Iterator[ProcessDeliveries]:
        latest: dict[int, tuple[Int64s, ProcessDeliveries]] = {}  # of each group: ids that a replica delivered
        for columns in parts:
            group = self.group_of.get(columns.process)
            index = -1 if group is None else group.index
            msg, twin = latest.get(index, (None, None))
            if twin is None or msg is None or not np.array_equal(msg, columns.msg):
                msg, twin = columns.msg, None
            deliveries = self._arrange(columns, group, twin, strays)
            latest[index] = (msg, deliveries)
            yield deliveries

    def _arrange(
        self, columns: DeliveryColumns, group: Group | None, twin: ProcessDeliveries | None, strays: list[_Stray]
    ) -> ProcessDeliveries:
        """`twin` is a replica that delivered the same messages in the same order."""
        if twin is not None:
            message, slot, is_clean = twin.message, twin.slot, twin.is_clean
        else:
            message, slot = self._look_up(group, columns.msg)
            is_clean = not len(slot) or (slot.min() >= 0 and np.bincount(slot).max() == 1)
            rows = np.flatnonzero(slot < 0)
            if len(rows):
                strays.append(_Stray(message, rows, columns.msg[rows]))
        ts = None if (columns.ts == NULL).all() else columns.ts
        if ts is not None and twin is not None and twin.ts is not None and np.array_equal(ts, twin.ts):
            ts = twin.ts
        return ProcessDeliveries(
            columns.process,
            columns.kind,
            group,
            message,
            slot,
            bool(is_clean),
            None if _are_plain(columns.pos) else columns.pos,
            ts,
            columns.t_us if "local-order" in self.info.claims else None,
            _wrong_group(columns, group),
        )

    def _look_up(self, group: Group | None, msg: Int64s) -> tuple[Int64s, Int32s]:
        """Numbers and slots; both are -1 for what is not addressed to the group."""
        if group is None or not len(group.messages):
            return np.full(len(msg), -1), np.full(len(msg), -1, np.int32)
        ids = self.ids[group.messages]
        slot = np.minimum(np.searchsorted(ids, msg), len(ids) - 1)
        found = ids[slot] == msg
        message = group.messages[slot]
        if not found.all():
            message[~found] = slot[~found] = -1
        return message, slot.astype(np.int32)

    def _number_strays(self, strays: list[_Stray]) -> None:
        """Deliveries at a wrong place get the number of their message, unknown messages a new one."""
        ids = self.ids
        unknown = np.setdiff1d(np.concatenate([ids[:0], *(stray.msg for stray in strays)]), ids)
        for stray in strays:
            new = self.multicast_count + np.searchsorted(unknown, stray.msg)
            stray.message[stray.rows] = np.where(np.isin(stray.msg, unknown), new, np.searchsorted(ids, stray.msg))
        self.ids = np.concatenate((ids, unknown))

    def final(self, process: ProcessId) -> ProcessDeliveries:
        """The final deliveries of a member, which may be none."""
        found = self._found.get((process, FINAL))
        if found is not None:
            return found
        nothing = np.empty(0, np.int64)
        group = self.group_of[process]
        slot = nothing.astype(np.int32)
        return ProcessDeliveries(process, FINAL, group, nothing, slot, True, None, None, nothing, None)

    def all_final(self) -> Iterator[ProcessDeliveries]:
        return (each for each in self.by_process if each.kind == FINAL)

    def all_optimistic(self) -> Iterator[ProcessDeliveries]:
        return (each for each in self.by_process if each.kind == OPTIMISTIC)


def _are_plain(pos: Int64s) -> bool:
    return not len(pos) or bool(pos[0] == 0 and pos[-1] == len(pos) - 1 and (np.diff(pos) == 1).all())


def _wrong_group(columns: DeliveryColumns, group: Group | None) -> tuple[int, GroupId] | None:
    if group is None:
        return None
    wrong = columns.grp != group.id
    row = int(np.argmax(wrong)) if wrong.any() else -1
    return None if row < 0 else (row, int(columns.grp[row]))
