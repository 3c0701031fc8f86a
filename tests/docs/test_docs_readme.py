"""The README is executed: every Python block, every `amcast` line of a shell block, and its generated table."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amcast.protocols import markdown_table

README = Path(__file__).parents[2] / "README.md"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(*languages: str) -> list[str]:
    return [match[2] for match in FENCE.finditer(README.read_text()) if match[1] in languages]


def commands(block: str) -> list[str]:
    """The lines to run: all that start with `amcast`, up to a `# long` comment. Those of make and pip are not."""
    found = []
    for line in block.splitlines():
        line = line.strip().removeprefix("$ ")
        if line.startswith("# long"):
            break
        if line.startswith("amcast "):
            found.append(line)
        else:
            is_known = not line or line.startswith(("#", "make ", "pip install "))
            assert is_known, f"this test does not know how to run: {line}"
    return found


def test_there_are_snippets() -> None:
    assert blocks("python")
    assert any(commands(block) for block in blocks("sh", "console"))


def test_python_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, block in enumerate(blocks("python")):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(block, f"README.md, Python block {number}", "exec"), names)


def test_shell_snippets_run(tmp_path: Path) -> None:
    """In order and in one folder: a later line may use what an earlier one wrote."""
    program = Path(sys.executable).parent / "amcast"
    for block in blocks("sh", "console"):
        for line in commands(block):
            words = shlex.split(line, comments=True)
            ended = subprocess.run(
                [program, *words[1:]],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=300,
                env={**os.environ, "COLUMNS": "120"},
            )
            assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"


def test_the_table_of_protocols_is_the_generated_one() -> None:
    text = README.read_text()
    begin, end = "<!-- protocols:begin -->", "<!-- protocols:end -->"
    assert text.count(begin) == text.count(end) == 1
    assert text.split(begin)[1].split(end)[0].strip() == markdown_table().strip()
