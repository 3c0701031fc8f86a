"""Four regions: optimistic delivery is the fastest in each."""

from __future__ import annotations

from msgspec.structs import replace

from ...core import Latency, latency_preset
from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Measure, Recipe, Results, Scale
from ._building import figure_of, quotient
from ._oam import PROTOCOLS, constant_rate, skewed

_REGIONS = ("VA", "CA", "OR", "EU")
_CLOCKS_US = (0, 4_000, -6_000, 8_000)
_GROUPS, _REPLICAS, _SENDERS = 4, 5, 2


def _network() -> Latency:
    """Round trips of the same cloud's regions, as the thesis on GeoPaxos measured them: the paper has none."""
    return replace(latency_preset("wan5"), regions=_REGIONS)


def _cells(scale: Scale) -> list[RecipeCell]:
    return [
        constant_rate(
            {},
            name,
            "wan5",
            latency=_network(),
            senders=_SENDERS,
            rate=10,
            messages=60 if scale == "small" else 1_500,
            groups=_GROUPS,
            replicas=_REPLICAS,
            cpu=False,
            plan=skewed(_GROUPS, _REPLICAS, _CLOCKS_US),
        )
        for name in PROTOCOLS
    ]


_LINES = [
    ("optimistic", "oam", "opt"),
    ("conservative", "oam", "final"),
    ("baseline", "oam-baseline", "final"),
    ("Paxos amcast", "multipaxos", "final"),
]


def _line(title: str, protocol: str, figure: str) -> Line:
    def ours(results: Results, place: float) -> float:
        return results(f"{figure}_{_REGIONS[int(place)]}_p95_ms", protocol=protocol)

    return Line(title, ours)


def _fastest(region: str) -> Measure:
    """Of the final deliveries there."""
    return lambda results: min(results(f"final_{region}_p95_ms", protocol=name) for name in PROTOCOLS)


def _slowest(protocol: str, figure: str) -> Measure:
    """Of the regions besides Ireland."""
    return lambda results: max(results(f"{figure}_{region}_p95_ms", protocol=protocol) for region in _REGIONS[:3])


RECIPE = Recipe(
    name="oam-wan",
    title="Latency by region in a wide-area network",
    source="Optimistic Atomic Multicast, Figure 3",
    about="4 groups with a process in each of Virginia, California, Oregon and Ireland, clocks within 10 ms, two "
    "groups "
    "send to each; 95th percentiles.",
    scaled="6 s of load a run instead of 150 s.",
    notes="Groups have five processes instead of four, the fifth in Virginia: logs have odd numbers of members.",
    cells=_cells,
    expects=[
        *[
            Expectation(
                what=f"{region}: optimistic over the fastest of the others",
                ours=quotient(figure_of(f"opt_{region}_p95_ms", protocol="oam"), _fastest(region)),
                published=1.0,
                at_most=1.0,
            )
            for region in _REGIONS
        ],
        *[
            Expectation(
                what=f"{title}: Ireland's latency over the slowest of the others",
                ours=quotient(figure_of(f"{figure}_EU_p95_ms", protocol=protocol), _slowest(protocol, figure)),
                published=1.0,
                at_least=1.0,
                basis="workload",
                why="The paper has no round trips. By those used here Ireland is as far from Virginia, where all "
                "leaders "
                "are, as California is, and nearer than Oregon.",
            )
            for title, protocol, figure in _LINES
        ],
        Expectation(
            what="accuracy",
            ours=lambda results: 100 * (1 - results("mistakes", protocol="oam")),
            published=95,
            unit="%",
            within=0.1,
        ),
    ],
    charts=[
        Chart(
            "Latency by region",
            list(range(len(_REGIONS))),
            [_line(*each) for each in _LINES],
            "",
            "95th percentile (ms)",
            has_bars=True,
            names=_REGIONS,
        )
    ],
)
