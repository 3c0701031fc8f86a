"""What benchmarks of calls and queries share: a cluster of three with an application that counts, and the load."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

import uvloop

from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan

from ._figures import Figure

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
Found = TypeVar("Found")


class Load(NamedTuple):
    """What came of asking with many at a time."""

    rate: float  # a second
    p50_us: float


async def load(ask: Ask, seconds: float, outstanding: int) -> Load:
    """Asks for so long, with so many at a time."""
    began = time.perf_counter()
    end = began + seconds
    took_ns: list[int] = []

    async def work() -> None:
        while time.perf_counter() < end:
            asked_ns = time.perf_counter_ns()
            await ask()
            took_ns.append(time.perf_counter_ns() - asked_ns)

    await asyncio.gather(*(work() for _ in range(outstanding)))
    return Load(len(took_ns) / (time.perf_counter() - began), median(took_ns) / 1_000)


def with_client(
    protocol: str, durability: Durability, measure: Callable[[AsyncClient, Path], Awaitable[Found]]
) -> Found:
    """Measures with a client of a fresh cluster, and the file of its configuration."""
    with tempfile.TemporaryDirectory(prefix="amcast-bench-") as name:
        folder = Path(name)
        application = folder / "counter_application.py"
        application.write_text(APPLICATION)
        config = plan(folder / "c", protocol, 1, 3, durability=durability, app=f"{application}:Counter")
        cluster = LocalCluster.create(folder / "c", config)
        cluster.start()
        try:
            return uvloop.run(_measured(cluster, measure))
        finally:
            cluster.stop()


async def _measured(cluster: LocalCluster, measure: Callable[[AsyncClient, Path], Awaitable[Found]]) -> Found:
    await cluster.wait_until_ready(_WAIT_S)
    async with connect(cluster.config, wait=_WAIT_S) as client:
        return await measure(client, cluster.config_file(cluster.names[0]))


# -- the command line


def parser_of(name: str, description: str, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=description)
    parser.add_argument("--protocol", default="fastcast")
    parser.add_argument("--durability", type=Durability, choices=list(Durability), action="append")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--quick", action="store_true", help="small sizes: only to see that it runs")
    parser.add_argument("--json", action="store_true")
    return parser


def durabilities(options: argparse.Namespace) -> Sequence[Durability]:
    return options.durability or (Durability.SYNC, Durability.MEMORY)


def exit_code_of(figures: Sequence[Figure], options: argparse.Namespace) -> int:
    """Prints the figures. 1 if one of them missed its target; small sizes say nothing of that."""
    if options.json:
        print(json.dumps([figure.to_json() for figure in figures], indent=2))
    else:
        for each in figures:
            limit = "" if each.target is None else f" ({'at most' if each.is_limit else 'at least'} {each.target})"
            print(f"{each.name}: {each.reached:.2f}{each.unit}{limit}: {each.detail}")
    return 1 if not options.quick and any(figure.ok is False for figure in figures) else 0
