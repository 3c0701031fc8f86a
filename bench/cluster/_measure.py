"""Measures every system in every shape that is asked for; systems take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ._children import BrokenError
from ._jobs import Outcome, Shape
from ._systems import SYSTEMS, System

Progress = Callable[[str], None]
Measurement = tuple[str, Shape]  # a system and a shape
Results = dict[Measurement, list[Outcome]]  # an outcome a round


@dataclass(frozen=True)
class Sizes:
    """Targets are for these sizes; the small ones (QUICK) only show that everything runs."""

    rounds: int = 5  # the best one counts: each system should have one that other programs do not disturb
    seconds: float = 2.0  # of one measurement
    soak_s: float = 300.0
    recovery_messages: int = 1_000_000


QUICK = Sizes(rounds=1, seconds=0.6, soak_s=8.0, recovery_messages=20_000)


def measure_all(
    wanted: Iterable[Measurement], sizes: Sizes, folder: Path, progress: Progress
) -> tuple[Results, dict[str, str]]:
    """The results, and which systems broke down, with the error: these are left out of later rounds."""
    shapes: dict[str, list[Shape]] = {}
    for name, shape in sorted(set(wanted), key=lambda each: (list(SYSTEMS).index(each[0]), each[1])):
        shapes.setdefault(name, []).append(shape)
    results: Results = {}
    broken: dict[str, str] = {}
    for turn in range(sizes.rounds):
        order = list(shapes) if turn % 2 == 0 else list(reversed(shapes))
        for name in order:
            if name in broken:
                continue
            try:
                with SYSTEMS[name](folder / f"{turn}-{name}") as system:
                    for shape in shapes[name]:
                        outcome = measure(system, shape, sizes.seconds)
                        results.setdefault((name, shape), []).append(outcome)
                        progress(f"round {turn + 1} of {sizes.rounds}: {name} {shape}: {outcome.rate:,.0f} messages/s")
            except (BrokenError, TimeoutError) as error:
                broken[name] = str(error)
                progress(f"{name} broke down: {error}")
    return results, broken


def measure(system: System, shape: Shape, seconds: float) -> Outcome:
    """Runs of growing length warm the system up and find its rate; the last one, of about `seconds`, counts."""
    messages = max(200, 4 * shape.total)
    while True:
        outcome = system.run(shape, messages)
        if outcome.seconds >= seconds / 4:
            return system.run(shape, max(messages, round(outcome.rate * seconds)))
        messages = max(2 * messages, round(outcome.rate * seconds / 2))


def best(outcomes: Iterable[Outcome]) -> Outcome:
    """The round with the highest rate; with one client, that is the one with the lowest latency as well."""
    return max(outcomes, key=lambda outcome: outcome.rate)
