"""One simulated run in a process of its own, so that its peak memory can be measured and nothing else is in its heap.

`python -m bench._worker` reads a job from its first argument, and writes one line of JSON with what the run cost. A job
may name pauses, in simulated time: the worker then writes an empty line, and goes on when it reads one.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec

from amcast.sim import SimResult, Simulation, scenario
from amcast.trace import write_run
from amcast.workload import Micro

# Closed loops with one message each, the default of `amcast sim`: nearly no two messages share a consensus instance.
CLIENTS = 16
OUTSTANDING = 1


class Job(msgspec.Struct, frozen=True):
    protocol: str
    messages: int
    groups: int = 8
    pauses_us: tuple[int, ...] = ()
    stretch_us: int = 0  # if set, CPU time is measured for each stretch of so much simulated time


class Cost(msgspec.Struct, frozen=True):
    stretches_s: tuple[float, ...]
    write_s: float
    wire_messages: int
    deliveries: int
    events: int
    end_us: int
    peak_rss_mb: float

    @property
    def simulate_s(self) -> float:
        return sum(self.stretches_s)

    @property
    def cpu_s(self) -> float:
        return self.simulate_s + self.write_s


def perform(job: Job) -> Cost:
    simulation = Simulation(
        scenario(
            job.protocol,
            groups=job.groups,
            messages=job.messages,
            clients=CLIENTS,
            outstanding=OUTSTANDING,
            workload=Micro(1, 3, 64),
        )
    )
    for pause_us in job.pauses_us:
        simulation.loop.at(pause_us, _pause)
    clock = _Clock(simulation, job.stretch_us)
    result = simulation.run()
    clock.mark()
    simulated = clock.marks[-1]
    _write(result)
    written = time.process_time()
    assert result.complete, "the run did not deliver all its messages"
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Cost(
        tuple(later - earlier for earlier, later in pairwise(clock.marks)),
        written - simulated,
        result.wire_messages,
        result.deliveries,
        result.events,
        result.end_us,
        peak_kb / 1024,
    )


class _Clock:
    """Reads the CPU time now, and after every stretch of simulated time."""

    def __init__(self, simulation: Simulation, stretch_us: int) -> None:
        self._loop = simulation.loop
        self._stretch_us = stretch_us
        self.marks: list[float] = []
        if stretch_us:
            self._loop.at(stretch_us, self._tick)
        self.mark()

    def mark(self) -> None:
        self.marks.append(time.process_time())

    def _tick(self) -> None:
        self.mark()
        self._loop.at(self._loop.now + self._stretch_us, self._tick)


def _write(result: SimResult) -> None:
    with tempfile.TemporaryDirectory(prefix="amcast-bench-") as folder:
        write_run(Path(folder) / "run", result.info, result.recorder)


def _pause() -> None:
    """Waits for a line on stdin, which costs no CPU time."""
    sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stdin.readline()


def start(job: Job, on_pause: Callable[[], None] | None = None) -> Cost:
    """Runs the job in another process. `on_pause` is called whenever the job pauses."""
    command = [sys.executable, "-m", "bench._worker", msgspec.json.encode(job).decode()]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            for line in worker.stdout:
                if line.strip():
                    return msgspec.json.decode(line, type=Cost)
                if on_pause is not None:
                    on_pause()
                worker.stdin.write("\n")
                worker.stdin.flush()
        except BaseException:
            worker.kill()
            raise
    raise RuntimeError(f"the run of {job} ended without a result (exit code {worker.returncode})")


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(perform(msgspec.json.decode(sys.argv[1], type=Job))).decode() + "\n")
