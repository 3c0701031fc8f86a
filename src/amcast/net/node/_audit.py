"""The audit log of a node: who connected, was refused or cut off, and which credentials changed, as JSON lines.

    {"time":"2026-03-01T12:00:00.000Z","process":"g1.p0","event":"refused","who":"a stranger",
     "address":"10.0.0.7:51312","reason":"this token is not known here"}

It can't fill a disk: a full file is renamed, and only so many are kept; and of what strangers can cause, only so many
lines a second are written. The next line of the same event says how many were left out (`skipped`). No line holds a
secret. A log that can't be written stops nothing: `amcast status` says so.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..disk.files import write_at
from ..system import system

FILE_BYTES = 8 << 20
FILES = 5
_TEXT_MAX = 300  # characters of a field: some of them a stranger may choose


class Rate:
    """So many events a second, and a number of them at once."""

    def __init__(self, per_second: float, at_once: int) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._left = float(at_once)
        self._at_s = system().monotonic_s()
        self.skipped = 0  # since the last one that was let through

    def take(self) -> bool:
        now_s = system().monotonic_s()
        self._left = min(self._at_once, self._left + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        if self._left < 1:
            self.skipped += 1
            return False
        self._left -= 1
        return True


class Audit:
    def __init__(self, path: Path, process: str) -> None:
        self._path = path
        self._process = process
        self._fd: int | None = None
        self._size = 0
        self._rates = {"connected": Rate(50, 500), "refused": Rate(10, 100), "cut off": Rate(10, 100)}
        self.problem: str | None = None

    def note(self, event: str, who: str = "", address: str = "", token: str = "", reason: str = "") -> bool:
        """Whether it was written: whoever logs the same elsewhere should leave out what is left out here."""
        rate = self._rates.get(event)
        if rate is not None and not rate.take():
            return False
        now = datetime.fromtimestamp(system().wall_us() / 1e6, UTC)
        entry: dict[str, str | int] = {
            "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "process": self._process,
            "event": event,
        }
        fields = {"who": who, "address": address, "token": token, "reason": reason}
        entry |= {name: value[:_TEXT_MAX] for name, value in fields.items() if value}
        if rate is not None and rate.skipped:
            entry["skipped"], rate.skipped = rate.skipped, 0
        self._write(msgspec.json.encode(entry) + b"\n")
        return True

    def close(self) -> None:
        if self._fd is not None:
            system().close(self._fd)
            self._fd = None

    def _write(self, line: bytes) -> None:
        try:
            if self._fd is None:
                self._open()
            if self._size + len(line) > FILE_BYTES:
                self._rotate()
            assert self._fd is not None
            write_at(self._fd, line, self._size)
            self._size += len(line)
            self.problem = None
        except OSError as error:
            self.problem = f"the audit log can't be written: {error.strerror or error}"

    def _open(self) -> None:
        system().mkdir(self._path.parent)
        self._fd = system().open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._size = system().size_of(self._fd)

    def _rotate(self) -> None:
        self.close()
        for number in range(FILES - 1, 0, -1):
            older = self._name(number - 1)
            if system().exists(older):
                system().rename(older, self._name(number))
        self._open()

    def _name(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")
