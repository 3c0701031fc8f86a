"""The verdict on a run with faults: what the trace says, what readers get, and what applications went through."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from amcast.check import Report, check_run
from amcast.net.client.observer import Delivery, GoneError
from amcast.net.local import LocalCluster
from amcast.pipeline import check_runs, read_runs, running_spark
from amcast.trace import read_run

from ._load import Acknowledged
from ._node import EMPTY, State, after, read_states, states_file

_SHOWN = 5

Engine = Literal["memory", "spark"]


class Result(msgspec.Struct, frozen=True):
    protocol: str
    faults: dict[str, int]
    acknowledged: int
    delivered: dict[str, int]  # positions of each group
    verdict: str
    violations: list[str]  # and why a verdict is unknown
    lost: int  # acknowledged, and not to be had from one of its groups
    duplicates: int  # delivered at two positions of a group
    changed: int  # delivered with another payload than the one that was acknowledged
    reused_ids: int
    applications: list[str]  # where their states differ
    problems: list[str]  # what nodes and readers complained of

    @property
    def is_good(self) -> bool:
        bad = (self.lost, self.duplicates, self.changed, self.reused_ids, self.applications, self.problems)
        return self.verdict == "pass" and self.acknowledged > 0 and not any(bad)

    def to_json(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "good": self.is_good}


class Reading:
    """What a client got from a group, from position 0 on."""

    def __init__(self) -> None:
        self.states: list[State] = [EMPTY]  # of an application that applies what was read
        self.count: Counter[int] = Counter()
        self.checksums: dict[int, int] = {}
        self.problem: str | None = None

    def add(self, delivery: Delivery) -> None:
        id_ = delivery.message.id
        self.states.append(after(self.states[-1], id_, delivery.payload))
        self.count[id_] += 1
        self.checksums[id_] = zlib.crc32(delivery.payload)


async def read_group(cluster: LocalCluster, group: str, end: int, reading: Reading | None = None) -> Reading:
    """All that the group delivered below a position."""
    reading = reading or Reading()
    async with cluster.client() as client:
        stream = client.deliveries(group, 0)
        try:
            while len(reading.states) <= end:
                reading.add(await anext(stream))
        except GoneError as error:
            reading.problem = f"{group} was read from position {len(reading.states) - 1} on: {error}"
        finally:
            await stream.aclose()
    return reading


def count_lost(acknowledged: dict[int, Acknowledged], readings: dict[str, Reading]) -> int:
    return sum(any(id_ not in readings[group].count for group in each.groups) for id_, each in acknowledged.items())


def count_changed(acknowledged: dict[int, Acknowledged], readings: Iterable[Reading]) -> int:
    return sum(
        id_ in reading.checksums and reading.checksums[id_] != each.checksum
        for reading in readings
        for id_, each in acknowledged.items()
    )


def compare_applications(cluster: LocalCluster, readings: dict[str, Reading]) -> list[str]:
    """Each application went through states of the sequence that was read, and came to its end. Those of liars too: the
    process behind the lies is a real one."""
    found = []
    for name in cluster.names:
        reading = readings[name.split(".")[0]]
        if reading.problem is None:
            found += differences(name, read_states(states_file(cluster.folder, name)), reading.states)
    return found


def differences(name: str, states: list[State], expected: list[State]) -> list[str]:
    wrong = [state for state in states if state[0] >= len(expected) or state != expected[state[0]]]
    if wrong:
        return [f"{name} was {len(wrong)} times in a state that nobody can have read, first at position {wrong[0][0]}"]
    last = states[-1] if states else EMPTY
    return [] if last == expected[-1] else [f"{name} ended at position {last[0]} of {expected[-1][0]}"]


def judge_trace(cluster: LocalCluster, out: Path, complete: bool, engine: Engine) -> tuple[str, list[str]]:
    """The verdict, and what is behind it if it is no pass."""
    cluster.collect(out, complete)
    report = check_run(read_run(out)) if engine == "memory" else _judge_on_spark(out)
    reasons = [f"{name}: {reason}" for name, reason in report.reasons.items()]
    if cluster.config.spec().orders_operations and "linearizability" not in report.properties:
        return "unknown", [*reasons, "no client has written down what it did"]
    return report.verdict, [violation.explanation for violation in report.violations[:_SHOWN]] + reasons


def _judge_on_spark(out: Path) -> Report:
    with running_spark() as spark:
        runs = read_runs(spark, [str(out)])
        reports = check_runs(spark, runs)
        assert len(reports) == 1, f"set aside: {runs.quarantined}"
        return reports[0]
