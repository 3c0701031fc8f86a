"""Broken protocols as tasks import them."""

from __future__ import annotations

from amcast.protocols import ProtocolSpec
from tests.mutants import MUTANTS

_BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def duplicate_twice() -> ProtocolSpec:
    return _BY_NAME["duplicate-twice"].spec()
