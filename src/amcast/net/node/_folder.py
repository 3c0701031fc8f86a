"""What a process keeps in its data folder besides its logs: a lock, and how often it was started."""

from __future__ import annotations

import os
from pathlib import Path

from ...core import UsageError
from ..disk.files import write_file
from ..system import system


def lock_folder(folder: Path, name: str) -> int:
    lock = system().open(folder / "lock", os.O_RDWR | os.O_CREAT)
    if not system().try_lock(lock):
        system().close(lock)
        raise UsageError(f"{name} is running already: another process holds {folder}")
    return lock


def count_boot(folder: Path) -> int:
    """How often this process was started, this time included."""
    path = folder / "boot"
    boot = _read_number(path) + 1
    _write_number(path, boot)
    return boot


def _read_number(path: Path) -> int:
    try:
        return int(system().read_file(path)) if system().exists(path) else 0
    except ValueError as error:
        raise UsageError(f"{path} does not hold a number: restore it, or remove the process's whole folder") from error


def _write_number(path: Path, number: int) -> None:
    write_file(path, str(number).encode())
