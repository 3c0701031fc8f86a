"""Protocols that are broken on purpose are caught, by what their flaw should violate; the sound ones pass."""

from __future__ import annotations

import pytest

from amcast.sim import simulate
from amcast.sim.faults import KINDS
from amcast.sim.fuzz import fuzz_scenario, violations_of
from tests.mutants import MUTANTS, Mutant

SEEDS = 300
# Where the search begins, to save time: within SEEDS, and going round to those before it.
FIRST = {"late-soft": 12, "forgetful-acceptor": 183}
# One group is where an acceptor's promises matter; others only dilute the faults.
GROUPS = {"forgetful-acceptor": 1}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    first = FIRST.get(mutant.name, 0)
    assert first < SEEDS
    for seed in (*range(first, SEEDS), *range(first)):
        made = fuzz_scenario(mutant.base, seed, KINDS, groups=GROUPS.get(mutant.name))
        assert not violations_of(simulate(made)), f"{mutant.base} itself fails with seed {seed}"
        found = {violation.property for violation in violations_of(simulate(made, mutant.spec()))}
        if found & mutant.caught_by:
            return
    pytest.fail(f"{mutant.name} survives {SEEDS} seeds: the checker or the fuzzer has gone blind")
