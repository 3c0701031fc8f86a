"""A longer wait window makes fewer mistakes."""

from __future__ import annotations

from ..cell import RecipeCell
from ..hardware import libpaxos_lan
from ..recipe import Chart, Expectation, Line, Recipe, Scale
from ._building import figure_of
from ._oam import constant_rate, skewed
from .oam_lan import CLOCKS_US, GROUPS, REPLICAS, SENDERS

_EXTRA = (0, 100, 300, 500)
_RATE = 700


def _cells(scale: Scale) -> list[RecipeCell]:
    return [
        constant_rate(
            {"extra": extra},
            "oam",
            "lan",
            latency=libpaxos_lan(),
            senders=SENDERS,
            rate=_RATE,
            messages=100 if scale == "small" else 30 * _RATE,
            groups=GROUPS,
            replicas=REPLICAS,
            plan=skewed(GROUPS, REPLICAS, CLOCKS_US),
            options={"extra_window_us": extra},
        )
        for extra in _EXTRA
    ]


RECIPE = Recipe(
    name="oam-window",
    title="Mistakes over the wait window",
    source="Optimistic Atomic Multicast, Figure 2, right",
    about="As oam-lan at one rate; the wait window is the estimate and something on top.",
    scaled="100 messages a process; its network has an estimate of its own, so the window is told by what is added "
    "to it.",
    cells=_cells,
    expects=[
        Expectation(
            what="mistakes with 0.3 ms more over those with the estimate: less than half",
            ours=lambda results: results("mistakes", extra=300) / max(results("mistakes", extra=0), 1e-9),
            published=0.5,
            at_most=0.5,
            basis="hardware",
        ),
        Expectation(
            what="accuracy with 0.3 ms more",
            ours=lambda results: 100 * (1 - results("mistakes", extra=300)),
            published=99.98,
            unit="%",
            at_least=99.98,
            basis="hardware",
            why="Queues at the processes delay messages by more than the window once in a while.",
        ),
        Expectation(
            what="both latencies grow with the window: conservative with 0.5 ms more over that with the estimate",
            ours=lambda results: results("final_p95_ms", extra=500) / results("final_p95_ms", extra=0),
            published=1.0,
            at_least=1.0,
        ),
    ],
    charts=[
        Chart(
            "Mistakes",
            _EXTRA,
            [Line("mistakes", lambda results, x: 100 * figure_of("mistakes", extra=int(x))(results))],
            "added to the estimated window (µs)",
            "mistakes (%)",
        ),
        Chart(
            "Latency",
            _EXTRA,
            [
                Line("optimistic", lambda results, x: results("opt_p95_ms", extra=int(x))),
                Line("conservative", lambda results, x: results("final_p95_ms", extra=int(x))),
            ],
            "added to the estimated window (µs)",
            "95th percentile (ms)",
        ),
    ],
)
