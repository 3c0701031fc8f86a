"""Local messages: what genuine protocols gain with more groups."""

from __future__ import annotations

from ..cell import RecipeCell
from ..hardware import libpaxos, libpaxos_lan
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import figure_of, planned, ratio, to_groups
from ._fastcast import PROTOCOLS, TITLES

_GROUPS = (1, 2, 4, 8, 16)
_PUBLISHED: dict[str, dict[float, float]] = {
    "basecast": {1: 36_000, 16: 600_000},
    "fastcast": {1: 36_000, 16: 600_000},
    "multipaxos": {2: 48_000},
}


def _cells(scale: Scale) -> list[RecipeCell]:
    clients, messages = (60, 10) if scale == "small" else (200, 200)
    return [
        planned(
            {"groups": groups},
            name,
            "lan",
            latency=libpaxos_lan(),
            groups=groups,
            clients=clients * groups,
            messages=clients * groups * messages // (4 if name == "multipaxos" and groups > 4 else 1),
            workload=to_groups(1),
            cpu=libpaxos(name),
        )
        for name in PROTOCOLS
        for groups in _GROUPS
    ]


def _most(results: Results) -> float:
    return max(results("per_s", protocol="multipaxos", groups=groups) for groups in _GROUPS)


def _line(name: str) -> Line:
    return Line(TITLES[name], lambda results, x: results("per_s", protocol=name, groups=int(x)), _PUBLISHED[name])


RECIPE = Recipe(
    name="fastcast-local",
    title="Throughput of messages to one group",
    source="FastCast, Figure 3",
    about="LAN, groups of 3, 200 clients a group in a closed loop, messages of 64 bytes to one group.",
    scaled="60 clients a group, which saturate it, and 10 messages each; a quarter for Multi-Paxos above 4 groups.",
    notes="The cost of a message is fitted to the figures with 1 group and to Multi-Paxos's maximum: these two hold by "
    "construction. How throughput grows with the groups is what the protocols make of it.",
    cells=_cells,
    expects=[
        Expectation(
            what="FastCast, 1 group",
            ours=figure_of("per_s", protocol="fastcast", groups=1),
            published=36_000,
            unit="msg/s",
            within=0.1,
            basis="hardware",
        ),
        Expectation(
            what="FastCast, 16 groups",
            ours=figure_of("per_s", protocol="fastcast", groups=16),
            published=600_000,
            unit="msg/s",
            within=0.1,
            basis="hardware",
        ),
        Expectation(
            what="BaseCast over FastCast, 16 groups: the same",
            ours=ratio("per_s", {"protocol": "basecast", "groups": 16}, {"protocol": "fastcast", "groups": 16}),
            published=1,
            within=0.02,
            basis="hardware",
        ),
        Expectation(
            what="Multi-Paxos at most, whatever the number of groups",
            ours=_most,
            published=48_000,
            unit="msg/s",
            within=0.1,
            basis="hardware",
        ),
    ],
    charts=[
        Chart(
            "Throughput of messages to one group", _GROUPS, [_line(name) for name in PROTOCOLS], "groups", "messages/s"
        )
    ],
)
