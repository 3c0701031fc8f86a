"""`amcast down` removes what `amcast up` made in a folder, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amcast.core import UsageError
from amcast.net.local import CONFIG, LocalCluster, plan
from amcast.net.made import LIST


def make(folder: Path, tls: bool = False) -> LocalCluster:
    return LocalCluster.create(folder, plan(folder, "skeen", 1, 1, trace=True, tls=tls))


def names_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_folder_of_its_own_is_removed_as_a_whole(tmp_path: Path) -> None:
    cluster = make(tmp_path / "cluster", tls=True)
    (cluster.trace_folder).mkdir()
    (cluster.trace_folder / "some.trace").touch()
    assert cluster.remove() == []
    assert not (tmp_path / "cluster").exists()


def test_files_that_were_there_before_stay(tmp_path: Path) -> None:
    for name in ("notes.txt", "data/my.csv", "logs/my.log", "certs/mine.key", "src/deep/code.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    before = names_below(tmp_path)
    cluster = make(tmp_path, tls=True)
    assert cluster.remove() == ["certs", "data", "logs", "notes.txt", "src"]
    assert names_below(tmp_path) == before


def test_files_that_came_later_stay(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    cluster = make(folder)
    (folder / "data" / "my.csv").touch()
    (folder / "runs").mkdir()
    assert cluster.remove() == ["data", "runs"]
    assert names_below(folder) == ["data", "data/my.csv", "runs"]


def test_an_authority_that_was_there_before_stays(tmp_path: Path) -> None:
    cluster = make(tmp_path, tls=True)
    kept = [tmp_path / "certs" / name for name in ("ca.crt", "ca.key", "cluster.secret")]
    content = [path.read_bytes() for path in kept]
    (tmp_path / CONFIG).unlink()
    (tmp_path / LIST).unlink()
    for path in [*(tmp_path / "certs").glob("g1.*"), *(tmp_path / "certs").glob("client.*")]:
        path.unlink()
    for path in (tmp_path / "data" / "g1.p0").iterdir():
        path.unlink()
    cluster = make(tmp_path, tls=True)
    cluster.remove()
    assert [path.read_bytes() for path in kept] == content
    assert not (tmp_path / "certs" / "g1.p0.key").exists()


@pytest.mark.parametrize("place", ["data", "certs", "data/g1.p0"])
def test_links_are_not_followed(place: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "cluster", tmp_path / "elsewhere"
    cluster = make(folder, tls=True)
    (folder / place).rename(elsewhere)
    (folder / place).symlink_to(elsewhere)
    before = names_below(elsewhere)
    assert cluster.remove() == [place.split("/")[0]]
    assert names_below(elsewhere) == before


@pytest.mark.parametrize("listed", ['["../mine"]', '["/mine"]', '["data/../../mine"]', '["notes.txt"]', "{}", "["])
def test_a_list_that_names_something_else_is_refused(listed: str, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    cluster = make(folder)
    (tmp_path / "mine").touch()
    (folder / "notes.txt").touch()
    (folder / LIST).write_text(listed)
    before = names_below(tmp_path)
    with pytest.raises(UsageError, match="nothing is removed"):
        cluster.remove()
    assert names_below(tmp_path) == before


def test_without_a_list_nothing_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    cluster = make(folder)
    (folder / LIST).unlink()
    assert cluster.remove() == [CONFIG, "data"]


@pytest.mark.parametrize("place", ["logs", "logs/g1.p0.log", "pids", "pids/g1.p0"])
def test_logs_and_pids_are_not_written_through_links(place: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "cluster", tmp_path / "elsewhere"
    cluster = make(folder)
    is_folder = "/" not in place
    if is_folder:
        elsewhere.mkdir()
    else:
        elsewhere.write_text("mine")
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).symlink_to(elsewhere)
    with pytest.raises(UsageError, match="symbolic link"):
        cluster.start()
    assert names_below(elsewhere) == [] if is_folder else elsewhere.read_text() == "mine"
    assert cluster.pid("g1.p0") is None


@pytest.mark.parametrize("place", ["logs", "pids"])
def test_logs_and_pids_of_another_user_are_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make(tmp_path)
    (tmp_path / place).mkdir()
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(UsageError, match="another user"):
        cluster.start()
    assert cluster.pid("g1.p0") is None


def test_down_says_what_it_left(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    make(tmp_path)
    program = [sys.executable, "-c", "from amcast.cli import main; main()"]
    done = subprocess.run(
        [*program, "down", "--purge", "-d", "."], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "notes.txt" in done.stdout
    assert os.listdir(tmp_path) == ["notes.txt"]
