"""Interaction scripts: blocks of steps, a line of dashes, and what happened. Lines that begin with # are comments.

`pytest --rewrite` writes down what happens now; review the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def play(perform: Callable[[str], list[str]], text: str) -> str:
    """The script with what happened below each line of dashes."""
    lines: list[str] = []
    said: list[str] = []
    is_expected = False
    for line in text.splitlines():
        if line.startswith("#"):
            lines.append(line)
        elif line.startswith("----"):
            lines += [line, *said]
            said, is_expected = [], True
        elif not line:
            lines.append(line)
            is_expected = False
        elif not is_expected:
            lines.append(line)
            said += perform(line)
    return "\n".join(lines) + "\n"


def check_script(path: Path, perform: Callable[[str], list[str]], request: pytest.FixtureRequest) -> None:
    played = play(perform, path.read_text())
    if request.config.getoption("--rewrite"):
        path.write_text(played)
    assert played == path.read_text()
