"""Is the state of a process bounded? `python -m bench.state` runs a million messages and measures snapshots and disks.

A snapshot is all that a process must remember; its disk has the last one, and what it wrote since. Both are measured at
regular times of the run; those of the second half must not be larger than those of the first. Groups have one process,
or four where members may lie. Wire messages are not recorded, to save memory.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

from rich.console import Console

from amcast.consensus import PaxosConfig
from amcast.protocols import PROTOCOLS, protocol
from amcast.sim import Simulation, scenario
from amcast.workload import Micro

_GROUPS = 3
_CLIENTS = 16
_SAMPLES = 40
_WARM_UP = 2_000  # messages: long enough to know how long a message takes
_TARGET = 1.25  # above 1, as what waits for acknowledgements of other groups goes up and down
_PAXOS = PaxosConfig(snapshot_every=100, lag_max=200)  # many snapshots between two samples


class Sizes(NamedTuple):
    """Bytes of all processes together, at equal distances of simulated time."""

    states: list[int]
    disks: list[int]


def sizes_of(name: str, messages: int) -> Sizes:
    end_us = _simulation(name, min(_WARM_UP, messages))[1] * messages // min(_WARM_UP, messages)
    return _simulation(name, messages, max(1, end_us // _SAMPLES))[0]


def _simulation(name: str, messages: int, every_us: int = 0) -> tuple[Sizes, int]:
    made = scenario(
        name,
        groups=_GROUPS,
        replicas=4 if protocol(name).survives_liars else 1,
        clients=_CLIENTS,
        messages=messages,
        workload=Micro(1, 2, 64),
        records_wire=False,
        history_max=64,
        resend_us=5_000,
        paxos=_PAXOS,
    )
    simulation = Simulation(made)
    sizes = Sizes([], [])

    def sample() -> None:
        processes: list[Any] = [simulation.process(each) for each in made.topology().processes]
        sizes.states.append(sum(len(process._dump()) for process in processes))
        disks = [simulation._nodes[each]._disk for each in made.topology().processes]
        sizes.disks.append(sum(len(record) for disk in disks for record in disk.records()))
        simulation.loop.at(simulation.loop.now + every_us, sample)

    if every_us:
        simulation.loop.at(every_us, sample)
    simulation.start()
    assert simulation.settle(), "the run did not deliver all its messages"
    return sizes, simulation.loop.now


def growth(sizes: list[int]) -> float:
    """How much larger the largest size of the second half is than that of the first."""
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
        sizes = sizes_of(name, options.messages)
        console.print(f"[bold]{name}[/]: {options.messages:,} messages, measured {len(sizes.states)} times")
        for what, measured in (("snapshots", sizes.states), ("disks", sizes.disks)):
            met = met and growth(measured) <= _TARGET
            console.print(
                f"  {what}: largest {max(measured):,} bytes; "
                f"second half {growth(measured):.2f} of the first (at most {_TARGET})"
            )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
