"""Runs a scenario: builds the machines, lets time pass, injects the plan's faults, and writes down what happened."""

from __future__ import annotations

import json
import platform
import traceback
from array import array
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from .. import __version__
from ..core import AppMessage, GroupId, MessageId, Process, ProcessId, Timestamp
from ..protocols import ProtocolSpec
from ..trace import FINAL, OPTIMISTIC, GroupInfo, Recorder, Run, RunInfo
from ..workload import LoadClient
from .engine import EventLoop
from .faults import (
    FUSE_US,
    AnyFault,
    Crash,
    CrashLeader,
    CutLeader,
    Duplicating,
    Lossy,
    Partition,
    Pause,
    PauseLeader,
    Reordering,
    Skew,
)
from .network import Network
from .node import Node
from .scenario import Scenario

_SKIPPED = -1
_GRACE_US = 300_000  # after a run with faults is drained: what still turns up must do no harm


@dataclass(frozen=True)
class BrokenInvariant:
    """A process contradicted itself: an assertion, or anything else, failed in its handler."""

    process: ProcessId
    t_us: int
    what: str


@dataclass(frozen=True)
class SimResult:
    scenario: Scenario
    info: RunInfo
    recorder: Recorder
    complete: bool
    broken: BrokenInvariant | None
    stuck: tuple[MessageId, ...]  # messages that somebody still had to deliver when patience ran out
    messages: int
    deliveries: int
    wire_messages: int
    faults: int
    events: int
    end_us: int

    def run(self) -> Run:
        return self.recorder.run(self.info)


class DeliveryLog:
    """What a process delivered, so that what it delivers again after a restart can be compared and dropped."""

    __slots__ = ("_ts", "ids")

    def __init__(self) -> None:
        self.ids = array("q")
        self._ts = array("q")

    def repeats(self, position: int, id_: MessageId, ts: Timestamp | None) -> bool:
        """Takes a delivery in. True if it was there before, or was covered by state that was handed over."""
        stamp = _SKIPPED if ts is None else ts
        if position < len(self.ids):
            return self.ids[position] == _SKIPPED or (self.ids[position] == id_ and self._ts[position] == stamp)
        self.skip_to(position)
        self.ids.append(id_)
        self._ts.append(stamp)
        return False

    def skip_to(self, position: int) -> None:
        missing = position - len(self.ids)
        self.ids.extend([_SKIPPED] * missing)
        self._ts.extend([_SKIPPED] * missing)


class Watch:
    """The observer: records the trace, and counts what correct processes still owe."""

    def __init__(self, scenario: Scenario, loop: EventLoop, recorder: Recorder) -> None:
        self._topology = scenario.topology()
        self._loop = loop
        self._recorder = recorder
        doomed = scenario.plan.permanently_down()
        self._doomed = doomed
        self.correct = tuple(p for p in self._topology.processes if p not in doomed)
        self._owing = {
            group: sum(p not in doomed for p in self._topology.members(group)) for group in self._topology.groups
        }
        self._group_of = {p: self._topology.group_of(p) for p in self._topology.processes}
        self._is_correct = {p: p not in doomed for p in self._topology.processes}
        self._logs: dict[tuple[ProcessId, bool], DeliveryLog] = {}
        self.sent: dict[MessageId, tuple[GroupId, ...]] = {}
        self._owed_messages: set[MessageId] = set()
        self.owed = 0
        self.deliveries = 0
        self.record_wire = recorder.wire
        self.progress_us = 0

    def saw_multicast(self, process: ProcessId, message: AppMessage) -> None:
        self._recorder.multicast(message.id, process, message.seq, message.dst, self._loop.now, len(message.payload))
        self.sent[message.id] = message.dst
        if process not in self._doomed:
            self._owe(message.id, message.dst)

    def _owe(self, id_: MessageId, dst: tuple[GroupId, ...]) -> None:
        self._owed_messages.add(id_)
        self.owed += sum(self._owing[group] for group in dst)

    def saw_delivery(
        self, process: ProcessId, position: int, message: AppMessage, ts: Timestamp | None, optimistic: bool
    ) -> None:
        log = self._logs.get((process, optimistic))
        if log is None:
            log = self._logs[process, optimistic] = DeliveryLog()
        if log.repeats(position, message.id, ts):
            return
        self.deliveries += 1
        self.progress_us = self._loop.now
        group = self._group_of[process]
        assert group is not None
        kind = OPTIMISTIC if optimistic else FINAL
        self._recorder.delivery(process, group, position, message.id, kind, ts, self._loop.now)
        if not optimistic:
            if message.id not in self._owed_messages:
                self._owe(message.id, message.dst)
            if self._is_correct[process]:
                self.owed -= 1

    def saw_restored(self, process: ProcessId, position: int) -> None:
        log = self._logs.setdefault((process, False), DeliveryLog())
        if position > len(log.ids):
            self.owed -= position - len(log.ids) if self._is_correct[process] else 0
            log.skip_to(position)
            self._recorder.fault(process, self._loop.now, "restored", json.dumps({"position": position}))

    def saw_wire(
        self,
        src: ProcessId,
        dst: ProcessId,
        kind: str,
        about: tuple[MessageId, ...],
        size: int,
        sent: int,
        received: int | None,
    ) -> None:
        if len(about) < 2:
            self._recorder.wire(src, dst, kind, about[0] if about else None, size, sent, received)
            return
        # One row for each message that the frame speaks of, the bytes shared out among them.
        each, more = divmod(size, len(about))
        for index, id_ in enumerate(about):
            self._recorder.wire(src, dst, kind, id_, each + (index < more), sent, received)

    def delivered(self, process: ProcessId) -> list[MessageId]:
        """What a process delivered, in its order."""
        log = self._logs.get((process, False))
        return [] if log is None else [id_ for id_ in log.ids if id_ != _SKIPPED]

    def stuck(self) -> tuple[MessageId, ...]:
        """Messages owed that some correct process has not delivered, oldest first."""
        missing = []
        delivered = {process: set(self.delivered(process)) for process in self.correct}
        for id_ in self.sent:
            if id_ in self._owed_messages:
                members = [p for group in self.sent[id_] for p in self._topology.members(group)]
                if any(self._is_correct[p] and id_ not in delivered[p] for p in members):
                    missing.append(id_)
        return tuple(missing)


class _Down:
    """A crash to come, which happens once: while sending, or when waiting for that took too long."""

    def __init__(self, process: ProcessId, down_us: int | None, keeps_disk: bool) -> None:
        self.process = process
        self.down_us = down_us
        self.keeps_disk = keeps_disk
        self.happened = False


class Simulation:
    """`spec` replaces the scenario's protocol, for variants that are in no registry (broken ones, for example)."""

    def __init__(self, scenario: Scenario, spec: ProtocolSpec | None = None) -> None:
        scenario.check()
        self._scenario = scenario
        self._spec = spec or scenario.spec()
        self._topology = scenario.topology()
        self.loop = EventLoop()
        self._recorder = Recorder(scenario.records_wire)
        self.watch = Watch(scenario, self.loop, self._recorder)
        self._network = Network(scenario.network, self._topology, scenario.fifo, self._rng("network"))
        self._fault_count = 0
        self._broken: BrokenInvariant | None = None
        self._drained = False
        self._poll_us = max(500, scenario.network.rtt_max_us() // 2)
        self._nodes = self._build_nodes()

    def _rng(self, *names: object) -> Random:
        """One stream of random numbers for each purpose, so that one does not disturb the other."""
        return Random("/".join(map(str, (self._scenario.seed, *names))))

    def _build_nodes(self) -> dict[ProcessId, Node]:
        codec = self._spec.codec()
        nodes: dict[ProcessId, Node] = {}
        for process in (*self._topology.processes, *self._topology.clients):
            nodes[process] = Node(
                process,
                self.loop,
                self._network,
                codec,
                self.watch,
                self._builder(process),
                self._rng("node", process),
                self._scenario.cpu if process in self._topology.processes else type(self._scenario.cpu)(),
                self._scenario.sync_us,
            )
        for node in nodes.values():
            node.peers = nodes
        return nodes

    def _builder(self, process: ProcessId) -> Any:
        scenario, topology, spec = self._scenario, self._topology, self._spec
        if topology.group_of(process) is None:
            load = scenario.loads()[topology.clients.index(process)]

            def build_client(starts: int) -> Process:
                rng = self._rng("client", process, starts)
                config = scenario.client_config()
                return LoadClient(process, topology, spec, config, scenario.workload, load, rng)

            return build_client
        config = scenario.replica_config()

        def build(starts: int) -> Process:
            return spec.build(process, topology, config, self._rng("process", process, starts))

        return build

    # -- the run

    def run(self) -> SimResult:
        self.start()
        self.settle()
        self._record_in_flight()
        return self.result()

    def start(self) -> None:
        for fault in self._scenario.plan.faults:
            self.loop.at(fault.at_us, self._inject, fault)
        for node in self._nodes.values():
            self.loop.at(0, node.start)

    def settle(self) -> bool:
        """Lets time pass until everything is delivered, or nothing moves any more. True if all is delivered."""
        self._drained = False
        self.loop.at(self.loop.now + self._poll_us, self._poll)
        try:
            self.loop.run()
        except Exception as error:
            self._broken = self._diagnose(error)
        return self._drained and self._broken is None

    def multicast(self, client: ProcessId, dst: tuple[GroupId, ...], payload: bytes) -> MessageId:
        """A client multicasts one message now, besides whatever its load makes it do."""
        node = self._nodes[client]
        assert isinstance(node.process, LoadClient)
        message = node.process.new_message(dst, payload)
        self.loop.at(self.loop.now, node.multicast_now, message)
        return message.id

    def _poll(self) -> None:
        """Over when everything owed is delivered and all clients know; stuck when nothing moves any more."""
        now, plan_end = self.loop.now, self._scenario.plan.end_us()
        if now >= plan_end and not self.watch.owed and self._clients_are_done():
            self._drained = True
            if not self._scenario.plan.faults:
                self.loop.stop()
                return
            self.loop.at(now + _GRACE_US, self._finish)
            return
        if now - max(plan_end, self.watch.progress_us) > self._scenario.patience_us:
            self.loop.stop()
            return
        self.loop.at(now + self._poll_us, self._poll)

    def _finish(self) -> None:
        if self.watch.owed:  # a message of a crashed sender turned up late: wait for it
            self._drained = False
            self._poll()
        else:
            self.loop.stop()

    def _clients_are_done(self) -> bool:
        for client in self._topology.clients:
            node = self._nodes[client]
            if node.is_up and isinstance(node.process, LoadClient) and not node.process.is_done:
                return False
        return True

    def _diagnose(self, error: Exception) -> BrokenInvariant:
        """A handler that fails is a finding like any other: it must not end the search for more."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        owners = [f.f_locals.get("self") for f, _ in traceback.walk_tb(error.__traceback__)]
        process = next((owner.id for owner in owners if isinstance(owner, Node)), -1)
        name = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        what = f"{name}{str(error) or frame.line} (in {frame.name}, {Path(frame.filename).name}:{frame.lineno})"
        return BrokenInvariant(process, self.loop.now, what)

    def _record_in_flight(self) -> None:
        """What had not arrived when the run ended was sent all the same."""
        arrive = {node.arrive: node.id for node in self._nodes.values()}
        for action, args in self.loop.pending():
            if action in arrive:
                sender, data, kind, about, sent = args[0]
                self.watch.saw_wire(sender, arrive[action], kind, about, len(data), sent, None)

    # -- faults

    def _inject(self, fault: AnyFault) -> None:
        self._fault_count += 1
        match fault:
            case Crash():
                self._crash(fault.process, fault, fault.keeps_disk, fault.of_kind)
            case CrashLeader():
                leader = self._leader(fault.group)
                if leader is not None:
                    self._crash(leader, fault)
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
            case Skew():
                self._record(fault.process, "skew", f"{fault.offset_us} us, drift {fault.drift:+.4f}")
                self._nodes[fault.process].skew_clock(fault.offset_us, fault.drift)

    def _record(self, process: ProcessId, what: str, detail: str) -> None:
        self._recorder.fault(process, self.loop.now, what, detail)

    def _leader(self, group: GroupId) -> ProcessId | None:
        members = self._topology.members(group)
        return next((p for p in members if self._nodes[p].is_up and self._nodes[p].process.is_leader), None)

    def _crash(
        self, process: ProcessId, fault: Crash | CrashLeader, disk: bool = True, of_kind: str | None = None
    ) -> None:
        if not self._nodes[process].is_up:
            return
        down = _Down(process, fault.down_us, disk)
        if fault.after_sends is None:
            self._crash_now(down)
        else:
            self._nodes[process].crash_after_sends(fault.after_sends, of_kind, lambda: self._crash_now(down))
            self.loop.at(self.loop.now + FUSE_US, self._crash_now, down)

    def _crash_now(self, down: _Down) -> None:
        node = self._nodes[down.process]
        if down.happened or not node.is_up:
            return
        down.happened = True
        self._record(down.process, "crash", "")
        node.crash()
        if down.down_us is not None:
            self.loop.at(self.loop.now + down.down_us, self._restart, down.process, down.keeps_disk)

    def _restart(self, process: ProcessId, with_disk: bool) -> None:
        if not self._nodes[process].is_up:
            self._record(process, "restart", "" if with_disk else "without its disk")
            self._nodes[process].restart(with_disk)

    def _pause(self, process: ProcessId, for_us: int) -> None:
        self._record(process, "pause", f"{for_us} us")
        self._nodes[process].pause(for_us)

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
        self.loop.at(self.loop.now + for_us, self._mend, side[0], links)

    def _mend(self, process: ProcessId, links: list[tuple[ProcessId, ProcessId]]) -> None:
        for a, b in links:
            self._network.mend(a, b)
        self._record(process, "mend", "")

    def _for_a_while(self, fault: AnyFault, what: str, detail: str, for_us: int) -> None:
        self._record(-1, what, detail)
        self.loop.at(self.loop.now + for_us, self._calm, fault)

    def _calm(self, fault: AnyFault) -> None:
        match fault:
            case Lossy():
                self._network.loss = 0.0
            case Duplicating():
                self._network.duplication = 0.0
            case _:
                self._network.reordering = 0.0

    # -- the result

    def result(self) -> SimResult:
        scenario, watch = self._scenario, self.watch
        complete = self._drained and self._broken is None and not watch.owed
        topology = self._topology
        info = RunInfo(
            run_id=scenario.run_id(),
            protocol=scenario.protocol,
            seed=scenario.seed,
            complete=complete,
            groups=tuple(GroupInfo(g, topology.members(g)) for g in topology.groups),
            correct=tuple(p for p in watch.correct if self._nodes[p].is_up),
            claims=self._spec.claims,
            extra={
                "driver": "sim",
                "scenario": msgspec.to_builtins(scenario),
                "clients": list(topology.clients),
                "regions": {str(p): topology.region(p) for p in (*topology.processes, *topology.clients)},
                "versions": {"amcast": __version__, "python": platform.python_version()},
            },
        )
        return SimResult(
            scenario,
            info,
            self._recorder,
            complete,
            self._broken,
            () if complete else watch.stuck(),
            len(watch.sent),
            watch.deliveries,
            sum(node.sent for node in self._nodes.values()),
            self._fault_count,
            self.loop.events,
            self.loop.now,
        )


def simulate(scenario: Scenario, spec: ProtocolSpec | None = None) -> SimResult:
    return Simulation(scenario, spec).run()
