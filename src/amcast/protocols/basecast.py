"""BaseCast: Skeen's algorithm with every group replicated. `skeen.py` has the algorithm, and a drawing of both.

From: Coelho, Schiper, Pedone, "Fast Atomic Multicast" (2017), Algorithm 1.
"""

from __future__ import annotations

from dataclasses import replace

from . import skeen

SPEC = replace(
    skeen.SPEC,
    name="basecast",
    title="BaseCast",
    paper="Coelho, Schiper, Pedone 2017, Algorithm 1",
    survives="f crashes of 2f+1 in each group",
    replicas=3,
    delays={"local": 3, "global": 6},
    fuzz_replicas=(3, 5),
)
