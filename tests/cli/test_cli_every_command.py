"""What holds for every command: help that fits a terminal, examples that are real, and output for programs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from amcast.cli._app import make_app
from tests.cli.cli_harness import Cli

ROOT: Any = typer.main.get_command(make_app())
# Commands without `--json`, and why.
PRINTS_NOTHING = {"node": "it prints nothing, and logs JSON"}


def commands(command: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))


ALL = dict(commands())
LEAVES = {path: command for path, command in ALL.items() if not hasattr(command, "commands")}


def help_of(cli: Cli, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    outcome = cli(*path, "--help")
    assert outcome.code == 0
    return [each.rstrip() for each in outcome.out.splitlines()]


def test_there_are_commands() -> None:
    assert {("up",), ("token", "add"), ("check",)} <= set(LEAVES)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_a_terminal(path: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = help_of(cli, path, monkeypatch)
    assert max(map(len, shown)) <= 80
    assert not [each for each in shown if "…" in each], "something is cut"
    text = "\n".join(shown)
    described = text[: text.index("╭")]
    # A line ends where the next word does not fit: paragraphs flow, whatever the lines in the source are.
    for one, following in zip(described.splitlines(), described.splitlines()[1:], strict=False):
        if one.strip() and following.strip():
            assert len(one) + 1 + len(following.split()[0]) > 78, one


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_examples_stand_on_lines_of_their_own(path: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = help_of(cli, path, monkeypatch)
    examples = [each.strip() for each in shown[shown.index(" Examples:") :] if "amcast " in each and "│" not in each]
    assert examples
    known = {option for parameter in LEAVES[path].params for option in (*parameter.opts, *parameter.secondary_opts)}
    for example in examples:
        line = shown[next(number for number, each in enumerate(shown) if each.strip() == example) + 1]
        assert not line.strip(), f"this example goes on in a second line: {example}"
        own = re.split(r" && | & | \| ", example.partition("   ")[0])
        mine = [each for each in own if each.strip().startswith(f"amcast {' '.join(path)}")]
        assert mine, example
        given = {word.partition("=")[0] for word in shlex.split(mine[0]) if re.match(r"--?[a-z]", word)}
        assert given <= known, example


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_whatever_prints_prints_for_programs_too(path: tuple[str, ...]) -> None:
    options = {option for parameter in LEAVES[path].params for option in parameter.opts}
    assert ("--json" in options) == (path[0] not in PRINTS_NOTHING)
