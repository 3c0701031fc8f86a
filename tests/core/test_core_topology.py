"""Topologies: what is refused says why, and what a grid looks like."""

from __future__ import annotations

from typing import Any

import pytest

from amcast.core import Topology, UsageError, grid
from amcast.core.ids import GROUP_ID_LIMIT, PROCESS_ID_LIMIT


@pytest.mark.parametrize(
    ("groups", "clients", "says"),
    [
        ({}, (), "no group"),
        ({0: (1,)}, (), "group id 0 is out of range"),
        ({GROUP_ID_LIMIT: (1,)}, (), "is out of range"),
        ({1: ()}, (), "g1 has no members"),
        ({1: (1, 2), 2: (2, 3)}, (), "process 2 is named twice"),
        ({1: (1, 1)}, (), "process 1 is named twice"),
        ({1: (-1,)}, (), "process id -1 is out of range"),
        ({1: (PROCESS_ID_LIMIT,)}, (), "is out of range"),
        ({1: (1,)}, (PROCESS_ID_LIMIT,), "is out of range"),
        ({1: (1,)}, (1,), "a client has an id of its own"),
        ({1: (1,)}, (2, 2), "a client has an id of its own"),
    ],
)
def test_a_topology_that_contradicts_itself_is_refused(groups: Any, clients: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Topology(groups, clients)


@pytest.mark.parametrize(("groups", "replicas"), [(0, 3), (2, 0), (-1, 1)])
def test_an_empty_grid_is_refused(groups: int, replicas: int) -> None:
    with pytest.raises(UsageError, match="at least one group and one replica"):
        grid(groups, replicas)


def test_a_destination_that_is_not_there_names_those_that_are() -> None:
    topology = grid(3, 1)
    topology.check_destinations((1, 3))
    with pytest.raises(UsageError, match="no group g4 to send to: this topology has g1 to g3"):
        topology.check_destinations((1, 4))


def test_a_grid_numbers_groups_from_one_and_processes_densely() -> None:
    topology = grid(2, 3, clients=2)
    assert topology.groups == (1, 2)
    assert [topology.members(g) for g in topology.groups] == [(0, 1, 2), (3, 4, 5)]
    assert topology.clients == (6, 7)
    assert topology.processes == (0, 1, 2, 3, 4, 5)
    assert [topology.group_of(p) for p in range(8)] == [1, 1, 1, 2, 2, 2, None, None]
    assert [topology.name(p) for p in (0, 5, 7)] == ["g1.p0", "g2.p2", "c7"]


def test_groups_are_spread_over_regions_or_live_in_one() -> None:
    regions = ("a", "b", "c")
    spread = grid(2, 3, 4, regions)
    assert [spread.region(p) for p in spread.processes] == ["a", "b", "c", "a", "b", "c"]
    assert [spread.region(c) for c in spread.clients] == ["a", "b", "c", "a"]
    whole = grid(2, 3, 0, regions, spread=False)
    assert [whole.region(p) for p in whole.processes] == ["a", "a", "a", "b", "b", "b"]
    assert grid(1, 1).region(0) == "local"
