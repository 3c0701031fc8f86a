"""The same in a real wide-area network: the emulated one, with faster machines."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Recipe, Scale
from ._building import figure_of, ratio
from ._fastcast import DESTINATIONS, lines
from .fastcast_lan_load import cells as load_cells

_LATENCY = {"fastcast": {2: 84, 4: 84, 8: 84, 16: 101}, "basecast": {2: 166, 4: 166, 8: 166, 16: 166}}
_RATE = {"fastcast": {2: 8_350, 16: 913}, "basecast": {2: 4_600, 16: 565}, "multipaxos": {16: 1_213}}
_TITLES = {"fastcast": "FastCast", "basecast": "BaseCast", "multipaxos": "Multi-Paxos"}


def _cells(scale: Scale) -> list[RecipeCell]:
    return load_cells("ec2", scale)


def _published(table: dict[str, dict[int, int]]) -> dict[str, dict[float, float]]:
    return {name: {float(at): float(value) for at, value in values.items()} for name, values in table.items()}


_WHY = (
    "All clients begin at once here, and with four messages each, what queued up in the beginning is still being "
    "worked "
    "off. The real network's own delays were a little longer than the emulated one's."
)

RECIPE = Recipe(
    name="fastcast-ec2",
    title="Latency and throughput of many clients in a real wide-area network",
    source="FastCast, Figure 6",
    about="California, Virginia and Ireland, 16 groups of 3, 1536 clients over the number of destinations.",
    scaled="4 messages a client.",
    notes="Round trips are those of the emulated network, which were measured there. Machines are faster; by how "
    "much was "
    "not published, and 0.6 of the cost of a message is a guess.",
    cells=_cells,
    expects=[
        *[
            Expectation(
                what=f"{_TITLES[name]}, {count} destinations: median latency",
                ours=figure_of("client_p50_ms", protocol=name, destinations=count),
                published=value,
                unit="ms",
                within=0.2,
                basis="hardware",
                why=_WHY,
            )
            for name, values in _LATENCY.items()
            for count, value in values.items()
        ],
        *[
            Expectation(
                what=f"{_TITLES[name]}, {count} destinations: throughput",
                ours=figure_of("per_s", protocol=name, destinations=count),
                published=value,
                unit="msg/s",
                within=0.3,
                basis="hardware",
                why=_WHY,
            )
            for name, values in _RATE.items()
            for count, value in values.items()
        ],
        *[
            Expectation(
                what=f"FastCast's throughput over BaseCast's, {count} destinations",
                ours=ratio(
                    "per_s",
                    {"protocol": "fastcast", "destinations": count},
                    {"protocol": "basecast", "destinations": count},
                ),
                published=published,
                within=0.25,
                basis="delays" if count == 2 else "hardware",
            )
            for count, published in ((2, 8_350 / 4_600), (16, 913 / 565))
        ],
    ],
    charts=[
        Chart(
            "Latency of many clients",
            DESTINATIONS,
            lines("client_p50_ms", _published(_LATENCY)),
            "destination groups (clients: 1536 / destinations)",
            "median latency (ms)",
            has_bars=True,
        ),
        Chart(
            "Throughput of many clients",
            DESTINATIONS,
            lines("per_s", _published(_RATE)),
            "destination groups (clients: 1536 / destinations)",
            "messages/s",
            has_bars=True,
        ),
    ],
)
