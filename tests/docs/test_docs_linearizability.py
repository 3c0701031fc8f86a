"""The examples of docs/linearizability.md run as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.cli_harness import Cli

PAGE = Path(__file__).parents[2] / "docs" / "linearizability.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`(\w+/operations\.\w+)`")


def blocks(language: str) -> list[str]:
    return [match[2] for match in FENCE.finditer(PAGE.read_text()) if match[1] == language]


def files() -> dict[str, str]:
    """The sentence before a block of data names its file."""
    page = PAGE.read_text()
    data = [match for match in FENCE.finditer(page) if match[1] in ("csv", "json")]
    return {FILE.findall(page[: match.start()])[-1]: match[2] for match in data}


def test_the_examples_run_from_csv_to_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = Cli(monkeypatch, capsys)
    assert len(files()) == 3
    for name, content in files().items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    outcomes = [cli(*shlex.split(command)[1:]) for command in commands]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0, 1, 0, 1]
    for wanted, outcome in zip(blocks("text"), outcomes[1::2], strict=True):
        shown = [line.rstrip() for line in outcome.out.splitlines()]
        assert [line for line in wanted.splitlines() if line not in shown] == []


def test_python_blocks_run() -> None:
    for block in blocks("python"):
        exec(compile(block, PAGE.name, "exec", dont_inherit=True), {})
