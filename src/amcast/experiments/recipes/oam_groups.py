"""More groups that send to each other."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._oam import PROTOCOLS, TITLES, most
from .oam_lan import cells

_SENDERS = (1, 3, 5)
_RATES = (100, 700, 1300, 2000)


def _cells(scale: Scale) -> list[RecipeCell]:
    return [cell for senders in _SENDERS for cell in cells(scale, senders, _RATES)]


def _deliveries(results: Results, protocol: str, senders: int) -> float:
    """Deliveries a second of a process at the maximum: each message is delivered in so many groups."""
    return most(results, protocol, _RATES, senders=senders) * senders * 3.0


def _gap(results: Results, senders: int) -> float:
    return _deliveries(results, "oam", senders) / _deliveries(results, "multipaxos", senders)


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
            ours=lambda results, name=name: _deliveries(results, name, 5) / _deliveries(results, name, 1),  # type: ignore[misc]
            published=1.0,
            at_least=1.0,
            basis="hardware",
        )
        for name in PROTOCOLS
    ]
    + [
        Expectation(
            what="optimistic over Paxos amcast: the gap with 5 destinations over that with 1, it shrinks",
            ours=lambda results: _gap(results, 5) / _gap(results, 1),
            published=1.0,
            at_most=1.0,
            basis="hardware",
        ),
        Expectation(
            what="optimistic over Paxos amcast with 5 destinations: still more",
            ours=lambda results: _gap(results, 5),
            published=1.0,
            at_least=1.0,
            basis="hardware",
        ),
    ],
    charts=[
        Chart(
            "Maximum throughput",
            _SENDERS,
            [
                Line(TITLES[name], lambda results, x, name=name: _deliveries(results, name, int(x)))  # type: ignore[misc]
                for name in PROTOCOLS
            ],
            "destination groups of a message",
            "deliveries a second at a process",
        )
    ],
)
