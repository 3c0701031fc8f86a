"""What a process keeps in its data folder besides its logs and its identity: a lock, and ids given to clients."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from ...core import ProcessId, UsageError
from ..config import CLIENT_IDS_EACH, CLIENT_IDS_FROM
from ..disk.files import CorruptLogError, write_file
from ..system import system

logger = logging.getLogger("amcast.node")


class ClientIds:
    """Gives out ids for clients, each once in the life of the data folder: they are reserved on disk in advance."""

    _RESERVE = 1_000

    def __init__(self, folder: Path, process: ProcessId) -> None:
        self._path = folder / "client-ids"
        self._base = CLIENT_IDS_FROM + process * CLIENT_IDS_EACH
        self._next = _read_number(self._path)
        self._reserved = self._next

    def next(self) -> ProcessId | None:
        """None if no ids are left, or the disk is full."""
        if self._next >= CLIENT_IDS_EACH:
            return None
        if self._next == self._reserved:
            try:
                _write_number(self._path, self._reserved + self._RESERVE)
            except OSError as error:
                logger.warning("no client ids: %s", error)
                return None
            self._reserved += self._RESERVE
        self._next += 1
        return self._base + self._next - 1


def lock_folder(folder: Path, name: str) -> int:
    lock = system().open(folder / "lock", os.O_RDWR | os.O_CREAT)
    if not system().try_lock(lock):
        system().close(lock)
        raise UsageError(f"{name} is running already: another process holds {folder}")
    return lock


def _read_number(path: Path) -> int:
    try:
        return int(system().read_file(path)) if system().exists(path) else 0
    except ValueError as error:
        raise CorruptLogError(path, "does not hold a number") from error


def _write_number(path: Path, number: int) -> None:
    write_file(path, str(number).encode())
