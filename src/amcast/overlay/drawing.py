"""A tree for people: as lines of text, and as one self-contained SVG file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..core import GroupId
from .model import UNIT, Outcome, OverlayTree, Problem

_WIDTH_MAX = 40  # of what stands before a group: the rest of a terminal's line is for its figures
_BOX_WIDTH, _BOX_HEIGHT, _GAP, _PITCH, _MARGIN = 96, 36, 12, 76, 16
_RED, _INK, _GREY = "#c62828", "#212121", "#757575"
_FILLS = {True: "#e3f2fd", False: "#f5f5f5"}  # auxiliary or not

_STYLE = f"""
text {{ font: 11px system-ui, sans-serif; fill: {_INK}; text-anchor: middle; }}
.name {{ font-weight: 600; }}
.over {{ fill: {_RED}; }}
"""


def tree_lines(tree: OverlayTree) -> Iterator[tuple[GroupId, str]]:
    """Each group from the root down, and how its line begins; children stand below their parent."""
    step = max(1, min(4, _WIDTH_MAX // max(1, tree.height[tree.root] - 1)))
    waiting: list[tuple[GroupId, str, str]] = [(tree.root, "", "")]
    while waiting:
        group, own, under = waiting.pop()
        # A tree that is deeper than a line is wide has the number of each level instead of lines.
        is_deep = tree.height[tree.root] > _WIDTH_MAX
        yield group, f"{len(tree.path(group))}: g{group}" if is_deep else f"{own}g{group}"
        below = tree.children[group]
        for child in reversed(below):
            bend, line = ("└", " ") if child == below[-1] else ("├", "│")
            branch = (bend + "──")[: step - 1] + " " if step > 1 else bend
            waiting.append((child, under + branch, under + line.ljust(step)))


def shown_rate(units: int) -> str:
    return f"{units // UNIT:,}" if units % UNIT == 0 else f"{units / UNIT:,.1f}"


def tree_svg(problem: Problem, tree: OverlayTree, outcome: Outcome) -> str:
    """The root on top. Each box has the group, its load and its capacity."""
    places = _places(tree)
    width = _MARGIN * 2 + max(x for x, _ in places.values()) + _BOX_WIDTH
    height = _MARGIN * 2 + max(y for _, y in places.values()) + _BOX_HEIGHT
    body = [_edge(places[above], places[group]) for group, above in tree.parent.items() if above]
    body += [_box(problem, outcome, group, *place) for group, place in places.items()]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    title = f"<title>{escape(tree.option())}, sum of heights {outcome.heights_sum}</title>"
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, title, f"<style>{_STYLE}</style>", background, *body, "</svg>", ""])


def _places(tree: OverlayTree) -> dict[GroupId, tuple[float, float]]:
    """Leaves beside each other in the order of the drawing, each parent above the middle of its children."""
    order = [group for group, _ in tree_lines(tree)]
    leaves = [group for group in order if not tree.children[group]]
    across = {group: float(number * (_BOX_WIDTH + _GAP)) for number, group in enumerate(leaves)}
    for group in reversed(order):
        if below := tree.children[group]:
            across[group] = (across[below[0]] + across[below[-1]]) / 2
    return {group: (across[group], float((len(tree.path(group)) - 1) * _PITCH)) for group in order}


def _edge(above: tuple[float, float], below: tuple[float, float]) -> str:
    middle = _MARGIN + _BOX_WIDTH / 2
    (x1, y1), (x2, y2) = above, below
    return (
        f'<line x1="{x1 + middle:.1f}" y1="{y1 + _MARGIN + _BOX_HEIGHT:.1f}" x2="{x2 + middle:.1f}"'
        f' y2="{y2 + _MARGIN:.1f}" stroke="{_GREY}"/>'
    )


def _box(problem: Problem, outcome: Outcome, group: GroupId, x: float, y: float) -> str:
    is_over = group in outcome.overloaded
    limit = problem.capacities.get(group)
    load = shown_rate(outcome.loads[group]) + ("" if limit is None else f" of {shown_rate(limit)}")
    left, top, middle = x + _MARGIN, y + _MARGIN, x + _MARGIN + _BOX_WIDTH / 2
    colour, fill = _RED if is_over else _GREY, _FILLS[group in problem.auxiliary]
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="4" fill="{fill}"'
        f' stroke="{colour}"/><text x="{middle:.1f}" y="{top + 15:.1f}" class="name">g{group}</text>'
        f'<text x="{middle:.1f}" y="{top + 29:.1f}"{" class=" + chr(34) + "over" + chr(34) if is_over else ""}>'
        f"{escape(load)}</text>"
    )
