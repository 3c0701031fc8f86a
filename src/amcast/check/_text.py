"""A space-time diagram for a terminal: 80 columns, a column for each process, time going down."""

from __future__ import annotations

import textwrap

from ..trace import Run
from ._scene import Arrow, Event, Scene, make_scene
from .report import Violation

_WIDTH = 80
_TIME = 12
_COLUMN_MIN = 13
_ARROWS_MAX = 24

_MARKS = {"multicast": "{} >>", "final": "[{}]", "optimistic": "({})", "fault": "*{}*"}
_LEGEND = "m >> multicast, [m] delivery, (m) optimistic delivery, ! what contradicts"


def space_time_text(run: Run, violation: Violation) -> str:
    """For a terminal: a column for each process, with the messages that the violation is about."""
    scene = make_scene(run, violation, lanes_max=(_WIDTH - _TIME) // _COLUMN_MIN)
    width = min(20, (_WIDTH - _TIME) // max(1, len(scene.lanes)))
    heading = textwrap.wrap(f"{scene.property}: {scene.explanation}", _WIDTH)
    names = " " * _TIME + "".join(_cut(name, width - 1).center(width) for name in scene.lanes)
    lines = [*heading, "", names, *_body(scene, width), *_missing_lines(scene, width), "", _LEGEND]
    for note in scene.notes:
        lines += textwrap.wrap(note, _WIDTH)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _cut(name: str, length: int) -> str:
    """The end of a long name says more than its beginning: `eu-west/orders/db-7`."""
    return name if len(name) <= length else "~" + name[1 - length :]


def _body(scene: Scene, width: int) -> list[str]:
    """Events and arrivals by time; what happens at one instant in different columns shares a line."""
    lines: list[tuple[int, int, str]] = []
    lanes = len(scene.lanes)
    for time, events in _instants(scene.events):
        lines.append((time, 1, _event_line(events, width, lanes)))
    for arrow in scene.arrows[:_ARROWS_MAX]:
        time = arrow.sent_us if arrow.received_us is None else arrow.received_us
        lines.append((time, 0, _arrow_line(arrow, width, lanes)))
    lines.sort(key=lambda line: line[:2])
    return [f"{time / 1000:>9.3f}ms {line}" for time, _, line in lines]


def _instants(events: list[Event]) -> list[tuple[int, list[Event]]]:
    instants: list[tuple[int, list[Event]]] = []
    for event in events:
        same_time = instants and instants[-1][0] == event.t_us
        if same_time and all(other.lane != event.lane for other in instants[-1][1]):
            instants[-1][1].append(event)
        else:
            instants.append((event.t_us, [event]))
    return instants


def _event_line(events: list[Event], width: int, lanes: int) -> str:
    cells = ["|".center(width)] * lanes
    for event in events:
        mark = _MARKS[event.kind].format(event.label[: width - 5]) + ("!" if event.is_bad else "")
        cells[event.lane] = mark.center(width)
    return "".join(cells)


def _arrow_line(arrow: Arrow, width: int, lanes: int) -> str:
    line = list("|".center(width) * lanes)
    middles = [lane * width + "|".center(width).index("|") for lane in range(lanes)]
    start, end = sorted((middles[arrow.src], middles[arrow.dst]))
    room = end - start - 1
    about = f"{arrow.label}!" if arrow.is_bad else arrow.label
    kind = arrow.kind[: max(0, room - 5 - len(about))]  # where it gets narrow, the message says more
    line[start + 1 : end] = f"{kind} {about}".strip()[: room - 3].center(room, "-")
    if arrow.received_us is None:
        line[end - 1 if arrow.src < arrow.dst else start + 1] = "X"
    else:
        line[end - 1 if arrow.src < arrow.dst else start + 1] = ">" if arrow.src < arrow.dst else "<"
    return "".join(line)


def _missing_lines(scene: Scene, width: int) -> list[str]:
    per_lane: dict[int, list[str]] = {}
    for lane, label in scene.missing:
        per_lane.setdefault(lane, []).append(f"no {label}!")
    lines = []
    for row in range(max(map(len, per_lane.values()), default=0)):
        cells = [
            (per_lane[lane][row] if row < len(per_lane.get(lane, ())) else "").center(width)
            for lane in range(len(scene.lanes))
        ]
        lines.append("missing".rjust(_TIME - 1) + " " + "".join(cells))
    return lines
