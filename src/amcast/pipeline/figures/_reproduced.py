"""The figure of a reproduced experiment, in the form that the paper gave it: ours as bars or lines, and the published
points drawn in."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from ._style import COLOURS, DASHES, Picture, legend_beside, new_figure, picture, plain_ticks, shown, styled, uses_log

_MARKERS = "os^vp<>"  # diamonds are for what was published
_PANEL_INCHES = 2.6
_NAMED_PANEL_INCHES = 3.0  # names of places stand slanted, and need room


@dataclass(frozen=True, slots=True)
class Curve:
    """Values by their place on the horizontal axis."""

    name: str
    ours: Mapping[float, float]
    published: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class ReproducedPanel:
    title: str
    places: Sequence[float]
    names: Sequence[str]  # of the places
    curves: Sequence[Curve]
    across: str
    up: str
    has_bars: bool


def reproduced(name: str, title: str, note: str, panels: Sequence[ReproducedPanel]) -> Picture | None:
    there = [panel for panel in panels if any(curve.ours for curve in panel.curves)]
    if not there:
        return None
    with styled():
        height = sum(_NAMED_PANEL_INCHES if _are_words(panel) else _PANEL_INCHES for panel in there)
        figure = new_figure(0.6 + height)
        figure.suptitle(shown(title, 100), x=0.01, ha="left", fontweight="bold")
        for axis, panel in zip(figure.subplots(len(there), 1, squeeze=False)[:, 0], there, strict=True):
            _draw(axis, panel)
        figure.supxlabel(textwrap.fill(note, 118), x=0.01, ha="left", fontsize=8, color="#555555")
        return picture(name, title, note, figure)


def _are_words(panel: ReproducedPanel) -> bool:
    return any(len(name) > 5 for name in panel.names)


def _draw(axes: Axes, panel: ReproducedPanel) -> None:
    axes.set_title(shown(panel.title, 90))
    for index, curve in enumerate(panel.curves):
        colour = COLOURS[index % len(COLOURS)]
        (_draw_bars if panel.has_bars else _draw_line)(axes, panel, index, curve, colour)
    if any(curve.published for curve in panel.curves):
        axes.plot([], [], linestyle="none", marker="D", markersize=5, color="#111111", mfc="none", label="published")
    slanted: dict[str, Any] = {"rotation": 25, "ha": "right"} if _are_words(panel) else {}
    axes.set_xticks(range(len(panel.places)), [shown(each, 24) for each in panel.names], **slanted)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(textwrap.fill(panel.up, 24))
    values = [value for curve in panel.curves for value in (*curve.ours.values(), *curve.published.values())]
    if uses_log(values):
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    else:
        axes.set_ylim(0, max(values) * 1.08 or 1)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(axis="x", visible=False)
    legend_beside(axes)


def _draw_bars(axes: Axes, panel: ReproducedPanel, index: int, curve: Curve, colour: str) -> None:
    width = 0.8 / len(panel.curves)
    offset = (index - (len(panel.curves) - 1) / 2) * width
    places = [panel.places.index(x) + offset for x in curve.ours]
    axes.bar(places, list(curve.ours.values()), width * 0.9, color=colour, label=shown(curve.name))
    _draw_published(axes, [panel.places.index(x) + offset for x in curve.published], curve, "#111111")


def _draw_line(axes: Axes, panel: ReproducedPanel, index: int, curve: Curve, colour: str) -> None:
    places = [panel.places.index(x) for x in sorted(curve.ours)]
    look: dict[str, Any] = {"marker": _MARKERS[index % len(_MARKERS)], "linestyle": DASHES[index % len(DASHES)]}
    values = [curve.ours[x] for x in sorted(curve.ours)]
    axes.plot(places, values, color=colour, markersize=4, label=shown(curve.name), **look)
    _draw_published(axes, [panel.places.index(x) for x in curve.published], curve, colour)


def _draw_published(axes: Axes, places: Sequence[float], curve: Curve, colour: str) -> None:
    look: dict[str, Any] = {"linestyle": "none", "marker": "D", "markersize": 6, "mfc": "none", "mew": 1.3}
    axes.plot(places, list(curve.published.values()), color=colour, zorder=5, **look)
