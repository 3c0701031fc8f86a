"""What a load process is asked, and what it answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import msgspec
import numpy as np

from ._children import cpu_seconds


class Shape(msgspec.Struct, frozen=True, order=True):
    """So many sessions, each with so many messages under way all the time."""

    sessions: int
    outstanding: int

    @property
    def total(self) -> int:
        return self.sessions * self.outstanding

    def __str__(self) -> str:
        return f"{self.sessions} x {self.outstanding:,}"


class Job(msgspec.Struct, frozen=True):
    """A closed loop: whatever is answered is followed by the next message."""

    where: list[str]  # addresses of servers
    shape: Shape
    messages: int
    destinations: int  # groups of each message, where a system has groups
    pids: list[int]  # of the servers, whose CPU time is to be counted
    connections: int | None = None  # that the sessions share, where they can; none: each has its own


class Ready(msgspec.Struct, frozen=True):
    """Said once, by a load process that has something to wait for."""


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
    """CPU time over the messages between the first and the last mark."""

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
