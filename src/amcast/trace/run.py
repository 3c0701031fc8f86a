"""A run in memory: its description and its tables as numpy columns, the form that checks and diagrams read.

Deliveries are always sorted by (process, kind, position), wherever they came from. Missing values are `NULL`: the
timestamp of a delivery that has none, the message that a wire message is about, the time when it was received.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from ..core import ProcessId, UsageError, message_name
from .names import LookUp, Names
from .operations import NO_OPERATIONS, Operations, check_operations
from .packing import Row
from .schema import FINAL, OPTIMISTIC, RESTORED, RUN_FILE, Fault, RunInfo, info_problem, restored_position

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

_REDO = "record the run again"


def row_type(row: Row) -> np.dtype[np.void]:
    return np.dtype(list(row))


@dataclass(frozen=True, slots=True)
class Multicasts:
    msg: Int64s
    sender: Int64s
    client_seq: Int64s
    dst_start: Int64s  # the destinations of row i are dst[dst_start[i]:dst_start[i + 1]]
    dst: Int32s
    t_us: Int64s
    bytes: Int32s

    def __len__(self) -> int:
        return len(self.msg)


@dataclass(frozen=True, slots=True)
class Deliveries:
    process: Int32s
    grp: Int32s
    pos: Int64s
    msg: Int64s
    kind: npt.NDArray[np.int8]
    ts: Int64s
    t_us: Int64s

    def __len__(self) -> int:
        return len(self.msg)


@dataclass(frozen=True, slots=True)
class WireRows:
    src: Int64s
    dst: Int64s
    kind: Int32s  # an index into kinds
    kinds: tuple[str, ...]
    msg: Int64s
    bytes: Int32s
    sent_us: Int64s
    received_us: Int64s

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True, slots=True)
class Answers:
    """When the sender of a message had the replies of all its destination groups."""

    msg: Int64s
    t_us: Int64s

    def __len__(self) -> int:
        return len(self.msg)


NO_ANSWERS = Answers(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Objects:
    """Which objects a message touches: a row for each."""

    msg: Int64s
    object: Int64s

    def __len__(self) -> int:
        return len(self.msg)


NO_OBJECTS = Objects(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a run, or what is new in them: rows in the order of recording."""

    multicasts: Multicasts
    deliveries: Deliveries
    wire: WireRows
    faults: Sequence[Fault]
    answers: Answers = NO_ANSWERS
    operations: Operations = NO_OPERATIONS
    objects: Objects = NO_OBJECTS


@dataclass(frozen=True, slots=True)
class Run:
    info: RunInfo
    multicasts: Multicasts
    deliveries: Deliveries
    wire: WireRows
    faults: tuple[Fault, ...]  # by time
    restored: dict[ProcessId, tuple[int, ...]]  # positions from which a process delivered on, with state from others
    answers: Answers = NO_ANSWERS
    operations: Operations = NO_OPERATIONS
    objects: Objects = NO_OBJECTS
    look_up: LookUp | None = None  # where the names of its clients and messages are, if it is an imported one

    def names(self) -> Names:
        return Names(self.info, self.look_up)


def make_run(
    info: RunInfo,
    multicasts: Multicasts,
    deliveries: Deliveries,
    wire: WireRows,
    faults: list[Fault],
    answers: Answers = NO_ANSWERS,
    operations: Operations = NO_OPERATIONS,
    objects: Objects = NO_OBJECTS,
    where: str = "the run in memory",
    look_up: LookUp | None = None,
) -> Run:
    """A run whose tables fit its description; else an error, in which `where` is the name of the run."""
    problem = info_problem(info)
    if problem is not None:
        raise UsageError(f"{where}/{RUN_FILE}: {problem}; {_REDO}")
    check_destinations(info, multicasts, f"{where}/multicasts")
    check_kinds(deliveries, f"{where}/deliveries")
    if len(deliveries) and not info.groups:
        raise UsageError(f"{where}/{RUN_FILE}: there are deliveries, and no group; {_REDO}")
    check_operations(operations, f"{where}/operations")
    by_time = tuple(sorted(faults, key=lambda fault: fault.t_us))
    restored = restored_positions(by_time, f"{where}/faults")
    return Run(
        info, multicasts, by_position(deliveries), wire, by_time, restored, answers, operations, objects, look_up
    )


def check_destinations(info: RunInfo, multicasts: Multicasts, where: str) -> None:
    sizes = np.diff(multicasts.dst_start)
    if not sizes.all():
        _refuse_message(multicasts, int(np.argmin(sizes)), "has no destination", where)
    unknown = ~np.isin(multicasts.dst, np.array([group.id for group in info.groups]))
    row_of = np.repeat(np.arange(len(multicasts)), sizes)
    if unknown.any():
        first = int(np.argmax(unknown))
        what = f"is sent to g{multicasts.dst[first]}, which {RUN_FILE} does not know"
        _refuse_message(multicasts, int(row_of[first]), what, where)
    pair = row_of << 32 | multicasts.dst
    if (np.diff(pair) <= 0).any():  # else they are sorted, as our own recorder writes them
        pair.sort()
        twice = np.flatnonzero(np.diff(pair) == 0)
        if len(twice):
            _refuse_message(multicasts, int(pair[twice[0]] >> 32), "names a destination twice", where)


def _refuse_message(multicasts: Multicasts, row: int, what: str, where: str) -> NoReturn:
    raise UsageError(f"{where}: {message_name(int(multicasts.msg[row]))} {what}; {_REDO}")


def check_kinds(deliveries: Deliveries, where: str) -> None:
    strange = ~np.isin(deliveries.kind, (FINAL, OPTIMISTIC))
    if strange.any():
        kind = int(deliveries.kind[np.argmax(strange)])
        raise UsageError(f"{where}: kind {kind} is neither {FINAL} nor {OPTIMISTIC}; {_REDO}")


def restored_positions(faults: tuple[Fault, ...], where: str) -> dict[ProcessId, tuple[int, ...]]:
    restored: dict[ProcessId, tuple[int, ...]] = {}
    for fault in faults:
        if fault.what == RESTORED:
            position = restored_position(fault.detail)
            if position is None:
                what = f'process {fault.process} was restored to {fault.detail!r}, not {{"position": N}}'
                raise UsageError(f"{where}: {what}; {_REDO}")
            restored[fault.process] = (*restored.get(fault.process, ()), position)
    return restored


def delivery_order(process: Int32s, kind: npt.NDArray[np.int8], pos: Int64s) -> Int64s | None:
    """The permutation that sorts deliveries by (process, kind, position); None if they are sorted, as nearly always."""
    owner = (process.astype(np.int64) << 8) + kind
    owner_step, pos_step = np.diff(owner), np.diff(pos)
    if ((owner_step > 0) | ((owner_step == 0) & (pos_step >= 0))).all():
        return None
    return np.lexsort((pos, owner))


def by_position(rows: Deliveries) -> Deliveries:
    order = delivery_order(rows.process, rows.kind, rows.pos)
    return rows if order is None else Deliveries(*(getattr(rows, field.name)[order] for field in fields(rows)))
