"""The results of `bench.cluster` as tables, as JSON and as a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure as Canvas

from bench._figures import Figure

from ._measure import Results, best

_VERDICTS = {True: "met", False: "missed", None: "for information"}


def measurement_rows(results: Results) -> list[list[str]]:
    rows = [["system", "shape", "messages/s", "rounds", "p50 us", "p99 us", "CPU us", "of it load"]]
    for (system, shape), outcomes in results.items():
        outcome = best(outcomes)
        rounds = " ".join(f"{each.rate / 1e3:.1f}k" for each in outcomes)
        load = f"{outcome.load_cpu_us:.1f}" if outcome.load_cpu_us else "in a server"
        figures = [f"{outcome.p50_us:,.0f}", f"{outcome.p99_us:,.0f}", f"{outcome.cpu_us:.1f}"]
        rows.append([system, str(shape), f"{outcome.rate:,.0f}", rounds, *figures, load])
    return rows


def figure_rows(figures: Iterable[Figure]) -> list[list[str]]:
    rows = [["measure", "reached", "target", "verdict", "from"]]
    for figure in figures:
        bound = "" if figure.target is None else f"{'at most' if figure.is_limit else 'at least'} {figure.target:g}"
        reached = f"{figure.reached:,.3g} {figure.unit}"
        rows.append([figure.name, reached, bound, _VERDICTS[figure.ok], figure.detail])
    return rows


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def to_json(results: Results, figures: Iterable[Figure], absent: dict[str, str], quick: bool) -> dict[str, Any]:
    measurements = [
        {
            "system": system,
            "sessions": shape.sessions,
            "outstanding": shape.outstanding,
            "rounds": [
                {
                    "messages": outcome.messages,
                    "messages_per_s": outcome.rate,
                    "p50_us": outcome.p50_us,
                    "p99_us": outcome.p99_us,
                    "cpu_us": outcome.cpu_us,
                    "load_cpu_us": outcome.load_cpu_us,
                }
                for outcome in outcomes
            ],
        }
        for (system, shape), outcomes in results.items()
    ]
    return {
        "quick": quick,
        "measurements": measurements,
        "figures": [figure.to_json() for figure in figures],
        "absent": absent,
    }


def draw(results: Results, path: Path) -> None:
    """A panel for each measure, with a bar for each system and shape; each system has its colour."""
    matplotlib.use("svg")
    systems = list(dict.fromkeys(system for system, _ in results))
    labels = [f"{system}\n{shape}" for system, shape in results]
    outcomes = [best(each) for each in results.values()]
    colours = [f"C{systems.index(system)}" for system, _ in results]
    panels = {
        "messages/s": [outcome.rate for outcome in outcomes],
        "p50, us": [outcome.p50_us for outcome in outcomes],
        "CPU us a message, all processes": [outcome.cpu_us for outcome in outcomes],
    }
    canvas = Canvas(figsize=(max(6.0, 0.75 * len(labels)), 10.0), layout="constrained")
    for axes, (title, values) in zip(canvas.subplots(len(panels), 1, sharex=True), panels.items(), strict=True):
        axes.bar(range(len(values)), values, color=colours)
        axes.set_yscale("log")
        axes.set_ylabel(title)
        axes.grid(axis="y", alpha=0.3)
        axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=8)
    canvas.savefig(path)
