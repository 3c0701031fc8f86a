"""The examples of docs/linearizability.md run as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.cli_harness import Cli

PAGE = Path(__file__).parents[2] / "docs" / "linearizability.md"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [(match[2] or "", match[3]) for match in FENCE.finditer(PAGE.read_text()) if match[1] == language]


def test_the_examples_run_from_csv_to_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = Cli(monkeypatch, capsys)
    for name, content in blocks("csv"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    commands = [line for _, block in blocks("sh") for line in block.splitlines()]
    outcomes = [cli(*shlex.split(command)[1:]) for command in commands]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0, 1, 0, 1]
    for (_, wanted), outcome in zip(blocks("text"), outcomes[1::2], strict=True):
        shown = [line.rstrip() for line in outcome.out.splitlines()]
        assert [line for line in wanted.splitlines() if line not in shown] == []


def test_python_blocks_run() -> None:
    for _, block in blocks("python"):
        exec(compile(block, PAGE.name, "exec", dont_inherit=True), {})
