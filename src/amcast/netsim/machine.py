"""Simulated machines and the programs on them, which can be paused and killed at any moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from random import Random
from typing import TYPE_CHECKING, Any

from .disk import Disk, File
from .scheduler import Scheduler

if TYPE_CHECKING:
    from .loop import ProgramLoop
    from .network import Network


class Killed(BaseException):
    """Ends the stacks of a program that was killed. Nothing that they still do has an effect."""


class OpenFile:
    __slots__ = ("at", "count", "file", "path")

    def __init__(self, file: File, path: PurePath) -> None:
        self.file = file
        self.path = path
        self.at = 0  # where the next `write` goes
        self.count = 1  # descriptors


class Machine:
    """One computer: a disk, a clock that may be wrong, and programs."""

    def __init__(self, world: World, name: str, wall_us: int) -> None:
        self.world = world
        self.name = name
        self.disk = Disk(world.rng("disk", name), world.evidence)
        self.rng = world.rng("machine", name)
        self.programs: list[Program] = []
        self.started = 0  # programs, ever
        self.is_on = True
        self.sync_us = 0  # how long a sync takes, about
        self._wall_us = wall_us
        self._wall_from = 0
        self._drift = 0.0

    def wall_us(self) -> int:
        passed = self.world.now - self._wall_from
        return self._wall_us + passed + int(passed * self._drift)

    def step_clock(self, by_us: int, drift: float) -> None:
        self._wall_us = self.wall_us() + by_us
        self._wall_from = self.world.now
        self._drift = drift

    def sync_time(self) -> int:
        return self.rng.randrange(self.sync_us // 2, 2 * self.sync_us) if self.sync_us else 0

    def start(self, name: str) -> Program:
        self.started += 1
        program = Program(self, name, self.started)
        self.programs.append(program)
        return program

    def kill_all(self) -> None:
        for program in list(self.programs):
            program.kill()

    def lose_power(self) -> None:
        self.is_on = False
        for program in list(self.programs):
            program.kill(is_silent=True)
        self.disk.lose_power()


class Program:
    """One process of a machine's operating system: an event loop, threads, open files, connections."""

    loop: ProgramLoop

    def __init__(self, machine: Machine, name: str, number: int) -> None:
        from .loop import ProgramLoop

        self.machine = machine
        self.world = machine.world
        self.name = name
        self.number = number
        self.is_alive = True
        self.is_paused = False
        self.files: dict[int, OpenFile] = {}
        self._next_fd = 3
        self.waits: dict[Wait, None] = {}
        self.calls_left: int | None = None  # system calls until `at_call` is called
        self.at_call: Callable[[], None] = self.kill
        self.on_end: list[Callable[[bool], None]] = []  # called when it ends, with whether in silence
        self._held_up: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.random = self.world.rng("random", name, number)
        self.loop = ProgramLoop(self)  # type: ignore[abstract]  # nodes need no more than it has

    # -- life

    def act(self, action: Callable[..., None], *args: Any) -> None:
        """Performs what the program does now; later if it is paused, never if it is dead."""
        if self.is_paused:
            self._held_up.append((action, args))
        elif self.is_alive:
            action(*args)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held_up, self._held_up = self._held_up, []
        for action, args in held_up:
            self.world.scheduler.after(0, self.act, action, *args)

    def kill(self, is_silent: bool = False) -> None:
        """At once, wherever it is. If silent, as when the power fails, the other ends of connections hear nothing."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.is_paused = False
        self._held_up = []
        self.machine.programs.remove(self)
        for opened in self.files.values():
            if opened.file.holder is opened:
                opened.file.holder = None
        self.files = {}
        before = self.world.current
        while self.waits:
            wait = next(iter(self.waits))
            del self.waits[wait]
            wait.resume()
        self.world.current = before
        self.loop.bury()
        for callback in self.on_end:
            callback(is_silent)

    def exit(self) -> None:
        """It ended by itself: connections are closed."""
        self.kill()

    # -- what its code does

    def called(self) -> None:
        """Before each system call: raises if it must not happen any more."""
        if self.calls_left is not None:
            if self.calls_left == 0:
                self.calls_left = None
                self.at_call()
            else:
                self.calls_left -= 1
        if not self.is_alive:
            raise Killed

    def open_file(self, opened: OpenFile) -> int:
        self._next_fd += 1
        self.files[self._next_fd] = opened
        return self._next_fd

    def spend(self, duration_us: int) -> None:
        """The calling stack waits for so long."""
        if duration_us:
            Wait(self).wait(duration_us)


class Wait:
    """A stack of a program that waits."""

    __slots__ = ("_carrier", "_is_over", "_program", "_result")

    def __init__(self, program: Program) -> None:
        self._program = program
        self._result = False
        self._is_over = False

    def wait(self, timeout_us: int | None) -> bool:
        """Whether it was ended before its time was up."""
        program, world = self._program, self._program.world
        if not program.is_alive:
            raise Killed
        if timeout_us is not None:
            world.scheduler.after(timeout_us, program.act, self._time_out)
        self._carrier = world.scheduler.running
        program.waits[self] = None
        world.scheduler.wait()
        world.current = program
        if not program.is_alive:
            raise Killed
        return self._result

    def end(self) -> None:
        """The stack goes on, a moment from now."""
        if not self._is_over:
            self._is_over = self._result = True
            self._program.world.scheduler.after(0, self._program.act, self._go_on)

    def _time_out(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._go_on()

    def _go_on(self) -> None:
        self._program.waits.pop(self, None)
        self.resume()

    def resume(self) -> None:
        self._is_over = True
        self._program.world.scheduler.wake(self._carrier)


class World:
    """All machines, the network between them, and their time."""

    def __init__(self, seed: int, evidence: PurePath) -> None:
        from .network import Network

        self.seed = seed
        # The trace, by which a run is judged, survives everything, as if it were written to another machine.
        self.evidence = evidence
        self.scheduler = Scheduler()
        self.scheduler.abandon = self.end
        self.machines: dict[str, Machine] = {}
        self.current: Program | None = None  # whose code runs
        self.buried: list[ProgramLoop] = []
        self.network: Network = Network(self)

    @property
    def now(self) -> int:
        return self.scheduler.now

    def rng(self, *names: object) -> Random:
        return Random("/".join(map(str, (self.seed, *names))))

    def add_machine(self, name: str, wall_us: int) -> Machine:
        machine = self.machines[name] = Machine(self, name, wall_us)
        return machine

    def end(self) -> None:
        """Kills all that runs, and stops time."""
        for machine in self.machines.values():
            machine.kill_all()
        self.current = None
        self.scheduler.stop()
