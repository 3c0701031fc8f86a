"""Latency, and how much earlier the optimistic delivery comes."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Measure, Recipe, Results, Scale
from ._building import figure_of
from ._oto import DISTANT, NEAR, SEQUENCER, two_clusters

_SIGMA, _RATE = 10, 100
# process -> figure -> published without and with compensation
_TABLE = {
    "sequencer": (SEQUENCER, {"final_own": (0, 41.4), "final": (28.5, 32.3)}),
    "near": (
        NEAR,
        {"final_own": (40.1, 40.2), "final": (48.8, 52.6), "window_own": (40.1, 21.8), "window": (20.3, 20.2)},
    ),
    "distant": (
        DISTANT,
        {"final_own": (80.6, 80.8), "final": (69.3, 73.0), "window_own": (80.6, 27.3), "window": (42.0, 24.6)},
    ),
}
_WORDS = {
    "final_own": "latency of its own messages",
    "final": "latency of all messages",
    "window_own": "optimistic window of its own messages",
    "window": "optimistic window of all messages",
}
ROWS = [
    (who, process, figure, compensation, published[at])
    for who, (process, figures) in _TABLE.items()
    for figure, published in figures.items()
    for at, compensation in enumerate(("no", "yes"))
]


def cells(scale: Scale) -> list[RecipeCell]:
    return [two_clusters(scale, _SIGMA, _RATE, compensates) for compensates in (False, True)]


def mean_ms(process: str, figure: str, compensation: str) -> Measure:
    return figure_of(f"{figure}_{process}_mean_ms", sigma=_SIGMA, rate=_RATE, compensation=compensation)


_WHY = {
    "window_own": "A process that has learnt how long to hold up its own messages holds them up until shortly before "
    "the "
    "sequence number comes; how shortly depends on the number of processes and on alpha in a way that the paper "
    "leaves open.",
}


def _line(compensation: str) -> Line:
    mine = [row for row in ROWS if row[3] == compensation]

    def ours(results: Results, place: float) -> float:
        _, process, figure, _, _ = mine[int(place)]
        return mean_ms(process, figure, compensation)(results)

    words = "with compensation" if compensation == "yes" else "without compensation"
    return Line(words, ours, {at: row[4] for at, row in enumerate(mine)})


_NAMES = [f"{who}: {figure.replace('_', ' ')}" for who, _, figure, compensation, _ in ROWS if compensation == "no"]

RECIPE = Recipe(
    name="oto-window",
    title="Latency and optimistic window",
    source="Optimistic total order, Table 1",
    about="Two clusters of 5 processes, 20 ms inside, 40 ms across, sigma 10 %, 100 messages a second; means.",
    scaled="2,000 messages a run instead of 100 s, of which the second half is measured.",
    notes="The paper does not say which sigma Table 1 has. Its latencies fit sigma 10 %, while its section 5 joins "
    "it with ratios "
    "of sigma 3 %.",
    cells=cells,
    expects=[
        Expectation(
            what=f"{who}, {'with' if compensation == 'yes' else 'without'} compensation: {_WORDS[figure]}",
            ours=mean_ms(process, figure, compensation),
            published=published,
            unit="ms",
            within=0.1,
            why=_WHY.get(figure, ""),
        )
        for who, process, figure, compensation, published in ROWS
    ],
    charts=[
        Chart(
            "Table 1: means",
            list(range(len(_NAMES))),
            [_line("no"), _line("yes")],
            "",
            "ms",
            has_bars=True,
            names=_NAMES,
        )
    ],
)
