"""One client: operations of one site stay in their region."""

from __future__ import annotations

from msgspec.structs import replace

from ...core import latency_preset
from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Scale
from ._building import figure_of, planned, to_groups

_CASES = {"one site": [1], "two sites": [1, 2], "all sites": [1, 2, 3]}


def _cells(scale: Scale) -> list[RecipeCell]:
    count = 20 if scale == "small" else 1_000
    shared = {"regions": 3, "inside_us": 500, "client": "CA", "operations": count, "seed": 1}
    cells = [
        RecipeCell(
            labels={"protocol": "geopaxos", "regions": 3, "case": name},
            program="one_client",
            settings={**shared, "sites": sites},
        )
        for name, sites in _CASES.items()
    ]
    wan = latency_preset("wan5")
    for regions in (3, 5):
        cells.append(
            planned(
                {"regions": regions},
                "multipaxos",
                "wan5",
                latency=replace(wan, regions=wan.regions[:regions]),
                groups=1,
                replicas=regions,
                clients=1,
                client_region="CA",
                messages=count,
                workload=to_groups(1),
            )
        )
    return cells


_P50 = "client_p50_ms"

RECIPE = Recipe(
    name="geopaxos-latency",
    title="Latency of one client of GeoPaxos",
    source="thesis, Figure 4.5",
    about="A client in California; California, Virginia and Ireland have a site each (five regions for Multi-Paxos "
    "too).",
    scaled="20 operations a case.",
    notes="EPaxos and M2Paxos, which the thesis compares with, are not implemented here. Where it gives a range, the "
    "middle "
    "is shown.",
    cells=_cells,
    expects=[
        Expectation(
            what="one site: around 2 ms",
            ours=figure_of(_P50, protocol="geopaxos", case="one site"),
            published=2.0,
            unit="ms",
            within=0.2,
        ),
        Expectation(
            what="two sites, California and Virginia: between 80 and 90 ms",
            ours=figure_of(_P50, protocol="geopaxos", case="two sites"),
            published=85,
            unit="ms",
            within=0.1,
        ),
        *[
            Expectation(
                what=f"Multi-Paxos, {regions} regions: around 80 to 90 ms",
                ours=figure_of(_P50, protocol="multipaxos", regions=regions),
                published=85,
                unit="ms",
                within=0.15,
                why="A round trip to Virginia takes 75 ms on average, and nothing else here takes time.",
            )
            for regions in (3, 5)
        ],
    ],
    charts=[
        Chart(
            "One client in California",
            [0, 1, 2],
            [
                Line(
                    "GeoPaxos",
                    lambda results, at: results(_P50, protocol="geopaxos", case=list(_CASES)[int(at)]),
                    {0: 2.0, 1: 85.0},
                )
            ],
            "",
            "median latency (ms)",
            has_bars=True,
            names=list(_CASES),
        )
    ],
)
