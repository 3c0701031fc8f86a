"""Reads a workload that was recorded: from a CSV file, or from the multicasts of a run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ..core import UsageError
from ..workload.replay import Recorded, Replay, parse_replay, replay_of

if TYPE_CHECKING:
    from ..trace import Run

_FILE_BYTES_MAX = 64 << 20


def read_replay(path: Path) -> Replay:
    if path.is_dir():
        from ..trace import read_run

        return replay_of(str(path), _multicasts(read_run(path)))
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise UsageError(f"{path} can't be replayed: it has more than {_FILE_BYTES_MAX:,} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} can't be replayed: byte {error.start:,} is no UTF-8 text") from error
    return parse_replay(text, str(path))


def _multicasts(run: Run) -> Iterable[tuple[int, Recorded]]:
    table = run.multicasts
    dst, times, sizes = table.dst.tolist(), table.t_us.tolist(), table.bytes.tolist()
    for row, (start, end) in enumerate(pairwise(table.dst_start.tolist())):
        yield row + 1, (times[row], tuple(sorted(dst[start:end])), max(0, sizes[row]))
