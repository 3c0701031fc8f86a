"""The figure of a study: the same measure of several systems, as bars, or as lines over the load."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes

from ._style import (
    COLOURS,
    DASHES,
    Picture,
    legend_beside,
    new_figure,
    picture,
    plain_ticks,
    shown,
    styled,
    uses_log,
)

_LABEL_WIDTH = 46
_LABEL_MAX = 70
_MARKERS = "os^Dvp<>*"


System = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Mark:
    """One measurement: where it stands, its median, and its 95th percentile."""

    x: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Panel:
    """Systems are called by two words, such as "FastCast" and "2 groups": one has a colour, the other has dashes."""

    title: str
    series: Mapping[System, Sequence[Mark]]  # marks by x; one if there is no load


def comparison(
    name: str, title: str, note: str, panels: Sequence[Panel], measure: str, load: str | None
) -> Picture | None:
    """`measure` and `load` are the labels of the axes. Without a load there is one bar for each system."""
    systems = list(dict.fromkeys(system for panel in panels for system in panel.series))
    if not systems:
        return None
    with styled(), mpl.rc_context({"legend.handlelength": 3.4}):  # long enough to tell dashes apart
        bars = len(systems) * 0.26 + 0.75
        figure = new_figure(0.9 + len(panels) * (bars if load is None else 2.7))
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        grid = figure.subplots(len(panels), 1, squeeze=False, sharex=load is not None)
        axes = list(grid[:, 0])
        loads = sorted({mark.x for panel in panels for marks in panel.series.values() for mark in marks})
        for axis, panel in zip(axes, panels, strict=True):
            _draw_bars(axis, panel, systems) if load is None else _draw_lines(axis, panel, systems, loads, measure)
            if panel.title:
                axis.set_title(shown(panel.title, 90))
            axis.tick_params(labelbottom=True)
        if load is None:
            _share_scale(axes)
        else:
            legend_beside(axes[0], panels=axes[1:])
            axes[-1].set_xticks(range(len(loads)), [f"{each:g}" for each in loads])
        axes[-1].set_xlabel(measure if load is None else load)
        figure.supxlabel(textwrap.fill(note, 118), x=0.01, ha="left", fontsize=8, color="#555555")
        return picture(name, title, note, figure)


def _share_scale(axes: Sequence[Axes]) -> None:
    """Bars of different panels can be compared, unless those of one would be too small to see."""
    ends = [axis.get_xlim()[1] for axis in axes]
    if max(ends) < 5 * min(ends):
        for axis in axes:
            axis.set_xlim(0, max(ends))


def _label(system: System) -> str:
    return textwrap.fill(shown(", ".join(system), _LABEL_MAX), _LABEL_WIDTH)


def _style(system: System, systems: Sequence[System]) -> tuple[int, int]:
    """The numbers of its colour and of its dashes."""
    names, kinds = (list(dict.fromkeys(each[at] for each in systems)) for at in (0, 1))
    return names.index(system[0]), kinds.index(system[1])


def _draw_bars(axes: Axes, panel: Panel, systems: Sequence[System]) -> None:
    """The median as a bar, and a line from there to the 95th percentile. The first system is the topmost."""
    places = {system: len(systems) - at for at, system in enumerate(systems)}
    for system, marks in panel.series.items():
        colour, kind = _style(system, systems)
        for mark in marks:
            look: dict[str, Any] = {"color": COLOURS[colour % len(COLOURS)], "alpha": max(0.35, 0.9 - 0.25 * kind)}
            axes.barh(places[system], mark.middle, 0.66, **look)
            axes.plot([mark.middle, mark.high], [places[system]] * 2, color="#333333", linewidth=1.0, marker="|")
            text = f"{mark.middle:.3g}" if mark.middle < 1000 else f"{mark.middle:.0f}"
            axes.annotate(text, (mark.high, places[system]), xytext=(5, 0), textcoords="offset points", va="center")
    axes.set_yticks(list(places.values()), [_label(system) for system in systems])
    axes.set_ylim(0.3, len(systems) + 0.7)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.1)
    axes.set_xlim(left=0)


def _draw_lines(axes: Axes, panel: Panel, systems: Sequence[System], loads: Sequence[float], measure: str) -> None:
    """The median as a line, and thin lines from there to the 95th percentile.

    Loads are equally far apart. Each system stands a little beside the others: lines of equal values would hide.
    """
    apart = min(0.05, 0.5 / len(systems))
    for system, marks in panel.series.items():
        index = systems.index(system)
        colour, kind = _style(system, systems)
        look: dict[str, Any] = {"color": COLOURS[colour % len(COLOURS)]}
        places = [loads.index(mark.x) + (index - (len(systems) - 1) / 2) * apart for mark in marks]
        middle, high = [mark.middle for mark in marks], [mark.high for mark in marks]
        axes.vlines(places, middle, high, linewidth=0.9, **look)
        axes.plot(places, high, marker="_", markersize=5, linestyle="none", **look)
        look |= {"linestyle": DASHES[kind % len(DASHES)], "marker": _MARKERS[colour % len(_MARKERS)], "markersize": 4}
        look |= {"markerfacecolor": "white"} if kind else {}
        axes.plot(places, middle, label=_label(system), **look)
    values = [value for marks in panel.series.values() for mark in marks for value in (mark.middle, mark.high)]
    if uses_log(values):
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(textwrap.fill(measure, 24))
