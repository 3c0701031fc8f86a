"""The one figure of a study: a latency of every protocol, in words that people read.

A panel for each network (and region of the clients, if there are several), a line or a bar for each protocol and number
of destinations. If loads differ, they are the horizontal axis. Of several seeds the median is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..trace.latency import AT
from .table import Row, latency_column

if TYPE_CHECKING:
    from ..pipeline.figures import Picture

PANELS_MAX = 8
SERIES_MAX = 24

# Columns that may differ between loads, and what the axis is called.
_LOADS = {
    "clients": "clients",
    "outstanding": "messages in flight, of each client",
    "rate_per_s": "messages a second, by all clients together",
}


def draw(rows: Sequence[Row], at: str) -> Picture | None:
    """`at` is where latency is measured. None if no cell passed. Needs the extra `report`."""
    from ..pipeline.figures import comparison

    good = [row for row in rows if row["verdict"] == "pass" and row[latency_column(at, "p50")] is not None]
    load = next((name for name in _LOADS if _differs(rows, name)), None)
    measure = f"latency {AT[at]} (ms)"
    panels = _panels(good, load, at)
    notes = [_how_it_is_drawn(rows, load)]
    if len(good) < len(rows):
        notes.append(f"{len(rows) - len(good)} of {len(rows)} cells did not pass and are not drawn.")
    left = len(panels) - PANELS_MAX
    if left > 0:
        notes.append(f"{left} more panels would not fit: see the table.")
    if any(len(panel.series) > SERIES_MAX for panel in panels):
        notes.append(f"Of each panel the first {SERIES_MAX} are drawn: see the table for the others.")
    shown = [_cut(panel) for panel in panels[:PANELS_MAX]]
    label = None if load is None else _LOADS[load]
    return comparison("study", f"Latency {AT[at]}", " ".join(notes), shown, measure, label)


def system_of(row: Row) -> tuple[str, str]:
    """FastCast, 2 groups; or FastCast, gtpcc locality=0.9."""
    to = row["destinations"]
    is_number = to[:1].isdigit()
    return row["protocol_title"], f"{to} group{'' if to == '1' else 's'}" if is_number else to


def panel_label(row: Row, columns: Sequence[str]) -> str:
    """`network wan, clients in R2, 4 clients`: what differs between panels."""
    words = {
        "network": f"network {row['network']}",
        "client_region": "clients in all regions"
        if row["client_region"] is None
        else f"clients in {row['client_region']}",
        "clients": f"{row['clients']} client{'' if row['clients'] == 1 else 's'}",
        "outstanding": f"{row['outstanding']} in flight",
        "rate_per_s": f"{row['rate_per_s'] or 0:g} messages/s",
    }
    return ", ".join(words[name] for name in columns)


def _differs(rows: Sequence[Row], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _panels(rows: Sequence[Row], load: str | None, at: str) -> list[Any]:
    from ..pipeline.figures import Mark, Panel

    others = [name for name in ("client_region", *_LOADS) if name != load and _differs(rows, name)]
    groups: dict[str, dict[tuple[str, str], dict[float, list[Row]]]] = {}
    for row in rows:
        series = groups.setdefault(panel_label(row, ["network", *others]), {})
        x = 0.0 if load is None else float(row[load])
        series.setdefault(system_of(row), {}).setdefault(x, []).append(row)
    return [
        Panel(
            title,
            {
                label: [
                    Mark(x, _middle(same, at, "p50"), _middle(same, at, "p95")) for x, same in sorted(marks.items())
                ]
                for label, marks in series.items()
            },
        )
        for title, series in groups.items()
    ]


def _middle(rows: Sequence[Row], at: str, figure: str) -> float:
    return float(median(row[latency_column(at, figure)] for row in rows))


def _cut(panel: Any) -> Any:
    from ..pipeline.figures import Panel

    return Panel(panel.title, dict(list(panel.series.items())[:SERIES_MAX]))


def _how_it_is_drawn(rows: Sequence[Row], load: str | None) -> str:
    seeds = len({row["seed"] for row in rows})
    how = "Bars and numbers are medians, thin lines end at the 95th percentile"
    if load is not None:
        how = "Lines join the medians, thin ones reach up to the 95th percentile"
    return f"{how}{f', each the median of {seeds} seeds' if seeds > 1 else ''}."
