"""Compares the swarm on two cores with one plain process, in wall time, on the same seeds.

    python -m bench.swarm [--quick] [--json]

The plain process runs the fuzz loop without Spark. The time that Spark takes to start does not count: a swarm runs for
much longer. Other programs on the machine slow both down, so they take turns and the best round of each counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from amcast.pipeline.spark import running_spark
from amcast.pipeline.swarm import Cell, SwarmSpec, make_plan, probe_cell, run_swarm
from amcast.sim import parse_kinds
from amcast.sim.fuzz import fuzz_one, fuzz_scenario

_CORES = 2
_TARGET = 1.6
_CELLS = (Cell("skeen"), Cell("basecast"), Cell("fastcast"), Cell("multipaxos"))


def plain(seeds: int) -> dict[str, Any]:
    """The fuzz loop in this process, without Spark; warmed up before the clock starts."""
    for cell in _CELLS:
        fuzz_one(fuzz_scenario(cell.protocol, 0, parse_kinds(cell.faults)))
    start = time.perf_counter()
    deliveries = 0
    for cell in _CELLS:
        for seed in range(seeds):
            deliveries += fuzz_one(fuzz_scenario(cell.protocol, seed, parse_kinds(cell.faults))).deliveries
    return {"seconds": time.perf_counter() - start, "deliveries": deliveries}


def _plain_in_a_process(seeds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.swarm", "--plain", str(seeds)]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return answer


def measure(seeds: int, rounds: int) -> dict[str, Any]:
    spec = SwarmSpec(_CELLS, seeds)
    plan = make_plan(spec, [probe_cell(cell, 0, time.perf_counter) for cell in _CELLS], _CORES)
    swarm_s: list[float] = []
    plain_s: list[float] = []
    with running_spark(f"local[{_CORES}]") as spark:
        warm = SwarmSpec(_CELLS, 4, first_seed=10_000_000)
        run_swarm(spark, make_plan(warm, [0.5] * len(_CELLS), _CORES))
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            start = time.perf_counter()
            result = run_swarm(spark, plan)
            swarm_s.append(time.perf_counter() - start)
            alone = _plain_in_a_process(seeds)
            plain_s.append(alone["seconds"])
            assert sum(cell.deliveries for cell in result.cells) == alone["deliveries"], "both did the same"
    ratio = min(plain_s) / min(swarm_s)
    return {
        "name": "swarm",
        "reached": ratio,
        "target": _TARGET,
        "unit": "x one plain process",
        "ok": ratio >= _TARGET,
        "detail": f"{seeds * len(_CELLS)} schedules on {_CORES} cores, wall time, best of {rounds} each, in turns",
        "swarm_s": [round(seconds, 2) for seconds in swarm_s],
        "plain_s": [round(seconds, 2) for seconds in plain_s],
        "tasks": len(plan.chunks()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.swarm", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a line")
    parser.add_argument("--plain", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.plain is not None:
        print(json.dumps(plain(options.plain)))
        return 0
    figure = measure(*((30, 1) if options.quick else (200, 3)))
    if options.json:
        print(json.dumps(figure, indent=2))
    else:
        verdict = "met" if figure["ok"] else "missed"
        print(f"swarm: {figure['reached']:.2f} {figure['unit']}, target {figure['target']}: {verdict}")
        print(f"{figure['detail']}; swarm {figure['swarm_s']} s, plain {figure['plain_s']} s, {figure['tasks']} tasks")
    return 0 if figure["ok"] or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
