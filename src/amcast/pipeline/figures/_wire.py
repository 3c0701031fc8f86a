"""The figure of what a delivered message costs: wire messages and bytes, by kind of wire message."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ._style import COLOURS, Picture, new_figure, picture, shown, styled

_RUNS_MAX = 6
_KINDS_MAX = 24
_MEASURES = {"messages_per_delivered": "wire messages per message", "bytes_per_delivered": "bytes per message"}


def wire_kinds(table: pa.Table, runs: Sequence[str]) -> Picture | None:
    rows = [row for row in table.to_pylist() if row["messages_per_delivered"] is not None]
    shown_runs = [run for run in runs if any(row["run_id"] == run for row in rows)][:_RUNS_MAX]
    if not shown_runs:
        return None
    total: dict[str, float] = {}
    for row in rows:
        total[row["kind"]] = total.get(row["kind"], 0.0) + row["messages_per_delivered"]
    kinds = sorted(total, key=lambda kind: (total[kind], kind))[-_KINDS_MAX:]
    values = {(row["run_id"], row["kind"]): row for row in rows}
    thickness = 0.8 / len(shown_runs)
    with styled():
        figure = new_figure(1.2 + len(kinds) * (0.16 + 0.14 * len(shown_runs)))
        axes = figure.subplots(1, 2, sharey=True)
        for panel, (measure, label) in zip(axes, _MEASURES.items(), strict=True):
            for index, run in enumerate(shown_runs):
                # The first run is the topmost bar of each kind.
                places = [at + 0.4 - thickness * (index + 0.5) for at in range(len(kinds))]
                lengths = [values.get((run, kind), {}).get(measure) or 0.0 for kind in kinds]
                panel.barh(places, lengths, thickness, color=COLOURS[index % len(COLOURS)], label=shown(run, 40))
                if len(shown_runs) == 1:
                    for place, length in zip(places, lengths, strict=True):
                        text = f"{length:.3g}" if length < 1000 else f"{length:.0f}"
                        panel.annotate(text, (length, place), xytext=(3, 0), textcoords="offset points", va="center")
            panel.grid(axis="y", visible=False)
            panel.set_xlabel(label)
            panel.margins(x=0.14)
            panel.set_xlim(left=0)
        axes[0].set_yticks(range(len(kinds)), [shown(kind, 24) for kind in kinds])
        if len(shown_runs) > 1:
            handles, labels = axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper left", ncols=1 if len(shown_runs) > 2 else 2)
        note = "For each application message that was delivered, whatever its number of destinations."
        return picture("wire_kinds", "Wire messages by kind", note, figure)
