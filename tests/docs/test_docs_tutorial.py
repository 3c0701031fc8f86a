"""The tutorial is followed as it is written: the bank, a cluster, the program, a kill, and the check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amcast.net.local import LocalCluster

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
BANK = ROOT / "examples" / "bank" / "bank.py"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    if (tmp_path / ".amcast" / "cluster.toml").exists():
        LocalCluster(tmp_path / ".amcast").stop()


def run(command: list[str], folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    made = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr + made.stdout
    return made.stdout


def test_the_bank_of_the_page_is_the_example_and_short() -> None:
    assert blocks("python")[0] == BANK.read_text()
    assert sum(bool(line.strip()) for line in BANK.read_text().splitlines()) <= 60


def test_the_page_can_be_followed(folder: Path) -> None:
    bank, program = blocks("python")
    start, kill, end = blocks("sh")
    (folder / "bank.py").write_text(bank)
    (folder / "program.py").write_text(program)
    run(["bash", "-ec", start], folder)
    run([sys.executable, "program.py"], folder)
    run(["bash", "-ec", kill], folder)
    again = program.replace("rent, May", "rent, June").replace("== 70", "== 140").replace("== 30", "== 60")
    (folder / "again.py").write_text(again.replace(", 71)", ", 141)").replace("== 100", "== 200"))
    run([sys.executable, "again.py"], folder)
    assert "pass" in run(["bash", "-ec", end], folder)
