"""Studies: plans, cells, resuming, verdicts, figures, and the same bytes however a study was run."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from amcast.cli import _sweep as sweep_command
from amcast.core import UsageError
from amcast.protocols.registry import PROTOCOLS
from amcast.studies import Cell, Result, Study, StudyFolder, cells_of, read_study, run_cell, table_of
from amcast.studies.export import csv_bytes, parquet_bytes
from amcast.studies.figure import draw
from amcast.studies.local import run_in_processes
from amcast.trace.latency import AT
from amcast.workload import Gtpcc
from tests.cli.cli_harness import Cli
from tests.mutants import MUTANTS
from tests.pipeline.programs import until

SMALL = Study(protocols=("skeen", "fastcast"), networks=("lan",), clients=(2,), seeds=2, messages=10)
SMALL_OPTIONS = ("-p", "skeen,fastcast", "--network", "lan", "--clients", 2, "--seeds", 2, "--messages", 10)
EXAMPLE = Path(__file__).parents[2] / "examples" / "study" / "study.toml"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """In an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Cli(monkeypatch, capsys)


def break_protocol(monkeypatch: pytest.MonkeyPatch, mutant: str, title: str = "Broken") -> None:
    """Adds a protocol called `broken`, for cells that run in this process."""
    spec = next(each for each in MUTANTS if each.name == mutant).spec()
    monkeypatch.setitem(PROTOCOLS, "broken", dataclasses.replace(spec, name="broken", title=title))


BROKEN = ("sweep", "--network", "lan", "--destinations", 2, "--clients", 4, "--seeds", 1, "--groups", 3)


# ------------------------------------------------------------------------------------------------------- plans


def test_every_combination_is_a_cell_and_seeds_change_fastest() -> None:
    study = msgspec.structs.replace(SMALL, destinations=(1, "1-2"), networks=("lan", "unit"), clients=(1, 3))
    cells = cells_of(study)
    assert len(cells) == len({cell.key() for cell in cells}) == 2 * 2 * 2 * 2 * 2
    assert [cell.seed for cell in cells[:4]] == [1, 2, 1, 2]
    assert [cell.clients for cell in cells[:4]] == [1, 1, 3, 3]
    assert cells[-1].title() == "fastcast, 1-2 of 4 groups, unit, 3 clients, 1 outstanding, seed 2"


def test_a_rate_is_that_of_all_clients_together() -> None:
    study = msgspec.structs.replace(SMALL, rates=(50.0,), clients=(4,))
    (cell, *_) = cells_of(study)
    assert (cell.outstanding, cell.rate_per_s) == (None, 50.0)
    assert cell.scenario().interval_us == 80_000  # each of four clients has a quarter of the rate


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"protocols": ("skeen", "skeen")}, "protocols: skeen is named twice"),
        ({"protocols": ("paxos",)}, "there is no protocol 'paxos'"),
        ({"networks": ("mars",)}, "there is no network 'mars'"),
        ({"networks": ()}, "networks: there is no value"),
        ({"destinations": ("two",)}, "'two' is no number of destinations"),
        ({"destinations": (9,)}, "a message can't go to 9 groups"),
        ({"clients": (0,)}, "clients 0: 0 is out of range, which is 1 to"),
        ({"clients": (1_000_000,)}, "out of range"),
        ({"seeds": 60_000}, "240,000 cells, and 100,000 are allowed"),
        ({"rates": (10.0,), "outstanding": (4,)}, "give one of the two"),
        ({"rates": (-1.0,)}, "rates -1: -1 is out of range"),
        ({"rates": (float("nan"),)}, "out of range"),
        ({"client_regions": ("R1",)}, "the network lan has no regions"),
        ({"networks": ("wan",), "client_regions": ("R9",)}, "no region 'R9': choose one of R1, R2, R3"),
        ({"replicas": 4}, "odd number"),
        ({"payload_bytes": -1}, "payload"),
    ],
)
def test_a_bad_study_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        cells_of(msgspec.structs.replace(SMALL, **change))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("protocol = ['skeen']", "unknown field `protocol`; its keys are protocols, destinations"),
        ("seeds = 'many'", "Expected `int`"),
        ("seeds = ", "is no plan of a study"),
        ("\xff\xfe", "is no plan of a study"),
        ("#" * (1 << 20) + "\n", "more than 1,048,576 bytes"),
    ],
)
def test_a_bad_plan_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "plan.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as refused:
        read_study(tmp_path / "plan.toml")
    assert words in str(refused.value)


def test_the_example_runs(cli: Cli) -> None:
    outcome = cli("sweep", "--plan", EXAMPLE, "--messages", 8, "--seeds", 1, "--jobs", 1, "--json")
    assert outcome.code == 0
    rows = outcome.json["rows"]
    assert len(rows) == 3 * 2 * 2
    assert {row["client_region"] for row in rows} == {"R1", "R2"}
    assert {row["messages"] for row in rows} == {8}, "options count instead of the plan's"


# --------------------------------------------------------------------------------------------------- the table


def table_bytes(jobs: int) -> tuple[bytes, bytes]:
    cells = cells_of(SMALL)
    made = table_of(cells, {cell.key(): result for cell, result in run_in_processes(cells, jobs, run_cell)})
    return csv_bytes(made), parquet_bytes(made)


def test_the_same_plan_has_the_same_bytes_in_any_number_of_processes() -> None:
    """Each process that is started has another seed for its hashes."""
    alone, together = table_bytes(1), table_bytes(2)
    assert alone == together
    table = pa_csv.read_csv(io.BytesIO(alone[0]))
    assert table.num_rows == 8
    assert {f"latency_at_{at}_p50_ms" for at in AT} <= set(table.column_names)


def test_a_row_says_what_one_run_says(cli: Cli) -> None:
    options = ("-p", "fastcast", "--groups", 4, "--clients", 2, "--messages", 10, "--destinations", 2)
    ran = cli("sim", *options, "--network", "wan", "--client-region", "R2", "--seed", 2, "--json").json
    swept = cli(
        "sweep", *options, "--network", "wan", "--client-region", "R2", "--seeds", 1, "--first-seed", 2, "--json"
    )
    (row,) = swept.json["rows"]
    for at, figures in ran["latency_by_destinations"]["2"]["at"].items():
        for name in ("p50", "p95", "p99", "max"):
            assert row[f"latency_at_{at}_{name}_ms"] == figures[f"{name}_us"] / 1000
    assert (row["protocol_title"], row["verdict"], row["delivered"]) == ("FastCast", "pass", 10)


def test_texts_in_the_csv_are_no_formulas_and_numbers_stay_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    break_protocol(monkeypatch, "no-tie-break", title="=1+1")
    (cell,) = cells_of(msgspec.structs.replace(SMALL, protocols=("broken",), destinations=(1,), seeds=1))
    result = msgspec.structs.replace(run_cell(cell), latency=dict.fromkeys(AT))
    made = table_of([cell], {cell.key(): result})
    assert b'"\'=1+1"' in csv_bytes(made)
    assert pq.read_table(io.BytesIO(parquet_bytes(made))).column("protocol_title").to_pylist() == ["=1+1"]


# --------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("mutant", "verdict", "code", "why"),
    [("no-pending-hard", "fail", 1, "replicas: "), ("no-tie-break", "unknown", 3, "liveness: ")],
)
def test_a_cell_that_does_not_pass_is_shown_as_such(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, mutant: str, verdict: str, code: int, why: str
) -> None:
    break_protocol(monkeypatch, mutant)
    outcome = cli(*BROKEN, "--messages", 60, "-p", "skeen,broken", "--jobs", 1, "--out", "out")
    assert outcome.code == code
    assert f"{verdict} Broken, 2 groups, network lan" in outcome.out
    table = pq.read_table("out/results.parquet").to_pylist()
    assert [row["verdict"] for row in table] == ["pass", verdict]
    assert table[1]["why"].startswith(why)
    figure = Path("out/figure.svg").read_text()
    assert "Skeen, 2 groups" in figure
    assert "Broken" not in figure
    assert "1 of 2 cells did not pass" in figure
    again = cli(*BROKEN, "--messages", 60, "-p", "skeen,broken", "--jobs", 1, "--out", "out", "--json")
    assert (again.code, again.json["verdict"], again.json["resumed_cells"]) == (code, verdict, 2)


def test_without_a_cell_that_passed_there_is_no_figure(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    break_protocol(monkeypatch, "no-pending-hard")
    outcome = cli(*BROKEN, "--messages", 60, "-p", "broken", "--jobs", 1, "--out", "out", "--json")
    assert outcome.code == 1
    assert outcome.json["files"] == ["out/results.csv", "out/results.parquet"]


def test_where_plotting_is_not_installed_the_table_must_do(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amcast.pipeline.figures", None)
    outcome = cli("sweep", *SMALL_OPTIONS, "--jobs", 1, "--out", "out")
    assert outcome.code == 0
    assert "there is no figure" in outcome.err
    assert sorted(os.listdir("out")) == ["cells.jsonl", "results.csv", "results.parquet", "study.json"]


# --------------------------------------------------------------------------------------------------- the figure


def test_labels_are_for_people(cli: Cli) -> None:
    options = ("sweep", *SMALL_OPTIONS, "--jobs", 1, "--out", "out")
    for latency, label in (("client", "at the client"), ("last-replica", "at the last replica")):
        assert cli(*options, "--latency", latency).code == 0
        figure = Path("out/figure.svg").read_text()
        for text in (f"latency {label} (ms)", "FastCast, 2 groups", "Skeen, 1 group", "network lan", "2 seeds"):
            assert text in figure, text
    assert Path("out/figure.png").read_bytes().startswith(b"\x89PNG")


def test_different_loads_are_an_axis() -> None:
    for change, label in (({"clients": (1, 2)}, ">clients<"), ({"rates": (100.0, 200.0)}, "messages a second")):
        cells = cells_of(msgspec.structs.replace(SMALL, protocols=("skeen",), seeds=1, **change))
        picture = draw(table_of(cells, {cell.key(): run_cell(cell) for cell in cells}), "first_replica")
        assert picture is not None
        assert label in picture.svg
        assert "Skeen, 2 groups" in picture.svg


# ------------------------------------------------------------------------------------------------------ resuming


def count_runs(monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> list[Cell]:
    """The cells that are run; the next one after so many raises."""
    ran: list[Cell] = []

    def run(cell: Cell) -> Result:
        if len(ran) == stop_after:
            raise KeyboardInterrupt
        ran.append(cell)
        return run_cell(cell)

    monkeypatch.setattr(sweep_command, "run_cell", run)
    return ran


def test_finished_cells_are_not_run_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("sweep", *SMALL_OPTIONS, "--jobs", 1)
    assert cli(*options, "--out", "whole").code == 0
    first = count_runs(monkeypatch, stop_after=3)
    stopped = cli(*options, "--out", "parts")
    assert stopped.code == 130
    assert "3 of 8 cells are finished and kept" in stopped.err
    assert not Path("parts/results.csv").exists()
    with Path("parts/cells.jsonl").open("ab") as journal:
        journal.write(b'{"key": "half a li')
    second = count_runs(monkeypatch)
    resumed = cli(*options, "--out", "parts", "--json")
    assert (resumed.code, resumed.json["resumed_cells"]) == (0, 3)
    assert len(second) == 5
    assert not set(first) & set(second)
    for name in ("results.csv", "results.parquet", "figure.svg", "figure.png", "study.json"):
        assert Path("whole", name).read_bytes() == Path("parts", name).read_bytes(), name


def test_more_seeds_run_only_what_is_new(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("sweep", *SMALL_OPTIONS, "--jobs", 1, "--out", "out")
    assert cli(*options).code == 0
    ran = count_runs(monkeypatch)
    assert cli(*options, "--seeds", 3, "--json").json["resumed_cells"] == 8
    assert [cell.seed for cell in ran] == [3] * 4


def test_a_study_without_a_folder_goes_on_as_well(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cli("sweep", *SMALL_OPTIONS, "--jobs", 1, "--json").json
    ran = count_runs(monkeypatch)
    assert cli("sweep", *SMALL_OPTIONS, "--jobs", 1, "--json").json["out"] == first["out"]
    assert ran == []
    assert cli("sweep", *SMALL_OPTIONS, "--payload", 65, "--jobs", 1, "--json").json["out"] != first["out"]


def test_other_folders_are_left_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").write_text("precious")
    (tmp_path / "file").touch()
    assert "is not the folder of a study" in cli.refuses("sweep", *SMALL_OPTIONS, "--out", "else")
    assert "is not the folder of a study" in cli.refuses("sweep", *SMALL_OPTIONS, "--out", "file")
    assert "can't write" in cli.refuses("sweep", *SMALL_OPTIONS, "--out", "file/below")
    assert os.listdir(tmp_path / "else") == ["file"]


def test_a_damaged_line_is_named(cli: Cli, tmp_path: Path) -> None:
    assert cli("sweep", *SMALL_OPTIONS, "--jobs", 1, "--out", "out").code == 0
    file = tmp_path / "out" / "cells.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"{}\n" + lines[1])
    assert "out/cells.jsonl: line 2 is no result" in cli.refuses("sweep", *SMALL_OPTIONS, "--out", "out")


def test_one_program_writes_at_a_time(tmp_path: Path) -> None:
    again = StudyFolder(tmp_path / "out").writing(SMALL)
    with StudyFolder(tmp_path / "out").writing(SMALL), pytest.raises(UsageError, match="another program is at work"):
        again.__enter__()
    with (tmp_path / "out" / "cells.jsonl").open("ab") as journal:
        fcntl.flock(journal.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock is gone


def test_options_are_refused_in_words(cli: Cli) -> None:
    assert "write numbers with commas" in cli.refuses("sweep", "--clients", "many")
    assert "--engine spark" in cli.refuses("sweep", "--master", "local[2]")
    assert "can't read nowhere.toml" in cli.refuses("sweep", "--plan", "nowhere.toml")
    assert "choose one of R1, R2, R3" in cli.refuses("sweep", "--client-region", "R7")
    assert not Path("studies").exists()


# -------------------------------------------------------------------------------------------- ends, in any way

# Programs that a shell starts in the background ignore Ctrl-C, and so do those that they start.
_PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from amcast.cli import main
if __name__ == "__main__":
    main()
"""
_MARK = "AMCAST_TEST_MARK"


def marked(mark: str) -> list[int]:
    """The processes that were started with this mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{_MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def end_a_long_sweep(folder: Path, end: Callable[[subprocess.Popen[str]], None]) -> tuple[int, str, str]:
    """Ends a sweep of many cells when some are finished; no process may be left."""
    program = folder / "program.py"
    program.write_text(_PROGRAM)
    words = ["sweep", "-p", "skeen", "--network", "lan", "--seeds", "9000", "--jobs", "2", "--out", "out"]
    mark = hashlib.sha256(str(folder).encode()).hexdigest()
    process = subprocess.Popen(
        [sys.executable, str(program), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, _MARK: mark},
        start_new_session=True,
    )
    journal = folder / "out" / "cells.jsonl"
    try:
        until(
            lambda: process.poll() is not None or (journal.exists() and journal.stat().st_size > 0),
            lambda: "no cell was finished",
        )
        assert process.poll() is None, process.communicate()
        end(process)
        out, err = process.communicate(timeout=60)
        until(lambda: not marked(mark), lambda: f"left behind: {marked(mark)}", seconds=30)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    assert all(json.loads(line)["result"]["verdict"] == "pass" for line in journal.read_text().splitlines()[:-1])
    return process.returncode, out, err


def test_ctrl_c_leaves_no_process_and_keeps_what_is_finished(tmp_path: Path) -> None:
    """A terminal sends it to all processes."""
    code, out, err = end_a_long_sweep(tmp_path, lambda process: os.killpg(process.pid, signal.SIGINT))
    assert (code, out) == (130, "")
    kept, stopped = err.splitlines()
    assert "cells are finished and kept: the same command goes on there" in kept
    assert stopped == "error: stopped"
    assert not (tmp_path / "out" / "results.csv").exists()


def test_a_sweep_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    code, _, _ = end_a_long_sweep(tmp_path, lambda process: process.kill())
    assert code == -signal.SIGKILL


def test_a_worker_that_is_killed_is_one_error(tmp_path: Path) -> None:
    def kill_a_worker(process: subprocess.Popen[str]) -> None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(int(workers[0]), signal.SIGKILL)

    code, out, err = end_a_long_sweep(tmp_path, kill_a_worker)
    assert (code, out) == (2, "")
    assert err.startswith("error: a process that ran cells was killed")
    assert len(err.splitlines()) == 1


def test_workloads_stand_in_place_of_destinations() -> None:
    workloads = (Gtpcc(mix="global", locality=0.9), Gtpcc(mix="global", locality=0.99))
    cells = cells_of(msgspec.structs.replace(SMALL, workloads=workloads, seeds=1))
    assert {cell.destinations for cell in cells} == {"gtpcc mix=global", "gtpcc mix=global locality=0.99"}
    assert {cell.scenario().workload for cell in cells} == set(workloads)
    assert len({cell.key() for cell in cells}) == len(cells)
    assert run_cell(cells[0]).verdict == "pass"
    with pytest.raises(UsageError, match="the workload's own"):
        cells_of(msgspec.structs.replace(SMALL, workloads=workloads, destinations=(3,)))
    with pytest.raises(UsageError, match="gtpcc mix=global is named twice"):
        cells_of(msgspec.structs.replace(SMALL, workloads=(workloads[0],) * 2))


def test_a_plan_names_workloads(tmp_path: Path) -> None:
    plan = tmp_path / "study.toml"
    plan.write_text('workloads = [{kind = "gtpcc", locality = 0.5}, {kind = "social", users = 100}]\n')
    assert [each.title() for each in read_study(plan).workloads] == ["gtpcc locality=0.5", "social users=100"]
    plan.write_text('workloads = [{kind = "gtpcc", localty = 0.5}]\n')
    with pytest.raises(UsageError, match="unknown field `localty`"):
        read_study(plan)


def test_options_of_a_workload_have_several_values(cli: Cli) -> None:
    options = ("-p", "skeen", "--groups", 3, "--clients", 2, "--messages", 6, "--seeds", 1, "--jobs", 1)
    done = cli("sweep", *options, "--workload", "gtpcc", "-w", "mix=full,global", "-w", "locality=0.5,1.0", "--json")
    assert done.code == 0
    assert len({row["destinations"] for row in done.json["rows"]}) == 4
    assert "name it with --workload" in cli.refuses("sweep", "-w", "mix=full")
