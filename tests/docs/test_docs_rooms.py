"""Rooms: a module or package whose name begins with an underscore is imported from its own room alone."""

from __future__ import annotations

import grimp

# An erratum is a protocol as it was published: a small subclass that must reach into the protocol that it changes.
GUESTS = {("amcast.errata", "amcast.protocols")}


def room_of(module: str) -> str | None:
    """The package to which a module is private; None if it is public. amcast.net.disk._writer: amcast.net.disk."""
    parts = module.split(".")
    private = [index for index, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
    return ".".join(parts[: private[0]]) if private else None


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def trespasses(graph: grimp.ImportGraph) -> list[str]:
    found = []
    for module in sorted(graph.modules):
        room = room_of(module)
        if room is None:
            continue
        for importer in sorted(graph.find_modules_that_directly_import(module)):
            is_guest = any(is_within(importer, guest) and is_within(room, host) for guest, host in GUESTS)
            if not is_within(importer, room) and not is_guest:
                found.append(f"{importer} imports {module}, which is private to {room}")
    return found


def test_what_has_an_underscore_is_private_to_its_room() -> None:
    assert trespasses(grimp.build_graph("amcast", cache_dir=None)) == []


def test_a_trespass_is_found() -> None:
    graph = grimp.ImportGraph()
    graph.add_import(importer="amcast.net.node.server", imported="amcast.net.disk._writer")
    graph.add_import(importer="amcast.net.disk.records", imported="amcast.net.disk._writer")
    graph.add_import(importer="amcast.errata.flexcast", imported="amcast.protocols._history")
    assert trespasses(graph) == [
        "amcast.net.node.server imports amcast.net.disk._writer, which is private to amcast.net.disk"
    ]
