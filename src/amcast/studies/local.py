"""Runs cells in local processes, one for each core. Whatever ends this program, none of them stays behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from ..core import UsageError
from .cell import Result, run_cell
from .plan import Cell

_WAITING = 2  # cells that wait for each process, so that none is idle


def run_in_processes(cells: Sequence[Cell], jobs: int = 0) -> Iterator[tuple[Cell, Result]]:
    """Each cell with its result, as they are finished. With one process it is this one; 0: as many as cores."""
    workers = min(jobs or os.cpu_count() or 1, len(cells))
    if workers <= 1:
        for cell in cells:
            yield cell, run_cell(cell)
        return
    # Processes that are spawned have no thread or lock of this one, unlike those that are forked.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        yield from _run(pool, list(cells), workers)
    except BrokenProcessPool as error:
        raise UsageError(
            "a process that ran cells was killed, perhaps for want of memory: what is finished is kept, "
            "and the same command goes on; with fewer --jobs it needs less memory"
        ) from error
    except BaseException:  # Ctrl-C: nobody wants the rest
        for worker in list(pool._processes.values()):
            worker.terminate()
        raise
    finally:
        # Waits: a pool that is still ending when the program exits would write to a pipe that is closed by then.
        pool.shutdown(cancel_futures=True)


def _run(pool: ProcessPoolExecutor, todo: list[Cell], workers: int) -> Iterator[tuple[Cell, Result]]:
    running: dict[Future[Result], Cell] = {}
    todo.reverse()
    while todo or running:
        with _interrupts_held():
            while todo and len(running) < workers * _WAITING:
                cell = todo.pop()
                running[pool.submit(run_cell, cell)] = cell
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future.result()


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
