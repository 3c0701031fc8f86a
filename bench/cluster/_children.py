"""Child processes: starting them, talking to them, their CPU time and memory, and ending them whatever happens."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import TypeVar

import msgspec

ROOT = Path(__file__).resolve().parents[2]

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_END_S = 5.0

Reply = TypeVar("Reply", bound=msgspec.Struct)


class BrokenError(Exception):
    """A system or its load ended by itself."""


def exit_on_signals() -> None:
    """Turns SIGTERM and SIGHUP into an exception, so that every `finally` runs and ends its child processes."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


def spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts a server apart from the terminal: Ctrl-C reaches only the benchmark, which then ends its servers."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )


def end(children: Iterable[subprocess.Popen[bytes]]) -> None:
    children = list(children)
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class Worker:
    """A Python process that answers lines of JSON with lines of JSON, and ends when its input is closed."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
        )
        self._name = module
        self._rest = b""

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(self, question: msgspec.Struct, kind: type[Reply], timeout: float) -> Reply:
        self.tell(question)
        return self.hear(kind, timeout)

    def tell(self, question: msgspec.Struct) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(msgspec.json.encode(question) + b"\n")
        self._child.stdin.flush()

    def hear(self, kind: type[Reply], timeout: float) -> Reply:
        return msgspec.json.decode(self._line(timeout), type=kind)

    def _line(self, timeout: float) -> bytes:
        assert self._child.stdout is not None
        file = self._child.stdout.fileno()
        while b"\n" not in self._rest:
            if not select.select([file], [], [], timeout)[0]:
                raise TimeoutError(f"no answer from {self._name} in {timeout:g} s")
            data = os.read(file, 1 << 16)
            if not data:
                raise BrokenError(f"{self._name} ended without an answer (code {self._child.wait()})")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes, with all their threads, since they started."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / (1 << 20)


def file_system(folder: Path) -> str:
    """The type of file system that a folder is on, such as ext4 or tmpfs: how much a sync costs depends on it."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, name, *_ = line.split()
        if len(point) > len(best) and (folder.resolve().is_relative_to(point)):
            best, kind = point, name
    return kind
