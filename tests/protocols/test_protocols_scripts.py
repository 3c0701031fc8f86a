"""Interaction scripts: the executions that papers draw, step by step, against group automata.

A script is blocks of steps (see `amcast.sim.stage`), a line of dashes, and what happened. `--rewrite` writes down what
happens now; review the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from amcast.check import check_run
from amcast.protocols import protocol
from amcast.protocols.flexcast import FlexCastAutomaton
from amcast.sim import Stage

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("flexcast-*.txt"))


def play(stage: Stage, text: str) -> str:
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
            said += stage.play(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_figure_of_the_paper(path: Path, request: pytest.FixtureRequest) -> None:
    stage = Stage("flexcast", protocol("flexcast").claims, 3, lambda group: FlexCastAutomaton(group, (1, 2, 3), 1_000))
    played = play(stage, path.read_text())
    if request.config.getoption("--rewrite"):
        path.write_text(played)
    assert played == path.read_text()
    assert not stage.waiting()
    assert check_run(stage.run()).verdict == "pass"


def test_the_three_figures_are_there() -> None:
    assert [path.stem[-2:] for path in SCRIPTS] == ["3a", "3b", "3c"]
