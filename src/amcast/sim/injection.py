"""Injects the faults of a plan into the machines and the network, and records each in the trace."""

from __future__ import annotations

from ..core import GroupId, ProcessId, Topology
from ..trace import Recorder
from .engine import EventLoop
from .faults import (
    FUSE_US,
    AnyFault,
    Crash,
    CrashGroup,
    CrashLeader,
    CutLeader,
    Duplicating,
    Liar,
    Lossy,
    Partition,
    Pause,
    PauseLeader,
    Reordering,
    Skew,
    Traitor,
)
from .machine import Machine
from .network import Network


class _Down:
    """A crash that is due. It happens once: while the process sends or, if it sends too little, after `FUSE_US`."""

    def __init__(self, process: ProcessId, down_us: int | None, keeps_disk: bool) -> None:
        self.process = process
        self.down_us = down_us
        self.keeps_disk = keeps_disk
        self.happened = False


class Injector:
    def __init__(
        self,
        topology: Topology,
        loop: EventLoop,
        network: Network,
        machines: dict[ProcessId, Machine],
        recorder: Recorder,
    ) -> None:
        self._topology = topology
        self._loop = loop
        self._network = network
        self._machines = machines
        self._recorder = recorder
        self.count = 0  # faults injected so far

    def inject(self, fault: AnyFault) -> None:
        self.count += 1
        match fault:
            case Crash():
                self._crash(fault.process, fault, fault.keeps_disk, fault.of_kind)
            case CrashLeader():
                leader = self._leader(fault.group)
                if leader is not None:
                    self._crash(leader, fault)
            case CrashGroup():
                members = self._topology.members(fault.group)
                for index, member in enumerate(members):
                    later = fault.spread_us * index // max(1, len(members) - 1)
                    self._crash_now(_Down(member, fault.down_us + later, True))
            case Pause():
                self._pause(fault.process, fault.for_us)
            case PauseLeader():
                leader = self._leader(fault.group)
                if leader is not None:
                    self._pause(leader, fault.for_us)
            case Partition():
                self._cut(fault.side, self._everyone(), fault.for_us, fault.one_way)
            case CutLeader():
                leader = self._leader(fault.group)
                if leader is not None:
                    group = self._topology.members(fault.group)
                    others = group if fault.within_group else self._everyone()
                    self._cut((leader,), others, fault.for_us, fault.one_way)
            case Lossy():
                self._network.loss = fault.probability
                self._for_a_while(fault, "loss", f"{fault.probability}", fault.for_us)
            case Duplicating():
                self._network.duplication = fault.probability
                self._for_a_while(fault, "duplicate", f"{fault.probability}", fault.for_us)
            case Reordering():
                self._network.reordering = fault.probability
                self._network.reorder_us = fault.delay_us
                self._for_a_while(fault, "reorder", f"{fault.probability}", fault.for_us)
            case Liar():  # to judge a run, it is as if it had crashed: nothing it sends must arrive
                self._record(fault.process, "crash", "it lies")
            case Traitor():
                self._record(fault.process, "byzantine", ", ".join(fault.lying.ways))
            case Skew():
                self._record(fault.process, "skew", f"{fault.offset_us} us, drift {fault.drift:+.4f}")
                self._machines[fault.process].skew_clock(fault.offset_us, fault.drift)

    def _record(self, process: ProcessId, what: str, detail: str) -> None:
        self._recorder.fault(process, self._loop.now, what, detail)

    def _leader(self, group: GroupId) -> ProcessId | None:
        members = self._topology.members(group)
        return next((p for p in members if self._machines[p].is_up and self._machines[p].process.is_leader), None)

    def _crash(
        self, process: ProcessId, fault: Crash | CrashLeader, disk: bool = True, of_kind: str | None = None
    ) -> None:
        if not self._machines[process].is_up:
            return
        down = _Down(process, fault.down_us, disk)
        if fault.after_sends is None:
            self._crash_now(down)
        else:
            self._machines[process].crash_after_sends(fault.after_sends, of_kind, lambda: self._crash_now(down))
            self._loop.at(self._loop.now + FUSE_US, self._crash_now, down)

    def _crash_now(self, down: _Down) -> None:
        machine = self._machines[down.process]
        if down.happened or not machine.is_up:
            return
        down.happened = True
        self._record(down.process, "crash", "")
        machine.crash()
        if down.down_us is not None:
            self._loop.at(self._loop.now + down.down_us, self._restart, down.process, down.keeps_disk)

    def _restart(self, process: ProcessId, with_disk: bool) -> None:
        if not self._machines[process].is_up:
            self._record(process, "restart", "" if with_disk else "without its disk")
            self._machines[process].restart(with_disk)

    def _pause(self, process: ProcessId, for_us: int) -> None:
        self._record(process, "pause", f"{for_us} us")
        self._machines[process].pause(for_us)

    def _everyone(self) -> tuple[ProcessId, ...]:
        return (*self._topology.processes, *self._topology.clients)

    def _cut(self, side: tuple[ProcessId, ...], others: tuple[ProcessId, ...], for_us: int, one_way: bool) -> None:
        links = [(a, b) for a in side for b in others if b not in side]
        if not one_way:
            links += [(b, a) for a, b in links]
        for a, b in links:
            self._network.cut(a, b)
        names = ", ".join(map(self._topology.name, side))
        self._record(side[0], "partition", f"{names}{' (one way)' if one_way else ''}")
        self._loop.at(self._loop.now + for_us, self._mend, side[0], links)

    def _mend(self, process: ProcessId, links: list[tuple[ProcessId, ProcessId]]) -> None:
        for a, b in links:
            self._network.mend(a, b)
        self._record(process, "mend", "")

    def _for_a_while(self, fault: AnyFault, what: str, detail: str, for_us: int) -> None:
        self._record(-1, what, detail)
        self._loop.at(self._loop.now + for_us, self._calm, fault)

    def _calm(self, fault: AnyFault) -> None:
        match fault:
            case Lossy():
                self._network.loss = 0.0
            case Duplicating():
                self._network.duplication = 0.0
            case _:
                self._network.reordering = 0.0
