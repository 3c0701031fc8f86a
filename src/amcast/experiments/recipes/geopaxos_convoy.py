"""Operations of one site need not wait for those of several."""

from __future__ import annotations

from ...workload.social import GEOPAXOS_3, GEOPAXOS_5
from ..cell import RecipeCell
from ..programs import geopaxos_network
from ..recipe import Chart, Expectation, Line, Recipe, Scale
from ._building import along, figure_of, planned, ratio

_REGIONS = (3, 5)
_CLIENTS = 10  # in each region
_PUBLISHED = {3: (745, 2_245), 5: (1_357, 2_767)}


def _cells(scale: Scale) -> list[RecipeCell]:
    return [
        planned(
            {"regions": regions, "optimised": "yes" if optimised else "no"},
            "geopaxos",
            "sites",
            latency=geopaxos_network(regions, 500),
            measures=("cycles", "operations"),
            groups=regions,
            clients=_CLIENTS * regions,
            messages=_CLIENTS * regions * (60 if scale == "small" else 1_000),
            workload=GEOPAXOS_3 if regions == 3 else GEOPAXOS_5,
            options={"counters_convoy": optimised},
        )
        for regions in _REGIONS
        for optimised in (False, True)
    ]


def _rate(regions: int, optimised: str) -> Expectation:
    published = _PUBLISHED[regions][optimised == "yes"]
    return Expectation(
        what=f"{regions} regions, {'with' if optimised == 'yes' else 'without'} the optimisation: throughput",
        ours=figure_of("per_s", regions=regions, optimised=optimised),
        published=published,
        unit="op/s",
        within=0.3,
        basis="workload",
        why=_WHY,
    )


_WHY = (
    "The share of operations of several sites, which wait for round trips of 75 to 215 ms, decides the throughput of "
    "a closed "
    "loop; which users post, and to whom, was published as a summary alone."
)

RECIPE = Recipe(
    name="geopaxos-convoy",
    title="The convoy effect in GeoPaxos",
    source="thesis, Figures 4.6 and 4.7",
    about="A social network of 10,000 users, four timelines to a post, 10 clients in each of 3 and 5 regions, closed "
    "loop.",
    scaled="60 operations a client.",
    notes="Users are where their preferred site is from the beginning. EPaxos, with 374 and 366 op/s in the thesis, "
    "is not "
    "implemented here.",
    cells=_cells,
    expects=[
        *[_rate(regions, optimised) for regions in _REGIONS for optimised in ("no", "yes")],
        *[
            Expectation(
                what=f"{regions} regions: throughput with the optimisation over that without",
                ours=ratio("per_s", {"regions": regions, "optimised": "yes"}, {"regions": regions, "optimised": "no"}),
                published=_PUBLISHED[regions][1] / _PUBLISHED[regions][0],
                at_least=1.5,
                basis="workload",
                why=_WHY,
            )
            for regions in _REGIONS
        ],
        Expectation(
            what="3 regions: fast operations without the optimisation, around 65 %",
            ours=lambda results: 100 * results("fast", regions=3, optimised="no"),
            published=65,
            unit="%",
            within=0.2,
            basis="workload",
            why=_WHY,
        ),
        Expectation(
            what="3 regions: fast operations with it, more than 90 %",
            ours=lambda results: 100 * results("fast", regions=3, optimised="yes"),
            published=90,
            unit="%",
            at_least=90,
            basis="workload",
        ),
        Expectation(
            what="5 regions: fast operations without the optimisation, half",
            ours=lambda results: 100 * results("fast", regions=5, optimised="no"),
            published=50,
            unit="%",
            within=0.2,
            basis="workload",
            why=_WHY,
        ),
        Expectation(
            what="5 regions: slow operations with it, less than 15 %",
            ours=lambda results: 100 * (1 - results("fast", regions=5, optimised="yes")),
            published=15,
            unit="%",
            at_most=15,
            basis="workload",
        ),
    ],
    charts=[
        Chart(
            "Throughput",
            _REGIONS,
            [
                Line(
                    title,
                    along("per_s", "regions", optimised=optimised),
                    {regions: both[at] for regions, both in _PUBLISHED.items()},
                )
                for at, (title, optimised) in enumerate((("GeoPaxos", "no"), ("GeoPaxos NC", "yes")))
            ],
            "regions",
            "operations/s",
            has_bars=True,
        )
    ],
)
