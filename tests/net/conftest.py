from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from amcast.net import system

# A machine that is busy with other tests is no reason to fail.
settings.register_profile("amcast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("amcast")


@pytest.fixture
def without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that open a log a thousand times to see what it makes of the bytes."""
    monkeypatch.setattr(system, "_fdatasync", lambda fd: None)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
