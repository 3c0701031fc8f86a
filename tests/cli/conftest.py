from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.cli_harness import Cli


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """In an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Cli(monkeypatch, capsys)
