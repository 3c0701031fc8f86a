"""What the checks read of a run: all of it is in memory, or it lies in files and is read part by part.

A reader of files holds the rows of one process at a time, and some of the wire's. The checks keep of them what they
need, which is little where replicas agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..core import ProcessId
from ..trace import Deliveries, Fault, Multicasts, Objects, Operations, Run, RunInfo
from ..trace.names import Names
from ..trace.run import Int32s, Int64s


@dataclass(frozen=True, slots=True)
class DeliveryColumns:
    """The rows of one process and one kind, final or optimistic, by position."""

    process: ProcessId
    kind: int
    grp: Int32s
    pos: Int64s
    msg: Int64s
    ts: Int64s
    t_us: Int64s


@dataclass(frozen=True, slots=True)
class WireColumns:
    src: Int64s
    dst: Int64s
    msg: Int64s
    kind: Callable[[int], str]  # of a row


@dataclass(frozen=True, slots=True)
class RunSource:
    info: RunInfo
    faults: Sequence[Fault]  # by time
    restored: Mapping[ProcessId, Sequence[int]]  # the positions at which a process went on with state it was handed
    delivery_rows: int
    wire_rows: int
    multicasts: Callable[[], Multicasts]
    deliveries: Callable[[], Iterator[DeliveryColumns]]  # by process and kind
    wire: Callable[[], Iterator[WireColumns]]  # in the order of the table, in any number of parts
    operations: Callable[[], Operations] | None  # None: they are judged elsewhere
    objects: Callable[[], Objects]
    names: Names


def source_of(run: Run) -> RunSource:
    return RunSource(
        run.info,
        run.faults,
        run.restored,
        len(run.deliveries),
        len(run.wire),
        lambda: run.multicasts,
        lambda: by_process(run.deliveries),
        lambda: _wire(run),
        lambda: run.operations,
        lambda: run.objects,
        run.names(),
    )


def by_process(rows: Deliveries) -> Iterator[DeliveryColumns]:
    """Rows that are sorted by process, kind and position, in parts of one process and kind."""
    changes = np.flatnonzero(np.diff(rows.process) | np.diff(rows.kind)) + 1
    for start, stop in pairwise([0, *changes.tolist(), len(rows)] if len(rows) else []):
        part = slice(start, stop)
        process, kind = int(rows.process[start]), int(rows.kind[start])
        yield DeliveryColumns(
            process, kind, rows.grp[part], rows.pos[part], rows.msg[part], rows.ts[part], rows.t_us[part]
        )


def _wire(run: Run) -> Iterator[WireColumns]:
    rows = run.wire
    yield WireColumns(rows.src, rows.dst, rows.msg, lambda row: rows.kinds[rows.kind[row]])
