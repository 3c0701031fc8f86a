"""Java is found or brought along, and a Spark that is not there is one line, soon."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from amcast.core import UsageError
from amcast.pipeline import _java, spark_session
from amcast.pipeline._java import bundled_java, find_java, java_version, launcher_home, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
        ("no such thing", None),
    ],
)
def test_versions(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


def test_java_home_comes_first_if_it_is_new_enough(tmp_path: Path) -> None:
    new, old = fake_java(tmp_path / "new", "21.0.1"), fake_java(tmp_path / "old", "1.8.0")
    assert find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": ""}) == (new, 21)
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}) == (new, 21)
    assert java_version(old) == 8
    assert java_version(tmp_path / "none") is None


def test_without_java_the_bundled_one_runs_and_refuses_no_option(tmp_path: Path) -> None:
    java, version = find_java({"PATH": str(tmp_path)})
    assert java == bundled_java()
    program = launcher_home(java, version, tmp_path) / "bin" / "java"
    options = ["--add-modules=jdk.incubator.vector", "-Dpath=with a space", "-version"]
    answer = subprocess.run([program, *options], capture_output=True, text=True, check=True)
    assert parse_version(answer.stderr) == version
    assert "WARNING" not in answer.stderr


def test_no_java_at_all_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_java, "bundled_java", lambda: None)
    with pytest.raises(UsageError, match="needs Java 17"):
        find_java({"PATH": str(tmp_path)})


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_dead_endpoint_is_one_line(scheme: str) -> None:
    address = f"{scheme}://127.0.0.1:{closed_port()}"
    named = {"remote": address} if scheme == "sc" else {"master": address}
    with pytest.raises(UsageError, match="nobody answers there") as caught:
        spark_session(**named)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "named", [{"master": "lokal"}, {"remote": "spark://x"}, {"master": "local", "remote": "sc://x"}]
)
def test_what_is_no_endpoint_is_refused(named: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        spark_session(**named)


_SCRIPT = """
import os
from amcast.pipeline import running_spark
with running_spark("local[1]") as spark:
    assert spark.range(3).count() == 3
    print(spark.sparkContext._gateway.proc.pid, flush=True)
"""


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_session_is_quiet_and_leaves_nothing_behind(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=170
    )
    assert answer.stderr == ""
    assert not list(tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(int(answer.stdout), 0)
