"""Programs as child processes: the command line, and the parts of a Spark cluster. None outlives its test."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyspark

import amcast as package
from amcast.pipeline._java import find_java, launcher_home

AMCAST = [sys.executable, "-c", "from amcast.cli import main; main()"]
_SECONDS_MAX = 120
_HOST = "127.0.0.1"


def amcast(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line, run to its end."""
    return run_to_end([*AMCAST, *map(str, words)], cwd)


def run_to_end(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=own_environment(cwd),
        timeout=_SECONDS_MAX,
    )


def own_environment(scratch: Path) -> dict[str, str]:
    """Children run the package that is tested, on the loopback, and on a Java that starts fast."""
    paths = [str(Path(package.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": _HOST,
        "JAVA_HOME": str(_quick_java(scratch.parent / f"{scratch.name}-java")),
    }


def _quick_java(home: Path) -> Path:
    java, version = find_java()
    program = home / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True)
        options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        program.write_text(f'#!/bin/sh\nexec "{launcher_home(java, version)}/bin/java" {options} "$@"\n')
        program.chmod(0o755)
    return home


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        return int(listener.getsockname()[1])


def until(condition: Callable[[], bool], what: Callable[[], str], seconds: float = _SECONDS_MAX) -> None:
    """Returns as soon as it holds; says what was wrong if it never does."""
    pause = threading.Event()
    for _ in range(int(seconds * 10)):
        if condition():
            return
        pause.wait(0.1)
    raise AssertionError(what())


@contextmanager
def started(command: list[str], env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program with a process group of its own, which is killed as a whole at the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(env), start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ------------------------------------------------------------------------------------------ parts of Spark


def _environment(scratch: Path) -> dict[str, str]:
    """Everything on the loopback, and every file in the scratch folder.

    What these machines have as `amcast` is broken: whoever sends work there must send the package along.
    """
    theirs = scratch / "theirs" / "amcast"
    theirs.mkdir(parents=True, exist_ok=True)
    (theirs / "__init__.py").write_text('raise ImportError("this is not the amcast of the driver")\n')
    return {
        **own_environment(scratch),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(theirs.parent),
        "TMPDIR": str(scratch),
    }


def _spark_class(*words: str) -> list[str]:
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *words]


def _port_in(log: Path, service: str, process: subprocess.Popen[bytes]) -> int:
    """Where a service that chose its port itself listens, as soon as it says so."""

    def said() -> list[str]:
        assert process.poll() is None, log.read_text()[-4_000:]
        return re.findall(rf"started service '(?:[\w.]+\.)?{service}' on port (\d+)\.", log.read_text())

    until(lambda: bool(said()), lambda: log.read_text()[-4_000:])
    return int(said()[0])


class Cluster:
    """A standalone master and its workers, one core each."""

    def __init__(self, port: int, web_port: int) -> None:
        self.master = f"spark://{_HOST}:{port}"
        self._page = f"http://{_HOST}:{web_port}/json/"

    def state(self) -> dict[str, Any]:
        with urlopen(self._page, timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def has(self, workers: int) -> bool:
        try:
            return int(self.state()["aliveworkers"]) == workers
        except (OSError, ValueError):  # it answers with an empty page at first
            return False


@contextmanager
def standalone_cluster(scratch: Path, workers: int = 2) -> Iterator[Cluster]:
    env = {**_environment(scratch), "SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as stack:
        logs = [scratch / "master.log", *(scratch / f"worker-{number}.log" for number in range(workers))]
        command = _spark_class("org.apache.spark.deploy.master.Master", "--host", _HOST, "--port", "0")
        master = stack.enter_context(started([*command, "--webui-port", "0"], env, logs[0]))
        cluster = Cluster(_port_in(logs[0], "sparkMaster", master), _port_in(logs[0], "MasterUI", master))
        for number in range(workers):
            sizes = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--host", _HOST]
            folder = ["--work-dir", str(scratch / f"work-{number}")]
            command = _spark_class("org.apache.spark.deploy.worker.Worker", *sizes, *folder, cluster.master)
            stack.enter_context(started(command, env, logs[1 + number]))
        until(lambda: cluster.has(workers), lambda: "\n".join(log.read_text()[-2_000:] for log in logs))
        yield cluster


@contextmanager
def connect_server(scratch: Path) -> Iterator[str]:
    """The address of a Spark Connect server in local mode."""
    settings = {
        "spark.connect.grpc.binding.address": _HOST,
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    words = ["--class", server, "--master", "local[2]", *options, "spark-internal"]
    log = scratch / "connect.log"
    env = {**_environment(scratch), "SPARK_DAEMON_MEMORY": "1g", "SPARK_CONNECT_MODE": "0"}
    with started(_spark_class("org.apache.spark.deploy.SparkSubmit", *words), env, log) as process:
        yield f"sc://{_HOST}:{_port_in(log, 'SparkConnectService', process)}"
