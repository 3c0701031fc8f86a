"""The file layer: reads, writes, syncs and locks, for disks that fill up, fail, and forget what was not synced."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...core import UsageError
from ..system import system

LOCK_FILE = "lock"


class CorruptLogError(UsageError):
    """Something that was durable is damaged or missing. The message says in which file, where, and what to do."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: {problem}: repair the disk, or run `amcast replace` for this process, and let its group"
            " take it back"
        )


class SyncFailedError(OSError):
    """The disk lost what it had accepted. Another sync proves nothing: the kernel may have dropped the pages."""


def lacks_space(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_full(error: OSError) -> bool:
    """Whether the disk is full, so that it helps to wait for space. After a failed sync of what is kept it does not."""
    return lacks_space(error) and not isinstance(error, SyncFailedError)


def write_at(fd: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    pwrite = system().pwrite
    while rest:
        written = pwrite(fd, rest, offset)
        rest = rest[written:]
        offset += written


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Reads `size` bytes, fewer only at the end of the file."""
    pread = system().pread
    data = pread(fd, size, offset)
    while data and len(data) < size:
        more = pread(fd, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def sync(fd: int) -> None:
    try:
        system().fdatasync(fd)
    except OSError as error:
        raise SyncFailedError(*error.args) from error


def start_writing(fd: int, offset: int, length: int) -> None:
    """Asks the kernel to start writing this part to the disk, without waiting, so that `sync` has less to do later."""
    system().start_writing(fd, offset, length)


def sync_folder(folder: Path) -> None:
    """Makes the names of created, renamed and deleted files durable."""
    try:
        system().sync_folder(folder)
    except OSError as error:
        raise SyncFailedError(*error.args) from error


def write_file(path: Path, *parts: bytes) -> None:
    """Writes a file that is durable and whole when it appears under its name. After a crash it may be missing."""
    draft = path.with_suffix(".tmp")
    calls = system()
    fd = calls.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        offset = 0
        for part in parts:
            write_at(fd, part, offset)
            offset += len(part)
        sync(fd)
    except OSError:
        calls.unlink(draft)  # it takes space, and the disk may be full
        raise
    finally:
        calls.close(fd)
    calls.rename(draft, path)
    sync_folder(path.parent)


@contextmanager
def locked(folder: Path) -> Iterator[tuple[int, ExitStack]]:
    """Locks the folder while a log is opened in it, and unlocks it in the end unless `stack.pop_all` is called."""
    with ExitStack() as stack:
        lock = lock_folder(folder)
        stack.callback(system().close, lock)
        try:
            yield lock, stack
        except OSError as error:
            raise UsageError(f"{error.filename or folder}: can't open the log: {error.strerror or error}") from error


def lock_folder(folder: Path) -> int:
    """Makes the folder if it is missing, and locks it until the returned descriptor is closed."""
    calls = system()
    try:
        calls.mkdir(folder)
        sync_folder(folder.parent)
        fd = calls.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise UsageError(f"{folder}: can't use this folder: {error.strerror or error}") from error
    if not calls.try_lock(fd):
        calls.close(fd)
        raise UsageError(
            f"{folder}: another process uses this folder: stop it, or give each process a folder of its own"
        )
    return fd
