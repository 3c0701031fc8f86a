"""`amcast placement`, and the examples on GeoPaxos as their pages say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amcast.net.local import LocalCluster
from tests.apps.example_apps import EXAMPLES
from tests.cli.test_cli_cluster import amcast as program
from tests.cli.test_cli_cluster import document
from tests.docs.docs_pages import blocks


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    if (tmp_path / ".amcast" / "cluster.toml").exists():
        LocalCluster(tmp_path / ".amcast").stop()


@pytest.mark.parametrize(
    ("example", "output", "user"), [("social", "'text': 'hello'", "bob"), ("market", "70", "account:ann")]
)
def test_an_example_runs_as_its_page_says(folder: Path, example: str, output: str, user: str) -> None:
    shutil.copy(EXAMPLES / example / f"{example}.py", folder)
    page = EXAMPLES / example / "README.md"
    (start,) = blocks(page, "sh")
    (client,) = blocks(page, "python")
    program(*start.text.split()[1:], cwd=folder)
    ran = subprocess.run([sys.executable, "-c", client.text], cwd=folder, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert output in ran.stdout
    shown = document("placement", "show", user, cwd=folder)
    assert shown["object"] == user
    assert set(shown["recent"]) <= {"us-west-1"}
    status = document("placement", "status", cwd=folder)
    assert [each["policy"] for each in status["sites"]] == ["affinity"] * 3
    program("down", "--purge", cwd=folder)


def test_placement_is_told_in_words(folder: Path) -> None:
    program("up", "-p", "geopaxos", "--groups", "1", "--replicas", "1", "--placement", "affinity", cwd=folder)
    assert "ann belongs to g1, as a hash of its name says" in program("placement", "show", "ann", cwd=folder)
    assert "affinity" in program("placement", "status", cwd=folder)
    assert "give one" in program("placement", "show", "", cwd=folder, code=2)
    assert "its option placement is affinity" in program("up", "--placement", "wandering", cwd=folder, code=2)
    program("down", cwd=folder)
    assert "no process of the cluster answers" in program("placement", "show", "ann", cwd=folder, code=2)


def test_where_there_are_no_sites_there_is_no_placement(folder: Path) -> None:
    assert "placement" in program("up", "-p", "skeen", "--placement", "affinity", cwd=folder, code=2)
    assert not (folder / ".amcast").exists()
    program("up", "-p", "skeen", "--groups", "1", cwd=folder)
    told = program("placement", "status", cwd=folder, code=2)
    assert "objects have sites in geopaxos, not in skeen" in told


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("nonsense", "there is no placement policy 'nonsense'"),
        ("mine.py:Mine", "the placement policy mine.py:Mine can't be loaded: there is no file"),
        ("wrong.py:Mine", "makes a dict, which has no method `decide`"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said_at_once(folder: Path, policy: str, problem: str) -> None:
    (folder / "wrong.py").write_text("def Mine(sites):\n    return dict(sites)\n")
    output = program("up", "-p", "geopaxos", "--placement", policy, cwd=folder, code=2)
    assert problem in output
    assert len(output.strip().splitlines()) == 1
    assert not (folder / ".amcast").exists()


def test_a_site_that_does_not_exist_is_said_at_once(folder: Path) -> None:
    sites = f"sites={json.dumps(['g1', 'g7'])}"
    output = program("up", "-p", "geopaxos", "-o", sites, "--placement", "affinity", cwd=folder, code=2)
    assert "sites names 'g7', which is no group of this topology" in output
