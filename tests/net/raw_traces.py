"""Simulated runs whose machines trace as nodes do: each boot into its own files, repeated deliveries included."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from amcast.core import AppMessage, ProcessId, Timestamp
from amcast.net.trace.writer import TraceWriter
from amcast.sim import simulate
from amcast.sim.run import SimResult
from amcast.sim.scenario import Scenario
from amcast.sim.watch import Watch
from amcast.trace import FINAL, OPTIMISTIC, Recorder
from amcast.trace.schema import CRASH, RESTART, RESTORED

NETWORK = 10_000  # the process in whose files the network's rows are
EPOCH_US = 1_790_000_000_000_000  # nodes have the time of day


class NodeTraces:
    """One writer for each process that is up, a new one for each boot."""

    def __init__(self, folder: Path, groups: dict[ProcessId, int | None]) -> None:
        self._folder = folder
        self._groups = groups
        self._boots = dict.fromkeys(groups, 0)
        self._writers = {process: self._open(process) for process in groups}

    def _open(self, process: ProcessId) -> TraceWriter:
        group = self._groups[process]
        return TraceWriter(self._folder, process, -1 if group is None else group, self._boots[process], wire=True)

    def of(self, process: ProcessId) -> TraceWriter | None:
        return self._writers.get(process)

    def crash(self, process: ProcessId) -> None:
        kill(self._writers.pop(process))

    def restart(self, process: ProcessId) -> None:
        self._boots[process] += 1
        self._writers[process] = self._open(process)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def kill(writer: TraceWriter) -> None:
    """Leaves the files as a kill does: all rows are written, and no mark says that the end was orderly."""
    writer.flush()
    for file in writer._files:
        os.close(file.fd)


def simulate_nodes(scenario: Scenario, folder: Path, monkeypatch: pytest.MonkeyPatch) -> SimResult:
    """The run as the simulator recorded it, while its machines wrote raw files to the folder."""
    topology = scenario.topology()
    groups = {process: topology.group_of(process) for process in (*topology.processes, *topology.clients)}
    traces = NodeTraces(folder, groups)
    network = TraceWriter(folder, NETWORK, -1, 0, wire=True)

    class TracingRecorder(Recorder):
        def fault(self, process: ProcessId, t_us: int, what: str, detail: str) -> None:
            super().fault(process, t_us, what, detail)
            if what == CRASH:
                traces.crash(process)
            elif what == RESTART:
                traces.restart(process)

        def wire(self, src: Any, dst: Any, kind: Any, msg: Any, nbytes: Any, sent_us: Any, received_us: Any) -> None:
            super().wire(src, dst, kind, msg, nbytes, sent_us, received_us)
            received = None if received_us is None else EPOCH_US + received_us
            network.wire(src, dst, kind, msg, nbytes, EPOCH_US + sent_us, received)

    class TracingWatch(Watch):
        def writer(self, process: ProcessId) -> TraceWriter:
            writer = traces.of(process)
            assert writer is not None, "who is down does nothing"
            return writer

        def now(self) -> int:
            return EPOCH_US + self._loop.now

        def saw_multicast(self, process: ProcessId, message: AppMessage) -> None:
            super().saw_multicast(process, message)
            size = len(message.payload)
            self.writer(process).multicast(message.id, process, message.seq, message.dst, self.now(), size)
            for group in message.dst:  # processes that hear of it record it too, later
                member = traces.of(self._topology.members(group)[0])
                if member is not None:
                    member.multicast(message.id, process, message.seq, message.dst, self.now() + 5, size)

        def saw_delivery(
            self, process: ProcessId, position: int, message: AppMessage, ts: Timestamp | None, optimistic: bool
        ) -> None:
            super().saw_delivery(process, position, message, ts, optimistic)
            if position % 2 or optimistic:
                kind = OPTIMISTIC if optimistic else FINAL
                self.writer(process).delivery(position, message.id, kind, ts, self.now())
            else:
                self.writer(process).deliver_all(position, ((message, ts),), False, self.now())

        def saw_restored(self, process: ProcessId, position: int) -> None:
            super().saw_restored(process, position)
            self.writer(process).restored(position, self.now())

    with monkeypatch.context() as patch:
        patch.setattr("amcast.sim.run.Watch", TracingWatch)
        patch.setattr("amcast.sim.run.Recorder", TracingRecorder)
        result = simulate(scenario)
    traces.close()
    network.close()
    return result


def restored_of(run_faults: Any) -> list[tuple[int, str]]:
    return [(fault.process, fault.detail) for fault in run_faults if fault.what == RESTORED]
