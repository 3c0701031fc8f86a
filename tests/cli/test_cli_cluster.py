"""A real cluster from the command line: up, send, tail, load, status, logs, down; and its trace, checked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from amcast.cli import _cluster
from amcast.net.local import LocalCluster, plan
from amcast.net.wire.control import Status

PROGRAM = [sys.executable, "-c", "from amcast.cli import main; main()"]


def amcast(*words: str, cwd: Path, code: int = 0) -> str:
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, cwd=cwd, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def document(*words: str, cwd: Path) -> Any:
    return json.loads(amcast(*words, "--json", cwd=cwd))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    if (tmp_path / ".amcast" / "cluster.toml").exists():
        LocalCluster(tmp_path / ".amcast").stop()


def test_the_life_of_a_cluster(folder: Path) -> None:
    up = document("up", "--groups", "2", "--durability", "memory", "--trace-wire", cwd=folder)
    assert [process["id"] for process in up["processes"]] == [f"g{g}.p{p}" for g in (1, 2) for p in range(3)]
    assert all(process["up"] for process in up["processes"])

    sent = document("send", "g1,g2", "hello", cwd=folder)
    assert sent["groups"] == ["g1", "g2"]
    tail = json.loads(amcast("tail", "g2", "-n", "1", "--json", cwd=folder))
    assert tail["message"] == sent["message"]
    assert tail["position"] == 0
    assert tail["name"] == sent["name"]
    found = amcast("tail", "g2", "--message", sent["name"], cwd=folder)
    assert found.split()[:2] == ["0", sent["name"]]
    assert "leave out -n" in amcast("tail", "g2", "-n", "2", "--message", sent["name"], cwd=folder, code=2)
    assert "hello" in amcast("tail", "g1", "-n", "1", cwd=folder)

    load = document("load", "--messages", "300", "--clients", "3", cwd=folder)
    assert load["messages"] == 300
    assert 0 < load["latency_us"]["p50"] <= load["latency_us"]["p99"] <= load["latency_us"]["max"]

    last = [
        json.loads(line) for line in amcast("tail", "g2", "--last", "2", "-n", "2", "--json", cwd=folder).splitlines()
    ]
    assert last[1]["position"] == last[0]["position"] + 1 > 2
    problem = "--from and --last both say where to begin"
    assert problem in amcast("tail", "g2", "--last", "2", "--from", "1", cwd=folder, code=2)
    with subprocess.Popen([*PROGRAM, "logs", "g1.p0", "-f"], stdout=subprocess.PIPE, cwd=folder) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["process"] == "g1.p0"
        following.kill()

    elsewhere = document("status", "--config", str(folder / ".amcast" / "cluster.toml"), cwd=folder.parent)
    assert len(elsewhere["processes"]) == 6
    status = document("status", cwd=folder)
    assert sum(process["is_leader"] for process in status["processes"]) == 2
    assert all(process["lag"] == 0 for process in status["processes"])
    assert json.loads(amcast("logs", "g1.p0", cwd=folder).splitlines()[0])["process"] == "g1.p0"

    logged = amcast("logs", "g1.p0", "--json", cwd=folder).splitlines()
    assert all(json.loads(line)["process"] == "g1.p0" for line in logged)

    ended = amcast("down", "--collect", "run", cwd=folder)
    assert "301 messages in run" in ended
    assert ".amcast keeps their data: `amcast up` goes on, `amcast down --purge` deletes it" in ended
    assert (folder / ".amcast" / "data").exists()
    assert "their data is deleted" in amcast("down", "--purge", cwd=folder)
    assert not (folder / ".amcast").exists()
    report = document("check", "run", cwd=folder)
    assert report["verdict"] == "pass"
    assert report["properties"]["genuine"] == "pass"


def test_a_cluster_that_was_kept_goes_on_where_it_ended(folder: Path) -> None:
    amcast("up", "-p", "skeen", "--groups", "2", cwd=folder)
    first = document("send", "g1,g2", "one", cwd=folder)
    down = document("down", cwd=folder)
    assert down == {"ended": ["g1.p0", "g2.p0"], "run": None, "purged": False, "left": []}
    amcast("up", "-p", "skeen", "--trace", cwd=folder)
    document("send", "g1", "two", cwd=folder)
    lines = [json.loads(line) for line in amcast("tail", "g1", "-n", "2", "--json", cwd=folder).splitlines()]
    assert [line["position"] for line in lines] == [0, 1]
    assert lines[0]["message"] == first["message"]
    assert document("status", cwd=folder)["protocol"] == "skeen"


def test_an_existing_cluster_is_never_started_as_something_else(folder: Path) -> None:
    hint = amcast("up", "-p", "skeen", "--groups", "1", "-o", "resend_us=70000", cwd=folder)
    assert "`amcast send g1 hello` multicasts, `amcast down` ends it" in hint
    amcast("down", cwd=folder)
    asked = ("-p", "nothing", "--groups", "3", "--replicas", "1", "--no-trace", "--tls", "-o", "resend_us=1")
    output = amcast("up", *asked, cwd=folder, code=2)
    assert (
        "it differs: its protocol is skeen, not nothing; its groups is 1, not 3; its trace is on, not off; "
        "its tls is off, not on; its option resend_us is 70000, not 1. Leave these options out" in output
    )
    problem = "its trace-bytes is 1000000000, not 0"
    assert problem in amcast("up", "--trace-bytes", "0", cwd=folder, code=2)
    assert "its option resend is not set, not 5" in amcast("up", "-o", "resend=5", cwd=folder, code=2)
    amcast("up", "-o", "resend_us=70000", "--groups", "1", cwd=folder)


def test_a_token_that_cannot_be_sent_is_no_sign_of_a_process_that_is_down(folder: Path) -> None:
    amcast("up", "-p", "skeen", "--groups", "1", cwd=folder)
    assert "a token is not sent without TLS" in amcast("status", "--token", "x", cwd=folder, code=2)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "can't make a cluster in file/c: Not a directory" in amcast("up", "-d", "file/c", cwd=tmp_path, code=2)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["up", "-p", "nothing"], "there is no protocol 'nothing'"),
        (["up", "--durability", "hope"], "there is no durability 'hope'"),
        (["up", "--network", "mars"], "there is no network 'mars'"),
        (["up", "--replicas", "2"], "no majority"),
        (["down"], "can't read .amcast/cluster.toml"),
        (["status"], "can't read .amcast/cluster.toml"),
        (["send", "g1", "x"], "can't read .amcast/cluster.toml"),
        (["node", "--config", "none.toml", "--id", "g1.p0"], "can't read none.toml"),
        (["init", "--config", "none.toml"], "can't read none.toml"),
        (["replace", "g1.p0"], "can't read .amcast/cluster.toml"),
    ],
)
def test_wrong_usage_is_one_line_and_leaves_nothing_behind(words: list[str], problem: str, tmp_path: Path) -> None:
    output = amcast(*words, cwd=tmp_path, code=2)
    assert problem in output
    assert len(output.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


CLUSTER = """
cluster = "shop"
protocol = "fastcast"
{id}
[[process]]
id = "g1.p0"
address = "127.0.0.1:7101"
[[process]]
id = "g1.p1"
address = "127.0.0.1:7102"
[[process]]
id = "g1.p2"
address = "127.0.0.1:7103"
"""


def test_folders_of_a_cluster_on_many_machines(tmp_path: Path) -> None:
    """Formatted once each; what a process is follows from its folder, and never from a file being absent."""
    config = tmp_path / "cluster.toml"
    config.write_text(CLUSTER.format(id=""))
    init = ("init", "--config", "cluster.toml")
    assert "this cluster has no id: add a line such as id =" in amcast(*init, cwd=tmp_path, code=2)
    config.write_text(CLUSTER.format(id='id = "5f1c"'))
    node = ("node", "--config", "cluster.toml", "--id", "g1.p0")
    output = amcast(*node, cwd=tmp_path, code=2)
    assert "g1.p0: is not formatted: run `amcast init` if the cluster is new, or `amcast replace` if" in output
    made = document(*init, "--id", "g1.p0", cwd=tmp_path)
    assert made == {"formatted": {"g1.p0": str(tmp_path / "data" / "g1.p0")}}
    assert "is formatted already" in amcast(*init, cwd=tmp_path, code=2)
    assert "there is no process 'g1.p7'" in amcast(*init, "--id", "g1.p7", cwd=tmp_path, code=2)
    output = amcast("replace", "g1.p0", "--config", "cluster.toml", cwd=tmp_path)
    assert "what g1.p0 had is in" in output
    assert "start it (`amcast node --config cluster.toml --id g1.p0`)" in output
    assert (tmp_path / "data" / "g1.p0" / "replaced-1" / "identity").exists()


def test_who_is_alone_in_its_group_is_not_replaced(folder: Path) -> None:
    amcast("up", "-p", "skeen", "--groups", "1", cwd=folder)
    amcast("down", cwd=folder)
    assert "g1.p0 is alone in its group" in amcast("replace", "g1.p0", cwd=folder, code=2)


def test_status_has_a_column_for_applications_where_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Console(record=True, width=160)
    monkeypatch.setattr(_cluster, "console", output)
    cluster = LocalCluster.create(tmp_path / "c", plan(tmp_path / "c", "fastcast", groups=1))
    status = Status("g1.p0", "g1", "fastcast", 1, True, "g1.p0", 1_500, 0, 0, {}, 0, 0, 0, "sync", 0, 1.0, 50.0)
    statuses = {"g1.p0": msgspec.structs.replace(status, application=1_200), "g1.p1": status, "g1.p2": None}
    _cluster._show(cluster, statuses)
    with_application = output.export_text()
    assert "app lag" in with_application
    assert "300" in next(line for line in with_application.splitlines() if "g1.p0" in line)
    _cluster._show(cluster, {"g1.p1": status, "g1.p2": None})
    assert "app lag" not in output.export_text()


def test_status_cuts_no_address_on_a_narrow_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = Console(record=True, width=80, force_terminal=True)
    monkeypatch.setattr(_cluster, "console", output)
    cluster = LocalCluster.create(tmp_path / "c", plan(tmp_path / "c", "fastcast", groups=1))
    status = Status("g1.p0", "g1", "fastcast", 1, True, "g1.p0", 1_234_567, 0, 0, {}, 0, 0, 0, "sync", 0, 1.0, 5_000.0)
    statuses = {"g1.p0": msgspec.structs.replace(status, application=1_200), "g1.p1": status, "g1.p2": None}
    _cluster._show(cluster, statuses, {"g1.p0": 123_456.0})
    shown = output.export_text().splitlines()
    assert max(map(len, shown)) <= 80
    assert [line.split()[-1] for line in shown[1:4]] == [entry.address for entry in cluster.config.process]
    assert "app lag" in shown[0]
    monkeypatch.setattr(_cluster, "console", Console(record=True, width=80, force_terminal=False))
    _cluster._show(cluster, statuses, {})
    piped = _cluster.console.export_text().splitlines()
    assert [line.split()[-1] for line in piped[1:4]] == [entry.address for entry in cluster.config.process]
    assert "clients" in piped[0]


def test_lines_of_a_log_that_are_no_json() -> None:
    assert json.loads(_cluster._json_of("Traceback (most recent call last):")) == {
        "text": "Traceback (most recent call last):"
    }
    assert json.loads(_cluster._json_of('{"process":"g1.p0"}')) == {"process": "g1.p0"}
    assert json.loads(_cluster._json_of("[1]")) == {"text": "[1]"}


def test_clients_of_a_load_are_in_the_region_that_is_named(folder: Path) -> None:
    """Skeen's one process is in R1. A round trip from R3 takes 144 ms, and no delay is below a quarter of the mean."""
    amcast("up", "-p", "skeen", "--groups", "1", "--network", "wan", "--durability", "memory", cwd=folder)
    load = ["load", "--clients", "1", "--messages", "8", "--outstanding", "1", "--destinations", "1"]
    far = document(*load, "--client-region", "R3", cwd=folder)
    assert far["latency_at"] == "client"
    assert far["latency_us"]["p50"] > 144_000 / 4
    assert "latency at the client" in amcast(*load, cwd=folder)
    wrong = amcast(*load, "--client-region", "R9", cwd=folder, code=2)
    assert wrong == "error: the network wan has no region 'R9': choose one of R1, R2, R3\n"
    amcast("down", "--collect", "run", cwd=folder)
    described = json.loads((folder / "run" / "run.json").read_text())
    assert "R3" in [region for process, region in described["regions"].items() if process != "0"]


def test_a_region_needs_a_network(folder: Path) -> None:
    amcast("up", "-p", "skeen", "--groups", "1", "--durability", "memory", cwd=folder)
    told = amcast("load", "--client-region", "R1", cwd=folder, code=2)
    assert told.startswith("error: this cluster emulates no distances")
