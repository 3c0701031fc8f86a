"""Throughput of local and global transactions together."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import ratio
from ._flexcast import cell

_SYSTEMS = {"O1": "FlexCast", "T1": "hierarchical", "distributed": "distributed"}
_CLIENTS = (120, 480, 720)


def _cells(scale: Scale) -> list[RecipeCell]:
    return [
        cell(system, 99, scale, ("cycles",), mix="full", clients=clients, each=12)
        for system in _SYSTEMS
        for clients in _CLIENTS
    ]


def _line(system: str) -> Line:
    def ours(results: Results, clients: float) -> float:
        return results("per_s", system=system, clients=int(clients))

    return Line(_SYSTEMS[system], ours)


RECIPE = Recipe(
    name="flexcast-throughput",
    title="Throughput over the number of clients",
    source="FlexCast, Figure 6",
    about="12 regions, gTPC-C with local and global transactions, 99 % locality.",
    scaled="12 transactions a client, up to 720 clients. Saturation beyond is a matter of the authors' machines.",
    cells=_cells,
    expects=[
        Expectation(
            what=f"{clients} clients: FlexCast's throughput over the {_SYSTEMS[other]} one's, the same",
            ours=ratio("per_s", {"system": "O1", "clients": clients}, {"system": other, "clients": clients}),
            published=1.0,
            within=0.25,
            basis="workload",
            why="Clients in a closed loop wait for the last reply. In Skeen's protocol a local transaction also "
            "waits for "
            "the global ones that its warehouse knows of and that are not final yet, the convoy effect: here that is "
            "most "
            "of the time, and in the paper's figure it does not show.",
        )
        for other in ("T1", "distributed")
        for clients in _CLIENTS
    ],
    charts=[Chart("Throughput", _CLIENTS, [_line(system) for system in _SYSTEMS], "clients", "transactions/s")],
)
