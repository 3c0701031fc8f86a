"""Throughput with more groups."""

from __future__ import annotations

from collections.abc import Mapping

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Scale
from ._building import along, figure_of, ratio
from ._byzcast import cell

_TARGETS = (2, 4, 8)


def _cells(scale: Scale) -> list[RecipeCell]:
    each = 6 if scale == "small" else 100
    cells = [cell({"messages": "local"}, "BFT-SMaRt", "lan", 1, (1, 1), clients=200, messages=200 * 2 * each)]
    for targets in _TARGETS:
        clients = 100 if targets == 8 else 200
        for system in ("ByzCast", "Baseline"):
            load = {"clients": clients * targets, "messages": clients * targets * each}
            cells.append(cell({"messages": "local"}, system, "lan", targets, (1, 1), **load))
            cells.append(cell({"messages": "global"}, system, "lan", targets, (2, 2), **load))
    return cells


def _line(system: str, messages: str, published: Mapping[float, float]) -> Line:
    return Line(system, along("per_s", "targets", system=system, messages=messages), published)


_Points = Mapping[float, float]
_POINTS: tuple[tuple[str, _Points, _Points], ...] = (
    ("local", {4: 83_000}, {2: 11_000, 4: 12_000}),
    ("global", {2: 9_700}, {}),
)
_GROUP = {"system": "BFT-SMaRt"}
_WHY = (
    "Groups order what came meanwhile as one batch, and hand a batch down as one message: the auxiliary group costs "
    "less here "
    "than in the authors' prototype, where a relayed message costs as much as one of a client."
)

RECIPE = Recipe(
    name="byzcast-scale",
    title="Throughput of ByzCast with more groups",
    source="thesis, Figure 3.4",
    about="LAN, groups of 4 (f = 1), one auxiliary group above 2, 4 and 8 target groups, 200 clients a group, "
    "100 with 8.",
    scaled="6 messages a client.",
    notes="The cost of a message is fitted to one group's 19,500 messages a second. In Baseline the group that "
    "orders for "
    "all is one of the targets as well.",
    cells=_cells,
    expects=[
        Expectation(
            what="one group",
            ours=figure_of("per_s", **_GROUP),
            published=19_500,
            unit="msg/s",
            within=0.1,
            basis="hardware",
        ),
        Expectation(
            what="local messages, 4 groups",
            ours=figure_of("per_s", system="ByzCast", messages="local", targets=4),
            published=83_000,
            unit="msg/s",
            within=0.2,
            basis="hardware",
        ),
        Expectation(
            what="local messages, 4 groups over one group: linear",
            ours=ratio("per_s", {"system": "ByzCast", "messages": "local", "targets": 4}, _GROUP),
            published=83_000 / 19_500,
            within=0.2,
            basis="hardware",
        ),
        Expectation(
            what="global messages, best case",
            ours=lambda results: max(
                results("per_s", system="ByzCast", messages="global", targets=targets) for targets in _TARGETS
            ),
            published=9_700,
            unit="msg/s",
            within=0.25,
            basis="hardware",
            why=_WHY,
        ),
        Expectation(
            what="global messages over one group: at most half",
            ours=lambda results: (
                max(results("per_s", system="ByzCast", messages="global", targets=targets) for targets in _TARGETS)
                / results("per_s", **_GROUP)
            ),
            published=0.5,
            at_most=0.5,
            basis="hardware",
            why=_WHY,
        ),
        Expectation(
            what="Baseline, local messages, 4 groups",
            ours=figure_of("per_s", system="Baseline", messages="local", targets=4),
            published=12_000,
            unit="msg/s",
            within=0.25,
            basis="hardware",
            why=_WHY,
        ),
        Expectation(
            what="Baseline, local messages: 8 groups over 2, flat",
            ours=ratio(
                "per_s",
                {"system": "Baseline", "messages": "local", "targets": 8},
                {"system": "Baseline", "messages": "local", "targets": 2},
            ),
            published=1.0,
            within=0.25,
            basis="hardware",
        ),
    ],
    charts=[
        Chart(
            f"{messages} messages".capitalize(),
            _TARGETS,
            [_line("ByzCast", messages, ours), _line("Baseline", messages, theirs)],
            "target groups",
            "messages/s",
        )
        for messages, ours, theirs in _POINTS
    ],
)
