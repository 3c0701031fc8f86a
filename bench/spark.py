"""What a check on Spark costs, in CPU time of all processes it needs, against a job that only reads every column.

CPU time and not the clock, because other work on the machine disturbs it least. The floor is a Spark job that sums up
each column of deliveries and multicasts; it is run after a warm-up, before and after the check, and the cheaper of the
two counts. Memory is the sum over all processes, with shared pages counted once.

    python -m bench.spark [--quick] [--json] [--sizes 10,100] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from amcast.pipeline import Runs, TraceSpec, check_runs, generate_trace, read_runs, spark_session, stop_spark
from tests.pipeline import sql_oracle as oracle

_TICKS = os.sysconf("SC_CLK_TCK")
_ORACLE_MAX = 10_000_000  # it is slow: larger traces go without


# --------------------------------------------------------------------------------------------- processes


def _family() -> list[int]:
    """This process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _stat(int(entry))
            if fields:
                parents.setdefault(int(fields[1]), []).append(int(entry))
    family, left = [], [os.getpid()]
    while left:
        process = left.pop()
        family.append(process)
        left += parents.get(process, [])
    return family


def _stat(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def cpu_seconds() -> float:
    """Of all processes, with those of their children that have ended."""
    ticks = 0
    for process in _family():
        fields = _stat(process)
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS


def memory_mb() -> float:
    total = 0
    for process in _family():
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


class Meter:
    """CPU seconds, wall seconds and the peak of memory while a block runs."""

    def __enter__(self) -> Meter:
        self._stop = threading.Event()
        self.peak_mb = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._cpu, self._wall = cpu_seconds(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s, self.wall_s = cpu_seconds() - self._cpu, time.perf_counter() - self._wall
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.25):
            self.peak_mb = max(self.peak_mb, memory_mb())


# ------------------------------------------------------------------------------------------------- work


def scan(runs: Runs) -> None:
    deliveries, multicasts = (_rows(runs, name) for name in ("deliveries", "multicasts"))
    deliveries.agg(*(F.sum(column) for column in ("process", "grp", "pos", "kind", "t_us"))).collect()
    deliveries.agg(*(F.sum(_halves(column)) for column in ("msg", "ts"))).collect()
    multicasts.agg(
        *(F.sum(column) for column in ("sender", "client_seq", "t_us", "bytes")),
        F.sum(_halves("msg")),
        F.sum(F.size("dst")),
        F.sum(F.element_at("dst", 1)),
    ).collect()


def _halves(column: str) -> Any:
    return F.col(column).bitwiseAND(0xFFFFFFFF)  # whole ids would overflow


def _rows(runs: Runs, name: str) -> DataFrame:
    """Without the join that finds the run of each row: this is the floor."""
    from amcast.pipeline.ingest import spark_schema
    from amcast.trace.schema import TABLES

    paths = [file.path for run in runs.runs for file in run.table(name)]
    return runs.spark.read.schema(spark_schema(TABLES[name])).parquet(*paths)


def check(runs: Runs) -> None:
    (report,) = check_runs(runs.spark, runs)
    assert report.verdict == "pass", report


def ask_oracle(runs: Runs) -> None:
    tables = oracle.Tables(
        runs.table("deliveries"),
        runs.table("multicasts"),
        runs.table("faults"),
        oracle.members_frame(runs.spark, runs.runs),
    )
    for question in oracle.LINEAR:
        assert not question(tables).limit(1).collect(), question.__name__


def measure(spark: SparkSession, folder: Path, name: str, spec: TraceSpec) -> dict[str, Any]:
    path = folder / name
    if not (path / "run.json").exists():  # it is written last
        shutil.rmtree(path, ignore_errors=True)
        generate_trace(path, spec)
    runs = read_runs(spark, str(path))
    with Meter() as before:
        scan(runs)
    with Meter() as checked:
        check(runs)
    with Meter() as after:
        scan(runs)
    floor = min(before.cpu_s, after.cpu_s)
    row: dict[str, Any] = {
        "trace": name,
        "deliveries": runs.runs[0].rows("deliveries"),
        "scan_cpu_s": round(floor, 2),
        "check_cpu_s": round(checked.cpu_s, 2),
        "check_wall_s": round(checked.wall_s, 2),
        "check_to_scan": round(checked.cpu_s / floor, 2),
        "peak_mb": round(checked.peak_mb),
    }
    return row


def measure_oracle(spark: SparkSession, path: Path, row: dict[str, Any]) -> dict[str, Any]:
    with Meter() as asked:
        ask_oracle(read_runs(spark, str(path)))
    ratio = round(asked.cpu_s / row["check_cpu_s"], 1)
    return {"trace": row["trace"], "oracle_cpu_s": round(asked.cpu_s, 2), "oracle_to_check": ratio}


def traces(millions: int) -> dict[str, TraceSpec]:
    count = millions * 1_000_000
    return {
        f"{millions}M": TraceSpec(deliveries=count),
        f"{millions}M-backlog": TraceSpec(deliveries=count, in_flight_us=150_000),
        f"{millions}M-no-timestamps": TraceSpec(deliveries=count, stamped=False),
        f"{millions}M-backlog-no-timestamps": TraceSpec(deliveries=count, in_flight_us=150_000, stamped=False),
        f"{millions}M-128-groups": TraceSpec(deliveries=count, groups=128, stamped=False),
    }


def warm_up(spark: SparkSession, folder: Path) -> None:
    """The first jobs compile code and start workers: neither is what is measured."""
    path = folder / "warm-up"
    generate_trace(path, TraceSpec(deliveries=4_000_000, run_id="warm-up"))
    runs = read_runs(spark, str(path))
    for work in (scan, check, scan, check):
        work(runs)
    shutil.rmtree(path)


def run(
    sizes: list[int], folder: Path, keep: bool, only: str, asks_oracle: bool, tell: Callable[[dict[str, Any]], None]
) -> None:
    spark = spark_session("local[2]")
    try:
        warm_up(spark, folder)
        for millions in sizes:
            for name, spec in traces(millions).items():
                if only in name:
                    row = measure(spark, folder, name, spec)
                    tell(row)
                    if asks_oracle and name == f"{millions}M" and spec.deliveries <= _ORACLE_MAX:
                        tell(measure_oracle(spark, folder / name, row))
                    if not keep:
                        shutil.rmtree(folder / name)
    finally:
        stop_spark(spark)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one million deliveries only")
    parser.add_argument("--json", action="store_true", help="one JSON document a line")
    parser.add_argument("--sizes", default="10,100", help="millions of deliveries")
    parser.add_argument("--only", default="", help="traces with this in their names")
    parser.add_argument("--no-oracle", action="store_true", help="leave the slow SQL checks out")
    parser.add_argument("--folder", help="keep the traces there, and use those that are there already")
    options = parser.parse_args()
    sizes = [4] if options.quick else [int(size) for size in options.sizes.split(",")]
    folder = Path(options.folder or tempfile.mkdtemp(prefix="amcast-bench-"))
    folder.mkdir(parents=True, exist_ok=True)

    def tell(row: dict[str, Any]) -> None:
        print(json.dumps(row) if options.json else "  ".join(f"{k} {v}" for k, v in row.items()))
        sys.stdout.flush()

    try:
        run(sizes, folder, bool(options.folder), options.only, not options.no_oracle, tell)
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
