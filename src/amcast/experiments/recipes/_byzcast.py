"""What the recipes of ByzCast's evaluation share."""

from __future__ import annotations

from typing import Any

from ...workload import Micro
from ..cell import Label, RecipeCell
from ..hardware import bft_smart, bft_smart_lan
from ._building import planned

SYSTEMS = ("BFT-SMaRt", "ByzCast", "Baseline")  # one group; the protocol; one auxiliary group that orders for all


def cell(
    labels: dict[str, Label],
    system: str,
    network: str,
    targets: int,
    destinations: tuple[int, int],
    global_share: float | None = None,
    **settings: Any,
) -> RecipeCell:
    """Messages go to the first `targets` groups. The last one is auxiliary: ByzCast's root, above all others."""
    groups = 1 if system == "BFT-SMaRt" else targets + 1
    workload = Micro(*destinations, targets=targets, global_share=global_share, own_stream=True)
    if system == "BFT-SMaRt":
        workload = Micro(1, 1, own_stream=True)
    options: dict[str, Any] = {"two_phases": False}  # BFT-SMaRt always has three
    if system == "ByzCast":
        options["parents"] = [*[groups] * targets, 0]
    return planned(
        {"system": system, "targets": targets, **labels},
        "bft" if system == "Baseline" else "byzcast",
        network,
        measures=("load", "away") if system == "Baseline" else ("load",),
        latency=bft_smart_lan() if network == "lan" else None,
        groups=groups,
        replicas=4,
        workload=workload,
        cpu=bft_smart(),
        options=options,
        **settings,
    )
