"""One client in the emulated wide-area network: round trips counted."""

from __future__ import annotations

from ..recipe import Expectation, Recipe
from ._building import figure_of
from ._fastcast import TITLES
from .fastcast_lan_latency import cells, charts

_RTT = 70.0
_ROUND_TRIPS = {"fastcast": 1, "multipaxos": 1, "basecast": 2}


RECIPE = Recipe(
    name="fastcast-wan-latency",
    title="Latency of one client in the emulated wide-area network",
    source="FastCast, Figure 5, top",
    about="Three regions, RTT 70, 70 and 144 ms, standard deviation 5 %, a replica of each group in each; one client.",
    scaled="16 messages a run.",
    notes="Client and leaders are in R1: published latencies of one round trip leave no room for a way to the leader.",
    cells=lambda scale: cells("wan", scale),
    expects=[
        Expectation(
            what=f"{TITLES[name]} to {count} groups: {trips} RTT",
            ours=figure_of("client_p50_ms", protocol=name, groups=count, destinations=count),
            published=trips * _RTT,
            unit="ms",
            within=0.1,
        )
        for name, trips in _ROUND_TRIPS.items()
        for count in (2, 4, 8, 16)
    ],
    charts=charts({name: dict.fromkeys((2, 4, 8, 16), trips * _RTT) for name, trips in _ROUND_TRIPS.items()}),
)
