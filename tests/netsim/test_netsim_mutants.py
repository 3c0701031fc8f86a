"""Nodes that are broken on purpose are caught; the sound ones pass the same schedules."""

from __future__ import annotations

import pytest

from amcast.netsim import simulate_nodes
from tests.netsim.node_mutants import MUTANTS, NodeMutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_node_is_caught(mutant: NodeMutant) -> None:
    for seed in mutant.seeds:
        made = mutant.scenario(seed)
        with pytest.MonkeyPatch.context() as patch:
            mutant.break_(patch)
            is_caught = bool(simulate_nodes(made).violations)
        if is_caught:
            assert not simulate_nodes(made).violations, f"a sound node fails with seed {seed}"
            return
    pytest.fail(f"{mutant.name} survives {len(mutant.seeds)} seeds: the simulator has gone blind")
