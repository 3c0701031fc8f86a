"""The commands: what they print for programs, and their exit codes: 0 pass, 1 fail, 2 usage, 3 unknown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast import __version__
from amcast.check import PROPERTIES
from amcast.cli._demo import new_folder
from amcast.errata import ERRATA
from amcast.errata import flexcast as flexcast_errata
from amcast.protocols import PROTOCOLS, ProtocolSpec
from amcast.protocols.flexcast import FlexCastAutomaton
from amcast.sim import FaultPlan, scenario, simulate
from amcast.sim.faults import Crash
from amcast.trace import write_run
from tests.cli.cli_harness import Cli
from tests.mutants import MUTANTS
from tests.netsim.node_mutants import swallowed_application_errors

VERDICTS = {"pass", "fail", "unknown"}


def spec_of(mutant: str) -> ProtocolSpec:
    return next(each for each in MUTANTS if each.name == mutant).spec()


def write(folder: Path, mutant: str | None = None, **settings: Any) -> Path:
    made = scenario("multipaxos", **{"messages": 20, "seed": 1, **settings})
    result = simulate(made, spec_of(mutant) if mutant else None)
    write_run(folder, result.info, result.recorder)
    return folder


def run_program(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from amcast.cli import main; main()"]
    return subprocess.run([*program, *words], capture_output=True, text=True, cwd=cwd, timeout=300)


# -- protocols, hops


def test_protocols(cli: Cli) -> None:
    documents = cli("protocols", "--json").json
    assert [each["name"] for each in documents] == list(PROTOCOLS)
    fastcast = next(each for each in documents if each["name"] == "fastcast")
    assert fastcast["delays"] == {"local": 3, "global": 4, "slow": 6}
    assert "genuine" in fastcast["claims"]
    assert fastcast["replicas"] == 3
    shown = cli("protocols")
    assert shown.code == 0
    assert all(name in shown.out for name in PROTOCOLS)


def test_hops(cli: Cli) -> None:
    outcome = cli("hops", "--json")
    assert outcome.code == 0
    measured = {(each["protocol"], each["case"]): each["delays"] for each in outcome.json}
    assert measured == {(s.name, case): n for s in PROTOCOLS.values() for case, n in s.delays.items()}
    one = cli("hops", "--protocol", "skeen", "--json").json
    assert [(each["case"], each["delays"]) for each in one] == [("local", 1), ("global", 2)]
    assert "fastcast" in cli("hops").out


def test_hops_fails_if_a_protocol_takes_longer_than_it_claims(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROTOCOLS["skeen"].delays, "global", 1)
    assert cli("hops", "-p", "skeen", "--json").code == 1


# -- errata


def test_errata(cli: Cli) -> None:
    outcome = cli("errata", "--json")
    assert outcome.code == 0
    documents = outcome.json
    assert [each["name"] for each in documents] == [each.name for each in ERRATA]
    assert all(each["holds"] and each["schedule"] and each["mend"] for each in documents)
    one = cli("errata", "flexcast-ack-per-group", "--json").json
    assert [each["name"] for each in one] == ["flexcast-ack-per-group"]
    assert one[0]["violations"][0]["property"] == "acyclic"
    shown = cli("errata", "flexcast-early-ack").out
    assert "g1 -> g2" in shown
    assert "g3.p0 never delivered it" in shown


def test_errata_fails_if_the_published_algorithm_does_not(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flexcast_errata.EarlyAckLost, "_on_ack", FlexCastAutomaton._on_ack)
    assert cli("errata", "flexcast-early-ack").code == 1
    assert cli("errata", "nope").code == 2


# -- sim


def test_sim_reports_and_writes(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("sim", "-p", "basecast", "--groups", 3, "--messages", 30, "--out", "runs/one", "--json")
    assert outcome.code == 0
    document = outcome.json
    assert document["protocol"] == "basecast"
    assert document["messages"] == 30
    assert document["complete"] is True
    assert document["verdict"] == "pass"
    assert document["violations"] == []
    assert document["out"] == "runs/one"
    assert {"1", "2"} == set(document["latency_by_destinations"])
    for row in document["latency_by_destinations"].values():
        assert 0 < row["p50_us"] <= row["p95_us"] <= row["p99_us"]
        assert list(row["at"]) == ["client", "first_replica", "last_replica"]
        first = row["at"]["first_replica"]
        assert row["p50_us"] == first["p50_us"] <= row["at"]["last_replica"]["p50_us"]
    checked = cli("check", "runs/one", "--json")
    assert checked.code == 0
    assert checked.json["properties"] == document["properties"]


def test_sim_for_people(cli: Cli) -> None:
    outcome = cli("sim", "--messages", 20, "--faults", "crash,loss", "--seed", 3, "--out", "one")
    assert outcome.code == 0
    assert "verdict: pass" in outcome.out
    for latency in ("at the client", "at the first replica", "at the last replica"):
        assert latency in outcome.out
    assert "amcast check one" in outcome.out
    assert "t=" in outcome.out  # the plan's faults, one a line


def test_sim_is_a_function_of_its_seed(cli: Cli) -> None:
    args = ("sim", "--messages", 30, "--faults", "all", "--json")
    assert cli(*args, "--seed", 5).out == cli(*args, "--seed", 5).out
    assert cli(*args, "--seed", 5).out != cli(*args, "--seed", 6).out


def test_sim_takes_options_and_plans(cli: Cli, tmp_path: Path) -> None:
    slow = cli("sim", "--messages", 20, "--destinations", 2, "-o", "wrong_guesses=true", "--json").json
    fast = cli("sim", "--messages", 20, "--destinations", 2, "--json").json
    latency = [each["latency_by_destinations"]["2"]["p50_us"] for each in (slow, fast)]
    assert latency[0] > 1.15 * latency[1]
    plan = FaultPlan((Crash(500, 1, 2_000),))
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
    document = cli("sim", "--messages", 20, "--plan", "plan.json", "--json").json
    assert document["faults"] == plan.describe(scenario("fastcast").topology())
    assert document["faults_injected"] == 1


def test_sim_saves_the_plan_that_it_drew(cli: Cli, tmp_path: Path) -> None:
    args = ("sim", "--messages", 20, "--seed", 4, "--json")
    first = cli(*args, "--faults", "all", "--save-plan", "plan.json").json
    assert first["faults"]
    again = cli(*args, "--plan", "plan.json").json
    assert again == first
    before = (tmp_path / "plan.json").read_bytes()
    assert "nothing is overwritten" in cli.refuses(*args, "--faults", "all", "--save-plan", "plan.json")
    assert (tmp_path / "plan.json").read_bytes() == before


def test_sim_replays_a_scenario(cli: Cli, tmp_path: Path) -> None:
    first = cli("sim", "-p", "skeen", "--messages", 20, "--faults", "all", "--out", "one", "--json").json
    info = json.loads((tmp_path / "one" / "run.json").read_text())
    (tmp_path / "scenario.json").write_text(json.dumps(info["scenario"]))
    again = cli("sim", "--scenario", "scenario.json", "--out", "two", "--json").json
    assert again == {**first, "out": "two"}
    assert (tmp_path / "two" / "run.json").read_bytes() == (tmp_path / "one" / "run.json").read_bytes()

    del info["scenario"]["workload"]["kind"]  # as it was written before there were several
    (tmp_path / "old.json").write_text(json.dumps(info["scenario"]))
    assert cli("sim", "--scenario", "old.json", "--out", "three", "--json").json == {**first, "out": "three"}


# -- check


def test_check_passes(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "run")
    outcome = cli("check", "run", "--json")
    assert outcome.code == 0
    document = outcome.json
    assert document["verdict"] == "pass"
    assert set(document["properties"]) <= set(PROPERTIES)
    assert set(document["properties"].values()) == {"pass"}
    assert document["violations"] == []
    assert "pass" in cli("check", "run").out


def test_check_fails_with_evidence(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "bad", "retry-twice", retry_us=60)
    write(tmp_path / "good")
    outcome = cli("check", "bad", "--diagram", "bad.svg", "--json")
    assert outcome.code == 1
    document = outcome.json
    assert document["verdict"] == "fail"
    assert document["properties"]["integrity"] == "fail"
    assert set(document["properties"].values()) <= VERDICTS
    for violation in document["violations"]:
        assert {"property", "messages", "processes", "explanation"} <= set(violation)
        assert violation["explanation"]
    assert "<svg" in (tmp_path / "bad.svg").read_text()
    both = cli("check", "good", "bad", "--json")
    assert both.code == 1
    assert [run["verdict"] for run in both.json["runs"]] == ["pass", "fail"]
    assert "integrity" in cli("check", "bad").out
    assert "nothing is overwritten" in cli.refuses("check", "bad", "--diagram", "bad.svg")


def test_a_run_that_was_cut_short_is_unknown(cli: Cli, tmp_path: Path) -> None:
    folder = write(tmp_path / "run")
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "complete": False}))
    logs = sorted((folder / "deliveries").iterdir())
    logs[0].unlink()
    outcome = cli("check", "run", "--json")
    assert outcome.code == 3
    assert outcome.json["verdict"] == "unknown"
    assert outcome.json["properties"]["agreement"] == "unknown"


# -- fuzz, demo


def test_fuzz_passes(cli: Cli) -> None:
    outcome = cli("fuzz", "-p", "skeen", "--seeds", 6, "--jobs", 1, "--json")
    assert outcome.code == 0
    document = outcome.json
    assert document["protocol"] == "skeen"
    assert document["seeds"] == 6
    assert document["violations"] == []
    assert document["faults_injected"] > 0
    assert document["messages"] >= 60


def test_fuzz_gives_the_same_answer_however_many_jobs(cli: Cli) -> None:
    args = ("fuzz", "-p", "skeen", "--seeds", 8, "--first-seed", 3, "--json")
    assert cli(*args, "--jobs", 2).json == cli(*args, "--jobs", 1).json


def test_fuzz_of_nodes_goes_on_where_it_was_stopped(cli: Cli, tmp_path: Path) -> None:
    resume = tmp_path / "done.json"
    args = ("fuzz", "-p", "skeen", "--driver", "node", "--faults", "kill", "--jobs", 1, "--json", "--resume", resume)
    first = cli(*args, "--seeds", 2)
    assert first.code == 0
    assert first.json["seeds"] == 2
    again = cli(*args, "--seeds", 3)
    assert again.json["seeds"] == 1
    assert again.json["violations"] == []
    assert list(json.loads(resume.read_text()).values()) == [3]
    resume.write_text("three")
    assert "does not say which seeds are done" in cli.refuses(*args)


def test_fuzz_of_nodes_finds_shrinks_and_replays(cli: Cli, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        swallowed_application_errors(patch)
        args = ("--driver", "node", "--faults", "kill", "--groups", 1, "--jobs", 1, "--out", tmp_path, "--json")
        outcome = cli("fuzz", "-p", "skeen", "--seeds", 3, *args)
        assert outcome.code == 1
        violation = outcome.json["violations"][0]
        assert violation["property"] == "result"
        assert Path(violation["log"]).read_text()
        unshrunk = "amcast fuzz --protocol skeen --seeds 1 --first-seed 0 --faults kill --groups 1 --driver node"
        assert violation["replay_unshrunk"] == unshrunk
        replayed = cli(*violation["replay"].split()[1:], "--json")
        assert replayed.code == 1
        assert replayed.json["violations"][0]["explanation"] == violation["explanation"]
    sound = cli(*violation["replay"].split()[1:])
    assert sound.code == 0
    assert "pass" in sound.out


def test_fuzz_finds_shrinks_and_replays(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(PROTOCOLS, "multipaxos", spec_of("retry-twice"))
    args = ("--jobs", 1, "--faults", "loss,pause", "--groups", 1, "--json")
    outcome = cli("fuzz", "-p", "multipaxos", "--seeds", 30, *args)
    assert outcome.code == 1
    (violation,) = outcome.json["violations"]
    assert violation["property"] == "integrity"
    assert violation["messages"]
    assert violation["explanation"]
    assert "<svg" in (tmp_path / violation["diagram"]).read_text()
    program, *replay = violation["replay"].split()
    assert program == "amcast"
    again = cli(*replay, "--json")
    assert again.code == 1
    assert "integrity" in {each["property"] for each in again.json["violations"]}
    assert violation["replay_unshrunk"] == (
        f"amcast fuzz --protocol multipaxos --seeds 1 --first-seed {violation['seed']} --faults loss,pause --groups 1"
    )
    assert cli("check", Path(violation["scenario"]).parent / "run").code == 1


def test_demo_runs_verifies_on_spark_and_reports(tmp_path: Path) -> None:
    ended = run_program("demo", "--seed", "2", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "verdict: pass" in ended.stdout
    page = tmp_path / "reports" / "demo-1" / "index.html"
    assert page.exists()
    assert str(page.relative_to(tmp_path)) in ended.stdout
    assert {each.name for each in tmp_path.iterdir()} == {"runs", "reports"}


def test_new_folders_overwrite_nothing(tmp_path: Path) -> None:
    assert new_folder(tmp_path, "demo") == tmp_path / "demo-1"
    (tmp_path / "demo-1").mkdir()
    assert new_folder(tmp_path, "demo") == tmp_path / "demo-2"


def test_both_engines_say_the_same(cli: Cli, tmp_path: Path) -> None:
    bad = write(tmp_path / "bad", mutant="retry-twice", retry_us=100, interval_us=50)
    good = write(tmp_path / "good")
    ended = run_program("check", str(bad), str(good), "--engine", "spark", "--json", cwd=tmp_path)
    assert ended.returncode == 1, ended.stderr
    on_spark, in_memory = json.loads(ended.stdout), cli("check", bad, good, "--json").json
    assert on_spark["verdict"] == in_memory["verdict"] == "fail"
    assert on_spark["properties"] == in_memory["properties"]
    assert on_spark.keys() == in_memory.keys()


def test_a_violation_that_is_drawn_is_told_once(cli: Cli, tmp_path: Path) -> None:
    bad = write(tmp_path / "bad", mutant="retry-twice", retry_us=100, interval_us=50)
    explanations = [each["explanation"] for each in cli("check", bad, "--json").json["violations"]]
    told = " ".join(cli("check", bad).out.split())
    assert [told.count(" ".join(each.split())) for each in explanations] == [1] * len(explanations) != []


# -- the program


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").out.strip() == f"amcast {__version__}"
    for command in (
        "protocols",
        "hops",
        "sim",
        "check",
        "report",
        "fuzz",
        "swarm",
        "watch",
        "tracegen",
        "certs",
        "token",
        "demo",
    ):
        outcome = cli(command, "--help")
        assert outcome.code == 0
        assert "Example" in outcome.out


def test_exit_codes_reach_the_shell(tmp_path: Path) -> None:
    bad = run_program("sim", "-p", "nope", cwd=tmp_path)
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.count("\n") == 1
    assert "Traceback" not in bad.stderr
