"""A cluster of whichever version of amcast is on Python's path, for `bench.compare`.

It is run as a file, not as a module: older versions do not have it. So it uses only what `bench.cluster` has had for
long: a system, a shape, an outcome. It reads `SESSIONS OUTSTANDING SECONDS`, and writes the rate and the CPU time of a
message in microseconds. When its input ends, it ends its cluster.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.cluster._children import exit_on_signals
from bench.cluster._jobs import Outcome, Shape
from bench.cluster._measure import measure
from bench.cluster._systems import SYSTEMS


def main(system_name: str) -> None:
    exit_on_signals()
    last: dict[Shape, Outcome] = {}
    with (
        tempfile.TemporaryDirectory(prefix="amcast-bench-") as folder,
        SYSTEMS[system_name](Path(folder) / "cluster") as system,
    ):
        for line in sys.stdin:
            sessions, outstanding, seconds = line.split()
            shape = Shape(int(sessions), int(outstanding))
            if shape not in last:  # also warms up
                last[shape] = measure(system, shape, float(seconds))
            else:
                last[shape] = system.run(shape, max(shape.total, round(last[shape].rate * float(seconds))))
            print(last[shape].rate, last[shape].cpu_us, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
