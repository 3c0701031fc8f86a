"""Bad input of every kind: one line on stderr that says what to do, exit code 2, and nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from amcast.sim import scenario, simulate
from amcast.trace import write_run
from tests.cli.cli_harness import Cli


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("-p", "nope"), "there is no protocol 'nope': choose one of skeen, basecast, fastcast, multipaxos"),
        (("-p", "[/bold]"), "there is no protocol '[/bold]'"),
        (("--replicas", 2), "use an odd number of replicas, such as 3"),
        (("--replicas", 0), "at least one group and one replica"),
        (("--groups", 2, "--destinations", 3), "use fewer destinations or more groups"),
        (("--destinations", "2-1"), "use for example 1-2"),
        (("--destinations", "many"), "write 2, or 1-3"),
        (("--payload", (1 << 20) + 1), "use a smaller --payload"),
        (("--faults", "meteor"), "there is no fault 'meteor': use all, none, or some of crash"),
        (("--network", "mars"), "there is no network 'mars': choose one of unit, lan"),
        (("-o", "wrong_guesses"), "write name=value"),
        (("-o", "nope=1"), "nope"),
        (("-o", "wrong_guesses=maybe"), "wrong_guesses"),
        (("-p", "skeen", "-o", "wrong_guesses=true"), "wrong_guesses"),
        (("--messages", 0), "--messages"),
        (("--messages", "lots"), "--messages"),
        (("--nope",), "--nope"),
        (("--plan", "missing.json"), "can't read missing.json"),
        (("--scenario", "missing.json"), "can't read missing.json"),
        (("--plan", "."), "can't read ."),
    ],
)
def test_sim_refuses(cli: Cli, tmp_path: Path, args: tuple[object, ...], says: str) -> None:
    assert says in cli.refuses("sim", "--out", "one", *args)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no fault plan"),
        ("{", "no fault plan"),
        ("[]", "no fault plan"),
        ('{"faults": [{"what": "meteor", "at_us": 1}]}', "meteor"),
        ('{"faults": [{"what": "crash", "at_us": 1, "process": 0, "when": 2}]}', "when"),
        ('{"faults": [{"what": "crash", "at_us": 1, "process": 99}]}', "process 99"),
        (
            '{"faults": [{"what": "crash", "at_us": 1, "process": 0}, {"what": "crash", "at_us": 1, "process": 2}]}',
            "g1 without a majority for ever: let fewer of its processes crash",
        ),
    ],
)
def test_sim_refuses_a_bad_plan(cli: Cli, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    assert says in cli.refuses("sim", "--plan", "plan.json", "--out", "one")
    assert snapshot(tmp_path) == {"plan.json": text.encode()}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"protocol": "nope"}, "there is no protocol 'nope'"),
        ({"replicas": 4}, "such as 5"),
        ({"colour": "red"}, "colour"),
        ({"messages": "many"}, "messages"),
    ],
)
def test_sim_refuses_a_bad_scenario(cli: Cli, tmp_path: Path, change: dict[str, object], says: str) -> None:
    cli("sim", "--messages", 5, "--out", "one")
    saved = json.loads((tmp_path / "one" / "run.json").read_text())["scenario"]
    (tmp_path / "scenario.json").write_text(json.dumps({**saved, **change}))
    assert says in cli.refuses("sim", "--scenario", "scenario.json")


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_sim_overwrites_nothing(cli: Cli, tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / "precious").write_text("mine")
    else:
        (tmp_path / "one").write_text("mine")
    before = snapshot(tmp_path)
    assert "nothing is overwritten, choose another" in cli.refuses("sim", "--messages", 5, "--out", "one")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("fuzz", "-p", "nope"), "choose one of skeen"),
        (("fuzz", "-p", "skeen", "--faults", "meteor"), "some of crash"),
        (("fuzz", "-p", "basecast", "--replicas", 2), "such as 3"),
        (("fuzz", "--seeds", 0), "--seeds"),
        (("fuzz", "-p", "skeen", "--driver", "node", "--faults", "meteor"), "some of kill"),
        (("fuzz", "-p", "skeen", "--driver", "node", "--durability", "maybe"), "use one of sync, async, memory"),
        (("fuzz", "-p", "skeen", "--durability", "sync"), "use --durability with --driver node"),
        (("hops", "-p", "nope"), "choose one of skeen"),
        (("check", "missing"), "does not exist: name the folder of a run"),
        (("check",), "RUN"),
        (("demos",), "demos"),
    ],
)
def test_other_commands_refuse(cli: Cli, tmp_path: Path, args: tuple[object, ...], says: str) -> None:
    assert says in cli.refuses(*args)
    assert list(tmp_path.iterdir()) == []


# -- run folders that are damaged


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    result = simulate(scenario("basecast", messages=10, seed=1))
    write_run(tmp_path / "run", result.info, result.recorder)
    return tmp_path / "run"


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def blank_the_middle(path: Path) -> None:
    data = path.read_bytes()
    third = len(data) // 3
    path.write_bytes(data[:third] + bytes(third) + data[2 * third :])


@pytest.mark.parametrize("damage", [cut_in_half, blank_the_middle, Path.unlink])
@pytest.mark.parametrize("table", ["multicasts", "deliveries"])
def test_check_refuses_a_damaged_table(cli: Cli, run_folder: Path, table: str, damage: object) -> None:
    files = sorted((run_folder / table).iterdir())
    for file in files if damage is Path.unlink else files[:1]:
        damage(file)  # type: ignore[operator]
    says = cli.refuses("check", "run")
    assert table in says
    assert "again" in says


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "run.json is missing"), ("{", "run.json"), ("[]", "run.json"), ("{}", "run.json"), ("\xff", "run.json")],
)
def test_check_refuses_a_damaged_description(cli: Cli, run_folder: Path, text: str | None, says: str) -> None:
    file = run_folder / "run.json"
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text.encode("latin-1"))
    line = cli.refuses("check", "run")
    assert says in line
    assert "again" in line


def test_check_refuses_a_folder_that_is_no_run(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is not a run" in cli.refuses("check", "empty")
    (tmp_path / "file").write_text("")
    assert "is not a folder" in cli.refuses("check", "file")


def test_one_bad_folder_among_good_ones_is_named(cli: Cli, run_folder: Path, tmp_path: Path) -> None:
    assert "missing" in cli.refuses("check", run_folder, tmp_path / "missing")


@pytest.mark.parametrize("module", ["typer", "amcast.protocols"])
def test_ctrl_c_gives_no_traceback_while_modules_are_loaded(module: str) -> None:
    program = f"""
import sys

class Interrupted:
    def find_spec(self, name, *_):
        if name == "{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
sys.argv = ["amcast", "protocols"]
from amcast.cli import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "error: stopped\n")


@pytest.mark.parametrize("seconds", ["nan", "-1", "0", "inf"])
@pytest.mark.parametrize("command", [("send", "g1", "hello"), ("skip", "g1", "7")])
def test_a_time_to_wait_is_a_number_above_0(cli: Cli, command: tuple[str, ...], seconds: str) -> None:
    assert f"a --timeout of {seconds} s is no time to wait" in cli.refuses(*command, "--timeout", seconds)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("-p", "byzcast", "--replicas", 5), "groups of 5 are not 3f+1: use 4, 7, 10 or so replicas, here 7"),
        (("-p", "fastcast", "--faults", "byzantine"), "fastcast believes the members of its groups"),
    ],
)
def test_fuzz_refuses_what_liars_have_no_place_in(cli: Cli, args: tuple[object, ...], says: str) -> None:
    assert says in cli.refuses("fuzz", "--seeds", 1, *args)


def test_a_cluster_with_groups_in_which_nobody_may_lie_is_refused(cli: Cli, tmp_path: Path) -> None:
    refusal = cli.refuses("up", "--protocol", "byzcast", "--replicas", 3, "-d", "one")
    assert "group g1 has 3 members: such groups are not 3f+1" in refusal
    assert list(tmp_path.iterdir()) == []
