"""Paxos in the kernel: no protocol of this package."""

from __future__ import annotations

from ..recipe import Recipe
from .kernel_echo import MISSING

RECIPE = Recipe(
    name="kernel-paxos",
    title="Paxos in the kernel",
    source="thesis, Figures 5.5 to 5.7",
    about="LibPaxos 61,000, improved LibPaxos 117,000, Kernel Paxos 128,000 messages a second at 64 bytes; 124 µs "
    "instead of "
    "248 to 252 µs with one client.",
    missing=MISSING,
)
