"""Which segments of its trace a node keeps: the newest, up to a number of bytes, and up to an age.

The bytes are those of all boots of a process. When a segment must go, the node first writes down that it goes, and then
removes its files. A crash in between leaves files that count as dropped already: they do no harm, and go next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...core import ProcessId
from ..system import system
from ._rawformat import FLUSH_ORDER, Dropped, segment_of

_PARTS = 8  # segments that the limit holds: so much of it, at most, is dropped at a time
_BLOCK = 4_096  # what a file takes of a disk, at least
_SECOND_US = 1_000_000


class Bounds(NamedTuple):
    """Of the trace of one process. Without a limit of bytes everything is kept, of any age."""

    bytes: int = 0
    age_s: int = 0

    @property
    def segment_bytes(self) -> int:
        """At which a segment is full; 0: never."""
        return -(-self.bytes // _PARTS)

    @property
    def segment_us(self) -> int:
        """After which a segment is followed by another one; 0: never."""
        return self.age_s * _SECOND_US // _PARTS if self.bytes else 0


@dataclass
class _Segment:
    boot: int
    number: int
    ended_us: int = 0  # when it was written to last, about
    files: list[tuple[Path, int]] = field(default_factory=list)  # and their bytes

    @property
    def disk_bytes(self) -> int:
        return sum(-(-size // _BLOCK) * _BLOCK for _, size in self.files)


class Retention:
    """The segments of one process that are on the disk, but for the one that is being written; the oldest first."""

    def __init__(self, folder: Path, process: ProcessId, bounds: Bounds) -> None:
        self._bounds = bounds
        self._segments = sorted(_found(folder, process), key=lambda segment: (segment.boot, segment.number))

    def files_of(self, boot: int) -> list[Path]:
        """Those that an earlier boot of the same number left: there should be none."""
        return [path for segment in self._segments if segment.boot == boot for path, _ in segment.files]

    def add(self, boot: int, number: int, files: list[tuple[Path, int]], now_us: int) -> None:
        """A segment has ended."""
        self._segments.append(_Segment(boot, number, now_us, files))

    def due(self, now_us: int) -> Dropped | None:
        """What must go, if anything: all segments up to this one."""
        if not self._bounds.bytes:
            return None
        room = self._bounds.bytes - self._bounds.segment_bytes  # for what has ended: one segment is being written
        oldest_us = now_us - self._bounds.age_s * _SECOND_US if self._bounds.age_s else None
        held = sum(segment.disk_bytes for segment in self._segments)
        due: Dropped | None = None
        for segment in self._segments:
            if held > room:
                limit = f"the limit of {_in_words(self._bounds.bytes)}"
            elif oldest_us is not None and segment.ended_us < oldest_us:
                limit = f"the limit of {_age_in_words(self._bounds.age_s)}"
            else:
                break
            due = Dropped(segment.boot, segment.number, limit)
            held -= segment.disk_bytes
        return due

    def drop(self, upto: Dropped) -> None:
        """Effects go before their causes: deliveries first."""
        while self._segments and (self._segments[0].boot, self._segments[0].number) <= (upto.boot, upto.segment):
            for path, _ in sorted(self._segments.pop(0).files, key=_flushed_last):
                with suppress(OSError):  # what can't be removed now goes at the next start
                    system().unlink(path)


def _found(folder: Path, process: ProcessId) -> Iterator[_Segment]:
    found: dict[tuple[int, int], _Segment] = {}
    try:
        names = system().names_in(folder)
    except OSError:
        return
    for name in names:
        what = segment_of(name)
        if what is not None and what[1] == process:
            path = folder / name
            size, written_us = system().size_and_time(path)
            segment = found.setdefault(what[2:], _Segment(*what[2:]))
            segment.files.append((path, size))
            segment.ended_us = max(segment.ended_us, written_us)
    yield from found.values()


def _flushed_last(file: tuple[Path, int]) -> int:
    return -FLUSH_ORDER.index(file[0].name.partition(".")[0])


def _in_words(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def _age_in_words(age_s: int) -> str:
    for unit, name in ((86_400, "days"), (3_600, "hours")):
        if age_s >= 2 * unit:
            return f"{age_s / unit:.3g} {name}"
    return f"{age_s} s"
