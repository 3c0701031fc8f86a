"""An asyncio event loop of a simulated program, in virtual time."""

# mypy: disable-error-code="override, assignment"

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .machine import Program

_TURN_US = 40  # a turn begins up to so long after something is ready

ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class ProgramLoop(asyncio.AbstractEventLoop):
    """Turn by turn, as asyncio does it: what becomes ready in a turn runs in the next one."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._scheduler = program.world.scheduler
        self._rng = program.world.rng("loop", program.name, program.number)
        self._ready: deque[asyncio.Handle] = deque()
        self._has_turn = False  # one is scheduled or runs
        self._tasks: list[asyncio.Task[Any]] = []
        self._handler: ExceptionHandler | None = None
        self.problems: list[dict[str, Any]] = []  # that no handler took

    # -- time

    def time(self) -> float:
        return self._scheduler.now / 1e6

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self.program.is_alive:
            self._scheduler.at(max(self._scheduler.now, round(when * 1e6)), self._add_due, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio calls it. A cancelled timer is recognised when it is due."""

    def _add_due(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled():
            self._add(handle)

    def _add(self, handle: asyncio.Handle) -> None:
        if self.program.is_alive:
            self._ready.append(handle)
            if not self._has_turn:
                self._schedule_turn()

    def _schedule_turn(self) -> None:
        self._has_turn = True
        self._scheduler.after(int(self._rng.random() * _TURN_US), self.program.act, self._turn)

    def _turn(self) -> None:
        program, ready = self.program, self._ready
        program.world.current = program
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                    if not program.is_alive:
                        return
        finally:
            self._has_turn = False
        if ready:
            self._schedule_turn()

    # -- futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        from .system import SimulatedThread

        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon_threadsafe(_set_exception, future, error)
            else:
                self.call_soon_threadsafe(_set_result, future, result)

        SimulatedThread(self.program, work)
        return future

    # -- connections

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        fd.watch(partial(callback, *args))

    def remove_reader(self, fd: Any) -> bool:
        fd.watch(None)
        return True

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **options: Any) -> Any:
        assert options.get("ssl") is None, "there is no TLS between simulated programs"
        sock.begin(protocol_factory, None)
        return sock, sock.get_protocol()

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        assert options.get("ssl") is None, "there is no TLS between simulated programs"
        transport = await self.program.world.network.connect(self.program, protocol_factory, (host, port))
        return transport, transport.get_protocol()

    # -- the rest

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.program.is_alive

    def is_closed(self) -> bool:
        return not self.program.is_alive

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        self._handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.problems.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.program.is_alive:
            return
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    # -- the end

    def bury(self) -> None:
        """The program was killed: nothing runs any more. Its coroutines must not run when they are collected either."""
        self._ready.clear()
        self.program.world.buried.append(self)

    def close_tasks(self) -> None:
        """At the end of the simulation. What `finally` blocks do has no effect: the program is dead."""
        self.program.world.current = self.program
        tasks, self._tasks = self._tasks, []
        asyncio._set_running_loop(self)
        try:
            for task in tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close(task.get_coro())
        finally:
            asyncio._set_running_loop(None)
            self.program.world.current = None


def _close(coroutine: Any) -> None:
    try:
        coroutine.close()
    except BaseException:
        return  # such as Killed, from a system call


def _set_result(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
