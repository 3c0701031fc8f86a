"""The jobs of load processes and their answers, as lines of JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Sequence

import msgspec
import numpy as np

from ._children import cpu_seconds


class Shape(msgspec.Struct, frozen=True, order=True):
    """How many sessions there are, and how many messages each has outstanding all the time."""

    sessions: int
    outstanding: int

    @property
    def total(self) -> int:
        return self.sessions * self.outstanding

    def __str__(self) -> str:
        return f"{self.sessions} x {self.outstanding:,}"


class Job(msgspec.Struct, frozen=True):
    """A closed loop: each answer is followed by the next message."""

    where: list[str]  # addresses of servers, or one cluster.toml
    shape: Shape
    messages: int
    destinations: int  # number of groups that each message goes to; 1 for systems without groups
    pids: list[int]  # of the servers, to count their CPU time
    connections: int | None = None  # to each node, which all sessions share; None: each session has its own
    payload_bytes: int = 64


class Ready(msgspec.Struct, frozen=True):
    """The first answer of a load process that must wait for its system before it takes a job."""


class Outcome(msgspec.Struct, frozen=True):
    messages: int
    seconds: float
    p50_us: float
    p99_us: float
    server_cpu_us: float  # a message, over all servers
    load_cpu_us: float  # a message, of the load process; 0 where the load runs in a server

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.server_cpu_us + self.load_cpu_us


class CpuMeter:
    """CPU time a message, of servers and load, between the first and the last mark."""

    def __init__(self, servers: Sequence[int], load: Sequence[int]) -> None:
        self._servers = servers
        self._load = load
        self._marks: list[tuple[int, float, float]] = []

    @property
    def count(self) -> int:
        return len(self._marks)

    def mark(self, messages: int) -> None:
        self._marks.append((messages, cpu_seconds(self._servers), cpu_seconds(self._load)))

    def us_a_message(self) -> tuple[float, float]:
        first, last = self._marks[0], self._marks[-1]
        messages = max(1, last[0] - first[0])
        return (last[1] - first[1]) / messages * 1e6, (last[2] - first[2]) / messages * 1e6


def own_meter(job: Job) -> CpuMeter:
    return CpuMeter(job.pids, [os.getpid()])


def outcome(latencies_ns: Sequence[int], seconds: float, meter: CpuMeter) -> Outcome:
    p50, p99 = np.percentile(np.array(latencies_ns, np.int64), [50, 99]) / 1e3
    server_us, load_us = meter.us_a_message()
    return Outcome(len(latencies_ns), seconds, float(p50), float(p99), server_us, load_us)


def say(answer: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def serve(run_job: Callable[[Job], Coroutine[None, None, Outcome]]) -> None:
    """The main loop of a load process: runs each job from stdin, and writes its outcome to stdout."""
    from amcast.net.run import run_in_loop  # nodes of PySyncObj import this module, but need none of amcast

    async def perform(job: Job) -> None:
        say(await run_job(job))

    for line in sys.stdin.buffer:
        run_in_loop(perform(msgspec.json.decode(line, type=Job)))
