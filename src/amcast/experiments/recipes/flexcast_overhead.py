"""What groups receive and do not deliver, in trees."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Scale
from ._building import along, figure_of
from ._flexcast import TREES, cell
from .flexcast_overlays import NOTES

_LOCALITIES = (90, 95, 99)
_PUBLISHED = {  # mean, max at each locality
    "T1": ((9.16, 36), (7.33, 36), (5.41, 34)),
    "T2": ((5.75, 30), (5.08, 30), (4.33, 30)),
    "T3": ((4.66, 56), (4.66, 56), (4.66, 56)),
}
_WHY = "It follows from which regions are neighbours, and from the trees, which the paper draws without naming them."


def _cells(scale: Scale) -> list[RecipeCell]:
    return [
        cell(tree, locality, scale, ("load_together", "replies", "overhead"))
        for tree in TREES
        for locality in _LOCALITIES
    ]


RECIPE = Recipe(
    name="flexcast-overhead",
    title="Overhead of trees",
    source="FlexCast, Table 4, Figures 1 and 9",
    about="12 regions, gTPC-C with global transactions; 1 minus payloads delivered over payloads received, by group.",
    scaled="12 transactions a client, until the first has made its own.",
    notes=NOTES + " That genuine protocols have no overhead is the checker's verdict on their runs.",
    cells=_cells,
    expects=[
        *[
            Expectation(
                what=f"{tree}, {locality} %: {what} overhead of groups",
                ours=figure_of(f"overhead_{what}", system=tree, locality=locality),
                published=_PUBLISHED[tree][at][which],
                unit="%",
                within=0.3,
                basis="workload",
                why=_WHY,
            )
            for tree in TREES
            for at, locality in enumerate(_LOCALITIES)
            for which, what in enumerate(("mean", "max"))
        ],
        Expectation(
            what="T1: mean overhead at 99 % over that at 90 %, it falls with locality",
            ours=lambda results: (
                results("overhead_mean", system="T1", locality=99) / results("overhead_mean", system="T1", locality=90)
            ),
            published=5.41 / 9.16,
            at_most=1.0,
            basis="workload",
        ),
    ],
    charts=[
        Chart(
            f"{what.capitalize()} overhead",
            _LOCALITIES,
            [
                Line(
                    tree,
                    along(f"overhead_{what}", "locality", system=tree),
                    {float(locality): float(_PUBLISHED[tree][at][which]) for at, locality in enumerate(_LOCALITIES)},
                )
                for tree in TREES
            ],
            "locality (%)",
            "payloads (%)",
        )
        for which, what in enumerate(("mean", "max"))
    ],
)
