"""Keeps the nodes of a simulated cluster: starts them as `amcast node` does, and again after they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from ..core import MessageId, UsageError, message_name
from ..net.config import ClusterConfig
from ..net.disk.files import sync_folder, write_file
from ..net.node.application import ApplicationError
from ..net.node.data_folder import boots_of, format_folder, replace_folder
from ..net.node.server import NodeServer
from ..net.security.signing import key_file
from ..net.system import system
from ..net.trace.collect import Boots
from .application import Chain, Execution, ObjectChain
from .machine import Machine, Program
from .scenario import private_key

_AGAIN_US = 300_000  # a node that ended by itself, as it should, is started again after so long
_REFUSAL_US = 3_000_000  # a node that must refuse to run has done so after this time, even on a slow disk

Excuse = Callable[[BaseException], bool]


class Poison:
    """A message that the applications of a group raise for."""

    def __init__(self) -> None:
        self.is_armed = False  # the next message that nobody has executed yet becomes it
        self.id: MessageId | None = None
        self.position: int | None = None
        self.is_skipped = False  # the group has decided so
        self.executed: set[MessageId] = set()  # by any member

    def is_hit_by(self, id_: MessageId) -> bool:
        if self.is_armed and self.id is None and id_ not in self.executed:
            self.id = id_
        return id_ == self.id


class Node:
    """One process of the cluster, with all its boots."""

    def __init__(
        self, config: ClusterConfig, name: str, machine: Machine, on_problem: Callable[[str, str], None]
    ) -> None:
        self.name = name
        self.machine = machine
        self.folder = Path(config.folder) / config.data / name
        self.program: Program | None = None
        self.executions: dict[MessageId, Execution] = {}  # by the application, in all boots
        self.poison = Poison()  # shared by all members of the group
        self.hold_at: int | None = None
        self.has_lost_disk = False  # it is empty, older than it was, or damaged
        self.may_fail_sync = False
        self.failing_actions: set[str] = set()  # of the application: the next one of each raises
        self.may_fail_application = False
        self.server: NodeServer | None = None
        self.boots = 0
        self.is_retired = False  # it is not started again
        self._config = config
        self._on_problem = on_problem
        self._stop = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self.program is not None and self.program.is_alive

    def waiting_bytes(self) -> int:
        """What it keeps in memory until the disk has it."""
        if self.server is None or not self.server.node.barrier.writes:
            return 0
        return self.server.node.barrier.waiting_bytes + self.server.node.deliveries.unflushed_bytes

    def delivered(self) -> int:
        """The position that it fills next; 0 if it is down."""
        return 0 if self.server is None or not self.is_up else self.server.node.deliveries.next

    def log_bytes(self) -> int:
        return self.machine.disk.bytes_under(self.folder, "log-")

    def trace_bytes(self) -> int:
        return self.machine.disk.bytes_under(self.machine.disk.evidence)

    # -- what an operator does

    def format(self) -> None:
        """`amcast keys` and `amcast init`, before the first start."""
        self._call(self._make_key)
        self._call(lambda: format_folder(self._config, self.name))

    def _make_key(self) -> None:
        if self._config.survives_liars:
            path = key_file(self._config, self.name)
            system().mkdir(path.parent)
            write_file(path, private_key(self.name).hex().encode())
            sync_folder(path.parent.parent)

    def replace(self) -> None:
        """`amcast replace`, after a lost disk."""
        self._call(lambda: replace_folder(self._config, self.name))

    def boots_counted(self) -> Boots | None:
        """What the folder says, for whoever collects."""
        found: list[Boots | None] = []
        self._call(lambda: found.append(boots_of(self.folder)))
        return found[0]

    def _call(self, work: Callable[[], object]) -> None:
        """In a program of its own, which takes no time."""
        machine, world = self.machine, self.machine.world
        sync_us, machine.sync_us = machine.sync_us, 0
        before, program = world.current, machine.start("operator")
        world.current = program
        try:
            work()
        finally:
            machine.sync_us = sync_us
            world.current = before
            program.exit()

    # -- starting

    def start(self) -> None:
        """Does nothing if it is running."""
        self.machine.is_on = True
        if not self.is_up and not self.is_retired:
            self.program = self._run()

    def start_again_later(self, delay_us: int) -> None:
        self.machine.world.scheduler.after(delay_us, self.start)

    def start_second(self) -> None:
        """Beside the one that is running, which it must not disturb. If none is running, it is a start like any."""
        if not self.is_up:
            self.start()
            return
        self._run(is_second=True)

    def start_with(self, config: ClusterConfig) -> None:
        """With a configuration that its folder was not formatted for: it must refuse, and is started as it should."""
        self.machine.is_on = True
        program = self.program = self.machine.start(self.name)
        task = program.loop.create_task(self._serve(config, asyncio.Event(), is_second=True))
        task.add_done_callback(lambda _: self._on_end(program, task, is_second=True))
        program.on_end.append(lambda _: self.start_again_later(_AGAIN_US))
        self.machine.world.scheduler.after(_REFUSAL_US, self._expect_end, program)

    def _expect_end(self, program: Program) -> None:
        if program.is_alive and not program.is_paused:
            self._on_problem("layout", f"{self.name} runs with a layout that is not the one of its folder")

    def _run(self, is_second: bool = False) -> Program:
        program = self.machine.start(self.name)
        self.boots += 1
        stop = asyncio.Event()
        if not is_second:
            self._stop = stop
        task = program.loop.create_task(self._serve(self._config, stop, is_second))
        task.add_done_callback(lambda _: self._on_end(program, task, is_second))
        return program

    async def _serve(self, config: ClusterConfig, stop: asyncio.Event, is_second: bool) -> None:
        """What `amcast node` runs."""
        chain = ObjectChain if config.spec().orders_operations else Chain
        server = NodeServer(config, self.name, chain(self._note, self._try), self.hold_at)
        if not is_second:
            self.server = server
        asyncio.get_running_loop().set_exception_handler(lambda _, context: server.on_loop_problem(context))
        try:
            await server.start()
            server.failure.add_done_callback(lambda _: stop.set())
            await stop.wait()
            if server.failure.done():
                server.failure.result()
        finally:
            await server.stop()

    def _note(self, id_: MessageId, execution: Execution) -> None:
        self.poison.executed.add(id_)
        known = self.executions.setdefault(id_, execution)
        if known != execution:
            self._on_problem("application", f"{self.name} executed {message_name(id_)} in another way than before")

    def _try(self, action: str, id_: MessageId) -> None:
        if action in self.failing_actions:
            self.failing_actions.remove(action)
            self.may_fail_application = True
            raise TimeoutError(f"the application can't {action} now")
        if action == "apply" and self.poison.is_hit_by(id_):
            raise ValueError("the application can't digest this message")

    # -- ending

    def terminate(self) -> None:
        """SIGTERM."""
        if self.program is not None:
            self.program.loop.call_soon(self._stop.set)

    def _on_end(self, program: Program, task: asyncio.Task[None], is_second: bool) -> None:
        error = task.exception() if not task.cancelled() else asyncio.CancelledError()
        self.machine.world.scheduler.after(0, program.exit)
        if is_second:
            if not (isinstance(error, UsageError) or (error is not None and self._is_excused(error))):
                self._on_problem("refusal", f"{self.name} ended with {error!r} where it should refuse to run")
        elif error is not None:
            self._on_failure(error)

    def _on_failure(self, error: BaseException) -> None:
        self.hold_at = None
        if isinstance(error, ApplicationError) and isinstance(error.__cause__, ValueError):
            assert self.server is not None and self.server.host is not None
            self.hold_at = self.poison.position = self.server.host.position
        if self.has_lost_disk and isinstance(error, UsageError):
            self.machine.world.scheduler.after(_AGAIN_US, self._bring_back, error)
        elif self._is_excused(error):
            self.start_again_later(_AGAIN_US)
        else:
            self._on_problem("stopped", f"{self.name} stopped: {type(error).__name__}: {error}")

    def _bring_back(self, error: UsageError) -> None:
        """The operator does what the message says."""
        if self.is_up:
            return
        try:
            if "start it again" not in str(error):
                self.replace()
        except UsageError as refusal:
            if not self._is_excused(refusal):
                raise
            self.machine.world.scheduler.after(_AGAIN_US, self._bring_back, error)
        else:
            self.start()

    def _is_excused(self, error: BaseException) -> bool:
        """On a full disk a node may not start; after a failed sync, or if its application raises, it must stop."""
        if self.may_fail_application and isinstance(error, ApplicationError):
            return True
        if self.poison.id is not None and isinstance(error, ApplicationError | UsageError):
            return True  # the operator may have the hold at another position than the application
        if self.machine.disk.room is not None:
            return isinstance(error, OSError | UsageError)
        if self.may_fail_sync:
            return isinstance(error, OSError | UsageError)
        return False
