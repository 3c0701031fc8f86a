"""A file as blocks of whole lines. Parts of a file can be read apart: each line belongs to the part that it begins in.

No row goes over the end of a line, not even inside quotes: so any line end is a place to cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .problems import Problem
from .sources import LINE_BYTES_MAX, Source

BLOCK_BYTES = 4 << 20
WHOLE_FILE = -1  # the line of a problem that is about no line


class Part(msgspec.Struct, frozen=True):
    source: Source
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Block:
    lines: bytes  # whole lines; the last one of a file may have no line end
    first: int  # the number of its first line, from 0 at the beginning of the part
    end: int  # where it ends in the file, in bytes


def parts_of(source: Source, size: int) -> list[Part]:
    """Parts of about `size` bytes; at least one."""
    starts = list(range(source.begins, max(source.size, source.begins + 1), size))
    return [Part(source, start, stop) for start, stop in zip(starts, [*starts[1:], source.size], strict=True)]


def blocks_of(part: Part) -> Iterator[Block | Problem]:
    """A problem, with a line that counts from the beginning of the part, ends the part."""
    try:
        yield from _blocks_of(part)
    except OSError as error:
        yield Problem(f"can't be read: {error.strerror or error}", line=WHOLE_FILE)


def _blocks_of(part: Part) -> Iterator[Block | Problem]:
    with Path(part.source.path).open("rb") as file:
        at = part.start
        if at > part.source.begins:  # a line that began before this part is not of this part
            file.seek(at - 1)
            while (skipped := file.readline(BLOCK_BYTES)) and not skipped.endswith(b"\n"):
                pass
            at = file.tell()
        file.seek(at)
        number = 0
        while at < part.stop:
            lines = file.read(min(BLOCK_BYTES, part.stop - at))
            if not lines:
                return
            if not lines.endswith(b"\n"):
                lines += file.readline(LINE_BYTES_MAX + 1)
            at += len(lines)
            bad = _too_long(lines)
            if bad is not None:
                number_of_bad = number + lines.count(b"\n", 0, bad)
                if bad:
                    yield Block(lines[:bad], number, at)
                yield Problem(f"it is longer than {LINE_BYTES_MAX:,} bytes", line=number_of_bad)
                return
            yield Block(lines, number, at)
            number += lines.count(b"\n")


def _too_long(lines: bytes) -> int | None:
    """Where the first line begins that is too long. One that was cut off is: more was read of it than is allowed."""
    start = 0
    while len(lines) - start > LINE_BYTES_MAX:
        end = lines.rfind(b"\n", start, start + LINE_BYTES_MAX + 1)
        if end < 0:
            return start
        start = end + 1
    return None
