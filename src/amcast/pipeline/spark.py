"""Starts and stops Spark sessions: local by default, or on any Spark master or Spark Connect endpoint.

A Spark session from here prints nothing, listens on the loopback address only (if it is local), and leaves no file
behind in the working directory. If it can't start, the error is one line and comes in bounded time.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession as SparkSession  # also for packages that import nothing of Spark's

from ..core import UsageError
from ._errors import first_line, was_stopped
from ._java import find_java, launcher_home

_T = TypeVar("_T")

_PACKAGE = Path(__file__).resolve().parent
_START_SECONDS = 30
_CONNECT_SECONDS = 5  # for a port to take a connection
_ANSWER_SECONDS = 20  # for a server to answer on it: Java that just started, on a busy machine, takes its time
_LOCAL_MASTERS = ("local", "local[", "local-cluster[")
_DEFAULT_PORTS = {"spark": 7077, "sc": 15002}

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",  # no job to list files: we name each file
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}


def spark_session(
    master: str | None = None,
    remote: str | None = None,
    app: str = "amcast",
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """A new Spark session, or the one that is already active. `options` are Spark settings that win over ours."""
    if master and remote:
        raise UsageError("name a Spark master or a Spark Connect endpoint, not both")
    if remote:
        return _connect(remote, app, options or {})
    active = SparkContext._active_spark_context
    if active is not None:
        _refuse_another(active.master or "", master)
        return SparkSession.builder.getOrCreate()
    return _start(master or os.environ.get("MASTER") or "local[*]", app, options or {})


@contextmanager
def running_spark(master: str | None = None, remote: str | None = None, app: str = "amcast") -> Iterator[SparkSession]:
    """A Spark session for a `with` block: it is stopped afterwards, with its Java process, also on Ctrl-C."""
    spark = spark_session(master, remote, app)
    stop = stop_spark
    try:
        yield spark
    except BaseException as error:
        if was_stopped(error):
            stop = _abandon_spark
            raise KeyboardInterrupt from error
        raise
    finally:
        stop(spark)


def stop_spark(spark: SparkSession) -> None:
    """Stops the Spark session and ends its Java process; a new one can start afterwards."""
    with _interrupts_held():
        with suppress(Exception):
            spark.stop()
        _end_java()


def _abandon_spark(spark: SparkSession) -> None:
    """Stops the Spark session after Ctrl-C interrupted a call of this thread to Java.

    The interrupted call still has the thread's connection to Java: any other call, also the one that stops the session,
    would wait until its job is done. So the Java process is ended from outside; it cleans up by itself.
    """
    with _interrupts_held():
        if is_connect(spark):
            with suppress(Exception):
                spark.interruptAll()
                spark.stop()
        _end_java()


def _end_java() -> None:
    gateway = SparkContext._gateway
    if gateway is None:
        return
    server: Any = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:  # it would print a traceback when Java closes its connection in the middle of a message
        server.handle_error = lambda request, client_address: None
    process = getattr(gateway, "proc", None)
    if process is not None:
        with suppress(Exception):
            process.stdin.close()  # Java ends when its input does
            process.wait(timeout=_START_SECONDS)
        with suppress(Exception):
            process.kill()
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block is done: a session that is half started, or half stopped, can't be stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _refuse_another(active: str, master: str | None) -> None:
    """A program can have one Spark session only. Any local one serves where a local one is asked for."""
    if master is None or master == active or (is_local(master) and is_local(active)):
        return
    _refuse_dead(master)
    raise UsageError(f"this process has a Spark session on {active} already: stop it before one on {master}")


def is_connect(spark: SparkSession) -> bool:
    """Over Spark Connect there is no SparkContext, and Python functions that Spark calls run beside the server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(master: str) -> bool:
    return master.startswith(_LOCAL_MASTERS)


# ---------------------------------------------------------------------------- a Spark session of our own


def _start(master: str, app: str, options: Mapping[str, str]) -> SparkSession:
    _refuse_dead(master)
    java, version = find_java()
    scratch = Path(tempfile.mkdtemp(prefix="amcast-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    _silence_py4j()
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(app)
    conf.setAll([*{**_settings(master, scratch), **options}.items()])
    try:
        with _environment(JAVA_HOME=str(launcher_home(java, version)), PYSPARK_PYTHON=sys.executable):
            with _interrupts_held():
                SparkContext._ensure_initialized(conf=conf)
            spark = _new_session(master, conf)
        _silence_threads(spark)
        if not is_local(master):
            _await_workers(spark, master)
            spark.sparkContext.addPyFile(str(_package_archive(scratch)))
    except BaseException as error:
        _end_java()
        if isinstance(error, UsageError) or not isinstance(error, Exception):
            raise
        raise UsageError(f"Spark does not start on {master}: {first_line(error)}") from error
    return spark


def _silence_threads(spark: SparkSession) -> None:
    """Threads of Spark that die while Java ends, as after Ctrl-C, tell it to Spark's log, and not to the terminal."""
    java: Any = spark.sparkContext._jvm
    handler = java.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    java.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)


def _silence_py4j() -> None:
    """Its log says nothing that an exception does not say. It also logs interrupted calls to the root logger."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _new_session(master: str, conf: SparkConf) -> SparkSession:
    handler = signal.getsignal(signal.SIGINT)
    start = SparkSession.builder.config(conf=conf).getOrCreate
    # A local session waits for no other machine, so it needs no limit; on a busy one it takes a minute. Yarn is slow.
    seconds = _START_SECONDS if master.startswith("spark://") else 3 * _START_SECONDS
    spark: SparkSession = start() if is_local(master) else _within(seconds, start, master)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)  # Spark's own handler first waits for the job
    return spark


def _settings(master: str, scratch: Path) -> dict[str, str]:
    java_options = (
        f"-Dlog4j2.configurationFile={(_PACKAGE / 'log4j2.properties').as_uri()} -Dderby.system.home={scratch}"
    )
    settings = {
        **_SETTINGS,
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.driver.extraJavaOptions": java_options,
    }
    if is_local(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",  # at most; the checks use the memory of Python workers
            "spark.local.dir": str(scratch),
        }
    return settings


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Environment variables for a process that is started in the block; restored afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _await_workers(spark: SparkSession, master: str) -> None:
    """Without this, the first job would wait for ever on a master that has no workers."""
    status = spark.sparkContext._jsc.sc()
    tick = threading.Event()
    for _ in range(_START_SECONDS * 4):
        if status.isStopped():
            break
        if status.getExecutorMemoryStatus().size() > 1:
            return
        tick.wait(0.25)
    raise UsageError(f"{master}: no worker answered within {_START_SECONDS} s: is the Spark cluster up?")


def _package_archive(scratch: Path) -> Path:
    """The project as a zip file, for the workers of a Spark cluster, which need not have it installed."""
    archive = scratch / "amcast.zip"
    root = _PACKAGE.parents[1]
    with zipfile.ZipFile(archive, "w") as file:
        for source in sorted((root / "amcast").rglob("*.*")):
            if source.suffix not in ("", ".pyc"):  # not only .py: the simulator reads a CSV file
                file.write(source, source.relative_to(root))
    return archive


# --------------------------------------------------------------------------------------------- Spark Connect


def _connect(remote: str, app: str, options: Mapping[str, str]) -> SparkSession:
    if not remote.startswith("sc://"):
        raise UsageError(f"{remote} is not a Spark Connect endpoint: write sc://host:port")
    _refuse_dead(remote)
    _refuse_mute(remote)
    builder: Any = SparkSession.builder.remote(remote).appName(app)
    for name, value in options.items():
        builder = builder.config(name, value)

    def start() -> SparkSession:
        spark: SparkSession = builder.getOrCreate()
        assert spark.version, "a session has a version; asking for it needs the server"
        return spark

    try:
        spark = _within(_START_SECONDS, start, remote)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{remote}: no Spark Connect session: {first_line(error)}") from error
    with tempfile.TemporaryDirectory() as scratch:
        spark.addArtifacts(str(_package_archive(Path(scratch))), pyfile=True)
    return spark


# -------------------------------------------------------------------------------------------------- failures


def _refuse_dead(address: str) -> None:
    """Refuses an address where nobody listens. Spark itself would retry for up to ten minutes, and print pages."""
    if "://" not in address:
        if not is_local(address) and address != "yarn":
            raise UsageError(f"{address} is not a Spark master: use local[*], spark://host:port, k8s://... or yarn")
        return
    parts = urlsplit(address.split(",")[0].split(";")[0])
    if parts.scheme not in _DEFAULT_PORTS:
        return
    try:
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "no answer"
        raise UsageError(f"{address}: nobody answers there ({reason}): is Spark running?") from error


def _refuse_mute(remote: str) -> None:
    """Refuses an address where another program listens. Spark's client would retry for ten minutes, twice."""
    import grpc  # takes half a second, and only Spark Connect needs it
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        channel = DefaultChannelBuilder(remote).toChannel()
    except PySparkException as error:
        raise UsageError(f"{remote} is not a Spark Connect endpoint: {first_line(error)}") from error
    try:
        grpc.channel_ready_future(channel).result(timeout=_ANSWER_SECONDS)
    except grpc.FutureTimeoutError as error:
        raise UsageError(f"{remote}: no Spark Connect server answers there within {_ANSWER_SECONDS} s") from error
    finally:
        channel.close()


def _within(seconds: int, start: Callable[[], _T], address: str) -> _T:
    """The result of `start`. If it takes too long, its thread goes on, but does not keep the program alive."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(start())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise UsageError(f"{address}: Spark did not answer within {seconds} s: is it a Spark master, of this version?")
    return results[0]
