"""What the recipes of optimistic total order share."""

from __future__ import annotations

from msgspec.structs import replace

from ...core import latency_preset
from ..cell import RecipeCell
from ..recipe import Scale
from ._building import planned, to_groups

PROCESSES = 10  # five in each cluster: not published, and what fits Table 1 best
SEQUENCER, NEAR, DISTANT = "g1.p0", "g3.p0", "g2.p0"


def two_clusters(scale: Scale, sigma: float, rate: int, compensates: bool) -> RecipeCell:
    """All processes multicast to all, `rate` messages a second together. A cell by its labels sigma, rate,
    compensation."""
    messages = 2_000 if scale == "small" else 100 * rate
    return planned(
        {"sigma": sigma, "rate": rate, "compensation": "yes" if compensates else "no"},
        "sequencer",
        "two-clusters",
        latency=replace(latency_preset("two-clusters"), sigma=sigma / 100),
        measures=("optimistic_late",),
        groups=PROCESSES,
        clients=1,
        messages=0,
        member_messages=messages // PROCESSES,
        interval_us=PROCESSES * 1_000_000 // rate,
        workload=to_groups(PROCESSES),
        fifo=False,
        options={"compensates": compensates},
    )
