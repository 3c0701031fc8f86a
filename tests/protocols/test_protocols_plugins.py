"""Protocols of other packages: the example has every command, and a broken one is in nobody's way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amcast.core import UsageError
from amcast.protocols import PROTOCOLS, _plugins, installed, protocol, select

EXAMPLE = Path(__file__).parents[2] / "examples" / "chain_protocol"
PROGRAM = [sys.executable, "-c", "from amcast.cli import main; main()"]


# -- the example, as a user has it


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example is installed, built by what builds amcast itself: no network is needed."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", folder, EXAMPLE], check=True, timeout=120)
    return folder


def run(*words: str, site: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, cwd=cwd, env=env, timeout=300)


class User:
    """Who has the example installed, and works in a folder."""

    def __init__(self, site: Path, folder: Path) -> None:
        self._site = site
        self.folder = folder

    def __call__(self, *words: str) -> str:
        done = run(*words, site=self._site, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def document(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def user(site: Path, tmp_path: Path) -> Iterator[User]:
    user = User(site, tmp_path)
    yield user
    if (tmp_path / ".amcast" / "cluster.toml").exists():
        user("down")


def test_the_example_is_listed_measured_fuzzed_and_simulated(user: User) -> None:
    assert [each["name"] for each in user.document("protocols")] == [*PROTOCOLS, "chain"]
    measured = user.document("hops", "-p", "chain")
    assert {row["case"]: row["delays"] for row in measured} == {"local": 1, "global": 2}
    for replicas in ("1", "3"):
        fuzzed = user.document("fuzz", "-p", "chain", "--seeds", "30", "--faults", "all", "--replicas", replicas)
        assert fuzzed["seeds"] == 30
        assert fuzzed["faults_injected"] > 100
        assert fuzzed["violations"] == []
    user("sim", "-p", "chain", "--groups", "4", "--messages", "50", "--out", "run")
    assert user.document("check", "run")["verdict"] == "pass"


def test_the_example_runs_on_a_real_cluster(user: User) -> None:
    up = user.document("up", "-p", "chain", "--groups", "3", "--durability", "memory", "--trace-wire")
    assert up["protocol"] == "chain"
    assert all(process["up"] for process in up["processes"])
    assert user.document("load", "--messages", "200", "--clients", "3")["messages"] == 200
    assert "200 messages in run" in user("down", "--collect", "run")
    report = user.document("check", "run")
    assert report["verdict"] == "pass"
    assert report["properties"]["genuine"] == "pass"


# -- what may be wrong with one


Register = Callable[[str, str, str], None]


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Register]:
    """Writes a package with one module and one entry point, as an installer would."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(package: str, name: str, source: str) -> None:
        (tmp_path / f"{package}.py").write_text(source)
        described = tmp_path / f"{package}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (described / "entry_points.txt").write_text(f"[amcast.protocols]\n{name} = {package}:SPEC\n")
        forget()

    def forget() -> None:
        _plugins._entry_points.cache_clear()
        _plugins._load.cache_clear()
        for module in [each for each in sys.modules if each.startswith("plugged_")]:
            del sys.modules[module]

    yield write
    monkeypatch.undo()
    forget()


RENAMED = "from dataclasses import replace\nfrom amcast.protocols import protocol\n"
GOOD = RENAMED + "SPEC = replace(protocol('skeen'), name='good')\n"


def test_a_plugin_is_found_by_name_and_with_all_others(register: Register) -> None:
    register("plugged_good", "good", GOOD)
    assert protocol("good").name == "good"
    assert protocol("good") is protocol("good")
    assert [spec.name for spec in select("all")] == [*PROTOCOLS, "good"]
    with pytest.raises(UsageError, match=r"no protocol 'nope': choose one of skeen.*, geopaxos, good$"):
        protocol("nope")


def test_a_plugin_is_not_loaded_before_it_is_asked_for(register: Register) -> None:
    register("plugged_unused", "unused", "raise SystemExit('loaded')\n")
    assert protocol("skeen").name == "skeen"
    with pytest.raises(UsageError, match=r"choose one of .*unused"):
        protocol("nope")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'"),
        ("SPEC = 3\n", "plugged_bad:SPEC is no ProtocolSpec but int"),
        ("OTHER = 3\n", "has no attribute 'SPEC'"),
        ("from amcast.protocols import ProtocolSpec\nSPEC = ProtocolSpec(name='bad')\n", "missing .* required"),
        ("raise AssertionError\n", "AssertionError"),
        ("raise ValueError('one\\ntwo')\n", "one$"),
        (GOOD, "its entry point is called 'bad', but the name in its ProtocolSpec is 'good'"),
    ],
)
def test_a_broken_plugin_is_told_in_one_line_and_breaks_nothing_else(
    source: str, words: str, register: Register
) -> None:
    register("plugged_bad", "bad", source)
    register("plugged_good", "good", GOOD)
    line = f"^the protocol 'bad' of plugged_bad 1.0 can't be used: .*{words}"
    with pytest.raises(UsageError, match=line):
        protocol("bad")
    specs, problems = installed()
    assert [spec.name for spec in specs] == [*PROTOCOLS, "good"]
    assert len(problems) == 1
    assert "plugged_bad 1.0" in problems[0]
    assert "\n" not in problems[0]


@pytest.mark.parametrize("name", ["skeen", "all"])
def test_a_plugin_can_not_take_a_name_that_is_in_use(name: str, register: Register) -> None:
    register("plugged_thief", name, GOOD)
    specs, problems = installed()
    assert [spec.name for spec in specs] == list(PROTOCOLS)
    expected = f"plugged_thief 1.0 registers a protocol '{name}', a name that amcast uses itself: rename it there"
    assert problems == [expected]
    assert protocol("skeen") is PROTOCOLS["skeen"]


def test_two_packages_with_one_name_are_both_refused(register: Register) -> None:
    register("plugged_good", "good", GOOD)
    register("plugged_twin", "good", GOOD)
    with pytest.raises(UsageError, match=r"'good' is registered by plugged_\w+ 1.0 and plugged_\w+ 1.0: uninstall"):
        protocol("good")


def test_the_list_of_protocols_names_a_broken_one_on_stderr(register: Register, tmp_path: Path) -> None:
    register("plugged_bad", "bad", "SPEC = 3\n")
    done = run("protocols", "--json", site=tmp_path, cwd=tmp_path)
    assert done.returncode == 0
    assert [each["name"] for each in json.loads(done.stdout)] == list(PROTOCOLS)
    assert done.stderr.startswith("warning: the protocol 'bad' of plugged_bad 1.0 can't be used")
    assert done.stderr.count("\n") == 1
