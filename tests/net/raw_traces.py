"""Simulated runs whose machines also trace as nodes do: each boot into files of its own, every repeat written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amcast.core import AppMessage, ProcessId, Timestamp
from amcast.net.tracing import TraceWriter
from amcast.sim import simulate
from amcast.sim.run import SimResult
from amcast.sim.scenario import Scenario
from amcast.sim.watch import Watch
from amcast.trace import FINAL, NULL, OPTIMISTIC, Recorder
from amcast.trace.schema import RESTART, RESTORED

EPOCH_US = 1_790_000_000_000_000  # nodes have the time of day


class NodeTraces:
    """One writer a process, and a new one when it starts again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boots: dict[ProcessId, int] = {}
        self._writers: dict[ProcessId, TraceWriter] = {}

    def of(self, process: ProcessId, group: int | None) -> TraceWriter:
        if process not in self._writers:
            boot = self._boots.setdefault(process, 0)
            number = -1 if group is None else group
            self._writers[process] = TraceWriter(self._folder, process, number, boot, wire=True)
        return self._writers[process]

    def restart(self, process: ProcessId) -> None:
        if process in self._writers:  # else it has not done anything yet
            self._writers.pop(process).close()
            self._boots[process] += 1

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def simulate_nodes(scenario: Scenario, folder: Path, monkeypatch: pytest.MonkeyPatch) -> SimResult:
    """The run as the simulator recorded it, while its machines wrote raw files to the folder."""
    traces = NodeTraces(folder)

    class TracingRecorder(Recorder):
        def fault(self, process: ProcessId, t_us: int, what: str, detail: str) -> None:
            super().fault(process, t_us, what, detail)
            if what == RESTART:
                traces.restart(process)

        def wire(self, src: Any, dst: Any, kind: Any, msg: Any, nbytes: Any, sent_us: Any, received_us: Any) -> None:
            super().wire(src, dst, kind, msg, nbytes, sent_us, received_us)
            writer = traces.of(src, scenario.topology().group_of(src))
            received = None if received_us is None else EPOCH_US + received_us
            writer.wire(src, dst, kind, msg, nbytes, EPOCH_US + sent_us, received)

    class TracingWatch(Watch):
        def writer(self, process: ProcessId) -> TraceWriter:
            return traces.of(process, self._group_of.get(process))

        def now(self) -> int:
            return EPOCH_US + self._loop.now

        def saw_multicast(self, process: ProcessId, message: AppMessage) -> None:
            super().saw_multicast(process, message)
            size = len(message.payload)
            self.writer(process).multicast(message.id, process, message.seq, message.dst, self.now(), size)
            for group in message.dst:  # and whoever hears of it, later
                member = self._topology.members(group)[0]
                row = (message.id, process, message.seq, message.dst, self.now() + 5, size)
                self.writer(member).multicast(*row)

        def saw_delivery(
            self, process: ProcessId, position: int, message: AppMessage, ts: Timestamp | None, optimistic: bool
        ) -> None:
            super().saw_delivery(process, position, message, ts, optimistic)
            kind = OPTIMISTIC if optimistic else FINAL
            if position % 2:
                self.writer(process).delivery(position, message.id, kind, ts, self.now())
            else:
                stamp = NULL if ts is None else ts
                self.writer(process).deliveries([(position, message.id, kind, stamp, self.now())])

        def saw_restored(self, process: ProcessId, position: int) -> None:
            super().saw_restored(process, position)
            self.writer(process).restored(position, self.now())

    with monkeypatch.context() as patch:
        patch.setattr("amcast.sim.run.Watch", TracingWatch)
        patch.setattr("amcast.sim.run.Recorder", TracingRecorder)
        result = simulate(scenario)
    traces.close()
    return result


def restored_of(run_faults: Any) -> list[tuple[int, str]]:
    return [(fault.process, fault.detail) for fault in run_faults if fault.what == RESTORED]
