"""The file layer: reads, writes, syncs and locks, for disks that fill up, fail, and forget what was not synced."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...core import UsageError

LOCK_FILE = "lock"
USED_FILE = "used"  # this folder has held durable records: if it holds none now, they were lost

_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class CorruptLogError(UsageError):
    """Something that was durable is damaged or missing. The message says in which file, where, and what to do."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: {problem}: repair the disk, or delete the logs of this process (all but the files named"
            f" {USED_FILE!r}) and let the group take it back"
        )


class SyncFailedError(OSError):
    """The disk lost what it had accepted. Another sync proves nothing: the kernel may have dropped the pages."""


def is_full(error: OSError) -> bool:
    """Whether the disk is full, so that it helps to wait for space. After a failed sync it does not."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT) and not isinstance(error, SyncFailedError)


def write_at(fd: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, offset)
        rest = rest[written:]
        offset += written


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Reads `size` bytes, fewer only at the end of the file."""
    data = os.pread(fd, size, offset)
    while data and len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def sync(fd: int) -> None:
    try:
        _fdatasync(fd)
    except OSError as error:
        raise SyncFailedError(*error.args) from error


def start_writing(fd: int, offset: int, length: int) -> None:
    """Asks the kernel to start writing this part to the disk, without waiting, so that `sync` has less to do later."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Path) -> None:
    """Makes the names of created, renamed and deleted files durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncFailedError(*error.args) from error
    finally:
        os.close(fd)


def write_file(path: Path, *parts: bytes) -> None:
    """Writes a file that is durable and whole when it appears under its name. After a crash it may be missing."""
    draft = path.with_suffix(".tmp")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        offset = 0
        for part in parts:
            write_at(fd, part, offset)
            offset += len(part)
        sync(fd)
    except OSError:
        draft.unlink(missing_ok=True)  # it takes space, and the disk may be full
        raise
    finally:
        os.close(fd)
    os.rename(draft, path)
    sync_folder(path.parent)


@contextmanager
def locked(folder: Path) -> Iterator[tuple[int, ExitStack]]:
    """Locks the folder while a log is opened in it, and unlocks it in the end unless `stack.pop_all` is called."""
    with ExitStack() as stack:
        lock = lock_folder(folder)
        stack.callback(os.close, lock)
        try:
            yield lock, stack
        except OSError as error:
            raise UsageError(f"{error.filename or folder}: can't open the log: {error.strerror or error}") from error


def lock_folder(folder: Path) -> int:
    """Makes the folder if it is missing, and locks it until the returned descriptor is closed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)
        fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"{folder}: can't use this folder: {error.strerror or error}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise UsageError(
            f"{folder}: another process uses this folder: stop it, or give each process a folder of its own"
        ) from error
    return fd


def mark_used(folder: Path) -> None:
    if not is_used(folder):
        write_file(folder / USED_FILE)


def is_used(folder: Path) -> bool:
    return (folder / USED_FILE).exists()
