"""The figure of latencies as cumulative distributions: how many percent of the messages took at most so long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from matplotlib.axes import Axes

from ...trace.latency import AT, FIRST_REPLICA
from ._style import Picture, legend_beside, line_style, new_figure, picture, plain_ticks, shown, styled, uses_log

_PANELS_MAX = 4
_LINES_MAX = 12

Curve = tuple[list[float], list[float]]


def latency_cdf(cdf: pa.Table, runs: Sequence[str]) -> Picture | None:
    """One run: a line for each number of destinations. Several: a panel for each number, a line for each run."""
    curves = _curves(cdf)
    if not curves:
        return None
    sizes = sorted({size for _, size in curves})
    with styled():
        if len(runs) == 1:
            figure = new_figure(3.6)
            axes = [figure.add_subplot()]
            lines = {f"{size}": curves[runs[0], size] for size in sizes[:_LINES_MAX] if (runs[0], size) in curves}
            _draw(axes[0], lines, {label: at for at, label in enumerate(lines)})
            legend_beside(axes[0], "destinations")
        else:
            panels = sizes[:_PANELS_MAX]
            figure = new_figure(0.6 + 2.5 * len(panels))
            axes = list(figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0])
            styles = {run: index for index, run in enumerate(runs[:_LINES_MAX])}
            for panel, size in zip(axes, panels, strict=True):
                lines = {run: curves[run, size] for run in runs[:_LINES_MAX] if (run, size) in curves}
                _draw(panel, lines, styles)
                panel.tick_params(labelbottom=True)
                panel.set_title(f"{size} destination{'s' if size > 1 else ''}")
            legend_beside(axes[0], panels=axes[1:])
        if uses_log([time for times, _ in curves.values() for time in times]):
            axes[-1].set_xscale("log")
            plain_ticks(axes[-1].xaxis)
        else:
            axes[-1].set_xlim(left=0)
        axes[-1].set_xlabel(f"latency {AT[FIRST_REPLICA]} (ms)")
        note = "Share of messages that all destination groups had delivered within that time."
        return picture("latency_cdf", "Latency distribution", note, figure)


def _curves(cdf: pa.Table) -> dict[tuple[str, int], Curve]:
    curves: dict[tuple[str, int], Curve] = {}
    for row in cdf.to_pylist():
        if row["delivery"] == "final":
            times, shares = curves.setdefault((row["run_id"], row["destinations"]), ([], []))
            times.append(row["latency_us"] / 1000)
            shares.append(row["share"] * 100)
    return curves


def _draw(axes: Axes, lines: Mapping[str, Curve], styles: Mapping[str, int]) -> None:
    for label, (times, shares) in lines.items():
        axes.plot(times, shares, drawstyle="steps-post", label=shown(label), **line_style(styles[label]))
    axes.set_ylim(0, 102)
    axes.set_ylabel("messages (%)")
