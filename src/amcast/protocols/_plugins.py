"""Protocols of other packages: each registers its `ProtocolSpec` by an entry point of the group `amcast.protocols`.

A plugin is loaded when it is asked for. One that can't be loaded does not keep anybody from using the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from ..core import UsageError
from ._spec import ProtocolSpec

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "amcast.protocols"


@cache
def _entry_points() -> dict[str, list[EntryPoint]]:
    from importlib.metadata import entry_points  # not above: importing it takes 30 ms, and few runs need it

    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, []).append(entry)
    return found


def plugin_names() -> list[str]:
    return sorted(_entry_points())


def load_plugin(name: str, built_in: Mapping[str, ProtocolSpec]) -> ProtocolSpec:
    """The plugin of this name. A UsageError says which package is to blame, and for what."""
    entries = _entry_points()[name]
    packages = " and ".join(_package(entry) for entry in entries)
    if name in built_in or name == "all":
        raise UsageError(f"{packages} registers a protocol '{name}', a name that amcast uses itself: rename it there")
    if len(entries) > 1:
        raise UsageError(f"the protocol '{name}' is registered by {packages}: uninstall all but one of them")
    try:
        return _load(name)
    except Exception as error:
        what = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"the protocol '{name}' of {packages} can't be used: {what}") from error


@cache
def _load(name: str) -> ProtocolSpec:
    [entry] = _entry_points()[name]
    spec = entry.load()
    if not isinstance(spec, ProtocolSpec):
        raise UsageError(f"{entry.value} is no ProtocolSpec but {type(spec).__name__}")
    if spec.name != name:
        raise UsageError(f"its entry point is called '{name}', but the name in its ProtocolSpec is '{spec.name}'")
    return spec


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
