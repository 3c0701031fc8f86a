"""What a node asks of its operating system: files, clocks, threads and random numbers. All such calls go through here.

    system().pwrite(fd, data, offset)

In a program that a user runs, `system()` is the operating system itself. The simulator of whole nodes puts one in its
place whose disks forget what was not synced, and whose clocks and threads it steers.
"""

from __future__ import annotations

import fcntl
import os
import queue
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

_BACKLOG = 1_024  # connections that the kernel keeps until they are accepted

_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


Job = TypeVar("Job")
Stamp = tuple[int, ...]  # changes whenever the file is written or replaced


class Event(Protocol):
    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Lock(Protocol):
    def __enter__(self) -> Any: ...
    def __exit__(self, *exc: Any) -> None: ...


class Jobs(Protocol[Job]):
    """A queue from one thread to another."""

    def put(self, job: Job) -> None: ...

    def get(self, block: bool = True, timeout: float | None = None) -> Job:
        """Raises `queue.Empty` if none came in time."""


class Thread(Protocol):
    def join(self) -> None: ...


class System:
    """The operating system. File methods raise OSError as those of `os` do, with which they share their names."""

    # -- files

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def dup(self, fd: int) -> int:
        return os.dup(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def size_of(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def fdatasync(self, fd: int) -> None:
        _fdatasync(fd)

    def start_writing(self, fd: int, offset: int, length: int) -> None:
        """Asks the kernel to start writing this part to the disk, without waiting."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)

    def try_lock(self, fd: int) -> bool:
        """Locks the file for this process until the descriptor is closed. False if another one holds the lock."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    # -- names

    def mkdir(self, folder: Path) -> None:
        """With all folders above it. Does nothing if it is there. A new one is closed to other users."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def chmod(self, path: Path, mode: int) -> None:
        os.chmod(path, mode)

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def stamp(self, path: Path) -> Stamp | None:
        """None if there is no such file, or it can't be looked at."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def size_and_time(self, path: Path) -> tuple[int, int]:
        """The bytes of a file, and when it was written last, by the wall clock; zeros if it can't be looked at."""
        try:
            found = os.stat(path)
        except OSError:
            return 0, 0
        return found.st_size, found.st_mtime_ns // 1_000

    def names_in(self, folder: Path) -> list[str]:
        """The names of the files in a folder, sorted."""
        return sorted(os.listdir(folder))

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def read_file(self, path: Path) -> bytes:
        return path.read_bytes()

    # -- connections

    def listen(self, host: str, port: int) -> list[socket.socket]:
        """Sockets that listen at all addresses of this name."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket(*each[:3])) for each in dict.fromkeys(found)]
            for listening, each in zip(sockets, dict.fromkeys(found), strict=True):
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if each[0] == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.setblocking(False)
                listening.bind(each[4])
                listening.listen(_BACKLOG)
            stack.pop_all()
        return sockets

    def addresses_of(self, host: str) -> set[str]:
        """Of a host name; none if nobody knows it now. It may take a while."""
        try:
            return {str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        except OSError:
            return set()

    def descriptors(self) -> int:
        """How many descriptors this process may have open."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def raise_descriptors(self, wanted: int) -> None:
        """Asks for so many, as far as the operating system allows it."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    # -- time, threads, chance

    def wall_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def event(self) -> Event:
        return threading.Event()

    def lock(self) -> Lock:
        return threading.Lock()

    def jobs(self) -> Jobs[Any]:
        return queue.SimpleQueue()

    def start_thread(self, work: Callable[[], None], name: str) -> Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def random_bits(self, count: int) -> int:
        return int.from_bytes(os.urandom((count + 7) // 8), "big") & ((1 << count) - 1)

    def peak_memory_mb(self) -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


_system = System()


def system() -> System:
    return _system


@contextmanager
def use(other: System) -> Iterator[None]:
    """Within it, all nodes and clients of this program run on another system."""
    global _system
    before, _system = _system, other
    try:
        yield
    finally:
        _system = before
