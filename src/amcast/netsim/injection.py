"""Makes the faults of a plan happen."""

from __future__ import annotations

from collections.abc import Callable

from .disk import Folder
from .faults import (
    CALLS_US,
    AnyNodeFault,
    BreakConnections,
    CutOff,
    EmptyDisk,
    FailedSync,
    FailingApplication,
    FlippedBits,
    FullDisk,
    GroupDown,
    Kill,
    KillClient,
    OldDisk,
    OtherLayout,
    PauseNode,
    PoisonedMessage,
    PowerLoss,
    RollingRestart,
    SecondStart,
    SlowDisk,
    StepClientClock,
    StepClock,
    Terminate,
)
from .machine import Program, World
from .nodes import Node
from .scenario import NodeScenario

Strike = Kill | PowerLoss | EmptyDisk | OldDisk | FlippedBits


class Injector:
    def __init__(self, scenario: NodeScenario, world: World, nodes: dict[str, Node]) -> None:
        self._scenario = scenario
        self._world = world
        self._nodes = nodes
        self._copies: dict[int, Folder | None] = {}  # of folders, by the fault that will restore them
        self.count = 0

    def schedule(self) -> None:
        for index, fault in enumerate(self._scenario.plan.faults):
            if isinstance(fault, OldDisk):
                self._world.scheduler.at(fault.copied_us, self._copy, index, fault)
            self._world.scheduler.at(fault.at_us, self._inject, index, fault)

    def _copy(self, index: int, fault: OldDisk) -> None:
        node = self._nodes[fault.process]
        self._copies[index] = node.machine.disk.copy_of(node.folder)

    def _after(self, delay_us: int, action: Callable[..., None], *args: object) -> None:
        self._world.scheduler.after(delay_us, action, *args)

    def _inject(self, index: int, fault: AnyNodeFault) -> None:
        self.count += 1
        match fault:
            case Kill() | PowerLoss() | EmptyDisk() | OldDisk() | FlippedBits():
                self._strike_soon(index, fault)
            case Terminate():
                self._terminate(fault)
            case PauseNode():
                self._pause(self._nodes[fault.process].program, fault.for_us)
            case StepClock():
                self._nodes[fault.process].machine.step_clock(fault.by_us, fault.drift)
            case BreakConnections():
                self._world.network.break_connections(fault.process, fault.odds)
            case CutOff():
                self._cut(fault)
            case FullDisk():
                self._nodes[fault.process].machine.disk.room = fault.room
                self._after(fault.for_us, self._make_room, fault.process)
            case SlowDisk():
                self._nodes[fault.process].machine.sync_us = fault.sync_us
                self._after(fault.for_us, self._hurry, fault.process)
            case FailedSync():
                node = self._nodes[fault.process]
                node.may_fail_sync = True
                node.machine.disk.failing_syncs += 1
            case FailingApplication():
                self._nodes[fault.process].failing_actions.add(fault.action)
            case PoisonedMessage():
                self._nodes[self._scenario.members(fault.group)[0]].poison.is_armed = True
            case OtherLayout():
                node = self._nodes[fault.process]
                node.machine.kill_all()
                node.start_with(self._scenario.grown(fault.process))
            case SecondStart():
                self._nodes[fault.process].start_second()
            case GroupDown():
                for name in self._scenario.members(fault.group):
                    down = (PowerLoss if fault.loses_power else Kill)(fault.at_us, name, fault.down_us)
                    self._strike(index, down)
            case KillClient():
                machine = self._world.machines.get(f"c{fault.client}")
                if machine is not None:
                    machine.kill_all()
            case StepClientClock():
                machine = self._world.machines.get(f"c{fault.client}")
                if machine is not None:
                    machine.step_clock(fault.by_us, 0.0)
            case RollingRestart():
                for turn, name in enumerate(self._scenario.members(fault.group)):
                    one = Terminate(fault.at_us + turn * fault.every_us, name, fault.down_us)
                    self._after(turn * fault.every_us, self._terminate, one)

    # -- ends of programs

    def _strike_soon(self, index: int, fault: Strike) -> None:
        program = self._nodes[fault.process].program
        if fault.calls is None or program is None or not program.is_alive:
            self._strike(index, fault)
            return
        struck = False

        def strike() -> None:
            nonlocal struck
            if not struck:
                struck = True
                self._strike(index, fault)

        program.calls_left, program.at_call = fault.calls, strike
        self._after(CALLS_US, strike)

    def _strike(self, index: int, fault: Strike) -> None:
        node = self._nodes[fault.process]
        if isinstance(fault, PowerLoss):
            node.machine.lose_power()
        else:
            node.machine.kill_all()
        if isinstance(fault, EmptyDisk):
            node.has_lost_disk = True
            node.machine.disk.replace(node.folder, None)
        elif isinstance(fault, OldDisk):
            node.has_lost_disk = True
            node.machine.disk.replace(node.folder, self._copies.get(index))
        elif isinstance(fault, FlippedBits):
            self._flip(node, fault.where)
        node.start_again_later(fault.down_us)

    def _flip(self, node: Node, where: float) -> None:
        files = [(path, file) for path, file in node.machine.disk.files_under(node.folder) if file.data]
        if not files:
            return
        node.has_lost_disk = True
        _, file = files[int(where * len(files))]
        offset = int(where * 7_919 % 1 * len(file.data))
        file.data[offset] ^= 1 << int(where * 104_729 % 1 * 8)
        file.durable = bytearray(file.data)

    def _terminate(self, fault: Terminate) -> None:
        node = self._nodes[fault.process]
        program = node.program
        node.terminate()
        if program is not None and fault.patience_us is not None:
            self._after(fault.patience_us, program.kill)
        self._after(fault.down_us, self._start_when_down, node)

    def _start_when_down(self, node: Node) -> None:
        """A supervisor waits until the old program has ended."""
        if node.is_up:
            self._after(10_000, self._start_when_down, node)
        else:
            node.start()

    # -- the rest

    def _pause(self, program: Program | None, for_us: int) -> None:
        if program is not None and program.is_alive:
            program.pause()
            self._after(for_us, program.resume)

    def _cut(self, fault: CutOff) -> None:
        names = [*self._world.machines]
        side = set(fault.side)
        links = [(one, other) for one in names for other in names if one in side and other not in side]
        if not fault.one_way:
            links += [(other, one) for one, other in links]
        self._world.network.cut(links)
        self._after(fault.for_us, self._world.network.mend, links, fault.breaks)

    def _make_room(self, process: str) -> None:
        self._nodes[process].machine.disk.room = None

    def _hurry(self, process: str) -> None:
        self._nodes[process].machine.sync_us = self._scenario.sync_us
