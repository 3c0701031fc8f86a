"""Runs cells in local processes, one for each core. Whatever ends this program, none of them stays behind.

A process that is killed, perhaps for want of memory, takes the whole pool with it. Whoever says what a killed cell
counts as gets all others all the same: a new pool goes on, and each cell that was under way runs again, alone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from ..core import UsageError

C = TypeVar("C")  # a cell
R = TypeVar("R")  # its result

_WAITING = 2  # cells that wait for each process, so that none is idle


def run_in_processes(
    cells: Sequence[C], jobs: int, run: Callable[[C], R], when_killed: Callable[[C], R] | None = None
) -> Iterator[tuple[C, R]]:
    """Each cell with its result, as they are finished. With one process it is this one; 0: as many as cores."""
    workers = min(jobs or os.cpu_count() or 1, len(cells))
    if workers <= 1:
        for cell in cells:
            yield cell, run(cell)
        return
    todo = list(reversed(cells))
    while todo:
        running: dict[Future[R], C] = {}
        try:
            yield from _in_pool(todo, running, workers, run)
        except BrokenProcessPool as error:
            if when_killed is None:
                raise UsageError(
                    "a process that ran cells was killed, perhaps for want of memory: what is finished is kept, "
                    "and the same command goes on; with fewer --jobs it needs less memory"
                ) from error
            for cell in running.values():
                yield cell, _alone(cell, run, when_killed)


def _alone(cell: C, run: Callable[[C], R], when_killed: Callable[[C], R]) -> R:
    """In a process of its own: if that is killed as well, it was for this cell."""
    try:
        return next(result for _, result in _in_pool([cell], {}, 1, run))
    except BrokenProcessPool:
        return when_killed(cell)


def _in_pool(todo: list[C], running: dict[Future[R], C], workers: int, run: Callable[[C], R]) -> Iterator[tuple[C, R]]:
    """Takes cells from the end of `todo`. `running` are those that are taken and not finished."""
    # Processes that are spawned have no thread or lock of this one, unlike those that are forked.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        while todo or running:
            with _interrupts_held():
                while todo and len(running) < workers * _WAITING:
                    future = pool.submit(run, todo[-1])
                    running[future] = todo.pop()
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                result = future.result()
                yield running.pop(future), result
    except BrokenProcessPool:
        raise
    except BaseException:  # Ctrl-C: nobody wants the rest
        for worker in list(pool._processes.values()):
            worker.terminate()
        raise
    finally:
        # Waits: a pool that is still ending when the program exits would write to a pipe that is closed by then.
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process that is started here never gets Ctrl-C, which a terminal sends to all: its parent ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """A parent that is killed can't end its processes: they end themselves."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait_for_it() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait_for_it, daemon=True).start()
