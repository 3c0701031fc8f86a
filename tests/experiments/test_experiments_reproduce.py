"""`amcast reproduce`: the same numbers however it is run, resuming, cells that break, and the report."""

from __future__ import annotations

import os
import signal
from html.parser import HTMLParser
from pathlib import Path

import pytest

from amcast.experiments import Measured, RecipeCell, run_recipe_cell, running
from amcast.experiments.cell import killed
from amcast.experiments.programs import PROGRAMS
from amcast.studies.local import run_in_processes
from tests.cli.cli_harness import Cli

QUICK = ("byzcast-trees", "geopaxos-latency")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """In an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Cli(monkeypatch, capsys)


def test_the_numbers_are_the_same_with_one_worker_and_with_two(cli: Cli) -> None:
    for jobs in (1, 2):
        outcome = cli("reproduce", *QUICK, "--jobs", jobs, "--out", f"out{jobs}", "--json")
        assert outcome.code == 0, outcome.err
        assert outcome.json["summary"]["not_measured"] == 0
        assert {each["verdict"] for each in outcome.json["recipes"]} == {"pass"}
    for name in ("outcomes.csv", "runs.csv", "index.html", "reproduction.md", "reproduction/geopaxos-latency.svg"):
        assert Path("out1", name).read_bytes() == Path("out2", name).read_bytes(), name


def test_message_delays_are_those_of_the_papers(cli: Cli) -> None:
    summary = cli("reproduce", "delays", "byzcast-trees", "--jobs", 1, "--json").json["summary"]
    assert (summary["differs"], summary["not_measured"]) == (0, 0)
    assert summary["delays_hold"] == summary["delays"] > 40


def test_finished_runs_are_not_run_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[RecipeCell] = []

    def run(cell: RecipeCell) -> Measured:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(cell)
        return run_recipe_cell(cell)

    monkeypatch.setattr(running, "run_recipe_cell", run)
    stopped = cli("reproduce", "byzcast-trees", "--jobs", 1, "--out", "out")
    assert stopped.code == 130
    assert "2 of 6 runs are finished and kept" in stopped.err
    assert not Path("out/index.html").exists()
    monkeypatch.setattr(running, "run_recipe_cell", lambda cell: ran.append(cell) or run_recipe_cell(cell))
    assert cli("reproduce", "byzcast-trees", "--jobs", 1, "--out", "out").code == 0
    assert len(ran) == len({cell.key() for cell in ran}) == 6


def test_a_cell_that_breaks_stops_nothing_and_is_tried_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = PROGRAMS["tree"]

    def fragile(settings):  # type: ignore[no-untyped-def]
        if "parents" not in settings:
            raise ValueError("no tree")
        return tree(settings)

    monkeypatch.setitem(PROGRAMS, "tree", fragile)
    broken = cli("reproduce", "byzcast-trees", "--jobs", 1, "--out", "out", "--json").json
    assert broken["summary"]["not_measured"] == 4
    assert broken["recipes"][0]["verdict"] == "unknown"
    assert "ValueError: no tree" in broken["recipes"][0]["bad_runs"][0]
    monkeypatch.setitem(PROGRAMS, "tree", tree)
    assert cli("reproduce", "byzcast-trees", "--jobs", 1, "--out", "out", "--json").json["summary"]["not_measured"] == 0


def die_or_run(cell: RecipeCell) -> Measured:
    if cell.labels["dies"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return Measured(verdict="pass", why="", figures={})


def test_a_process_that_is_killed_takes_one_cell_with_it() -> None:
    cells = [RecipeCell(labels={"dies": int(at == 3)}, program="delays", settings={"at": at}) for at in range(8)]
    found = {cell.settings["at"]: result for cell, result in run_in_processes(cells, 2, die_or_run, killed)}
    assert {at for at, result in found.items() if result.verdict == "pass"} == {0, 1, 2, 4, 5, 6, 7}
    assert found[3].why == "its process was killed, perhaps for want of memory"
    assert not found[3].is_final


def test_bad_input_is_one_line(cli: Cli) -> None:
    assert "there is no recipe 'nonsense'" in cli.refuses("reproduce", "nonsense")
    assert "there is no scale 'huge': choose one of small, paper" in cli.refuses(
        "reproduce", "delays", "--scale", "huge"
    )
    assert "name a recipe, or all" in cli.refuses("reproduce")
    Path("taken").mkdir()
    Path("taken/file").write_text("mine")
    assert "not the folder of a reproduction" in cli.refuses("reproduce", "delays", "--out", "taken")


def test_the_list_has_what_can_not_be_run_too(cli: Cli) -> None:
    rows = {row["name"]: row for row in cli("reproduce", "--list", "--json").json}
    assert len(rows) == 33
    assert rows["kernel-paxos"]["missing"] == "its protocol does not exist yet"
    assert rows["delays"]["runs"] > 0
    assert "fastcast-table1" in cli("reproduce", "--list").out


class Loads(HTMLParser):
    """Whatever a browser would fetch for the page."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.headings = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.headings += tag == "h2"
        found = [value for name, value in attributes if name in ("src", "href") and value and not value.startswith("#")]
        self.fetched += found


def test_the_page_loads_nothing_and_tells_the_worst_first(cli: Cli) -> None:
    cli("reproduce", *QUICK, "kernel", "--jobs", 1, "--out", "out")
    page = Path("out/index.html").read_text()
    loads = Loads()
    loads.feed(page)
    assert loads.fetched == []
    assert loads.headings == 2 + 4
    text = Path("out/reproduction.md").read_text()
    assert text.index("## The worst deviations") < text.index("## All experiments") < text.index("## byzcast-trees")
    assert "![Latency of one client of GeoPaxos](reproduction/geopaxos-latency.svg)" in text
    assert "its protocol does not exist yet" in text
