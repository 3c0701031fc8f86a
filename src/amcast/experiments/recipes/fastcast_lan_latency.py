"""One client in a LAN: what fewer delays are worth where delays are short."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import figure_of, ratio
from ._fastcast import DESTINATIONS, GROUPS, PROTOCOLS, TITLES, one_client

_PUBLISHED: dict[str, dict[float, float]] = {"basecast": {2: 0.928, 4: 1.068}, "fastcast": {2: 0.691, 4: 0.847}}
_P50 = "client_p50_ms"


def cells(where: str, scale: Scale) -> list[RecipeCell]:
    """To all groups of a smaller system, and to some of 16."""
    shapes = dict.fromkeys([(count, count) for count in DESTINATIONS] + [(GROUPS, count) for count in DESTINATIONS])
    return [one_client(where, scale, *shape, name) for shape in shapes for name in PROTOCOLS]


def _all_groups(name: str, published: dict[float, float]) -> Line:
    def ours(results: Results, x: float) -> float:
        return results(_P50, protocol=name, groups=int(x), destinations=int(x))

    return Line(TITLES[name], ours, published)


def _some_groups(name: str) -> Line:
    def ours(results: Results, x: float) -> float:
        return results(_P50, protocol=name, groups=GROUPS, destinations=int(x))

    return Line(TITLES[name], ours)


def charts(published: dict[str, dict[float, float]]) -> list[Chart]:
    return [
        Chart(
            "One client multicasts to all groups",
            DESTINATIONS,
            [_all_groups(name, published.get(name, {})) for name in PROTOCOLS],
            "groups in the system",
            "median latency (ms)",
            has_bars=True,
        ),
        Chart(
            "One client multicasts to some of 16 groups",
            DESTINATIONS,
            [_some_groups(name) for name in PROTOCOLS],
            "destination groups",
            "median latency (ms)",
            has_bars=True,
        ),
    ]


def _at(name: str, count: int) -> dict[str, str | int | float]:
    return {"protocol": name, "groups": count, "destinations": count}


RECIPE = Recipe(
    name="fastcast-lan-latency",
    title="Latency of one client in a LAN",
    source="FastCast, Figure 4, top",
    about="RTT 0.1 ms, groups of 3, one client in a closed loop, messages of 64 bytes.",
    scaled="16 messages a run.",
    notes="What a message takes besides network and CPU is fitted to BaseCast's 0.928 ms.",
    cells=lambda scale: cells("lan", scale),
    expects=[
        *[
            Expectation(
                what=f"{TITLES[name]} to {count} groups",
                ours=figure_of(_P50, **_at(name, count)),
                published=_PUBLISHED[name][count],
                unit="ms",
                within=0.1,
                basis="hardware",
            )
            for name in ("basecast", "fastcast")
            for count in (2, 4)
        ],
        Expectation(
            what="FastCast over BaseCast, 2 groups",
            ours=ratio(_P50, _at("fastcast", 2), _at("basecast", 2)),
            published=0.691 / 0.928,
            within=0.1,
        ),
        Expectation(
            what="FastCast over BaseCast, 16 groups: two paths cost more than they save",
            ours=ratio(_P50, _at("fastcast", 16), _at("basecast", 16)),
            published=1.0,
            at_least=1.0,
            basis="hardware",
        ),
        Expectation(
            what="Multi-Paxos over FastCast, 2 groups: lower latency in almost all cases",
            ours=ratio(_P50, _at("multipaxos", 2), _at("fastcast", 2)),
            published=1.0,
            at_most=1.0,
            basis="hardware",
        ),
    ],
    charts=charts(_PUBLISHED),
)
