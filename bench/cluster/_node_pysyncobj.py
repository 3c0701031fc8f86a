"""A node of PySyncObj: `python -m bench.cluster._node_pysyncobj INDEX BATCHES ADDRESS...`.

All periods are 1 ms: with the defaults a single command takes 100 ms, most of which is waiting for a timer. The library
is ticked in the main thread, which costs less than the thread that it would start itself. The node with index 0 has the
shortest election timeout, becomes the leader, and runs the load; its callbacks send the next command.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time

import msgspec
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

from ._jobs import CpuMeter, Job, Outcome, Ready, outcome, say

_PERIOD_S = 0.001
_PAYLOAD = bytes(64)


class Replicated(SyncObj):
    def __init__(self, index: int, batches: bool, addresses: list[str]) -> None:
        soon = index == 0
        super().__init__(
            addresses[index],
            [address for address in addresses if address != addresses[index]],
            SyncObjConf(
                autoTick=False,
                autoTickPeriod=_PERIOD_S,
                appendEntriesPeriod=_PERIOD_S,
                appendEntriesUseBatch=batches,
                raftMinTimeout=0.2 if soon else 2.0,
                raftMaxTimeout=0.3 if soon else 3.0,
                connectionRetryTime=0.1,
            ),
        )
        self.applied = 0

    @replicated
    def put(self, payload: bytes) -> None:
        self.applied += 1

    def tick(self) -> None:
        self.doTick(_PERIOD_S)


class ClosedLoop:
    def __init__(self, node: Replicated, messages: int) -> None:
        self._node = node
        self._left = messages
        self.latencies_ns: list[int] = []

    def send(self) -> None:
        if self._left:
            self._left -= 1
            sent = time.perf_counter_ns()
            self._node.put(_PAYLOAD, callback=lambda _, error: self._on_applied(sent, error))

    def _on_applied(self, sent: int, error: int) -> None:
        assert error == FAIL_REASON.SUCCESS, f"PySyncObj failed a command: reason {error}"
        self.latencies_ns.append(time.perf_counter_ns() - sent)
        self.send()


def perform(node: Replicated, job: Job) -> Outcome:
    loop = ClosedLoop(node, job.messages)
    meter = CpuMeter(job.pids, [])
    meter.mark(0)
    begun = time.perf_counter()
    for _ in range(job.shape.total):
        loop.send()
    while len(loop.latencies_ns) < job.messages:
        node.tick()
    seconds = time.perf_counter() - begun
    meter.mark(job.messages)
    return outcome(loop.latencies_ns, seconds, meter)


def listen(jobs: queue.SimpleQueue[Job]) -> None:
    """Reads jobs from stdin. When it is closed, the benchmark has ended, and so does this process."""
    for line in sys.stdin.buffer:
        jobs.put(msgspec.json.decode(line, type=Job))
    os._exit(0)


def main() -> None:
    index, batches, *addresses = sys.argv[1:]
    logging.disable()  # it logs a warning for every batch that it sends again, which costs time
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(jobs,), daemon=True).start()
    node = Replicated(int(index), batches == "batches", addresses)
    if index == "0":
        while not (node._isLeader() and node.isReady() and len(addresses) == 1 + _connected(node)):
            node.tick()
        say(Ready())
    while True:
        node.tick()
        if not jobs.empty():
            say(perform(node, jobs.get()))


def _connected(node: Replicated) -> int:
    return sum(node.isNodeConnected(other) for other in node.otherNodes)


if __name__ == "__main__":
    main()
