"""Queries against calls, on a real cluster of processes: `python -m bench.queries`.

    python -m bench.queries [--protocol fastcast] [--durability sync] [--rounds 7] [--quick] [--json]

Both are asked of one group of three, in turn, in one run, so that whatever else the machine does hits both alike.
Ratios are of medians of the rounds. A call orders a message and returns what `apply` made of it; a query asks for the
state. Latencies are those of one client, and rates those of several programs together. Where votes wait for no disk
(`memory`), a call takes as many message delays as a query, so that only what each costs to handle tells them apart:
there the latency is for information, as are local queries, which take one round trip.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from amcast.net.client.async_client import AsyncClient
from amcast.net.disk.records import Durability

from ._asking import Ask, durabilities, exit_code_of, parser_of, with_client
from ._figures import Figure
from ._programs import Programs, asks_of

_RATE_MIN = 3.0  # times the rate of calls
_LATENCY_MAX = 0.7  # times the median latency of calls


@dataclass(frozen=True)
class Sizes:
    rounds: int = 7
    alone: int = 400  # one after the other, in a round
    seconds: float = 2.0  # of many at a time, in a round
    outstanding: int = 512
    programs: int = 2


QUICK = Sizes(rounds=1, alone=20, seconds=0.2, outstanding=16, programs=1)


async def latencies_us(asks: dict[str, Ask], count: int) -> dict[str, float]:
    """The median of each, one after the other, in turn."""
    took: dict[str, list[int]] = {name: [] for name in asks}
    for _ in range(count):
        for name, ask in asks.items():
            began = time.perf_counter_ns()
            await ask()
            took[name].append(time.perf_counter_ns() - began)
    return {name: median(values) / 1_000 for name, values in took.items()}


async def measure(client: AsyncClient, config: Path, sizes: Sizes) -> dict[str, list[float]]:
    asks = asks_of(client)
    await latencies_us(asks, sizes.alone // 10)
    found: dict[str, list[float]] = {}
    async with Programs(config, sizes.programs) as programs:
        for _ in range(sizes.rounds):
            for name, took_us in (await latencies_us(asks, sizes.alone)).items():
                found.setdefault(f"{name}_us", []).append(took_us)
            for name in asks:
                rate = await programs.rate(name, sizes.seconds, sizes.outstanding)
                found.setdefault(f"{name}_rate", []).append(rate)
    return found


def figures_of(found: dict[str, list[float]], title: str, has_disk: bool) -> list[Figure]:
    middle = {name: median(values) for name, values in found.items()}
    figures = []
    for name in ("query", "local"):
        faster = middle[f"{name}_rate"] / middle["call_rate"]
        sooner = middle[f"{name}_us"] / middle["call_us"]
        rates = f"{middle[f'{name}_rate']:,.0f} against {middle['call_rate']:,.0f} calls a second"
        times = f"{middle[f'{name}_us']:,.0f} against {middle['call_us']:,.0f} us"
        rate_min = _RATE_MIN if name == "query" else None
        latency_max = _LATENCY_MAX if name == "query" and has_disk else None
        figures.append(Figure(f"{title}: rate of {name}", faster, "x", rates, rate_min))
        figures.append(Figure(f"{title}: latency of {name}", sooner, "x", times, latency_max, is_limit=True))
    return figures


def run(protocol: str, durability: Durability, sizes: Sizes) -> list[Figure]:
    found = with_client(protocol, durability, lambda client, config: measure(client, config, sizes))
    return figures_of(found, f"{protocol}, {durability}", durability is not Durability.MEMORY)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser_of("queries", "Measures queries against calls.", Sizes().rounds).parse_args(arguments)
    sizes = QUICK if options.quick else Sizes(rounds=options.rounds)
    figures = [each for durability in durabilities(options) for each in run(options.protocol, durability, sizes)]
    return exit_code_of(figures, options)


if __name__ == "__main__":
    sys.exit(main())
