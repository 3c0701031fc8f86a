"""Throughput, latency and mistakes over the load in a LAN."""

from __future__ import annotations

from ..cell import RecipeCell
from ..hardware import libpaxos_lan
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._oam import PROTOCOLS, TITLES, constant_rate, most, skewed

RATES = (100, 400, 700, 1000, 1300, 2000)
GROUPS, REPLICAS, SENDERS = 5, 3, 3
CLOCKS_US = (0, 60, -60)  # by NTP in one cluster: offsets of this order


def cells(scale: Scale, senders: int, rates: tuple[int, ...]) -> list[RecipeCell]:
    return [
        constant_rate(
            {"rate": rate, "senders": senders},
            name,
            "lan",
            latency=libpaxos_lan(),
            senders=senders,
            rate=rate,
            messages=max(30, rate // 16) if scale == "small" else 30 * rate,
            groups=GROUPS,
            replicas=REPLICAS,
            plan=skewed(GROUPS, REPLICAS, CLOCKS_US),
        )
        for name in PROTOCOLS
        for rate in rates
    ]


def _at_most(results: Results, figure: str, protocol: str) -> float:
    """At the maximum throughput of the protocol."""
    return results(figure, protocol=protocol, rate=most(results, protocol, RATES))


def _line(name: str, figure: str, title: str) -> Line:
    return Line(title, lambda results, rate: results(figure, protocol=name, rate=int(rate)))


RECIPE = Recipe(
    name="oam-lan",
    title="Throughput, latency and mistakes over the load in a LAN",
    source="Optimistic Atomic Multicast, Figure 1",
    about="5 groups of 3, three groups send to each, every process multicasts at a constant rate; 95th percentiles.",
    scaled="1/16 s of load a run instead of 150 s.",
    notes="The maximum throughput is the highest rate at which the 95th percentile is below three times that of a "
    "light "
    "load. Figure 1 has no numbers; its statements are about order and shape.",
    cells=lambda scale: cells(scale, SENDERS, RATES),
    expects=[
        Expectation(
            what="maximum throughput: baseline over optimistic",
            ours=lambda results: most(results, "oam-baseline", RATES) / most(results, "oam", RATES),
            published=1.0,
            at_least=1.0,
            basis="hardware",
            why="The optimistic protocol's wait window lets messages and barriers of several processes come "
            "together, and "
            "what comes together is ordered as one instance here. The authors run an instance for each message.",
        ),
        Expectation(
            what="maximum throughput: optimistic over Paxos amcast",
            ours=lambda results: most(results, "oam", RATES) / most(results, "multipaxos", RATES),
            published=1.0,
            at_least=1.0,
            basis="hardware",
        ),
        Expectation(
            what="optimistic latency at the maximum over Paxos amcast's: well below",
            ours=lambda results: (
                _at_most(results, "opt_p95_ms", "oam") / _at_most(results, "final_p95_ms", "multipaxos")
            ),
            published=1.0,
            at_most=0.8,
            basis="hardware",
        ),
        Expectation(
            what="optimistic latency at the maximum over the conservative one: less than half",
            ours=lambda results: _at_most(results, "opt_p95_ms", "oam") / _at_most(results, "final_p95_ms", "oam"),
            published=0.5,
            at_most=0.5,
        ),
        Expectation(
            what="optimistic latency at the maximum over baseline's: less than half",
            ours=lambda results: (
                _at_most(results, "opt_p95_ms", "oam") / _at_most(results, "final_p95_ms", "oam-baseline")
            ),
            published=0.5,
            at_most=0.5,
            basis="hardware",
            why="At its own maximum, where baseline's curve is cut off sooner than in the paper.",
        ),
        Expectation(
            what="mistakes at a light load",
            ours=lambda results: 100 * results("mistakes", protocol="oam", rate=RATES[0]),
            published=0.5,
            unit="%",
            at_most=0.5,
            basis="hardware",
        ),
    ],
    charts=[
        Chart(
            "Latency over the load",
            RATES,
            [
                _line("oam", "opt_p95_ms", "optimistic"),
                _line("oam", "final_p95_ms", "conservative"),
                _line("oam-baseline", "final_p95_ms", TITLES["oam-baseline"]),
                _line("multipaxos", "final_p95_ms", TITLES["multipaxos"]),
            ],
            "messages a process and second",
            "95th percentile (ms)",
        )
    ],
)
