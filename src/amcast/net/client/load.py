"""Load on a running cluster: the simulator's load clients, over TCP."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import numpy.typing as npt

from ...core import AppMessage, Outbox, ProcessId, Topology, UsageError, latency_preset
from ...core.ids import SEQ_BITS, SEQ_MASK
from ...protocols import Reply, protocol
from ...trace.latency import CLIENT
from ...workload import Load, LoadClient, Seat, Stream, Workload, stream_random
from ..config import ClusterConfig, client_config, replica_config
from ..wire.control import Layout
from .driver import ClientDriver
from .history import LoadHistory
from .observer import Where, seeds_and_credentials
from .trunk import Credentials, Trunk

_NOWHERE = Credentials().region
_CONNECT_S = 2.0  # at most: the load starts without processes that are down

Int64s = npt.NDArray[np.int64]


class LoadResult(msgspec.Struct, frozen=True):
    messages: int
    seconds: float
    rate: float
    latency_us: dict[str, float]  # p50, p90, p99, max, mean
    latency_at: str = CLIENT  # from multicast until the client has all replies (`trace/latency.py`)


class TimedClient(LoadClient):
    """Notes when each message was sent, and when all its groups had replied."""

    def __init__(self, process: ProcessId, topology: Topology, layout: Layout, stream: Stream, load: Load) -> None:
        replica = replica_config(layout.protocol, layout.network, layout.options)
        spec = protocol(layout.protocol).configured(replica)
        config = client_config(layout.network)
        super().__init__(process, topology, spec, config, stream, load, Random(f"load {process}"), replica)
        self._sent_at: list[tuple[int, int]] = []  # how many messages at a time, and when (nanoseconds)
        self._done_at: list[tuple[int, int]] = []
        self._done = array("q")  # ids
        self._made_before = {process: 0}  # sender id -> messages under earlier ids
        self._booted_ns = 0
        self.finished = asyncio.Event()
        self.failure: UsageError | None = None  # why it finished early
        self.history: LoadHistory | None = None

    def on_boot(self, out: Outbox) -> None:
        self._booted_ns = time.perf_counter_ns()
        super().on_boot(out)

    def elapsed_us(self) -> int:
        return (time.perf_counter_ns() - self._booted_ns) // 1_000

    def on_no_id(self, error: UsageError) -> None:
        self.failure = error
        self.finished.set()

    def _change_id(self, id_: ProcessId) -> None:
        self._made_before[id_] = self._made_before[self._process] + self._next_seq
        super()._change_id(id_)

    def on_multicast_all(self, messages: Sequence[AppMessage], out: Outbox) -> None:
        # In an open loop latency counts from when a message was due: one that leaves late has waited already.
        late_us = max(0, self.elapsed_us() - self._due_us) if self._is_open else 0
        self._sent_at.append((len(messages), time.perf_counter_ns() - 1_000 * late_us))
        if self.history is not None:
            self.history.called(messages)
        super().on_multicast_all(messages, out)

    def on_reply(self, sender: ProcessId, reply: Reply) -> list[AppMessage]:
        completed = super().on_reply(sender, reply)
        if completed:
            self._done_at.append((len(completed), time.perf_counter_ns()))
            self._done.extend([message.id for message in completed])
            if self.history is not None:
                self.history.done(completed)
            if not self.outstanding and self.is_done:
                self.finished.set()
        return completed

    @property
    def done(self) -> int:
        return len(self._done)

    def latencies_ns(self) -> Int64s:
        """In the order in which the messages were delivered everywhere."""
        sent_ns, done_ns = map(_spread, (self._sent_at, self._done_at))
        ids = np.frombuffer(self._done, np.int64)
        number = ids & SEQ_MASK
        for sender, before in self._made_before.items():
            number[ids >> SEQ_BITS == sender] += before
        latencies: Int64s = done_ns - sent_ns[number]
        return latencies


def _spread(runs: list[tuple[int, int]]) -> Int64s:
    """Repeats each time for each of its messages."""
    counts, times = np.array(runs, np.int64).reshape(-1, 2).T
    return np.repeat(times, counts)


async def run_load(
    where: Where,
    *,
    clients: int,
    messages: int,
    outstanding: int,
    workload: Workload,
    interval_us: int = 0,
    seed: int = 1,
    connections: int | None = None,
    timeout: float = 600.0,
    progress: Callable[[int], None] | None = None,
    credentials: Credentials | None = None,
    history: Path | None = None,
) -> LoadResult:
    """All clients in this event loop, each with connections of its own, or spread over a number that they share.

    `history`: a folder in which clients write down what they did, where messages are operations on objects.
    """
    seeds, own = seeds_and_credentials(where)
    credentials = credentials or own
    clients = min(clients, messages)  # a client without a message would never finish
    each, more = divmod(messages, clients)
    places = [_placed(credentials, where, workload, at) for at in range(min(clients, connections or clients))]
    trunks = [Trunk(place) for place in places]
    drivers: list[ClientDriver] = []
    try:
        for index in range(clients):
            load = Load(each + (index < more), outstanding, interval_us)
            at = index % len(trunks)
            make = _maker(workload, load, seed, index, clients, places[at].region)
            driver = ClientDriver(trunks[at], make)
            drivers.append(driver)
            await driver.open(seeds)
            if history is not None:
                _write_down(driver, history)
        async with asyncio.TaskGroup() as tasks:  # connecting is not measured
            for trunk in trunks:
                tasks.create_task(trunk.connect(_CONNECT_S))
        return await _drive(drivers, timeout, progress)
    finally:
        for driver in drivers:
            await driver.close()
            if history is not None and isinstance(driver.process, TimedClient) and driver.process.history is not None:
                driver.process.history.close()


def _write_down(driver: ClientDriver, folder: Path) -> None:
    assert isinstance(driver.process, TimedClient)
    driver.process.history = LoadHistory(folder)
    driver.on_results = driver.process.history.told


def _maker(
    workload: Workload, load: Load, seed: int, number: int, clients: int, region: str
) -> Callable[[ProcessId, Topology, Layout], TimedClient]:
    def make(process: ProcessId, topology: Topology, layout: Layout) -> TimedClient:
        workload.check(topology)
        latency = None if layout.network == "none" else latency_preset(layout.network)
        seat = Seat(number, clients, None if region == _NOWHERE else region)
        stream = workload.stream(workload.geography(topology, latency), seat, stream_random(seed, number))
        return TimedClient(process, topology, layout, stream, load)

    return make


def _placed(credentials: Credentials, where: Where, workload: Workload, number: int) -> Credentials:
    """Clients that have a home are in its region, if the cluster emulates distances and nobody put them elsewhere."""
    config = where if isinstance(where, ClusterConfig) else None
    latency = None if config is None else config.latency()
    if config is None or latency is None or latency.spread or credentials.region != _NOWHERE:
        return credentials
    topology = config.topology()
    homes = workload.homes(len(topology.groups))
    if not homes:
        return credentials
    home = topology.groups[number % homes]
    return msgspec.structs.replace(credentials, region=topology.region(topology.members(home)[0]))


async def _drive(drivers: list[ClientDriver], timeout: float, progress: Callable[[int], None] | None) -> LoadResult:
    processes = [driver.process for driver in drivers]
    timed = [process for process in processes if isinstance(process, TimedClient)]
    begun = time.perf_counter()
    for driver in drivers:
        driver.process.on_boot(driver)
    reporter = asyncio.create_task(_report(timed, progress)) if progress is not None else None
    try:
        async with asyncio.timeout(timeout):
            for client in timed:
                await client.finished.wait()
                if client.failure is not None:
                    raise client.failure
    finally:
        if reporter is not None:
            reporter.cancel()
    seconds = time.perf_counter() - begun
    latencies = np.concatenate([client.latencies_ns() for client in timed]) / 1e3
    names = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    figures = {name: float(np.percentile(latencies, q)) for name, q in names.items()}
    figures["mean"] = float(latencies.mean())
    return LoadResult(len(latencies), seconds, len(latencies) / seconds, figures)


async def _report(clients: list[TimedClient], progress: Callable[[int], None]) -> None:
    while True:
        progress(sum(client.done for client in clients))
        await asyncio.sleep(0.2)
