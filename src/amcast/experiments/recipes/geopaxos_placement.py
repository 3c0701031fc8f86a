"""Objects move to where they are used."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Scale
from ._building import figure_of, percent

_SECONDS = 140
_BIN_S = 5


def _cells(scale: Scale) -> list[RecipeCell]:
    users = 500 if scale == "small" else 10_000
    settings = {"users": users, "seconds": _SECONDS, "seed": 1}
    return [RecipeCell(labels={"users": users}, program="placement", settings=settings)]


RECIPE = Recipe(
    name="geopaxos-placement",
    title="Objects move to where they are used",
    source="thesis, Figure 4.4",
    about="Three regions, users at arbitrary sites in the beginning; first access and affinity move them.",
    scaled="500 users instead of 10,000, each of which acts as often.",
    notes="The thesis tells when placement is stable and where users end up; its graph of followers is not published. "
    "Where followers live is chosen here so that the spread over sites comes out once everybody is at home: what is "
    "measured is whether, and how soon, placement gets them there.",
    cells=_cells,
    expects=[
        Expectation(
            what="99 % of the moves are made after",
            ours=figure_of("stable_s"),
            published=75,
            unit="s",
            within=0.25,
            basis="workload",
            why="The rarest users decide it, and how often each acts was not published.",
        ),
        *[
            Expectation(
                what=f"users with followers at {sites} site{'s' if sites > 1 else ''}",
                ours=percent(figure_of(f"at_{sites}_sites")),
                published=published,
                unit="%",
                within=0.25,
                basis="workload",
                why="The graph of followers is another one.",
            )
            for sites, published in ((1, 80), (2, 18), (3, 2))
        ],
        Expectation(
            what="fast operations in the end over those in the beginning",
            ours=lambda results: results("fast_from_130") / results("fast_from_0"),
            published=1.0,
            at_least=1.5,
            basis="workload",
        ),
    ],
    charts=[
        Chart(
            "Operations that take less than 5 ms",
            list(range(0, _SECONDS, _BIN_S)),
            [Line("GeoPaxos", lambda results, at: 100 * results(f"fast_from_{int(at)}"))],
            "seconds",
            "operations (%)",
        )
    ],
)
