"""Queries against calls, on a real cluster of processes: `python -m bench.queries`.

    python -m bench.queries [--protocol fastcast] [--durability sync] [--rounds 7] [--quick] [--json]

Both are asked of one group of three, in turn, in one run, so that whatever else the machine does hits both alike.
Ratios are of medians of the rounds. A call orders a message and returns what `apply` made of it; a query asks for the
state. Where votes wait for no disk (`memory`), a call takes as many message delays as a query, so that only what each
costs to handle tells them apart: there the latency is for information, as are local queries, which take one round trip.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import uvloop

from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan

from ._figures import Figure

_RATE_MIN = 3.0  # times the rate of calls
_LATENCY_MAX = 0.7  # times the median latency of calls
_WAIT_S = 60.0

APPLICATION = """
import amcast


class Counter(amcast.StateMachine):
    def __init__(self, group):
        self.count = 0

    def apply(self, *given):
        self.count += 1
        return b"%d" % self.count

    def query(self, payload):
        return b"%d" % self.count

    def snapshot(self):
        return b"%d" % self.count

    def restore(self, state):
        self.count = int(state)
"""

Ask = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Sizes:
    rounds: int = 7
    alone: int = 400  # one after the other, in a round
    seconds: float = 2.0  # of many at a time, in a round
    outstanding: int = 256


QUICK = Sizes(rounds=1, alone=20, seconds=0.2, outstanding=16)


async def latencies_us(asks: dict[str, Ask], count: int) -> dict[str, float]:
    """The median of each, one after the other, in turn."""
    took: dict[str, list[int]] = {name: [] for name in asks}
    for _ in range(count):
        for name, ask in asks.items():
            began = time.perf_counter_ns()
            await ask()
            took[name].append(time.perf_counter_ns() - began)
    return {name: median(values) / 1_000 for name, values in took.items()}


async def rate(ask: Ask, seconds: float, outstanding: int) -> float:
    """How many a second, with so many at a time."""
    began = time.perf_counter()
    end = began + seconds
    done = 0

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await ask()
            done += 1

    await asyncio.gather(*(work() for _ in range(outstanding)))
    return done / (time.perf_counter() - began)


async def measure(client: AsyncClient, sizes: Sizes) -> dict[str, list[float]]:
    asks: dict[str, Ask] = {
        "call": lambda: client.call("g1", b"x"),
        "query": lambda: client.query("g1", b"x"),
        "local": lambda: client.query("g1", b"x", consistency="local"),
    }
    await latencies_us(asks, sizes.alone // 10)
    found: dict[str, list[float]] = {}
    for _ in range(sizes.rounds):
        for name, took_us in (await latencies_us(asks, sizes.alone)).items():
            found.setdefault(f"{name}_us", []).append(took_us)
        for name, ask in asks.items():
            found.setdefault(f"{name}_rate", []).append(await rate(ask, sizes.seconds, sizes.outstanding))
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
    with tempfile.TemporaryDirectory(prefix="amcast-bench-") as name:
        folder = Path(name)
        application = folder / "counter_application.py"
        application.write_text(APPLICATION)
        config = plan(folder / "c", protocol, 1, 3, durability=durability, app=f"{application}:Counter")
        cluster = LocalCluster.create(folder / "c", config)
        cluster.start()
        try:
            found = uvloop.run(_with_client(cluster, sizes))
            return figures_of(found, f"{protocol}, {durability}", durability is not Durability.MEMORY)
        finally:
            cluster.stop()


async def _with_client(cluster: LocalCluster, sizes: Sizes) -> dict[str, list[float]]:
    await cluster.wait_until_ready(_WAIT_S)
    async with connect(cluster.config, wait=_WAIT_S) as client:
        return await measure(client, sizes)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.queries", description="Measures queries against calls.")
    parser.add_argument("--protocol", default="fastcast")
    parser.add_argument("--durability", type=Durability, choices=list(Durability), action="append")
    parser.add_argument("--rounds", type=int, default=Sizes().rounds)
    parser.add_argument("--quick", action="store_true", help="small sizes: only to see that it runs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes(rounds=options.rounds)
    figures = []
    for durability in options.durability or (Durability.SYNC, Durability.MEMORY):
        figures += run(options.protocol, durability, sizes)
    if options.json:
        print(json.dumps([figure.to_json() for figure in figures], indent=2))
    else:
        for each in figures:
            limit = "" if each.target is None else f" ({'at most' if each.is_limit else 'at least'} {each.target})"
            print(f"{each.name}: {each.reached:.2f}{each.unit}{limit}: {each.detail}")
    return 1 if not options.quick and any(figure.ok is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
