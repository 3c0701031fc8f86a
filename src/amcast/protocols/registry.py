"""The protocols by name: those of this package, and those of others (see `_plugins.py`).

Adding one here means writing its file and adding its SPEC to the list.
"""

from __future__ import annotations

from ..core import UsageError
from . import basecast, bft, byzcast, fastcast, flexcast, multipaxos, sequencer, skeen, tree
from ._plugins import load_plugin, plugin_names
from ._spec import ProtocolSpec
from .geopaxos import spec as geopaxos
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
    byzcast.SPEC,
    bft.SPEC,
    geopaxos.SPEC,
)

PROTOCOLS: dict[str, ProtocolSpec] = {spec.name: spec for spec in _SPECS}  # of this package
# Of these, the ones whose messages go to groups; the others order operations on objects.
MULTICAST_PROTOCOLS = [name for name, spec in PROTOCOLS.items() if not spec.orders_operations]


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
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    others = plugin_names()
    if name not in others:
        raise UsageError(f"there is no protocol '{name}': choose one of {', '.join([*PROTOCOLS, *others])}")
    return load_plugin(name, PROTOCOLS)


def installed() -> tuple[list[ProtocolSpec], list[str]]:
    """All protocols that can be used, and for each that can't be, a line that says why."""
    specs, problems = list(PROTOCOLS.values()), []
    for name in plugin_names():
        try:
            specs.append(load_plugin(name, PROTOCOLS))
        except UsageError as error:
            problems.append(str(error))
    return specs, problems


def select(name: str) -> list[ProtocolSpec]:
    """The protocol of this name; for "all", every one that can be used."""
    return installed()[0] if name == "all" else [protocol(name)]
