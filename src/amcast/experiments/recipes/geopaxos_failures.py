"""A replica that is killed is felt in its own region alone."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from ...sim import FaultPlan, Scenario
from ...sim.faults import Crash
from ...workload.social import GEOPAXOS_3
from ..cell import RecipeCell
from ..programs import geopaxos_network
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import figure_of, planned

_FIRST_US, _SECOND_US = 3_000_000, 6_000_000


def _kill_two(made: Scenario) -> Scenario:
    """A follower in California, then one in Virginia."""
    topology = made.topology()
    california, virginia = (topology.members(group)[2] for group in topology.groups[:2])
    return replace(made, plan=FaultPlan((Crash(_FIRST_US, california), Crash(_SECOND_US, virginia))))


def _cells(scale: Scale) -> list[RecipeCell]:
    cell = planned(
        {},
        "geopaxos",
        "sites",
        latency=geopaxos_network(3, 500),
        measures=("operations",),
        groups=3,
        clients=30,
        messages=30 * (90 if scale == "small" else 900),
        interval_us=100_000,
        retry_us=200_000,
        workload=replace(GEOPAXOS_3, timelines=1.0),
    )
    assert cell.scenario is not None
    return [replace(cell, scenario=_kill_two(cell.scenario))]


def _median_ms(region: str, results: Results, stretch: float) -> float:
    return results(f"stretch_{int(stretch)}_{region}_p50_ms")


RECIPE = Recipe(
    name="geopaxos-failures",
    title="Replicas of GeoPaxos are killed",
    source="thesis, Figure 4.8",
    about="Three regions, clients read local timelines at a constant rate; a replica in California is killed, then "
    "one in "
    "Virginia.",
    scaled="Kills after 3 and 6 s instead of 30 and 60 s, 30 clients with 10 operations a second each.",
    notes="A replica is an acceptor as well here, and each region has three. So clients in Virginia find another "
    "replica in "
    "their own region; in the thesis they had to go to Ireland, where they waited 140 ms.",
    cells=_cells,
    expects=[
        Expectation(
            what="California: median after the kill, 1.2 ms; it must stay in the region",
            ours=figure_of("stretch_1_CA_p50_ms"),
            published=1.2,
            unit="ms",
            at_most=5.0,
        ),
        Expectation(
            what="Ireland: throughput after both kills over that before",
            ours=lambda results: results("stretch_2_EU_p50_ms") / results("stretch_0_EU_p50_ms"),
            published=1.0,
            within=0.1,
        ),
    ],
    charts=[
        Chart(
            "Median latency",
            [0, 1, 2],
            [Line(region, partial(_median_ms, region)) for region in ("CA", "VA", "EU")],
            "",
            "median latency (ms)",
            has_bars=True,
            names=["before", "California killed", "Virginia killed"],
        )
    ],
)
