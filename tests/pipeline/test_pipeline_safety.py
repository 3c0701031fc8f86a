"""What reports and Spark's launcher do with names that others chose, and with folders that others made. No Spark."""

from __future__ import annotations

import csv
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from amcast.pipeline import _java
from amcast.pipeline.report._write import write_tables


@pytest.mark.parametrize("cell", ['=HYPERLINK("http://x","y")', "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_of_a_csv_file_is_a_formula(cell: str, tmp_path: Path) -> None:
    table = pa.table({"run_id": [cell, "plain", None], "count": [-1, 2, 3]})
    write_tables(tmp_path / "tables", {"runs": table})
    with (tmp_path / "tables" / "runs.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[1:] == [["'" + cell, "-1"], ["plain", "2"], ["", "3"]]


# -- the folder of the launcher


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory that others use too, on a machine where the cache of this user can't be used."""
    (tmp_path / "no-cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    shared = tmp_path / "tmp"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    return shared / f"amcast-{os.getuid()}"


def test_the_launcher_can_live_in_the_temporary_directory(temporary: Path) -> None:
    home = _java.launcher_home(Path("/bin/true"), 17)
    assert home.parent == temporary
    assert temporary.stat().st_mode & 0o777 == 0o700


def test_a_folder_in_which_others_may_write_is_not_trusted(temporary: Path) -> None:
    temporary.mkdir()
    temporary.chmod(0o777)
    home = _java.launcher_home(Path("/bin/true"), 17)
    assert home.parent != temporary
    assert home.parent.stat().st_mode & 0o077 == 0


def test_a_folder_of_another_user_is_not_trusted(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary.mkdir(mode=0o700)
    uid = os.getuid()
    os.rename(temporary, temporary.with_name(f"amcast-{uid + 1}"))
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert not _java.launcher_home(Path("/bin/true"), 17).is_relative_to(temporary.with_name(f"amcast-{uid + 1}"))


def test_a_link_is_not_trusted(temporary: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    temporary.symlink_to(elsewhere)
    _java.launcher_home(Path("/bin/true"), 17)
    assert list(elsewhere.iterdir()) == []


def test_the_path_of_a_java_is_no_shell_code(tmp_path: Path) -> None:
    java = tmp_path / '$(touch broken)"; touch broken; "' / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho ran\n")
    java.chmod(0o755)
    home = _java.launcher_home(java, 17, tmp_path / "cache")
    answer = subprocess.run([home / "bin" / "java"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer.stdout == "ran\n"
    assert not (tmp_path / "broken").exists()
    assert shlex.quote(str(java)) in (home / "bin" / "java").read_text()
