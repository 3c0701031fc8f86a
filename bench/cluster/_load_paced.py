"""The load process of the soak: `python -m bench.cluster._load_paced`.

An open loop: bursts are sent when they are due, whether or not earlier ones are answered; clients take turns. Latency
counts from the time when a burst was due, so that a load process that is late does not make latencies look better.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time

import msgspec
import numpy as np

from amcast.core import MessageId, Outbox, ProcessId, Topology, Wire
from amcast.net.client.driver import ClientDriver
from amcast.net.client.trunk import Credentials, Trunk
from amcast.net.config import client_config
from amcast.net.run import run_in_loop
from amcast.net.wire.control import Layout
from amcast.protocols import Client, Reply, protocol

from ._jobs import say

BUCKETS_A_FACTOR = 50  # buckets for each factor of e in latency: a bucket is 2 % wide
_PAYLOAD = bytes(64)
_SAMPLE_S = 1.0
_SETTLE_S = 30.0
_LOOK_S = 0.001


class PacedJob(msgspec.Struct, frozen=True):
    where: list[str]
    clients: int
    burst: int
    rate: float
    seconds: float


class Sample(msgspec.Struct, frozen=True):
    """The answers since the last sample."""

    seconds: float  # since the start
    sent: int  # since the start
    done: int
    latencies: dict[int, int]  # bucket: how many
    is_last: bool = False


class PacedClient(Client):
    def __init__(self, process: ProcessId, topology: Topology, layout: Layout) -> None:
        super().__init__(process, topology, protocol(layout.protocol).ingress_groups, client_config(layout.network))
        self._due_at: dict[MessageId, int] = {}
        self._dst = (topology.groups[0],)
        self.latencies_ns: list[int] = []

    def send_burst(self, count: int, due_ns: int, out: Outbox) -> None:
        messages = self.new_messages([(self._dst, _PAYLOAD)] * count)
        self._due_at.update(dict.fromkeys([message.id for message in messages], due_ns))
        self.on_multicast_all(messages, out)

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Reply):
            now = time.perf_counter_ns()
            self.latencies_ns += [now - self._due_at.pop(done.id) for done in self.on_reply(sender, message)]


class Paced:
    def __init__(self, job: PacedJob) -> None:
        self._job = job
        self._drivers: list[ClientDriver] = []
        self._clients: list[PacedClient] = []
        self._sent = 0

    async def run(self) -> None:
        try:
            await self._connect()
            self._begun = time.perf_counter_ns()
            async with asyncio.TaskGroup() as tasks:
                reporter = tasks.create_task(self._report())
                await self._send_all()
                await self._settle()
                reporter.cancel()
            self._say(is_last=True)
        finally:
            for driver in self._drivers:
                await driver.close()

    async def _connect(self) -> None:
        seeds = [(host, int(port)) for host, _, port in (address.rpartition(":") for address in self._job.where)]
        for number in range(self._job.clients):
            driver = ClientDriver(Trunk(Credentials(f"paced-{number}")), PacedClient)
            self._drivers.append(driver)
            await driver.open(seeds)
            assert isinstance(driver.process, PacedClient)
            self._clients.append(driver.process)

    async def _send_all(self) -> None:
        job = self._job
        burst_ns = job.burst / job.rate * 1e9
        bursts = round(job.seconds * job.rate / job.burst)
        number = 0
        while number < bursts:
            elapsed = time.perf_counter_ns() - self._begun
            while number < bursts and number * burst_ns <= elapsed:
                turn = number % job.clients
                self._clients[turn].send_burst(job.burst, self._begun + int(number * burst_ns), self._drivers[turn])
                self._sent += job.burst
                number += 1
            await asyncio.sleep(_LOOK_S)

    async def _settle(self) -> None:
        async with asyncio.timeout(_SETTLE_S):
            while any(client.outstanding for client in self._clients):
                await asyncio.sleep(_LOOK_S)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_S)
            self._say()

    def _say(self, is_last: bool = False) -> None:
        latencies: list[int] = []
        for client in self._clients:
            latencies += client.latencies_ns
            client.latencies_ns = []
        seconds = (time.perf_counter_ns() - self._begun) / 1e9
        say(Sample(seconds, self._sent, len(latencies), _buckets(latencies), is_last))


def _buckets(latencies_ns: list[int]) -> dict[int, int]:
    if not latencies_ns:
        return {}
    us = np.maximum(np.array(latencies_ns, np.float64) / 1e3, 1.0)
    numbers, counts = np.unique((np.log(us) * BUCKETS_A_FACTOR).astype(np.int64), return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def main() -> None:
    gc.set_threshold(50_000, 20, 50)  # as nodes do
    for line in sys.stdin.buffer:
        run_in_loop(Paced(msgspec.json.decode(line, type=PacedJob)).run())


if __name__ == "__main__":
    main()
