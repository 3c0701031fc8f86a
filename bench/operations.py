"""Linearizability of histories that break nothing: every way of the checker goes through all of one.

In memory: a register each for many objects, whose written values differ; one store under transactions, and one counter,
for which orders are searched. `python -m bench` runs it.

On Spark, against a job that only reads every column, in CPU time of all processes (`make bench-operations`):

    python -m bench.operations [--json] [--operations MILLIONS] [--objects MILLIONS] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from amcast.check import check_run
from amcast.trace import Recorder, Run, RunInfo

from ._figures import Figure, Progress, Sizes, cpu_seconds

_SEED = 1
_CLIENTS = 64
_LENGTH_US = 50  # of an operation, before and after the moment at which it takes effect
_TARGET_S = 20.0  # each

Int64s = npt.NDArray[np.int64]

INFO = RunInfo(run_id="bench", protocol="none", seed=_SEED, complete=True, groups=(), correct=())


class History:
    """Reads and writes of registers, as numbers: each takes effect at a moment of its own."""

    def __init__(self, operations: int, objects: int) -> None:
        rng = np.random.default_rng(_SEED)
        moment = np.arange(operations, dtype=np.int64) * 10
        self.client = rng.integers(0, _CLIENTS, operations)
        self.object = rng.integers(0, objects, operations)
        self.is_write = rng.random(operations) < 0.5
        self.invoked_us = moment - rng.integers(0, _LENGTH_US, operations) + _LENGTH_US
        self.returned_us = moment + rng.integers(0, _LENGTH_US, operations) + _LENGTH_US
        self.value = self._values()

    def _values(self) -> Int64s:
        """The number of the operation that wrote last, the own one of a write; -1 if nobody has."""
        order = np.argsort(self.object, kind="stable")
        owner = self.object[order]
        starts = np.searchsorted(owner, owner)
        latest = np.maximum.accumulate(np.where(self.is_write[order], np.arange(len(order)), -1))
        value = np.full(len(order), -1)
        value[order] = np.where(latest >= starts, order[np.maximum(latest, 0)], -1)
        return value


def registers(operations: int, objects: int) -> Run:
    history, recorder = History(operations, objects), Recorder()
    for row in range(operations):
        value = int(history.value[row])
        what, arguments, result = (
            ("write", f"[{value}]", "null") if history.is_write[row] else ("read", "[]", _told(value))
        )
        times = int(history.invoked_us[row]), int(history.returned_us[row])
        recorder.operation(int(history.client[row]), *times, what, arguments, result, (f"k{history.object[row]}",))
    return recorder.run(INFO)


def _told(value: int) -> str:
    return "null" if value < 0 else str(value)


def transactions(operations: int, keys: int) -> Run:
    """Each reads a key and writes another."""
    history, recorder = History(operations, keys), Recorder()
    held: dict[str, int] = {}
    for row in range(operations):
        read, written = f"k{history.object[row]}", f"k{(history.object[row] + 1) % keys}"
        told = _told(held.get(read, -1))
        held[written] = row
        steps = json.dumps([["get", read], ["put", written, row]])
        times = int(history.invoked_us[row]), int(history.returned_us[row])
        objects = (read, written)
        recorder.operation(int(history.client[row]), *times, "transaction", steps, f"[{told},null]", objects)
    return recorder.run(INFO)


def counter(operations: int) -> Run:
    history, recorder = History(operations, 1), Recorder()
    total = 0
    for row in range(operations):
        total += int(history.is_write[row])
        what, arguments, result = ("add", "[1]", "null") if history.is_write[row] else ("total", "[]", str(total))
        times = int(history.invoked_us[row]), int(history.returned_us[row])
        recorder.operation(int(history.client[row]), *times, what, arguments, result, ("x",))
    return recorder.run(INFO)


def measure(sizes: Sizes, progress: Progress) -> list[Figure]:
    count = sizes.operations
    made = {
        "operations-registers": (lambda: registers(count, count // 10), f"registers, {count // 10:,} of them"),
        "operations-transactions": (lambda: transactions(count, 1_000), "transactions on 1,000 keys"),
        "operations-counter": (lambda: counter(count), "one counter"),
    }
    figures = []
    for name, (make, what) in made.items():
        progress(f"{count:,} operations on {what}")
        run = make()
        seconds, report = cpu_seconds(lambda run=run: check_run(run))  # type: ignore[misc]
        assert report.verdict == "pass", f"the checker refuses a good history: {report.violations or report.reasons}"
        figures.append(Figure(name, seconds, "CPU s", f"{count:,} operations, {what}", _TARGET_S, is_limit=True))
    return figures


# ------------------------------------------------------------------------------------------------ on Spark


def write_large(path: Path, operations: int, objects: int, file_rows: int = 1_000_000) -> None:
    """A run of registers that no Python loop would make in time."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from amcast.pipeline._arrow import arrow_schema, parquet_options
    from amcast.trace.schema import OPERATIONS, RUN_FILE, encode_run_info

    history = History(operations, objects)
    schema = arrow_schema(OPERATIONS)
    (path / "operations").mkdir(parents=True)
    for start in range(0, operations, file_rows):
        part = slice(start, min(start + file_rows, operations))
        rows = part.stop - start
        is_write = pa.array(history.is_write[part])
        texts = pa.array(history.value[part]).cast(pa.string())
        told = pc.if_else(pa.array(history.value[part] < 0), "null", texts)
        names = pc.binary_join_element_wise("k", pa.array(history.object[part]).cast(pa.string()), "")
        columns = [
            pa.array(history.client[part]),
            pa.array(history.invoked_us[part]),
            pa.array(history.returned_us[part]),
            pc.if_else(is_write, "write", "read"),
            pc.if_else(is_write, pc.binary_join_element_wise("[", texts, "]", ""), "[]"),
            pc.if_else(is_write, "null", told),
            pa.ListArray.from_arrays(
                pa.array(np.arange(rows + 1, dtype=np.int32)), names, type=schema.field("objects").type
            ),
        ]
        file = path / "operations" / f"part-{start:012d}.parquet"
        pq.write_table(pa.table(columns, schema=schema), file, row_group_size=32 * 1024, **parquet_options(schema))
    (path / RUN_FILE).write_bytes(encode_run_info(INFO))


def measure_on_spark(folder: Path, operations: int, objects: int, tell: Progress) -> dict[str, Any]:
    from amcast.pipeline import check_runs, read_runs, spark_session, stop_spark

    from .spark import Meter

    path = folder / f"{operations}-{objects}"
    if not (path / "run.json").exists():
        write_large(path, operations, objects)
    warm = folder / "warm-up"
    shutil.rmtree(warm, ignore_errors=True)
    write_large(warm, 1_500_000, 150_000)
    spark = spark_session("local[2]")
    try:
        for round_ in range(2):  # the first jobs compile code and start workers: neither is what is measured
            runs = read_runs(spark, str(warm))
            _scan(runs)
            check_runs(spark, runs)
            tell(f"warm-up, round {round_ + 1} of 2")
        runs = read_runs(spark, str(path))
        with Meter() as before:
            _scan(runs)
        tell(f"read in {before.cpu_s:.1f} CPU s")
        with Meter() as checked:
            (report,) = check_runs(spark, runs)
        tell(f"checked in {checked.cpu_s:.1f} CPU s, with {checked.peak_mb:,.0f} MB at most")
        with Meter() as after:
            _scan(runs)
    finally:
        stop_spark(spark)
        shutil.rmtree(warm)
    assert report.verdict == "pass", report
    # A worker of Spark that ends between two looks takes its CPU time along: such a figure says nothing.
    floor = min(each.cpu_s for each in (before, after) if each.cpu_s > 0)
    return {
        "operations": operations,
        "objects": objects,
        "scan_cpu_s": round(floor, 2),
        "check_cpu_s": round(checked.cpu_s, 2),
        "check_wall_s": round(checked.wall_s, 2),
        "check_to_scan": round(checked.cpu_s / floor, 2),
        "peak_mb": round(checked.peak_mb),
    }


def _scan(runs: Any) -> None:
    """Reads every column."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = runs.table("operations")
    numbers = [F.sum(name) for name in ("client", "invoked_us", "returned_us")]
    texts = [F.sum(F.length(name)) for name in ("operation", "arguments", "result")]
    rows.agg(*numbers, *texts, F.sum(F.length(F.element_at("objects", 1)))).collect()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.operations", description=__doc__.split("\n")[0])
    parser.add_argument("--operations", type=float, default=10, help="millions")
    parser.add_argument("--objects", type=float, default=1, help="millions")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--folder", help="keep the runs there, and use those that are there already")
    options = parser.parse_args()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="amcast-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        sizes = int(options.operations * 1e6), int(options.objects * 1e6)
        row = measure_on_spark(folder, *sizes, lambda what: print(what, file=sys.stderr, flush=True))
        print(json.dumps(row) if options.json else "  ".join(f"{name} {value}" for name, value in row.items()))
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
