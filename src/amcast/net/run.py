"""Runs a node until it is told to stop: `python -m amcast.net cluster.toml g1.p0`, or `amcast node`."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from ..core import UsageError
from .app_loading import load_policy, make_application
from .config import ClusterConfig, load_config
from .node.application import ApplicationError, Machine
from .node.server import NodeServer
from .system import system

# Handlers make many short-lived tuples and hardly any cycles, so the garbage collector may run less often.
_GC_THRESHOLD = 50_000
_DESCRIPTORS = 16_384  # more than all limits on connections and all files of a node need together


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, process, message."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "process": self._name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def log_as_json(name: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(name))
    root = logging.getLogger("amcast")
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


def run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop, if it is installed."""
    try:
        import uvloop
    except ImportError:  # pragma: no cover - a platform without it
        asyncio.run(main)
    else:
        uvloop.run(main)


async def serve(config: ClusterConfig, name: str, machine: Machine | None = None, hold_at: int | None = None) -> None:
    """Runs until SIGTERM or SIGINT, or until the node fails: then it raises why. SIGHUP has it read files again."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = NodeServer(config, name, machine, hold_at)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    loop.set_exception_handler(lambda _, context: server.on_loop_problem(context))
    gc.set_threshold(_GC_THRESHOLD, 20, 50)
    try:
        await server.start()
        gc.freeze()
        server.failure.add_done_callback(lambda _: stopped.set())
        await stopped.wait()
        if server.failure.done():
            server.failure.result()
    finally:
        await server.stop()


def run_node(config: ClusterConfig, name: str, machine: Machine | None = None, hold_at: int | None = None) -> None:
    """Blocks. A program may pass a state machine of its own in place of the one that the configuration names.

    `hold_at`: the application executes nothing from this position on, until its group has decided to skip it.
    """
    load_policy(config)
    machine = machine or make_application(config, name)
    log_as_json(name)
    system().raise_descriptors(_DESCRIPTORS)
    try:
        run_in_loop(serve(config, name, machine, hold_at))
    except (OSError, ApplicationError) as error:
        raise UsageError(f"{name} can't go on: {error}") from error


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3) or not all(position.isdigit() for position in arguments[2:]):
        sys.stderr.write("usage: python -m amcast.net CLUSTER.TOML PROCESS [HOLD_AT]\n")
        return 2
    try:
        run_node(load_config(Path(arguments[0])), arguments[1], hold_at=int(arguments[2]) if arguments[2:] else None)
    except UsageError as error:
        sys.stderr.write(f"amcast: {error}\n")
        return 2
    return 0
