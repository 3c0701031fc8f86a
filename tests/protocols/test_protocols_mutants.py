"""Protocols that are broken on purpose are caught, by what their flaw should violate; the sound ones pass."""

from __future__ import annotations

import pytest

from amcast.sim import simulate
from amcast.sim.fuzz import violations_of
from tests.mutants import MUTANTS, Mutant

SEEDS = 300


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    for seed in range(SEEDS):
        made = mutant.scenario(seed)
        found = {violation.property for violation in violations_of(simulate(made, mutant.spec()))}
        if found & mutant.caught_by:
            assert not violations_of(simulate(made)), f"{mutant.base} itself fails with seed {seed}"
            return
    pytest.fail(f"{mutant.name} survives {SEEDS} seeds: the checker or the fuzzer has gone blind")
