"""Credentials are rolled while clients send: nothing is lost, nothing comes twice, and who is revoked is out."""

from __future__ import annotations

from pathlib import Path

import pytest

from amcast.net.client import trunk
from amcast.net.node import _credential_watch
from bench.rotation import rotate

from .clusters import run, running


def test_everything_is_rolled_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some seconds: all connections are made anew twice, and a revoked client must stay away for a while."""
    monkeypatch.setattr(_credential_watch, "LOOK_S", 0.02)
    monkeypatch.setattr(trunk, "_FILES_S", 0.05)

    async def test() -> None:
        async with running(tmp_path / "c", tls=True, tokens=True) as cluster:
            result = await rotate(cluster.config, tmp_path, clients=4)
            assert result.messages > 0
            assert result.lost == 0
            assert result.repeated == 0

    run(test)
