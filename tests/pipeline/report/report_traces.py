"""Runs small enough to compute every number by hand.

`by<hand>`: groups g1 = {p0 in EU, p1 in US}, g2 = {p2, p3 in US}; client 10 in EU, 11 in US. Times in microseconds.

    message  sender  to      sent   g1: p0, p1     g2: p2, p3    answered  latency: first, last replica, client
    1        10      g1         0   250, 60                      80        60    250   80
    2        11      g1 g2    100   400, 390       300, 310      480       290   300   380
    3        10      g2       290                  1030, 1020    1100      730   740   810
    4        11      g1 g2   2000   2300, 2400     never         never     -     -     -
    5        10      g1      5000   5040, 5080                   5050      40    80    50

p0 guesses: 2 at 150, 1 at 160, 4 at 2100. p2 crashes at 1500 and restarts at 3000.
`tiny`: one process, one message, sent at 0, delivered at 10, no wire. `crossed`: two groups that disagree.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from pyspark.sql import SparkSession

from amcast.cli import _report
from amcast.pipeline.metrics import METRICS
from amcast.trace import FINAL, OPTIMISTIC, GroupInfo, Recorder, RunInfo, write_run
from tests.check.traces import from_logs

BY_HAND, TINY, CROSSED = "by<hand>", "tiny", "crossed"

MULTICASTS = [(1, 10, 0, (1,), 0), (2, 11, 0, (1, 2), 100), (3, 10, 1, (2,), 290), (4, 11, 1, (1, 2), 2000)]
MULTICASTS.append((5, 10, 2, (1,), 5000))
FINALS = {
    0: [(1, 250), (2, 400), (4, 2300), (5, 5040)],
    1: [(1, 60), (2, 390), (4, 2400), (5, 5080)],
    2: [(2, 300), (3, 1030)],
    3: [(2, 310), (3, 1020)],
}
ANSWERS = [(1, 80), (2, 480), (3, 1100), (5, 5050), (5, 9000)]  # the last one twice: the first time counts
GUESSES = {0: [(2, 150), (1, 160), (4, 2100)]}
WIRE = [
    (10, 0, "START", 1, 100, 0, 20),
    (11, 0, "START", 2, 100, 100, 140),
    (11, 2, "START", 2, 100, 100, 150),
    (0, 2, "SOFT", 2, 20, 150, 160),
    (0, 2, "HARD", 2, 20, 250, 260),
    (2, 0, "HARD", 2, 20, 200, 210),
    (10, 3, "START", 3, 100, 290, 300),
    (11, 0, "START", 4, 100, 2000, 2050),
    (11, 2, "START", 4, 100, 2000, None),
    (0, 3, "RELAY", 1, 100, 30, 40),  # carried in vain: g2 is no destination of message 1
    (1, 0, "2b", None, 7, 30, 40),
]


@dataclass(frozen=True)
class HandMade:
    """What `amcast report` made of the three runs."""

    code: int
    document: dict[str, Any]
    folder: Path
    page: str
    tables: dict[str, pa.Table]

    def rows(self, name: str, run: str = BY_HAND, **wanted: Any) -> list[dict[str, Any]]:
        """Rows of a metric, without the columns that were asked for."""
        found = [row for row in self.tables[name].to_pylist() if row.pop("run_id") == run]
        return [
            {key: value for key, value in row.items() if key not in wanted}
            for row in found
            if all(row[key] == value for key, value in wanted.items())
        ]


def write_by_hand(path: Path) -> None:
    recorder = Recorder()
    for msg, sender, seq, dst, t_us in MULTICASTS:
        recorder.multicast(msg, sender, seq, dst, t_us, 64)
    for kind, logs in ((FINAL, FINALS), (OPTIMISTIC, GUESSES)):
        for process, log in logs.items():
            for pos, (msg, t_us) in enumerate(log):
                recorder.delivery(process, 1 + process // 2, pos, msg, kind, None, t_us)
    for row in WIRE:
        recorder.wire(*row)
    for msg, t_us in ANSWERS:
        recorder.answer(msg, t_us)
    recorder.fault(2, 1500, "crash", "<b>")
    recorder.fault(2, 3000, "restart", "")
    regions = {"0": "EU", "1": "US", "2": "US", "3": "US", "10": "EU", "11": "US"}
    info = RunInfo(
        run_id=BY_HAND,
        protocol="none",
        seed=7,
        complete=False,
        groups=(GroupInfo(1, (0, 1)), GroupInfo(2, (2, 3))),
        correct=(0, 1),
        extra={"regions": regions, "note": "</pre><script>alert(1)</script>"},
    )
    write_run(path, info, recorder)


def write_tiny(path: Path) -> None:
    recorder = Recorder()
    recorder.multicast(1, 5, 0, (1,), 0, 64)
    recorder.delivery(0, 1, 0, 1, FINAL, 1, 10)
    info = RunInfo(
        run_id=TINY, protocol="none", seed=1, complete=True, groups=(GroupInfo(1, (0,)),), correct=(0,), claims=()
    )
    write_run(path, info, recorder)


def write_crossed(path: Path) -> None:
    """Two groups deliver two messages in different orders."""
    trace = from_logs({1: (1, 2), 2: (1, 2)}, {1: [1, 2], 2: [2, 1]}, replicas=2)
    write_run(path, msgspec.structs.replace(trace.info(), run_id=CROSSED), trace.recorder())


def run_command(spark: SparkSession, *args: object) -> tuple[int, str]:
    """The command in the session of the tests: its exit code, and what it printed."""

    @contextmanager
    def shared(*_: object) -> Iterator[SparkSession]:
        yield spark

    app = typer.Typer()
    _report.register(app)
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys.modules["amcast.pipeline.spark"], "running_spark", shared)
        code = app([str(arg) for arg in args], standalone_mode=False)
    return code, printed.getvalue()


def make_report(spark: SparkSession, root: Path) -> HandMade:
    folders = {"hand": write_by_hand, "tiny": write_tiny, "crossed": write_crossed}
    for name, write in folders.items():
        write(root / name)
    folder = root / "report"
    code, printed = run_command(spark, *(root / name for name in folders), "--out", folder, "--json")
    tables = {name: pq.read_table(folder / "tables" / f"{name}.parquet") for name in METRICS}
    return HandMade(code, json.loads(printed), folder, (folder / "index.html").read_text(), tables)
