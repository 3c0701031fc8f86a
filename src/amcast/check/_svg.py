"""A space-time diagram as one self-contained SVG file: a lane for each process, time to the right.

Time is not to scale. Events keep their order, and stand as far apart as their labels need, and farther apart where more
time passed between them, within limits: with messages a microsecond apart and a delivery a second later, all of them
must be readable.
"""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from html import escape
from itertools import pairwise

from ..trace import Run
from ._scene import Arrow, Event, Scene, make_scene
from .report import Violation

Instant = tuple[int, int]

_MARGIN = 16
_LANE_PITCH = 58
_CHAR, _BOLD_CHAR = 6.7, 7.6  # generous widths of a character of 11 pixels
_GAP_MIN, _GAP_MAX = 14.0, 90.0
_TITLE_LINE, _TITLE_CHAR = 19, 9.0
_LANES_MAX = 12
_RED, _INK, _GREY, _FAINT = "#c62828", "#212121", "#757575", "#bdbdbd"
_ARROW_COLOURS = ("#1565c0", "#2e7d32", "#6a1b9a", "#ef6c00", "#00838f", "#5d4037", "#ad1457", "#558b2f")

_STYLE = f"""
text {{ font: 11px system-ui, sans-serif; fill: {_INK}; }}
.title {{ font-size: 14px; font-weight: 600; }}
.mid {{ text-anchor: middle; }}
.end {{ text-anchor: end; }}
.lane {{ stroke: {_FAINT}; }}
.note {{ fill: {_GREY}; }}
.bad {{ fill: {_RED}; font-weight: 600; }}
.halo {{ paint-order: stroke; stroke: white; stroke-width: 3px; }}
"""


def space_time_svg(run: Run, violation: Violation) -> str:
    """For a page: a lane for each process, with the messages that the violation is about."""
    return _Drawing(make_scene(run, violation, _LANES_MAX)).svg()


class _Drawing:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._left = _MARGIN + _CHAR * max((len(name) for name in scene.lanes), default=0) + 12
        self._instants = _number_instants(scene.events)
        self._times, self._places = self._place_times()
        starts = [self._x(instant) for instant in self._instants]
        ends = [x + _half_width(event) for x, event in zip(starts, scene.events, strict=True)]
        self._end = max([self._left + 100, *self._places[-1:], *ends]) + 14
        self._width = max(560.0, self._end + self._missing_width() + _MARGIN)
        words = f"{scene.property}: {scene.explanation}"
        self._title = textwrap.wrap(words, int((self._width - 2 * _MARGIN) / _TITLE_CHAR)) or [words]
        self._top = _MARGIN + _TITLE_LINE * len(self._title) + 40
        self._colours = {
            kind: _ARROW_COLOURS[number % len(_ARROW_COLOURS)]
            for number, kind in enumerate(sorted({arrow.kind for arrow in scene.arrows if not arrow.is_bad}))
        }

    def _missing_width(self) -> float:
        """Room for the names of missing messages, which stand one after the other at the end of their lane."""
        widths = dict.fromkeys(range(len(self._scene.lanes)), 0.0)
        for lane, label in self._scene.missing:
            widths[lane] += _BOLD_CHAR * (len(label) + 4)
        return max(widths.values(), default=0.0)

    # ----------------------------------------------------------------------------------- layout

    def _place_times(self) -> tuple[list[Instant], list[float]]:
        """A place for each instant at which something happens; labels of one lane never overlap."""
        labels: dict[Instant, list[tuple[int, float]]] = {}
        for event, instant in zip(self._scene.events, self._instants, strict=True):
            labels.setdefault(instant, []).append((event.lane, _half_width(event) + 4))
        times = {arrow.sent_us for arrow in self._scene.arrows}
        times |= {arrow.received_us for arrow in self._scene.arrows if arrow.received_us is not None}
        ordered = sorted(set(labels) | {(time, 0) for time in times})
        pixels_per_us = self._scale([time for time, nth in ordered if not nth])
        free_from = [self._left] * len(self._scene.lanes)
        places: list[float] = []
        for index, instant in enumerate(ordered):
            gap = (instant[0] - ordered[index - 1][0]) * pixels_per_us if index else 0.0
            place = (places[-1] + min(max(gap, _GAP_MIN), _GAP_MAX)) if places else self._left + 12
            place = max([place, *(free_from[lane] + half for lane, half in labels.get(instant, ()))])
            for lane, half in labels.get(instant, ()):
                free_from[lane] = place + half
            places.append(place)
        return ordered, places

    @staticmethod
    def _scale(times: list[int]) -> float:
        """The middle gap between events is 40 pixels: one long pause must not flatten everything else."""
        gaps = sorted(late - early for early, late in pairwise(times))
        return 40 / gaps[len(gaps) // 2] if gaps else 1.0

    def _x(self, instant: Instant) -> float:
        at = bisect_right(self._times, instant) - 1
        if at < 0 or at == len(self._times) - 1:
            return self._places[max(at, 0)]
        (early, _), (late, _) = self._times[at : at + 2]
        share = (instant[0] - early) / (late - early) if late > early else 0.0
        return self._places[at] + share * (self._places[at + 1] - self._places[at])

    def _y(self, lane: int) -> float:
        return self._top + lane * _LANE_PITCH

    # ---------------------------------------------------------------------------------- drawing

    def svg(self) -> str:
        bottom = self._y(max(len(self._scene.lanes) - 1, 0)) + 40
        legend = self._legend(bottom + 34)
        height = bottom + 34 + 18 * len(legend) + _MARGIN
        body = [
            *self._heading(),
            *self._lanes(),
            *self._axis(bottom),
            *(self._arrow(arrow) for arrow in self._scene.arrows),
            *self._hints(),
            *self._events(),
            *self._missing(),
            *legend,
        ]
        size = f'width="{self._width:.0f}" height="{height:.0f}" viewBox="0 0 {self._width:.0f} {height:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        name = f"<title>{escape(self._scene.explanation)}</title>"
        return "\n".join([head, name, f"<style>{_STYLE}</style>", self._markers(), _BACKGROUND, *body, "</svg>", ""])

    def _markers(self) -> str:
        heads = [*enumerate(self._colours.values()), ("bad", _RED)]
        return "<defs>" + "".join(_MARKER.format(name=name, colour=colour) for name, colour in heads) + "</defs>"

    def _heading(self) -> list[str]:
        return [
            _text(_MARGIN, _MARGIN + _TITLE_LINE * (number + 0.7), line, "title")
            for number, line in enumerate(self._title)
        ]

    def _lanes(self) -> list[str]:
        parts = []
        for lane, name in enumerate(self._scene.lanes):
            y = self._y(lane)
            parts.append(f'<line class="lane" x1="{self._left:.1f}" y1="{y}" x2="{self._end:.1f}" y2="{y}"/>')
            parts.append(_text(self._left - 8, y + 4, name, "end"))
        return parts

    def _axis(self, y: float) -> list[str]:
        parts, free_from = [], self._left - 20
        for (time, nth), x in zip(self._times, self._places, strict=True):
            label = f"{time / 1000:.3f}"
            half = _CHAR * len(label) / 2
            if not nth and x - half >= free_from:
                parts.append(f'<line class="lane" x1="{x:.1f}" y1="{y - 6}" x2="{x:.1f}" y2="{y}"/>')
                parts.append(_text(x, y + 12, label, "mid note"))
                free_from = x + half + 10
        return [*parts, _text(_MARGIN, y + 12, "ms", "note")]

    def _arrow(self, arrow: Arrow) -> str:
        colour = _RED if arrow.is_bad else self._colours[arrow.kind]
        marker = "bad" if arrow.is_bad else str(list(self._colours).index(arrow.kind))
        x1, y1, y2 = self._x((arrow.sent_us, 0)), self._y(arrow.src), self._y(arrow.dst)
        hint = f"<title>{escape(f'{arrow.kind} {arrow.label}'.strip())}</title>"
        if arrow.received_us is None:  # it gets a third of the way and is lost
            x2, y2, dashes, width = x1 + 14, y1 + (y2 - y1) / 3, ' stroke-dasharray="4 3"', 1.0
        else:
            x2, dashes, width = self._x((arrow.received_us, 0)), "", 2.0 if arrow.is_bad else 1.0
        line = f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        return f'{line} stroke-width="{width}"{dashes} marker-end="url(#head-{marker})">{hint}</line>'

    def _hints(self) -> list[str]:
        return [
            f'<circle cx="{self._x((time, 0)):.1f}" cy="{self._y(lane)}" r="2" fill="{_FAINT}"/>'
            for lane, time in self._scene.hints
        ]

    def _events(self) -> list[str]:
        return [
            self._event(event, self._x(instant))
            for event, instant in zip(self._scene.events, self._instants, strict=True)
        ]

    def _event(self, event: Event, x: float) -> str:
        y = self._y(event.lane)
        is_aside = event.kind in ("optimistic", "fault")
        style = "bad" if event.is_bad else "note" if is_aside else ""
        label_y = y + 18 if is_aside else y - 10
        return _mark(event, x, y) + _text(x, label_y, event.label, f"mid halo {style}".strip())

    def _missing(self) -> list[str]:
        parts, taken = [], dict.fromkeys(range(len(self._scene.lanes)), self._end + 8)
        for lane, label in self._scene.missing:
            words = f"no {label}"
            parts.append(_text(taken[lane], self._y(lane) + 4, words, "bad"))
            taken[lane] += _BOLD_CHAR * (len(words) + 1)
        return parts

    def _legend(self, top: float) -> list[str]:
        """Lines of the legend, each a group of its own, so that their number gives its height."""
        lines = ["triangle: multicast, dot: delivery, red: what contradicts; time is not to scale"]
        if any(event.kind == "optimistic" for event in self._scene.events):
            lines[0] = lines[0].replace("delivery", "delivery (hollow: optimistic)")
        lines += self._scene.notes
        parts = [_text(_MARGIN, top + 18 * number, line, "note") for number, line in enumerate(lines)]
        return parts + self._arrow_legend(top + 18 * len(lines))

    def _arrow_legend(self, y: float) -> list[str]:
        rows: list[str] = []
        x, part = float(_MARGIN), ""
        wrong = sorted({arrow.kind for arrow in self._scene.arrows if arrow.is_bad})
        for kind, colour in [*self._colours.items(), *((kind, _RED) for kind in wrong)]:
            needed = 34 + _CHAR * len(kind) + 14
            if part and x + needed > self._width - _MARGIN:
                rows.append(part)
                x, part = float(_MARGIN), ""
            line_y = y + 18 * len(rows)
            stroke_y = line_y - 4
            part += f'<line x1="{x:.1f}" y1="{stroke_y}" x2="{x + 26:.1f}" y2="{stroke_y}" stroke="{colour}"/>'
            part += _text(x + 32, line_y, kind, "note")
            x += needed
        return [*rows, part] if part else rows


_BACKGROUND = '<rect width="100%" height="100%" fill="white"/>'
_MARKER = (
    '<marker id="head-{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
    ' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 Z" fill="{colour}"/></marker>'
)


def _number_instants(events: list[Event]) -> list[Instant]:
    """The time of each event, and a number: 0, 1, 2, ... for what one process did at the same microsecond."""
    seen: dict[tuple[int, int], int] = {}
    instants = []
    for event in events:
        nth = seen.get((event.t_us, event.lane), 0)
        seen[event.t_us, event.lane] = nth + 1
        instants.append((event.t_us, nth))
    return instants


def _half_width(event: Event) -> float:
    return (_BOLD_CHAR if event.is_bad else _CHAR) * len(event.label) / 2


def _mark(event: Event, x: float, y: float) -> str:
    colour = _RED if event.is_bad else _INK
    if event.kind == "multicast":
        return f'<path d="M{x - 5:.1f} {y - 5} L{x + 5:.1f} {y - 5} L{x:.1f} {y + 5} Z" fill="{colour}"/>'
    if event.kind == "fault":
        return f'<rect x="{x - 4:.1f}" y="{y - 4}" width="8" height="8" fill="{_GREY}"/>'
    fill = colour if event.kind == "final" else "white"
    return f'<circle cx="{x:.1f}" cy="{y}" r="4.5" fill="{fill}" stroke="{colour}"/>'


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(words)}</text>'
