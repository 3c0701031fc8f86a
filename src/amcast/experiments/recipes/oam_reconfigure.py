"""Groups join and leave sendersTo while messages flow."""

from __future__ import annotations

from ...workload import Micro
from ..cell import RecipeCell
from ..recipe import Expectation, Recipe, Scale
from ._building import figure_of, planned

_PAIRS = {"g1": ["g1", "g2"], "g2": ["g1", "g2"], "g3": ["g3"], "g4": ["g4"]}
_PROTOCOLS = ("oam-baseline", "oam")


def _cells(scale: Scale) -> list[RecipeCell]:
    return [
        planned(
            {},
            name,
            "lan",
            seed=seed,
            groups=4,
            clients=4,
            messages=120 if scale == "small" else 5_000,
            interval_us=8_000,
            workload=Micro(1, 2, 8, own_stream=True),
            options={"senders_to": _PAIRS, "leave_after_us": 6_000},
            resend_us=5_000,
        )
        for name in _PROTOCOLS
        for seed in (range(1, 6) if scale == "small" else range(1, 51))
    ]


RECIPE = Recipe(
    name="oam-reconfigure",
    title="Groups join and leave while messages flow",
    source="Optimistic Atomic Multicast, section V",
    about="4 groups of 3, pairs send to each other; a group with a message for another joins, and leaves after 6 ms of "
    "silence.",
    scaled="5 seeds of 120 messages.",
    notes="That the order is kept is the checker's verdict on the runs.",
    cells=_cells,
    expects=[
        Expectation(
            what=f"{name}: messages that some destination did not deliver",
            ours=figure_of("undelivered", protocol=name),
            published=0,
            within=0.0,
        )
        for name in _PROTOCOLS
    ],
)
