"""Operations of clients that have no order, as a picture: a bar for each, from its call to its answer.

Time is not to scale: moments stand at equal distances, since operations of microseconds and pauses of seconds must both
be readable. Two bars overlap if the operations do.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

from .report import OperationSeen, Violation

SHOWN_MAX = 16  # the last ones, and all that are bad

# ------------------------------------------------------------------------------------------------- shared


def _shown(operations: Sequence[OperationSeen]) -> tuple[list[OperationSeen], list[str]]:
    """By client and time, and what a reader has to know besides."""
    by_time = sorted(operations, key=lambda each: (each.invoked_us, each.client))
    chosen = [each for each in by_time if each.is_bad][:SHOWN_MAX]
    others = [each for each in by_time if not each.is_bad]
    chosen += others[len(others) - (SHOWN_MAX - len(chosen)) :] if len(chosen) + len(others) > SHOWN_MAX else others
    left = len(operations) - len(chosen)
    notes = [f"{left} earlier operations belong to it and are not shown"] if left else []
    first = {client: at for at, client in reversed(list(enumerate(each.client for each in by_time)))}
    return sorted(chosen, key=lambda each: (first[each.client], each.invoked_us, each.what)), notes


def _moments(operations: Sequence[OperationSeen]) -> list[int]:
    times = {each.invoked_us for each in operations}
    return sorted(times | {each.returned_us for each in operations if each.returned_us is not None})


# --------------------------------------------------------------------------------------------- a terminal

_WIDTH = 80
_NAME_MAX, _WHAT_MAX = 14, 34
_LEGEND = "|--| from call to answer, |--> without an answer, ! what can't be explained"


def overlap_text(violation: Violation) -> str:
    shown, notes = _shown(violation.operations)
    moments = _moments(shown)
    names = min(_NAME_MAX, max(len(each.name) for each in shown))
    whats = min(_WHAT_MAX, max(len(each.what) for each in shown))
    room = _WIDTH - names - whats - 3
    places = {moment: at * (room - 1) // max(1, len(moments) - 1) for at, moment in enumerate(moments)}
    lines = [*textwrap.wrap(f"{violation.property}: {violation.explanation}", _WIDTH), ""]
    before = None
    for each in shown:
        name = "" if each.client == before else _cut(each.name, names)
        before = each.client
        mark = "!" if each.is_bad else " "
        lines.append(f"{name:<{names}} {_cut(each.what, whats):<{whats}}{mark} {_bar(each, places, room)}")
    lines += [" " * (names + whats + 3) + _axis(moments, room), "", _LEGEND, *notes]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "~"


def _bar(operation: OperationSeen, places: dict[int, int], room: int) -> str:
    start = places[operation.invoked_us]
    if operation.returned_us is None:
        return " " * start + "|" + "-" * (room - start - 2) + ">"
    end = places[operation.returned_us]
    return " " * start + ("|" if end == start else "|" + "-" * (end - start - 1) + "|")


def _axis(moments: Sequence[int], room: int) -> str:
    first, last = f"{moments[0] / 1000:.3f}", f"{moments[-1] / 1000:.3f} ms"
    return first + last.rjust(max(room - len(first), len(last) + 1))


# -------------------------------------------------------------------------------------------------- a page

_MARGIN, _ROW, _BAR = 16, 24, 10
_CHAR = 6.7  # a generous width of a character of 11 pixels
_STEP = 74.0  # between moments
_TITLE_LINE, _TITLE_WIDTH = 19, 110
_RED, _INK, _GREY, _FAINT, _BLUE = "#c62828", "#212121", "#757575", "#e0e0e0", "#90caf9"
_STYLE = f"""
text {{ font: 11px system-ui, sans-serif; fill: {_INK}; }}
.title {{ font-size: 14px; font-weight: 600; }}
.mid {{ text-anchor: middle; }}
.note {{ fill: {_GREY}; }}
.bad {{ fill: {_RED}; font-weight: 600; }}
"""


def overlap_svg(violation: Violation) -> str:
    shown, notes = _shown(violation.operations)
    moments = _moments(shown)
    title = textwrap.wrap(f"{violation.property}: {violation.explanation}", _TITLE_WIDTH)
    left = _MARGIN * 2 + _CHAR * max(len(_cut(each.name, 30)) for each in shown)
    longest = max(len(_cut(each.what, 60)) for each in shown)
    right = left + _STEP * len(moments) + _CHAR * longest
    top = _MARGIN * 2 + _TITLE_LINE * len(title)
    bottom = top + _ROW * len(shown)
    x_of = {moment: left + _STEP * at for at, moment in enumerate(moments)}
    parts = [_text(_MARGIN, _MARGIN + _TITLE_LINE * (number + 0.7), line, "title") for number, line in enumerate(title)]
    for moment, x in x_of.items():
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{_FAINT}"/>')
        parts.append(_text(x, bottom + 14, f"{moment / 1000:.3f}", "mid note"))
    parts.append(_text(_MARGIN, bottom + 14, "ms", "note"))
    before = None
    for number, each in enumerate(shown):
        y = top + _ROW * number + _ROW / 2
        if each.client != before:
            parts.append(_text(_MARGIN, y + 4, _cut(each.name, 30), ""))
            before = each.client
        parts.append(_drawn(each, y, x_of, right))
    legend = [
        "bar: from call to answer; open end: without an answer; red: what can't be explained; not to scale",
        *notes,
    ]
    parts += [_text(_MARGIN, bottom + 38 + 18 * number, line, "note") for number, line in enumerate(legend)]
    width = max(right + _MARGIN, _TITLE_WIDTH * 7.5)
    height = bottom + 38 + 18 * len(legend)
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    name = f"<title>{escape(violation.explanation)}</title>"
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, name, f"<style>{_STYLE}</style>", background, *parts, "</svg>", ""])


def _drawn(operation: OperationSeen, y: float, x_of: dict[int, float], right: float) -> str:
    start = x_of[operation.invoked_us]
    is_open = operation.returned_us is None
    end = right if operation.returned_us is None else max(x_of[operation.returned_us], start + 4)
    colour = _RED if operation.is_bad else _BLUE
    dashes = ' stroke-dasharray="4 3" fill-opacity="0.3"' if is_open else ""
    bar = f'<rect x="{start:.1f}" y="{y - _BAR / 2:.1f}" width="{end - start:.1f}" height="{_BAR}" rx="2"'
    label_x = start + 4 if is_open else end + 6
    label = _text(label_x, y + 4, _cut(operation.what, 60), "bad" if operation.is_bad else "")
    return f'{bar} fill="{colour}" stroke="{colour}"{dashes}/>{label}'


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(words)}</text>'
