"""Echo servers in the kernel: no protocol of this package."""

from __future__ import annotations

from ..recipe import Recipe

MISSING = "its protocol does not exist yet"

RECIPE = Recipe(
    name="kernel-echo",
    title="Echo of small messages in user space and in the kernel",
    source="thesis, Table 5.1",
    about="UDP 120,000 (user) and 135,000 (kernel), raw Ethernet 318,000 and 520,000 messages a second.",
    missing=MISSING,
)
