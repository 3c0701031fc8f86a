"""A few rounds of faults on real processes; `make nemesis` runs many."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.nemesis import is_good, torment


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["fastcast", "basecast"])
def test_a_real_cluster_keeps_its_promises_under_faults(protocol: str, tmp_path: Path) -> None:
    result = asyncio.run(torment(tmp_path / "c", protocol, rounds=5, seed=7, clients=4, disks=False))
    assert is_good(result), result
    assert result["drained"]
