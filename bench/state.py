"""Is the state of a process bounded? `python -m bench.state` runs a million messages and measures snapshots.

A snapshot is all that a process must remember. Snapshots are encoded at regular times of the run; those of the second
half must not be larger than those of the first. Wire messages are not recorded, to save memory.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console

from amcast.protocols import PROTOCOLS
from amcast.sim import Simulation, scenario
from amcast.workload import Micro

_GROUPS = 3
_CLIENTS = 16
_SAMPLES = 40
_WARM_UP = 2_000  # messages: long enough to know how long a message takes
_TARGET = 1.25  # above 1, as what waits for acknowledgements of other groups goes up and down


def state_sizes(protocol: str, messages: int) -> list[int]:
    """Bytes of all processes' snapshots together, at equal distances of simulated time."""
    end_us = _simulation(protocol, _WARM_UP)[1] * messages // _WARM_UP
    return _simulation(protocol, messages, max(1, end_us // _SAMPLES))[0]


def _simulation(protocol: str, messages: int, every_us: int = 0) -> tuple[list[int], int]:
    made = scenario(
        protocol,
        groups=_GROUPS,
        replicas=1,
        clients=_CLIENTS,
        messages=messages,
        workload=Micro(1, 2, 64),
        records_wire=False,
        history_max=64,
        resend_us=5_000,
    )
    simulation = Simulation(made)
    sizes: list[int] = []

    def sample() -> None:
        processes: list[Any] = [simulation.process(each) for each in made.topology().processes]
        sizes.append(sum(len(process._dump()) for process in processes))
        simulation.loop.at(simulation.loop.now + every_us, sample)

    if every_us:
        simulation.loop.at(every_us, sample)
    simulation.start()
    assert simulation.settle(), "the run did not deliver all its messages"
    return sizes, simulation.loop.now


def growth(sizes: list[int]) -> float:
    """How much larger the largest state of the second half is than that of the first."""
    half = len(sizes) // 2
    return max(sizes[half:]) / max(sizes[:half])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.state", description=__doc__.splitlines()[0])
    parser.add_argument("--protocol", action="append", choices=list(PROTOCOLS), help="one or more; all if not given")
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    met = True
    for name in options.protocol or PROTOCOLS:
        sizes = state_sizes(name, options.messages)
        met = met and growth(sizes) <= _TARGET
        console.print(
            f"[bold]{name}[/]: {options.messages:,} messages, {len(sizes)} snapshots, largest {max(sizes):,} bytes; "
            f"second half {growth(sizes):.2f} of the first (at most {_TARGET})"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
