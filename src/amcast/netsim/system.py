"""The operating system of simulated programs: each call is one of the program that runs at the moment."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any
from zlib import crc32

from ..net.system import Event, Jobs, Lock, Stamp, System, Thread
from .disk import Folder
from .machine import Killed, Machine, OpenFile, Program, Wait, World


class SimulatedSystem(System):
    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def _program(self) -> Program:
        program = self._world.current
        assert program is not None, "a system call outside of all programs"
        program.called()
        return program

    # -- files

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        program = self._program
        disk = program.machine.disk
        entry = disk.entry(path)
        if entry is None and flags & os.O_CREAT:
            file = disk.create(path)
        elif entry is not None and flags & os.O_EXCL:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        else:
            file = disk.file(path)
            if flags & os.O_TRUNC:
                file.truncate(0)
        return program.open_file(OpenFile(file, path))

    def close(self, fd: int) -> None:
        opened = self._opened(self._program, fd)
        del self._program.files[fd]
        opened.count -= 1
        if opened.count == 0 and opened.file.holder is opened:
            opened.file.holder = None

    def dup(self, fd: int) -> int:
        program = self._program
        opened = self._opened(program, fd)
        opened.count += 1
        return program.open_file(opened)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return bytes(self._opened(self._program, fd).file.data[offset : offset + size])

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        program = self._program
        opened = self._opened(program, fd)
        file = opened.file
        program.machine.disk.take_room(offset + len(data) - len(file.data), opened.path)
        file.write(offset, bytes(data))
        return len(data)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        opened = self._opened(self._program, fd)
        written = self.pwrite(fd, data, opened.at)
        opened.at += written
        return written

    def ftruncate(self, fd: int, size: int) -> None:
        self._opened(self._program, fd).file.truncate(size)

    def size_of(self, fd: int) -> int:
        return len(self._opened(self._program, fd).file.data)

    def fdatasync(self, fd: int) -> None:
        program = self._program
        file = self._opened(program, fd).file
        program.spend(program.machine.sync_time())
        if program.machine.disk.fail_sync():
            file.forget_pending()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        file.sync()

    def start_writing(self, fd: int, offset: int, length: int) -> None:
        self._opened(self._program, fd)

    def try_lock(self, fd: int) -> bool:
        opened = self._opened(self._program, fd)
        if opened.file.holder not in (None, opened):
            return False
        opened.file.holder = opened
        return True

    def _opened(self, program: Program, fd: int) -> OpenFile:
        try:
            return program.files[fd]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    # -- names

    def mkdir(self, folder: Path) -> None:
        self._program.machine.disk.mkdir(folder)

    def chmod(self, path: Path, mode: int) -> None:
        """There is one user."""

    def sync_folder(self, folder: Path) -> None:
        program = self._program
        found = program.machine.disk.folder(folder)
        program.spend(program.machine.sync_time())
        if program.machine.disk.fail_sync():
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))
        found.sync()

    def exists(self, path: Path) -> bool:
        return self._program.machine.disk.entry(path) is not None

    def stamp(self, path: Path) -> Stamp | None:
        if not self.exists(path):
            return None
        data = self.read_file(path)
        return len(data), crc32(data)

    def size_and_time(self, path: Path) -> tuple[int, int]:
        """Files have no times here: they are as old as this call."""
        return (len(self.read_file(path)) if self.exists(path) else 0), self.wall_us()

    def names_in(self, folder: Path) -> list[str]:
        return sorted(self._program.machine.disk.folder(folder).names)

    def rename(self, old: Path, new: Path) -> None:
        self._program.machine.disk.rename(old, new)

    def unlink(self, path: Path) -> None:
        self._program.machine.disk.unlink(path)

    def read_file(self, path: Path) -> bytes:
        return bytes(self._program.machine.disk.file(path).data)

    # -- connections

    def listen(self, host: str, port: int) -> list[Any]:
        return [self._world.network.listen(self._program, (host, port))]

    def addresses_of(self, host: str) -> set[str]:
        return {host}

    def descriptors(self) -> int:
        return 1 << 20

    def raise_descriptors(self, wanted: int) -> None:
        """There are enough."""

    # -- time, threads, chance

    def wall_us(self) -> int:
        program = self._world.current
        assert program is not None
        return program.machine.wall_us()

    def monotonic_s(self) -> float:
        return self._world.now / 1e6

    def event(self) -> Event:
        return SimulatedEvent(self._program)

    def lock(self) -> Lock:
        return SimulatedLock(self._program)

    def jobs(self) -> Jobs[Any]:
        return SimulatedJobs(self._program)

    def start_thread(self, work: Callable[[], None], name: str) -> Thread:
        return SimulatedThread(self._program, work)

    def random_bits(self, count: int) -> int:
        return self._program.random.getrandbits(count)

    def peak_memory_mb(self) -> float:
        return 100.0


class SimulatedEvent:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._is_set = False
        self._waits: list[Wait] = []

    def set(self) -> None:
        self._is_set = True
        waits, self._waits = self._waits, []
        for wait in waits:
            wait.end()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            wait = Wait(self._program)
            self._waits.append(wait)
            wait.wait(None if timeout is None else int(timeout * 1e6))
        return self._is_set


class SimulatedLock:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._is_held = False
        self._waits: deque[Wait] = deque()

    def __enter__(self) -> None:
        while self._is_held:
            wait = Wait(self._program)
            self._waits.append(wait)
            wait.wait(None)
        self._is_held = True

    def __exit__(self, *exc: Any) -> None:
        self._is_held = False
        if self._waits:
            self._waits.popleft().end()


class SimulatedJobs:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._jobs: deque[Any] = deque()
        self._waits: deque[Wait] = deque()

    def put(self, job: Any) -> None:
        self._jobs.append(job)
        if self._waits:
            self._waits.popleft().end()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._jobs and block:
            wait = Wait(self._program)
            self._waits.append(wait)
            if not wait.wait(None if timeout is None else int(timeout * 1e6)) and wait in self._waits:
                self._waits.remove(wait)
        if not self._jobs:
            raise Empty
        return self._jobs.popleft()


class SimulatedThread:
    def __init__(self, program: Program, work: Callable[[], None]) -> None:
        self._program = program
        self._work = work
        self._ended = SimulatedEvent(program)
        program.world.scheduler.after(0, program.act, self._run)

    def _run(self) -> None:
        self._program.world.current = self._program
        try:
            self._work()
        except Killed:
            return
        except BaseException as error:
            if self._program.is_alive:
                self._program.loop.call_exception_handler({"message": "a thread failed", "exception": error})
        self._ended.set()

    def join(self) -> None:
        self._ended.wait()


def names_of(machine: Machine, folder: Path) -> list[str]:
    found = machine.disk.entry(folder)
    return sorted(found.names) if isinstance(found, Folder) else []
