"""Many clients in a LAN."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Recipe, Scale
from ._building import figure_of, ratio
from ._fastcast import DESTINATIONS, PROTOCOLS, lines, many_clients

_WHY = (
    "Here the slow path's consensus costs FastCast's leaders as much as the fast path's: both are full instances "
    "with all "
    "their messages, and a group saturates sooner. The authors' C library spends its time elsewhere."
)


def cells(where: str, scale: Scale) -> list[RecipeCell]:
    return [many_clients(where, scale, count, name) for name in PROTOCOLS for count in DESTINATIONS]


RECIPE = Recipe(
    name="fastcast-lan-load",
    title="Latency and throughput of many clients in a LAN",
    source="FastCast, Figure 4, bottom",
    about="16 groups of 3, 1536 clients over the number of destinations, closed loop, 64 bytes.",
    scaled="4 messages a client.",
    cells=lambda scale: cells("lan", scale),
    expects=[
        Expectation(
            what=f"{name}, 2 destinations: {what}",
            ours=figure_of(figure, protocol=protocol, destinations=2),
            published=value,
            unit=unit,
            within=0.25,
            basis="hardware",
            why=_WHY if protocol == "fastcast" else "",
        )
        for name, protocol, values in (
            ("FastCast", "fastcast", (3.8, 202_000)),
            ("BaseCast", "basecast", (5.1, 158_000)),
        )
        for what, figure, unit, value in (
            ("median latency", "client_p50_ms", "ms", values[0]),
            ("throughput", "per_s", "msg/s", values[1]),
        )
    ]
    + [
        Expectation(
            what="FastCast's throughput over BaseCast's, 2 destinations",
            ours=ratio(
                "per_s", {"protocol": "fastcast", "destinations": 2}, {"protocol": "basecast", "destinations": 2}
            ),
            published=202 / 158,
            at_least=1.0,
            basis="hardware",
            why=_WHY,
        ),
        Expectation(
            what="FastCast's throughput over BaseCast's, 8 destinations: less efficient with more",
            ours=ratio(
                "per_s", {"protocol": "fastcast", "destinations": 8}, {"protocol": "basecast", "destinations": 8}
            ),
            published=1.0,
            at_most=1.0,
            basis="hardware",
        ),
    ],
    charts=[
        Chart(
            "Latency of many clients",
            DESTINATIONS,
            lines("client_p50_ms", {"fastcast": {2: 3.8}, "basecast": {2: 5.1}}),
            "destination groups (clients: 1536 / destinations)",
            "median latency (ms)",
            has_bars=True,
        ),
        Chart(
            "Throughput of many clients",
            DESTINATIONS,
            lines("per_s", {"fastcast": {2: 202_000}, "basecast": {2: 158_000}}),
            "destination groups (clients: 1536 / destinations)",
            "messages/s",
            has_bars=True,
        ),
    ],
)
