"""One client: local messages as fast as one group, global ones take twice as long."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import figure_of, ratio
from ._byzcast import cell

_CASES = (
    ("BFT-SMaRt", "local"),
    ("ByzCast", "local"),
    ("ByzCast", "global"),
    ("Baseline", "local"),
    ("Baseline", "global"),
)
_NETWORKS = ("lan", "wan4")


def _cells(scale: Scale) -> list[RecipeCell]:
    messages = 40 if scale == "small" else 1_000
    cells = []
    for network in _NETWORKS:
        for system, kind in _CASES:
            count = 1 if kind == "local" else 2
            targets = 1 if system == "BFT-SMaRt" else 4
            clients = 1 if network == "lan" else 4
            labels = {"network": network, "messages": kind}
            cells.append(cell({**labels}, system, network, targets, (count, count), clients=clients, messages=messages))
    return cells


def _of(network: str, system: str, kind: str) -> dict[str, str | int | float]:
    return {"network": network, "system": system, "messages": kind}


_P50 = "client_p50_ms"


def _line(system: str, kind: str, published: dict[float, float]) -> Line:
    def ours(results: Results, place: float) -> float:
        return results(_P50, **_of(_NETWORKS[int(place)], system, kind))

    return Line(f"{system}, {kind}", ours, published)


RECIPE = Recipe(
    name="byzcast-latency",
    title="Latency of one client of ByzCast",
    source="thesis, Figures 3.6 and 3.8",
    about="Groups of 4, one auxiliary and 4 target groups; one client in the LAN, one in each of four regions in the "
    "WAN.",
    scaled="40 messages a run.",
    notes="In Baseline the group that orders is one of the four targets: messages to the other three are measured. "
    "What a "
    "message takes besides network and CPU is fitted to one group's 4 ms in the LAN.",
    cells=_cells,
    expects=[
        Expectation(
            what="LAN, local",
            ours=figure_of(_P50, **_of("lan", "ByzCast", "local")),
            published=4.0,
            unit="ms",
            within=0.1,
            basis="hardware",
        ),
        *[
            Expectation(
                what=f"{words}: local over one group, the same",
                ours=ratio(_P50, _of(network, "ByzCast", "local"), _of(network, "BFT-SMaRt", "local")),
                published=1.0,
                within=0.1,
            )
            for network, words in (("lan", "LAN"), ("wan4", "WAN"))
        ],
        *[
            Expectation(
                what=f"{words}: global over local",
                ours=ratio(_P50, _of(network, "ByzCast", "global"), _of(network, "ByzCast", "local")),
                published=2.0,
                within=0.1,
                why="With the reply to the client, a local message takes 5 delays and a global one 9: 1.8. The "
                "members of the "
                "auxiliary group hand it down themselves, and no client comes between.",
            )
            for network, words in (("lan", "LAN"), ("wan4", "WAN"))
        ],
        Expectation(
            what="WAN: Baseline pays the double ordering for every message: its local over its global ones",
            ours=lambda results: (
                results("away_to_1_p50_ms", **_of("wan4", "Baseline", "local"))
                / results("away_to_2_p50_ms", **_of("wan4", "Baseline", "global"))
            ),
            published=1.0,
            within=0.1,
        ),
    ],
    charts=[
        Chart(
            title,
            [at],
            [
                _line(system, kind, {0: 8.0 if kind == "global" else 4.0} if system != "Baseline" else {})
                for system, kind in _CASES
            ],
            "",
            "median latency (ms)",
            has_bars=True,
            names=[title],
        )
        for at, title in enumerate(("LAN", "WAN"))
    ],
)
