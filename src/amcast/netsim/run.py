"""Runs a scenario of whole nodes, and judges it."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ..check import Violation
from ..net.system import use
from ..trace import Run
from .clients import History, Operator, Reader, Sender
from .faults import KillClient, PoisonedMessage
from .injection import Injector
from .judge import judge, judge_bounded
from .machine import World
from .nodes import Node, Poison
from .scenario import NodeScenario
from .system import SimulatedSystem

_LOOK_US = 20_000
_PATIENCE_MAX = 5  # times the scenario's patience, if something still moves
_SPARE_BYTES = 2 << 20  # above a limit: a turn that begins below it may write a snapshot of everything
_TRACE_SPARE_BYTES = 16 << 10  # above the limit of a trace: what is written in one turn
# Nobody waits for messages of a client that was killed. Groups still ask each other for them, with pauses that grow.
_ORPHANS_US = 4_000_000
_STOP_US = 15_000_000  # all nodes must have stopped in good order within this time


@dataclass
class NodeResult:
    scenario: NodeScenario
    violations: tuple[Violation, ...] = ()
    messages: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    faults: int = 0
    boots: int = 0
    events: int = 0
    end_us: int = 0
    digest: str = ""  # of all that was traced and delivered: equal for equal scenarios
    run: Run | None = None
    log: list[str] = field(default_factory=list)


class NodeSimulation:
    def __init__(self, scenario: NodeScenario, records_log: bool = False) -> None:
        scenario.check()
        self.scenario = scenario
        self._config = config = scenario.config()
        self._trace = Path(config.folder) / config.data / "trace"
        self._log_bytes_max = config.replica_config().paxos.snapshot_bytes + _SPARE_BYTES
        self.world = World(scenario.seed, self._trace)
        self.problems: list[tuple[str, str]] = []
        wall_us = config.epoch_s * 1_000_000 + 1_000_000_000
        network = self.world.network
        network.latency_us, network.splits = scenario.latency_us, scenario.splits
        network.window_bytes = scenario.window_bytes
        self.nodes: dict[str, Node] = {}
        for name in scenario.names():
            machine = self.world.add_machine(name, wall_us)
            machine.sync_us = scenario.sync_us
            node = self.nodes[name] = Node(config, name, machine, self._on_problem)
            machine.disk.mkdir(node.folder.parent)
            machine.disk.sync_all()
        for group in range(1, scenario.groups + 1):
            poison = Poison()
            for name in scenario.members(group):
                self.nodes[name].poison = poison
        self._injector = Injector(scenario, self.world, self.nodes)
        self.senders: list[Sender] = []
        self.history = History()
        self.reader: Reader | None = None
        self.operator: Operator | None = None
        # Messages that are acknowledged, whether some are not, and how far each process has got.
        self._progress: tuple[int, bool, tuple[int, ...]] = (0, True, ())
        self._progress_us = 0  # since when it is the same
        self._wall_us = wall_us
        self.log: list[str] = []
        self._records_log = records_log

    def _on_problem(self, what: str, explanation: str) -> None:
        if all(what != known for known, _ in self.problems):  # one of a kind is enough
            self.problems.append((what, f"at {self.world.now} us {explanation}"))

    # -- time passes

    def run(self) -> NodeResult:
        with _quiet(self), use(SimulatedSystem(self.world)):
            self.world.scheduler.at(0, self._begin)
            try:
                self.world.scheduler.run()
            except Exception as error:  # in the simulator itself: a finding with its seed, like any
                where = traceback.extract_tb(error.__traceback__)[-1]
                self._on_problem("exception", f"{type(error).__name__} in {where.name}: {error}")
            finally:
                for loop in self.world.buried:
                    loop.close_tasks()
                asyncio._set_running_loop(None)  # turns leave it set: it costs a system call
        return self._result()

    def _begin(self) -> None:
        for node in self.nodes.values():
            node.format()
        self._injector.schedule()
        for node in self.nodes.values():
            node.start()
        for index in range(self.scenario.clients + self.scenario.readers):
            machine = self.world.add_machine(f"c{index}", self._wall_us)
            sender = Sender(self.scenario, index, machine, self.world.rng("client", index), self.history)
            self.senders.append(sender)
        if any(isinstance(fault, PoisonedMessage) for fault in self.scenario.plan.faults):
            machine = self.world.add_machine("operator", self._wall_us)
            poisons = {f"g{group}": self.nodes[f"g{group}.p0"].poison for group in range(1, self.scenario.groups + 1)}
            self.operator = Operator(self.scenario, machine, poisons)
        self.world.scheduler.after(_LOOK_US, self._look)

    @property
    def _deadline(self) -> int:
        load = self.scenario.interval_us * (self.scenario.messages // self.scenario.clients + 1)
        begin, patience = max(self.scenario.end_us(), load), self.scenario.patience_us
        # A process that starts again and again moves too, and gets nowhere.
        return min(max(begin, self._progress_us) + patience, begin + _PATIENCE_MAX * patience)

    @property
    def _quiet_us(self) -> int:
        """From then on nothing is on its way that no client waits for."""
        has_orphans = any(isinstance(fault, KillClient) for fault in self.scenario.plan.faults)
        return self.scenario.end_us() + (_ORPHANS_US if has_orphans else 0)

    def _look(self) -> None:
        now = self.world.now
        delivered = tuple(node.delivered() for node in self.nodes.values())
        progress = (sum(len(each.acknowledged) for each in self.senders), self.reader is None, delivered)
        if progress != self._progress:
            self._progress, self._progress_us = progress, now
        self._check_bounds()
        if self.problems:
            self.world.end()
            return
        if self.reader is None and now > self._quiet_us and all(_has_ended(each) for each in self.senders):
            machine = self.world.add_machine("reader", self._wall_us)
            self.reader = Reader(self.scenario, machine, self._is_quiet_at)
        if self.reader is not None and self.reader.is_done:
            self._stop_all()
        elif now > self._deadline or any(_has_failed(each) for each in self._programs()):
            self._give_up()
        else:
            self.world.scheduler.after(_LOOK_US, self._look)

    def _check_bounds(self) -> None:
        """What waits for a disk takes a bounded part of memory, and the record log a bounded part of the disk."""
        limit = self.scenario.limits.undurable_bytes + _SPARE_BYTES
        for name, node in self.nodes.items():
            if node.is_up and node.waiting_bytes() > limit:
                self._on_problem("memory", f"at {name} {node.waiting_bytes()} bytes wait for the disk")
            if node.log_bytes() > self._log_bytes_max:
                self._on_problem("disk", f"the record log of {name} has {node.log_bytes()} bytes")
            trace_limit = self.scenario.limits.trace_bytes
            if trace_limit and node.trace_bytes() > trace_limit + _TRACE_SPARE_BYTES:
                self._on_problem("disk", f"the trace of {name} has {node.trace_bytes()} bytes")

    def _programs(self) -> list[Sender | Reader]:
        return [*self.senders, *([self.reader] if self.reader else [])]

    def _is_quiet_at(self, positions: dict[str, int]) -> bool:
        """Applications have executed what was delivered, and the operator has no more to ask for."""
        return not (self.operator is not None and self.operator.is_asking) and all(
            node.server is not None and node.server.host is not None and node.server.host.position == positions[name]
            for name, node in self.nodes.items()
        )

    def _give_up(self) -> None:
        for each in self._programs():
            if _has_failed(each):
                self._on_problem("client", f"{each.program.name} failed: {each.task.exception()!r}")
                self.world.end()
                return
        down = [name for name, node in self.nodes.items() if not node.is_up]
        open_ = sum(len(sender.sent) - len(sender.acknowledged) for sender in self.senders)
        what = f"{', '.join(down)} is down; " if down else ""
        if self.reader is not None:
            what += f"waiting for {self.reader.waits_for}"
        else:
            what += f"{open_} messages are not acknowledged"
        self._on_problem("liveness", f"nothing moves: {what}; the last fault ended at {self.scenario.end_us()} us")
        self.world.end()

    def _stop_all(self) -> None:
        for node in self.nodes.values():
            node.is_retired = True
            node.terminate()
        self._await_stop(self.world.now + _STOP_US)

    def _await_stop(self, deadline: int) -> None:
        up = [name for name, node in self.nodes.items() if node.is_up]
        if up and self.world.now > deadline:
            self._on_problem("liveness", f"{', '.join(up)} did not stop in time")
        if not up or self.problems:
            self.world.end()
        else:
            self.world.scheduler.after(_LOOK_US, self._await_stop, deadline)

    # -- the result

    def _result(self) -> NodeResult:
        scratch = Path(tempfile.mkdtemp(prefix="amcast-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        try:
            raw, whole = scratch / "raw", scratch / "whole"
            digest = self._export(raw)
            shutil.copytree(raw, whole)
            was_dropped = self._add_removed(whole)
            with use(SimulatedSystem(self.world)):
                violations, run = judge(self, whole, scratch / "run")
                if was_dropped:
                    violations += judge_bounded(self, raw, scratch / "bounded")
        finally:
            shutil.rmtree(scratch)
        delivered = {} if self.reader is None else self.reader.delivered
        for group, found in sorted(delivered.items()):
            digest.update(f"{group} {[(position, message.id) for position, message in found]}".encode())
        digest.update(f"{self.world.now} {self.world.scheduler.events} {violations}".encode())
        return NodeResult(
            self.scenario,
            violations,
            sum(len(sender.sent) for sender in self.senders),
            sum(len(sender.acknowledged) for sender in self.senders),
            sum(len(found) for found in delivered.values()),
            self._injector.count,
            sum(node.boots for node in self.nodes.values()),
            self.world.scheduler.events,
            self.world.now,
            digest.hexdigest(),
            run,
            self.log,
        )

    def _export(self, folder: Path) -> hashlib._Hash:
        """The trace folders of all machines as one, as if they had been copied together."""
        digest = hashlib.sha256()
        folder.mkdir()
        for machine in self.world.machines.values():
            for path, file in machine.disk.files_under(self._trace):
                (folder / path.name).write_bytes(file.data)
                digest.update(path.name.encode())
                digest.update(file.data)
        return digest

    def _add_removed(self, folder: Path) -> bool:
        """Puts back what nodes dropped of their traces. True if there is any."""
        removed = [each for machine in self.world.machines.values() for each in machine.disk.removed.items()]
        for path, data in removed:
            if not (folder / path.name).exists():
                (folder / path.name).write_bytes(data)
        return bool(removed)


def _has_ended(sender: Sender) -> bool:
    return sender.is_done or not sender.program.is_alive


def _has_failed(program: Sender | Reader) -> bool:
    return program.program.is_alive and program.task.done() and not program.is_done


class _Log(logging.Handler):
    def __init__(self, simulation: NodeSimulation) -> None:
        super().__init__()
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        world = self._simulation.world
        who = "?" if world.current is None else world.current.name
        self._simulation.log.append(f"{world.now:>9} {who:<7} {record.getMessage()}")


@contextmanager
def _quiet(simulation: NodeSimulation) -> Iterator[None]:
    """Nodes write no log, or into a list."""
    logger = logging.getLogger("amcast")
    before = logger.level, logger.propagate, logger.handlers
    logger.setLevel(logging.DEBUG if simulation._records_log else logging.CRITICAL + 1)
    logger.propagate = False
    logger.handlers = [_Log(simulation)]
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate, logger.handlers = before[1:]


def simulate_nodes(scenario: NodeScenario, records_log: bool = False) -> NodeResult:
    """No garbage is collected in a run: when it would be depends on other runs."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        return NodeSimulation(scenario, records_log).run()
    finally:
        # Nodes and connections refer to each other, and each has a large buffer. All of them are young.
        gc.collect(0)
        if was_collecting:
            gc.enable()


def read_scenario(data: bytes) -> NodeScenario:
    return msgspec.json.decode(data, type=NodeScenario)
