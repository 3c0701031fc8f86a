"""All replicas in one LAN."""

from __future__ import annotations

from ..cell import RecipeCell
from ..hardware import libpaxos, libpaxos_lan
from ..recipe import Chart, Expectation, Line, Recipe, Scale
from ._building import planned, ratio, to_groups

_CLIENTS = 100  # a replica


def _cells(scale: Scale) -> list[RecipeCell]:
    return [
        planned(
            {},
            name,
            "lan",
            latency=libpaxos_lan(),
            groups=groups,
            replicas=replicas,
            clients=_CLIENTS * 3,
            messages=_CLIENTS * 3 * (8 if scale == "small" else 200),
            workload=to_groups(1),
            cpu=libpaxos("basecast" if name == "geopaxos" else "multipaxos"),
        )
        for name, groups, replicas in (("geopaxos", 3, 1), ("multipaxos", 1, 3))
    ]


_GEO, _PAXOS = {"protocol": "geopaxos"}, {"protocol": "multipaxos"}

RECIPE = Recipe(
    name="geopaxos-lan",
    title="GeoPaxos in a LAN",
    source="thesis, Figure 4.3",
    about="Three replicas, 100 clients each, updates of 64 bytes of a key-value store.",
    scaled="8 operations a client.",
    notes="The figure's numbers are not in the text: what it says of the order is checked. EPaxos and M2Paxos are not "
    "implemented here. A site has one process, as its acceptors share its machine there.",
    cells=_cells,
    expects=[
        Expectation(
            what="throughput over Multi-Paxos's: its coordinator saturates",
            ours=ratio("per_s", {**_GEO}, {**_PAXOS}),
            published=1.0,
            at_least=1.0,
            basis="hardware",
            why="All replicas execute all operations, and hear of each from its site: that costs as much as ordering "
            "them.",
        ),
        Expectation(
            what="median latency at the peak over Multi-Paxos's: substantially lower",
            ours=ratio("client_p50_ms", {**_GEO}, {**_PAXOS}),
            published=1.0,
            at_most=1.0,
            basis="hardware",
            why="All replicas execute all operations, and hear of each from its site: that costs as much as ordering "
            "them.",
        ),
    ],
    charts=[
        Chart(
            "Throughput at the peak",
            [0, 1],
            [Line("ours", lambda results, at: results("per_s", protocol=("geopaxos", "multipaxos")[int(at)]))],
            "",
            "operations/s",
            has_bars=True,
            names=["GeoPaxos", "Multi-Paxos"],
        )
    ],
)
