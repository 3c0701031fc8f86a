"""The figures of throughput and latency over time, a panel for each run, with marks where faults happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from matplotlib.axes import Axes

from ...trace.latency import AT, FIRST_REPLICA
from ._style import (
    COLOURS,
    FAULT_COLOUR,
    MENDED_COLOUR,
    Picture,
    legend_beside,
    line_style,
    new_figure,
    picture,
    plain_ticks,
    shown,
    styled,
    uses_log,
)

_PANELS_MAX = 8
_LABELLED_MAX = 32  # with more faults than this none is labelled
_MENDING = ("mend", "restart", "restored", "heal", "recover")
_NAN = float("nan")

Rows = list[dict[str, Any]]


def throughput(table: pa.Table, faults: Mapping[str, Rows], runs: Sequence[str]) -> Picture | None:
    """`faults` of a run: rows with `what` and `at_us`, which counts from the first multicast."""
    rows = _by_run(table.to_pylist(), runs)

    def draw(axes: Axes, run: str) -> None:
        times = [row["from_us"] / 1e6 for row in rows[run]]
        rates = [row["per_second"] for row in rows[run]]
        width = rows[run][0]["width_us"] / 1e6
        axes.stairs(rates, [*times, times[-1] + width], color=COLOURS[0], fill=True, alpha=0.25)
        axes.stairs(rates, [*times, times[-1] + width], color=COLOURS[0], linewidth=1.4)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("messages / s")

    note = "Messages by the time when their last destination group delivered them. "
    note += "Vertical lines mark faults: solid when something broke, dotted when it was mended."
    return _panels("throughput", "Throughput over time", note, rows, faults, draw)


def latency(table: pa.Table, faults: Mapping[str, Rows], runs: Sequence[str]) -> Picture | None:
    rows = _by_run((row for row in table.to_pylist() if row["delivery"] == "final"), runs)

    def draw(axes: Axes, run: str) -> None:
        for index, scope in enumerate(("local", "global")):
            mine = [row for row in rows[run] if row["scope"] == scope]
            times, middle, high = _with_gaps(mine)
            style = line_style(index)
            axes.plot(times, middle, label=f"{scope}, median", **style)
            axes.plot(times, high, label=f"{scope}, 95th percentile", **{**style, "linewidth": 0.8, "alpha": 0.85})
        if uses_log([row[name] for row in rows[run] for name in ("p50_us", "p95_us")]):
            axes.set_yscale("log")
            plain_ticks(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
        axes.set_ylabel(f"latency {AT[FIRST_REPLICA]} (ms)")

    note = "By the time of the multicast. Thick: median; thin: 95th percentile. Vertical lines mark faults."
    return _panels("latency_over_time", "Latency over time", note, rows, faults, draw, legend=True)


def _with_gaps(rows: Rows) -> tuple[list[float], list[float], list[float]]:
    """Times, medians and 95th percentiles; where buckets are empty, NaN breaks the line."""
    width = min((late["from_us"] - early["from_us"] for early, late in pairwise(rows)), default=0)
    points: list[tuple[float, float, float]] = []
    for at, row in enumerate(rows):
        if at and row["from_us"] - rows[at - 1]["from_us"] > 3 * width:
            points.append((row["from_us"] / 1e6, _NAN, _NAN))
        points.append((row["from_us"] / 1e6, row["p50_us"] / 1000, row["p95_us"] / 1000))
    return [p[0] for p in points], [p[1] for p in points], [p[2] for p in points]


def _by_run(rows: Iterable[dict[str, Any]], runs: Sequence[str]) -> dict[str, Rows]:
    found: dict[str, Rows] = {run: [] for run in runs}
    for row in rows:
        found[row["run_id"]].append(row)
    return {run: mine for run, mine in found.items() if mine}


def _panels(
    name: str,
    title: str,
    note: str,
    rows: Mapping[str, Rows],
    faults: Mapping[str, Rows],
    draw: Callable[[Axes, str], None],
    legend: bool = False,
) -> Picture | None:
    runs = list(rows)[:_PANELS_MAX]
    if not runs:
        return None
    if len(rows) > len(runs):
        note += f" The first {len(runs)} of {len(rows)} runs."
    with styled():
        figure = new_figure(1.0 + (2.6 if len(runs) == 1 else 2.0 * len(runs)))
        axes = list(figure.subplots(len(runs), 1, squeeze=False)[:, 0])
        for panel, run in zip(axes, runs, strict=True):
            draw(panel, run)
            _mark_faults(panel, faults.get(run, []))
            if len(runs) > 1:
                panel.set_title(shown(run, 60), pad=18 if faults.get(run) else 6)
            if legend and panel is axes[0]:
                legend_beside(panel)
        axes[-1].set_xlabel("time since the first multicast (s)")
        return picture(name, title, note, figure)


def _mark_faults(axes: Axes, faults: Rows) -> None:
    left, right = axes.get_xlim()
    free_from = float("-inf")
    for fault in faults:
        at = fault["at_us"] / 1e6
        is_mended = fault["what"].startswith(_MENDING)
        colour = MENDED_COLOUR if is_mended else FAULT_COLOUR
        axes.axvline(at, color=colour, linewidth=0.9, linestyle=":" if is_mended else "-")
        label = shown(fault["what"], 14)
        right = max(right, at)
        span = (right - left) or 1.0
        if len(faults) <= _LABELLED_MAX and at >= free_from:
            axes.annotate(
                label,
                (at, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                textcoords="offset points",
                fontsize=8,
                color=colour,
                ha="center",
            )
            free_from = at + span * (0.012 * len(label) + 0.02)
    if faults:
        axes.set_xlim(left, right + 0.02 * (right - left))
