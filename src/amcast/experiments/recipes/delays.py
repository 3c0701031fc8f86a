"""Message delays of every protocol, as its paper counts them."""

from __future__ import annotations

from functools import partial

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import figure_of

# protocol -> case -> delays
PUBLISHED = {
    "skeen": {"local": 1, "global": 2},
    "basecast": {"local": 3, "global": 6},
    "fastcast": {"local": 3, "global": 4, "slow": 6},
    "multipaxos": {"local": 3, "global": 3},
    "oam-baseline": {"global": 3},
    "oam": {"optimistic": 1, "global": 3, "slow": 4},
    "flexcast": {"local": 1, "global": 2},
    "tree": {"local": 1, "global": 2},
    "sequencer": {"optimistic": 1, "global": 2},
}
_WORDS = {
    "local": "to one group",
    "global": "to two groups",
    "slow": "to two groups, wrong guesses",
    "optimistic": "until the optimistic delivery",
}
_UNIT_US = 1_000  # a delay between regions: what a client waits is told in milliseconds


def _cells(scale: Scale) -> list[RecipeCell]:
    cells = [RecipeCell(labels={"protocol": name}, program="delays", settings={"protocol": name}) for name in PUBLISHED]
    settings = {"regions": 3, "inside_us": 0, "unit_us": _UNIT_US, "client": "CA", "operations": 5, "seed": 1}
    for sites in ([1], [1, 2]):
        cells.append(
            RecipeCell(
                labels={"protocol": "geopaxos", "sites": len(sites)},
                program="one_client",
                settings={**settings, "sites": sites},
            )
        )
    return cells


def _ours(case: str, results: Results, place: float) -> float:
    name = list(PUBLISHED)[int(place)]
    return results(case, protocol=name)


RECIPE = Recipe(
    name="delays",
    title="Message delays of all protocols",
    source="the analyses of the five papers",
    about="One message in a network where every message takes one unit of time. Counted until the last delivery.",
    cells=_cells,
    expects=[
        Expectation(
            what=f"{name} {_WORDS[case]}",
            ours=figure_of(case, protocol=name),
            published=count,
            unit="delays",
            within=0.0,
        )
        for name, cases in PUBLISHED.items()
        for case, count in cases.items()
    ]
    + [
        Expectation(
            what=f"geopaxos, an operation of {sites} site{'s' if sites > 1 else ''}: delays between regions",
            ours=figure_of("client_p50_ms", protocol="geopaxos", sites=sites),
            published=count,
            unit="delays",
            within=0.0,
        )
        for sites, count in ((1, 0), (2, 2))
    ],
    charts=[
        Chart(
            "Delays until the last delivery",
            list(range(len(PUBLISHED))),
            [
                Line(
                    _WORDS[case],
                    partial(_ours, case),
                    {at: cases[case] for at, cases in enumerate(PUBLISHED.values()) if case in cases},
                )
                for case in ("local", "global", "slow", "optimistic")
            ],
            "",
            "message delays",
            has_bars=True,
            names=list(PUBLISHED),
        )
    ],
)
