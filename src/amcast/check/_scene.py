"""What a diagram of a violation shows: its processes and the senders of its messages, and what they did with these.

Other messages that these processes delivered in the meantime are only hinted at. How all this looks is up to the
modules that draw it, `_svg` and `_text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..core import MessageId, ProcessId
from ..trace import FINAL, NULL, Run
from ..trace.run import Int64s
from ..trace.schema import UNKNOWN, group_of_process
from ._messages import Bools
from .report import ABOUT_THE_WIRE, Violation

ARROWS_MAX = 60
HINTS_MAX = 300
FAULTS_MAX = 20

EventKind = Literal["multicast", "final", "optimistic", "fault"]
_AT_ONE_INSTANT: tuple[EventKind, ...] = ("fault", "multicast", "optimistic", "final")

_ABOUT_ABSENCE = frozenset({"validity", "agreement", "replicas", "prefix", "acyclic", "fifo"})


@dataclass(frozen=True, slots=True)
class Event:
    t_us: int
    lane: int
    kind: EventKind
    label: str
    is_bad: bool


@dataclass(frozen=True, slots=True)
class Arrow:
    src: int  # lanes
    dst: int
    sent_us: int
    received_us: int | None  # None: it never arrived
    kind: str
    label: str  # the message it is about, if any
    is_bad: bool


@dataclass(frozen=True, slots=True)
class Scene:
    property: str
    explanation: str
    lanes: list[str]
    events: list[Event]  # by time
    arrows: list[Arrow]  # by time of sending
    missing: list[tuple[int, str]]  # lane, and the message that its process should have delivered
    hints: list[tuple[int, int]]  # lane and time of other deliveries
    notes: list[str]  # what a reader has to know besides


def make_scene(run: Run, violation: Violation, lanes_max: int) -> Scene:
    senders = _senders(run, violation.messages)
    first = senders[: lanes_max // 3]  # where room is short, a sender or two still explain the rest
    wanted = list(dict.fromkeys([*first, *violation.processes, *senders]))
    processes = _in_order(run, wanted[:lanes_max])
    lane_of = {process: lane for lane, process in enumerate(processes)}
    bad = _bad_pairs(violation)
    deliveries, notes = _deliveries(run, violation, lane_of, bad)
    events = [*_multicasts(run, violation, lane_of), *deliveries, *_faults(run, lane_of)]
    if len(wanted) > len(processes):
        notes.append(f"{len(wanted) - len(processes)} more processes take part and are not shown")
    arrows = _arrows(run, violation, lane_of)
    events.sort(key=lambda event: (event.t_us, event.lane, _AT_ONE_INSTANT.index(event.kind)))
    return Scene(
        violation.property,
        violation.explanation,
        [run.names().process(process) for process in processes],
        events,
        arrows,
        _missing(run, violation, lane_of, bad),
        _hints(run, violation, lane_of, events, arrows),
        notes,
    )


def _senders(run: Run, messages: list[MessageId]) -> list[ProcessId]:
    rows = np.flatnonzero(np.isin(run.multicasts.msg, messages))
    senders = run.multicasts.sender[rows]
    return list(dict.fromkeys(senders[senders != UNKNOWN].tolist()))


def _in_order(run: Run, processes: list[ProcessId]) -> list[ProcessId]:
    """Clients on top, then groups as the run lists them: messages go down, from clients to groups."""
    place = {process: at for at, process in enumerate(group_of_process(run.info))}
    return sorted(processes, key=lambda process: (place.get(process, -1), process))


def _bad_pairs(violation: Violation) -> set[tuple[ProcessId, MessageId]]:
    """Which process did the wrong thing with which message."""
    messages, processes = violation.messages, violation.processes
    if violation.property in ABOUT_THE_WIRE:
        return set()  # there the arrows are wrong, not the deliveries
    if violation.property in ("prefix", "acyclic"):
        followers = [*messages[1:], *messages[:1]]
        steps = zip(processes, messages, followers, strict=True)
        return {(process, message) for process, *pair in steps for message in pair}
    return {(process, message) for process in processes for message in messages}


def _multicasts(run: Run, violation: Violation, lane_of: dict[ProcessId, int]) -> list[Event]:
    rows = run.multicasts
    return [
        Event(
            int(rows.t_us[row]),
            lane_of[int(rows.sender[row])],
            "multicast",
            run.names().message(int(rows.msg[row])),
            False,
        )
        for row in np.flatnonzero(np.isin(rows.msg, violation.messages))
        if int(rows.sender[row]) in lane_of
    ]


def _deliveries(
    run: Run, violation: Violation, lane_of: dict[ProcessId, int], bad: set[tuple[ProcessId, MessageId]]
) -> tuple[list[Event], list[str]]:
    """In the order of positions, which is what a process did, even where its clock goes back; and where that is so."""
    rows = run.deliveries
    found = np.flatnonzero(np.isin(rows.msg, violation.messages) & np.isin(rows.process, list(lane_of)))
    found = found[np.lexsort((rows.pos[found], rows.kind[found], rows.process[found]))]
    events = []
    latest: dict[tuple[ProcessId, int], int] = {}
    gone_back: dict[ProcessId, None] = {}
    for row in found.tolist():
        process, msg = int(rows.process[row]), int(rows.msg[row])
        t_us = max(int(rows.t_us[row]), latest.get((process, int(rows.kind[row])), 0))
        latest[process, int(rows.kind[row])] = t_us
        if t_us > rows.t_us[row]:
            gone_back[process] = None
        kind: EventKind = "final" if rows.kind[row] == FINAL else "optimistic"
        is_bad = kind == "final" and (process, msg) in bad
        label = run.names().message(msg)
        if violation.property == "timestamps" and rows.ts[row] != NULL:
            label += f" ts {rows.ts[row]}"
        elif violation.property in ("positions", "replicas", "integrity"):
            label += f" at {rows.pos[row]}"
        events.append(Event(t_us, lane_of[process], kind, label, is_bad))
    names = ", ".join(run.names().process(process) for process in gone_back)
    return events, [f"{names}: by positions, since the times of deliveries go back"] if names else []


def _faults(run: Run, lane_of: dict[ProcessId, int]) -> list[Event]:
    mine = [fault for fault in run.faults if fault.process in lane_of]
    return [Event(fault.t_us, lane_of[fault.process], "fault", fault.what, False) for fault in mine[-FAULTS_MAX:]]


def _missing(
    run: Run, violation: Violation, lane_of: dict[ProcessId, int], bad: set[tuple[ProcessId, MessageId]]
) -> list[tuple[int, str]]:
    if violation.property not in _ABOUT_ABSENCE:
        return []
    rows, group_of = run.deliveries, group_of_process(run.info)
    mine = np.isin(rows.msg, violation.messages) & (rows.kind == FINAL)
    done = set(zip(rows.process[mine].tolist(), rows.msg[mine].tolist(), strict=True))
    addressed = {(group, msg) for msg in violation.messages for group in _destinations(run, msg)}
    return [
        (lane_of[process], run.names().message(msg))
        for process, msg in sorted(bad)
        if process in lane_of and (process, msg) not in done and (group_of.get(process), msg) in addressed
    ]


def _destinations(run: Run, msg: MessageId) -> list[int]:
    rows = run.multicasts
    found = np.flatnonzero(rows.msg == msg)
    return [group for row in found for group in rows.dst[rows.dst_start[row] : rows.dst_start[row + 1]].tolist()]


def _arrows(run: Run, violation: Violation, lane_of: dict[ProcessId, int]) -> list[Arrow]:
    wire = run.wire
    here = np.isin(wire.src, list(lane_of)) & np.isin(wire.dst, list(lane_of)) & (wire.src != wire.dst)
    about = np.isin(wire.msg, violation.messages)
    if violation.property in ABOUT_THE_WIRE and not violation.messages:
        about = wire.msg == NULL
    rows = np.flatnonzero(here & about)
    rows = rows[np.argsort(wire.sent_us[rows], kind="stable")]
    if violation.property in ABOUT_THE_WIRE:
        guilty = _is_guilty(run, violation, rows)
        rows = rows[np.argsort(~guilty, kind="stable")][:ARROWS_MAX]
        rows = rows[np.argsort(wire.sent_us[rows], kind="stable")]
    return [_arrow(run, violation, lane_of, row) for row in rows[:ARROWS_MAX].tolist()]


def _is_guilty(run: Run, violation: Violation, rows: Int64s) -> Bools:
    src, dst = violation.processes
    guilty: Bools = (run.wire.src[rows] == src) & (run.wire.dst[rows] == dst)
    return guilty


def _arrow(run: Run, violation: Violation, lane_of: dict[ProcessId, int], row: int) -> Arrow:
    wire = run.wire
    received, msg = int(wire.received_us[row]), int(wire.msg[row])
    is_bad = violation.property in ABOUT_THE_WIRE and bool(_is_guilty(run, violation, np.array([row]))[0])
    return Arrow(
        lane_of[int(wire.src[row])],
        lane_of[int(wire.dst[row])],
        int(wire.sent_us[row]),
        None if received == NULL else received,
        wire.kinds[wire.kind[row]],
        "" if msg == NULL else run.names().message(msg),
        is_bad,
    )


def _hints(
    run: Run, violation: Violation, lane_of: dict[ProcessId, int], events: list[Event], arrows: list[Arrow]
) -> list[tuple[int, int]]:
    times = [event.t_us for event in events if event.kind != "fault"] + [arrow.sent_us for arrow in arrows]
    if not times:
        return []
    rows = run.deliveries
    between = (rows.t_us >= min(times)) & (rows.t_us <= max(times)) & (rows.kind == FINAL)
    others = ~np.isin(rows.msg, violation.messages) & np.isin(rows.process, list(lane_of))
    found = np.flatnonzero(between & others)
    found = found[:: len(found) // HINTS_MAX + 1]
    return [(lane_of[int(rows.process[row])], int(rows.t_us[row])) for row in found.tolist()]
