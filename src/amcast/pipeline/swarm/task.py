"""A task of a swarm: runs its seeds one after the other, checks each run, and shrinks the first violations.

Its result is a function of its chunk of seeds: if Spark runs it again, after a worker was lost, the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from .drivers import Driver, driver_of
from .plan import COUNTS, Cell, Chunk, Found, SwarmSpec

FOUND_MAX = 20  # violations that a task keeps: if there are more, the protocol never works
SHRUNK_MAX = 2
SHRINK_TRIES = 60
_PROBE_RUNS = 6

ROWS = pa.schema([("cell", pa.int32()), *((name, pa.int64()) for name in COUNTS), ("found", pa.string())])
ROWS_DDL = f"cell int, {', '.join(f'{name} bigint' for name in COUNTS)}, found string"


def probe_cell(cell: Cell, seed: int, clock: Callable[[], float]) -> float:
    """How many of the clock's seconds a schedule takes. Raises what is wrong with a cell, before a job starts."""
    driver = driver_of(cell)
    driver.fuzz(driver.draw(cell, seed))  # to warm up
    start = clock()
    for number in range(_PROBE_RUNS):
        driver.fuzz(driver.draw(cell, seed + number))
    return (clock() - start) / _PROBE_RUNS


def task(spec: SwarmSpec, wave: list[Chunk]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for mapInArrow. Its rows are indexes into the wave: which chunks to run."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield run_chunk(spec, wave[number])

    return work


def run_chunk(spec: SwarmSpec, chunk: Chunk) -> pa.RecordBatch:
    """One row of counts, and one for each violation that is kept."""
    cell = spec.cells[chunk.cell]
    driver = driver_of(cell, spec.variant)
    counts = dict.fromkeys(COUNTS, 0)
    found: list[Found] = []
    for seed in range(chunk.first_seed, chunk.first_seed + chunk.seeds):
        result = driver.fuzz(driver.draw(cell, seed))
        _count(counts, result)
        if result.finding is not None and len(found) < FOUND_MAX:
            found.append(_describe(chunk.cell, result.finding, driver, shrinks=len(found) < SHRUNK_MAX))
    rows: list[dict[str, Any]] = [{"cell": chunk.cell, **counts, "found": None}]
    nothing = dict.fromkeys(COUNTS, 0)
    rows += [{"cell": chunk.cell, **nothing, "found": msgspec.json.encode(one).decode()} for one in found]
    return pa.RecordBatch.from_pylist(rows, schema=ROWS)


def _count(counts: dict[str, int], result: Any) -> None:
    counts["schedules"] += 1
    counts["messages"] += result.messages
    counts["deliveries"] += result.deliveries
    counts["wire_messages"] += result.wire_messages
    counts["faults"] += result.faults
    counts["violations"] += result.finding is not None


def _describe(cell: int, finding: Any, driver: Driver, shrinks: bool) -> Found:
    made = driver.shrink(finding.scenario, SHRINK_TRIES) if shrinks else finding.scenario
    violation = (driver.violations(made) if shrinks else finding.violations)[0]
    return Found(
        cell,
        finding.seed,
        violation.property,
        violation.messages,
        violation.processes,
        violation.explanation,
        driver.faults(made),
        msgspec.to_builtins(finding.scenario),
        msgspec.to_builtins(made) if shrinks else None,
    )
