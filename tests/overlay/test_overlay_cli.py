"""`amcast overlay`: the tables of the thesis from files, runs as workloads, drawings, and bad input."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from amcast.cli._parse import parse_options
from amcast.core import UsageError
from amcast.overlay import OverlayTree
from amcast.overlay.demand import demand_of_run, read_demand
from amcast.overlay.drawing import tree_lines
from amcast.sim import SimCluster, scenario, simulate
from amcast.trace import write_run
from amcast.workload import Micro
from tests.cli.cli_harness import Cli
from tests.overlay.overlay_trees import SKEWED, UNIFORM


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_csv("uniform.csv", UNIFORM)
    write_json("skewed.json", SKEWED)
    return Cli(monkeypatch, capsys)


def write_csv(name: str, rates: dict[tuple[int, ...], float]) -> None:
    rows = [f"{' '.join(f'g{group}' for group in dst)},{rate:g}" for dst, rate in rates.items()]
    Path(name).write_text("\n".join(["destinations,rate", *rows, ""]))


def write_json(name: str, rates: dict[tuple[int, ...], float]) -> None:
    entries = [{"destinations": [f"g{group}" for group in dst], "rate": rate} for dst, rate in rates.items()]
    Path(name).write_text(json.dumps(entries))


def document(cli: Cli, *args: object, code: int = 0) -> Any:
    outcome = cli("overlay", *args, "--json")
    assert (outcome.code, outcome.err) == (code, "")
    return json.loads(outcome.out)


def loads(made: Any) -> dict[str, float]:
    return {row["group"]: row["load"] for row in made["groups"] if row["kind"] == "auxiliary"}


def test_table_3_3(cli: Cli) -> None:
    uniform = document(cli, "-w", "uniform.csv", "--auxiliary", 3, "-c", "auxiliary=9500")
    assert (uniform["status"], uniform["proven"], uniform["heights_sum"]) == ("optimal", True, 12)
    assert loads(uniform) == {"g5": 7200}
    assert uniform["option"] == "parents=[5,5,5,5,0]"
    assert (uniform["targets"], uniform["auxiliary"]) == (["g1", "g2", "g3", "g4"], ["g5"])
    assert {row["capacity"] for row in uniform["groups"]} == {None, 9500}

    skewed = document(cli, "-w", "skewed.json", "--auxiliary", 3, "-c", "auxiliary=9500")
    assert (skewed["status"], skewed["proven"], skewed["heights_sum"]) == ("optimal", True, 4)
    assert loads(skewed) == {"g5": 0, "g6": 9000, "g7": 9000}
    assert {row["lca"]: row["height"] for row in skewed["destinations"]} == {"g6": 2, "g7": 2}


def test_table_3_3_of_trees_that_are_given(cli: Cli) -> None:
    three = "[6,6,7,7,0,5,5]"
    poor = document(cli, "-w", "uniform.csv", "-c", "auxiliary=9500", "--parents", three)
    assert (poor["status"], poor["proven"], poor["heights_sum"]) == ("viable", False, 16)
    assert loads(poor) == {"g5": 4800, "g6": 6000, "g7": 6000}
    not_viable = document(cli, "-w", "skewed.json", "-c", "auxiliary=9500", "--parents", "[5,5,5,5,0]", code=1)
    assert (not_viable["status"], not_viable["heights_sum"]) == ("overloaded", 4)
    assert loads(not_viable) == {"g5": 18000}


def test_the_option_is_what_the_protocol_takes(cli: Cli) -> None:
    made = document(cli, "-w", "skewed.json", "--auxiliary", 3, "-c", "auxiliary=9500")
    options = parse_options([made["option"]])
    assert options == {"parents": made["parents"]}
    cluster = SimCluster("tree", groups=len(made["groups"]), options=options)
    cluster.multicast({"g1", "g2"}, b"one")
    cluster.multicast({"g3", "g4"}, b"two")
    cluster.run()
    assert [len(cluster.delivered(f"g{group}.p0")) for group in range(1, 8)] == [1, 1, 1, 1, 0, 0, 0]


def test_it_is_drawn_with_loads_and_the_option(cli: Cli) -> None:
    shown = cli("overlay", "-w", "skewed.json", "--auxiliary", 3, "-c", "auxiliary=9500")
    lines = [each.rstrip() for each in shown.out.splitlines()]
    assert shown.code == 0
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("proven optimal")
    words = [each.split() for each in lines]
    assert ["├──", "g6", "auxiliary", "2", "9,000", "9,500", "95%"] in words
    assert ["│", "└──", "g2", "target", "1", "9,000", "unlimited"] in words
    assert "sum of heights: 4 (2 of height 2)" in lines
    assert "groups: 7 (targets g1 to g4; auxiliary g5 to g7)" in lines
    assert "option: -o parents=[6,6,7,7,0,5,5]" in lines


def test_no_tree_is_said_with_or_without_proof(cli: Cli) -> None:
    given = ("overlay", "-w", "skewed.json", "--auxiliary", 1, "-c", "auxiliary=9500")
    proven, found = cli(*given), cli(*given, "--method", "heuristic")
    assert (proven.code, found.code) == (1, 3)
    assert "no tree is viable, proven" in proven.out
    assert "no viable tree was found" in found.out
    assert "proves nothing" in found.out
    made = document(cli, *given[1:], code=1)
    assert (made["status"], made["proven"], made["parents"], made["groups"]) == ("not-viable", True, None, [])


def test_trees_of_targets_only_and_mixed_ones(cli: Cli) -> None:
    alone = document(cli, "-w", "uniform.csv")
    assert (alone["auxiliary"], alone["heights_sum"], len(alone["groups"])) == ([], 12, 4)
    loaded = document(cli, "-w", "skewed.json", "-c", 9500)
    assert (loaded["status"], loaded["heights_sum"]) == ("optimal", 5)
    mixed = document(cli, "-w", "skewed.json", "-c", 9500, "--auxiliary", 1, "--mixed")
    assert (mixed["auxiliary"], mixed["heights_sum"]) == (["g5"], 4)
    assert loads(mixed) == {"g5": 0}


def test_what_is_said_of_one_group_counts_most(cli: Cli) -> None:
    made = document(cli, "-w", "uniform.csv", "--auxiliary", 1, "-c", "g2=8000,targets=7000", "-c", "90000")
    assert [row["capacity"] for row in made["groups"]] == [7000, 8000, 7000, 7000, 90000]


def test_groups_without_messages_have_a_place_too(cli: Cli) -> None:
    write_csv("gap.csv", {(1, 3): 10})
    made = document(cli, "-w", "gap.csv", "--auxiliary", 1, "--groups", 4)
    assert made["parents"] == [5, 5, 5, 5, 0]


def test_a_run_is_a_workload(cli: Cli) -> None:
    result = simulate(scenario("skeen", "lan", groups=3, messages=300, workload=Micro(1, 2)))
    run = result.run()
    write_run(Path("run"), result.info, result.recorder)
    rates = demand_of_run(run).rates
    span_s = int(run.multicasts.t_us.max() - run.multicasts.t_us.min()) / 1e6
    assert sum(rates.values()) * span_s == pytest.approx(300)
    assert set(rates) == {(1,), (2,), (3,), (1, 2), (1, 3), (2, 3)}
    starts = run.multicasts.dst_start.tolist()
    sets = [tuple(sorted(run.multicasts.dst[a:b].tolist())) for a, b in pairwise(starts)]
    assert round(rates[1, 3] * span_s) == sets.count((1, 3))
    made = document(cli, "-w", "run", "--auxiliary", 1)
    assert {tuple(row["groups"]): row["rate"] for row in made["destinations"]} == {
        tuple(f"g{group}" for group in dst): pytest.approx(rate) for dst, rate in rates.items()
    }
    assert made["parents"] == [4, 4, 4, 0]


def test_a_run_without_time_has_no_rates(cli: Cli) -> None:
    cluster = SimCluster("skeen", groups=2)
    cluster.multicast({"g1"}, b"")
    cluster.run()
    with pytest.raises(UsageError, match="at one time, so there are no rates"):
        demand_of_run(cluster.trace())


def test_the_same_input_has_the_same_output(cli: Cli) -> None:
    given = ("overlay", "-w", "skewed.json", "--auxiliary", 2, "-c", "auxiliary=9500", "--json")
    assert cli(*given).out == cli(*given).out


def test_the_drawing_is_a_picture_and_overwrites_nothing(cli: Cli) -> None:
    made = document(cli, "-w", "skewed.json", "-c", "9500", "--parents", "[5,5,5,5,0]", "--svg", "tree.svg", code=1)
    assert made["svg"] == "tree.svg"
    words = [each.text for each in ET.parse("tree.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert words[words.index("g5") + 1] == "18,000 of 9,500"
    assert sorted(word for word in words if word and word.startswith("g")) == ["g1", "g2", "g3", "g4", "g5"]
    assert "nothing is overwritten" in cli.refuses("overlay", "-w", "skewed.json", "--svg", "tree.svg")
    assert "can't write" in cli.refuses("overlay", "-w", "skewed.json", "--svg", "no/such/tree.svg")


def test_deep_trees_fit_a_terminal() -> None:
    for depth in (5, 30, 100):
        chain = OverlayTree({group: group - 1 for group in range(1, depth + 1)})
        lines = list(tree_lines(chain))
        assert [group for group, _ in lines] == list(range(1, depth + 1))
        assert max(len(drawn) for _, drawn in lines) <= 50


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "", "line 1 must be destinations,rate"),
        ("a.csv", "groups,rate\ng1,1\n", "line 1 must be destinations,rate"),
        ("a.csv", "destinations,rate\n", "no destination set"),
        ("a.csv", "destinations,rate\ng1 g2,1\n\ng1 x,2\n", "line 4: destinations: 'x' is no group"),
        ("a.csv", "destinations,rate\ng1 g2,many\n", "line 2: rate 'many' is no number"),
        ("a.csv", "destinations,rate\ng1 g2,-1\n", "line 2: rate is -1"),
        ("a.csv", "destinations,rate\ng1 g2,nan\n", "line 2: rate is nan"),
        ("a.csv", "destinations,rate\ng1,g2,1\n", "line 2 has 3 fields instead of 2"),
        ("a.csv", "destinations,rate\ng1 g1,1\n", "line 2: destinations: name one group or more, none twice"),
        ("a.csv", "destinations,rate\ng1 g2,1\ng2 g1,1\n", "line 3 has g1, g2 again, as line 2"),
        ("a.csv", 'destinations,rate\n"g1,1\n', "line 2: unexpected end of data"),
        ("a.json", "", "is no workload"),
        ("a.json", "{}", "Expected `array`, got `object`"),
        ("a.json", "[]", "no destination set"),
        ("a.json", '[{"destinations": ["g1"], "rate": "1"}]', "Expected `float`, got `str` - at `$[0].rate`"),
        ("a.json", '[{"destinations": ["g1"], "rate": -1}]', "at `$[0].rate`"),
        ("a.json", '[{"destinations": ["g1"], "rates": 1}]', "unknown field `rates`"),
        ("a.json", '[{"destinations": ["g0"], "rate": 1}]', "entry 1: destinations: 'g0' is no group"),
        ("a.json", '[{"destinations": [], "rate": 1}]', "entry 1: destinations: name one group or more"),
        ("a.json", '[{"destinations": ["g70000"], "rate": 1}]', "from 1 to"),
        ("a.txt", "destinations,rate\n", "has another name: a workload is a file called .json or .csv"),
        ("a.csv", "destinations,rate\ng1 g600,1\n", "there are at most 500"),
    ],
)
def test_bad_workloads_are_refused(cli: Cli, name: str, text: str, says: str) -> None:
    Path(name).write_text(text)
    assert says in cli.refuses("overlay", "-w", name)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("-w", "missing"), "missing does not exist"),
        (("-w", "missing.csv"), "can't read missing.csv"),
        (("-w", "."), "is not a run"),
        ((), "--workload"),
        (("-w", "uniform.csv", "-c", "lots"), "--capacity lots: write auxiliary=9500"),
        (("-w", "uniform.csv", "-c", "h1=5"), "'h1' is none of auxiliary, targets, g1 to g4"),
        (("-w", "uniform.csv", "-c", "=5"), "--capacity =5"),
        (("-w", "uniform.csv", "-c", "auxiliary=5"), "say how many by --auxiliary"),
        (("-w", "uniform.csv", "-c", "g1=-5"), "the capacity of g1 is -5"),
        (("-w", "uniform.csv", "--mixed"), "--mixed goes with --auxiliary"),
        (("-w", "uniform.csv", "--groups", 2), "g3, which is no target group"),
        (("-w", "uniform.csv", "--parents", "five"), "--parents five: write one for each group"),
        (("-w", "uniform.csv", "--parents", "[0,1]"), "must be one for each of 4 groups"),
        (("-w", "uniform.csv", "--parents", "[0,1,1,9]"), "parent 9 of g4"),
        (("-w", "uniform.csv", "--parents", "[0,1,1,1]", "--auxiliary", 1), "leave out --auxiliary"),
        (("-w", "uniform.csv", "--auxiliary", -1), "--auxiliary"),
        (("-w", "uniform.csv", "--auxiliary", 1000), "there are at most 500"),
        (("-w", "uniform.csv", "--method", "guess"), "--method"),
    ],
)
def test_bad_options_are_refused(cli: Cli, args: tuple[object, ...], says: str) -> None:
    assert says in cli.refuses("overlay", *args)


def test_files_may_differ_in_form(cli: Cli, tmp_path: Path) -> None:
    """A byte order mark, quotes with commas, blank lines, and other ends of lines."""
    write: Callable[[str], int] = (tmp_path / "b.csv").write_text
    write('\ufeffdestinations, rate\r\n"g2,g1", 1.5\r\n\r\n g3 ,0\r\n')
    assert read_demand(tmp_path / "b.csv").rates == {(1, 2): 1.5, (3,): 0}
    (tmp_path / "c.csv").write_bytes(b"destinations,rate\n\xff")
    with pytest.raises(UsageError, match="byte 18 is no UTF-8 text"):
        read_demand(tmp_path / "c.csv")


def test_the_page_shows_what_is_printed(cli: Cli) -> None:
    page = (Path(__file__).parents[2] / "docs" / "overlay.md").read_text()
    (wanted,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shown = cli("overlay", "-w", "skewed.json", "--auxiliary", 3, "-c", "auxiliary=9500").out
    assert [each.rstrip() for each in shown.splitlines()] == wanted.splitlines()
