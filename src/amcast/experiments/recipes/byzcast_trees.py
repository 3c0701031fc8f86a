"""The tree for a workload, by the optimiser."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Expectation, Recipe, Scale
from ._building import figure_of

_PAIRS = [[a, b] for a in range(1, 5) for b in range(a + 1, 5)]
_WORKLOADS = {
    "uniform": [[pair, 1_200] for pair in _PAIRS],
    "skewed": [[[1, 2], 9_000], [[3, 4], 9_000]],
}
_TREES = {"two levels": (1, [5, 5, 5, 5, 0]), "three levels": (3, [6, 6, 7, 7, 0, 5, 5])}
_CAPACITY = 9_500
# workload, tree -> heights, viable, loads of the auxiliary groups
_PUBLISHED = {
    ("uniform", "two levels"): (12, 1, [7_200]),
    ("uniform", "three levels"): (16, 1, [4_800, 6_000, 6_000]),
    ("skewed", "two levels"): (4, 0, [18_000]),
    ("skewed", "three levels"): (4, 1, [0, 9_000, 9_000]),
}
_BEST = {"uniform": (2, 12), "skewed": (3, 4)}


def _cells(scale: Scale) -> list[RecipeCell]:
    cells = []
    for name, demand in _WORKLOADS.items():
        settings = {"demand": demand, "capacity": _CAPACITY}
        for tree, (auxiliary, parents) in _TREES.items():
            given = {**settings, "auxiliary": auxiliary, "parents": parents}
            cells.append(RecipeCell(labels={"workload": name, "tree": tree}, program="tree", settings=given))
        best = {**settings, "auxiliary": 3}
        cells.append(RecipeCell(labels={"workload": name, "tree": "best"}, program="tree", settings=best))
    return cells


def _exactly(what: str, figure: str, published: float, unit: str, **labels: str) -> Expectation:
    return Expectation(what=what, ours=figure_of(figure, **labels), published=published, unit=unit, within=0.0)


def _of_tree(workload: str, tree: str) -> list[Expectation]:
    heights, viable, loads = _PUBLISHED[workload, tree]
    where = f"{workload}, {tree}"
    labels = {"workload": workload, "tree": tree}
    return [
        _exactly(f"{where}: sum of heights", "heights", heights, "", **labels),
        _exactly(f"{where}: viable (1) or not (0)", "viable", viable, "", **labels),
        *[
            _exactly(f"{where}: load of h{at}", f"load_g{4 + at}", load, "msg/s", **labels)
            for at, load in enumerate(loads, 1)
        ],
    ]


RECIPE = Recipe(
    name="byzcast-trees",
    title="The tree for a workload",
    source="thesis, Tables 3.2 and 3.3",
    about="Four target groups, up to three auxiliary ones that sustain 9,500 messages a second each; messages to "
    "pairs.",
    notes="What each tree costs, and which tree the exact optimiser chooses.",
    cells=_cells,
    expects=[each for workload, tree in _PUBLISHED for each in _of_tree(workload, tree)]
    + [
        each
        for workload, (levels, heights) in _BEST.items()
        for each in (
            _exactly(f"{workload}: levels of the best tree", "levels", levels, "", workload=workload, tree="best"),
            _exactly(f"{workload}: heights of the best tree", "heights", heights, "", workload=workload, tree="best"),
        )
    ],
)
