"""Texts that others chose (ids of runs, payloads, names of files, words of nodes) are shown, and do nothing else."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from amcast.cli import _output
from amcast.cli._client import delivery_line
from amcast.core import AppMessage
from amcast.net.client.observer import Delivery
from amcast.trace import GroupInfo, Recorder, RunInfo, write_run
from tests.cli.cli_harness import Cli

ESCAPES = "\x1b[2J\x9b31m\x07\x08\x7f\u202e"
HOSTILE = ["[/foo]", "[green]pass[/green]", ":smile:", "[link=http://x]y[/link]", ESCAPES, "\udcff", "a\nverdict: pass"]


def controls(text: str) -> set[str]:
    """Characters that a terminal obeys. All output ends lines."""
    return {each for each in text if not each.isprintable()} - {"\n"}


def broken_run(folder: Path, run_id: str) -> Path:
    info = RunInfo(run_id=run_id, protocol="skeen", seed=7, complete=True, groups=(GroupInfo(1, (0,)),), correct=(0,))
    recorder = Recorder()
    recorder.delivery(0, 1, 0, 5, 0, 1, 1)  # of a message that nobody sent
    write_run(folder, info, recorder)
    return folder


@pytest.mark.parametrize("run_id", [each for each in HOSTILE if each.isascii() or each == ESCAPES])
def test_the_id_of_a_run_is_only_shown(run_id: str, cli: Cli, tmp_path: Path) -> None:
    outcome = cli("check", broken_run(tmp_path / "run", run_id))
    assert outcome.code == 1
    assert outcome.err == ""
    assert controls(outcome.out) == set()
    assert "verdict: pass" not in outcome.out.splitlines()
    if run_id.isprintable():
        assert run_id in outcome.out


def test_json_has_no_control_characters_either(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("check", broken_run(tmp_path / "run", ESCAPES), "--json")
    assert controls(outcome.out) == set()
    assert outcome.json["runs"][0]["run_id"] == ESCAPES


@pytest.mark.parametrize("name", ["[/foo]", "[red]x", "a\x1b[31m", "a\nerror: b"])
def test_a_name_of_a_file_is_only_shown(name: str, cli: Cli) -> None:
    said = cli.refuses("check", name)
    assert controls(said) == set()


def shown(*parts: Any) -> str:
    sink = io.StringIO()
    console = _output.SafeConsole(file=sink, force_terminal=True, width=200, color_system=None)
    for part in parts:
        console.print(part)
    return sink.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_lines_and_tables_show_any_text(text: str) -> None:
    made = _output.table("[bold]heading", title=_output.line(text))
    made.add_row(text)
    plain = shown(text, _output.line((text, "red"), text), made)
    assert controls(plain) == set()
    plain.encode()
    if text.isprintable():
        assert plain.count(text) == 5
    assert "[bold]heading" in plain


def test_a_line_is_one_line() -> None:
    assert _output.line("a\nb", ("c\r\nd", "red")).plain == "a\\nbc\\r\\nd"


@pytest.mark.parametrize("as_json", [False, True])
def test_tail_shows_payloads_without_obeying_them(as_json: bool) -> None:
    payload = ("[red]" + ESCAPES + "a\nb\r").encode()
    message = AppMessage(5, (1, 2), payload)
    made = delivery_line(Delivery(3, message, 7), as_json)
    assert controls(made) == set()
    assert "\n" not in made
    if as_json:
        assert json.loads(made)["position"] == 3
    else:
        assert "[red]" in made


def test_a_reason_is_told_once(cli: Cli, tmp_path: Path) -> None:
    info = RunInfo(
        run_id="cut",
        protocol="skeen",
        seed=7,
        complete=True,
        groups=(GroupInfo(1, (0,)),),
        correct=(0,),
        missing=("no trace of g1.p0",),
    )
    write_run(tmp_path / "run", info, Recorder())
    outcome = cli("check", tmp_path / "run")
    assert outcome.code == 3
    assert outcome.out.count("no trace of g1.p0") == 1
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["agreement", "unknown", "as", "positions"] in rows
