"""The protocols by name. Adding one means writing its file and adding its SPEC here."""

from __future__ import annotations

from ..core import UsageError
from . import basecast, fastcast, flexcast, multipaxos, sequencer, skeen, tree
from ._spec import ProtocolSpec
from .optimistic import spec as optimistic

_SPECS = (
    skeen.SPEC,
    basecast.SPEC,
    fastcast.SPEC,
    multipaxos.SPEC,
    flexcast.SPEC,
    tree.SPEC,
    optimistic.BASELINE,
    optimistic.SPEC,
    sequencer.SPEC,
)

PROTOCOLS: dict[str, ProtocolSpec] = {spec.name: spec for spec in _SPECS}


def markdown_table() -> str:
    """The table of the README: generated, so that it is never out of date."""
    lines = [
        "| name | protocol | survives | message delays | genuine | from |",
        "|---|---|---|---|---|---|",
    ]
    for spec in PROTOCOLS.values():
        delays = ", ".join(f"{case} {count}" for case, count in spec.delays.items())
        genuine = spec.genuineness
        lines.append(f"| `{spec.name}` | {spec.title} | {spec.survives} | {delays} | {genuine} | {spec.paper} |")
    return "\n".join(lines)


def protocol(name: str) -> ProtocolSpec:
    spec = PROTOCOLS.get(name)
    if spec is None:
        raise UsageError(f"there is no protocol '{name}': choose one of {', '.join(PROTOCOLS)}")
    return spec
