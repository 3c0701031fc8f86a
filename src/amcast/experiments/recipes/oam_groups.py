"""More groups that send to each other."""

from __future__ import annotations

from functools import partial

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Measure, Recipe, Results, Scale
from ._building import quotient
from ._oam import PROTOCOLS, TITLES, most
from .oam_lan import cells

_SENDERS = (1, 3, 5)
_RATES = (100, 700, 1300, 2000)


def _cells(scale: Scale) -> list[RecipeCell]:
    return [cell for senders in _SENDERS for cell in cells(scale, senders, _RATES)]


def _deliveries(protocol: str, senders: int) -> Measure:
    """Deliveries a second of a process at the maximum: three processes of so many groups send to it."""
    return lambda results: most(results, protocol, _RATES, senders=senders) * senders * 3.0


def _at(protocol: str, results: Results, senders: float) -> float:
    return _deliveries(protocol, int(senders))(results)


def _gap(senders: int) -> Measure:
    return quotient(_deliveries("oam", senders), _deliveries("multipaxos", senders))


_WHY = (
    "Paxos amcast's leader hears here from every destination what it holds, so more destinations cost it more. The "
    "maxima "
    "are also coarse: the highest of four rates that is sustained."
)

RECIPE = Recipe(
    name="oam-groups",
    title="Maximum throughput over the number of destinations",
    source="Optimistic Atomic Multicast, Figure 2, left",
    about="As oam-lan, with 1, 3 and 5 destination groups a message. Throughput counts deliveries a second at a "
    "process.",
    scaled="1/16 s of load a run instead of 150 s.",
    cells=_cells,
    expects=[
        Expectation(
            what=f"{TITLES[name]}: maximum with 5 destinations over that with 1",
            ours=quotient(_deliveries(name, 5), _deliveries(name, 1)),
            published=1.0,
            at_least=1.0,
            basis="hardware",
            why=_WHY,
        )
        for name in PROTOCOLS
    ]
    + [
        Expectation(
            what="optimistic over Paxos amcast: the gap with 5 destinations over that with 1, it shrinks",
            ours=quotient(_gap(5), _gap(1)),
            published=1.0,
            at_most=1.0,
            basis="hardware",
            why=_WHY,
        ),
        Expectation(
            what="optimistic over Paxos amcast with 5 destinations: still more",
            ours=_gap(5),
            published=1.0,
            at_least=1.0,
            basis="hardware",
        ),
    ],
    charts=[
        Chart(
            "Maximum throughput",
            _SENDERS,
            [Line(TITLES[name], partial(_at, name)) for name in PROTOCOLS],
            "destination groups of a message",
            "deliveries a second at a process",
        )
    ],
)
