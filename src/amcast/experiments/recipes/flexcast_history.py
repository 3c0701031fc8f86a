"""What histories cost."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Scale
from ._building import ratio
from ._flexcast import cell

_PUBLISHED = {"distributed": 68.5, "T1": 66.0, "O1": 79.0}
_TITLES = {"distributed": "distributed", "T1": "hierarchical", "O1": "FlexCast"}


def _cells(scale: Scale) -> list[RecipeCell]:
    return [cell(system, 99, scale, ("wire",), mix="full", clients=720, each=4) for system in _PUBLISHED]


RECIPE = Recipe(
    name="flexcast-history",
    title="Information that processes exchange",
    source="FlexCast, Figure 8",
    about="12 regions, 99 % locality, 720 clients.",
    scaled="4 transactions a client.",
    notes="Published are 68.5 (distributed), 66 (hierarchical) and 79 KB/s (FlexCast) of a process. They depend on "
    "how the "
    "authors' Java encodes a transaction, and on throughput: proportions of bytes for a transaction are compared.",
    cells=_cells,
    expects=[
        Expectation(
            what=f"{_TITLES[system]} over hierarchical: bytes that a process receives",
            ours=ratio("received_bytes", {"system": system}, {"system": "T1"}),
            published=_PUBLISHED[system] / _PUBLISHED["T1"],
            within=0.3,
            basis="workload",
            why="Our transactions are encoded in fewer bytes, so what a protocol adds to them counts for more.",
        )
        for system in ("O1", "distributed")
    ],
    charts=[
        Chart(
            "Received by all processes for a transaction",
            [0, 1, 2],
            [
                Line(
                    "ours",
                    lambda results, at: results("received_bytes", system=list(_PUBLISHED)[int(at)]),
                )
            ],
            "",
            "bytes",
            has_bars=True,
            names=[_TITLES[system] for system in _PUBLISHED],
        )
    ],
)
