"""The third part of a proof: segments, parts of all groups' sequences that can be looked at apart from the rest.

Where to cut is a guess: all sequences at the same timestamp or, without timestamps, around the same moment, lowered
until no message is on both sides of the cut. Counting shows afterwards whether the guess was right: each message
is in one segment only if the numbers of different messages in all segments add up to the number of messages.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from ...trace.run import Int64s
from ..files import FileInfo, RunFiles
from ._proof import keyed_hash, sequence_files
from ._read import numbers, open_parquet, read_from

_BAND_ROWS = 1 << 13  # rows before and after a moment in which a cut is looked for, at first


class SegmentProof(msgspec.Struct, frozen=True):
    holds: bool
    rows: int = 0
    messages: int = 0  # different ones


class _RowGroups:
    """The Parquet row groups of one sequence, with the smallest and largest value of one column in each."""

    def __init__(self, files: list[FileInfo], column: str) -> None:
        self._files: list[tuple[pq.ParquetFile, str]] = [(open_parquet(file.path), file.path) for file in files]
        self.place: list[tuple[int, int]] = []
        sizes, low, high = [], [], []
        for at, (file, _) in enumerate(self._files):
            index = file.metadata.schema.names.index(column)
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                statistics = group.column(index).statistics
                known = statistics is not None and statistics.has_min_max
                self.place.append((at, number))
                sizes.append(group.num_rows)
                low.append(int(statistics.min) if known else -(1 << 62))
                high.append(int(statistics.max) if known else 1 << 62)
        self.start = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        self.low, self.high = np.array(low, np.int64), np.array(high, np.int64)

    @property
    def rows(self) -> int:
        return int(self.start[-1])

    def read(self, first: int, stop: int, columns: tuple[str, ...]) -> dict[str, Int64s]:
        """The rows of the row groups from `first` to below `stop`."""
        parts: dict[str, list[Int64s]] = {name: [np.empty(0, np.int64)] for name in columns}
        for at, (file, path) in enumerate(self._files):
            wanted = [number for which, number in self.place[first:stop] if which == at]
            if wanted:
                table = read_from(file, path, columns, wanted)
                for name in columns:
                    parts[name].append(numbers(table, name, path, nullable=name == "ts"))
        return {name: np.concatenate(part) if len(part) != 2 else part[1] for name, part in parts.items()}

    def read_rows(self, start: int, stop: int, columns: tuple[str, ...]) -> dict[str, Int64s]:
        first = int(np.searchsorted(self.start, start, side="right")) - 1
        last = int(np.searchsorted(self.start, stop, side="left"))
        found = self.read(first, last, columns)
        offset = int(self.start[first])
        return {name: column[start - offset : stop - offset] for name, column in found.items()}


# ------------------------------------------------------------------------------------- with timestamps


def prove_stamped(files: RunFiles, sequences: list[tuple[int, int]], low: int, high: int, key: int) -> SegmentProof:
    """In all rows with timestamps from low to below high, each message has one timestamp, and no two the same.

    That is so if there are as many different pairs of message and timestamp as timestamps. Timestamps rise along each
    sequence, as was proved before: so they are an order of all messages that all sequences follow.
    """
    available = sequence_files(files)
    stamps, pairs = [], []
    for sequence in sequences:
        found = _stamped_rows(available.get(sequence, []), low, high)
        stamps.append(found["ts"])
        pairs.append(keyed_hash(found["msg"], key) ^ keyed_hash(found["ts"], key >> 1))
    ts, pair = np.concatenate(stamps), np.concatenate(pairs)
    ts.sort()
    pair.sort()
    count = _different(ts)
    return SegmentProof(_different(pair) == count, len(ts), count)


def _stamped_rows(files: list[FileInfo], low: int, high: int) -> dict[str, Int64s]:
    columns = ("msg", "ts")
    groups = _RowGroups(files, "ts")
    chosen = np.flatnonzero((groups.low < high) & (groups.high >= low))
    if not len(chosen):
        return {name: np.empty(0, np.int64) for name in columns}
    found = groups.read(int(chosen[0]), int(chosen[-1]) + 1, columns)
    start, stop = np.searchsorted(found["ts"], (low, high))
    return {name: column[start:stop] for name, column in found.items()}


def _different(ordered: Int64s) -> int:
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, len(ordered))


# ---------------------------------------------------------------------------------- without timestamps


def find_cut(files: RunFiles, sequences: list[tuple[int, int]], moment_us: int, widening: int = 1) -> list[int]:
    """For each sequence the number of rows before the cut: about those up to the moment, no message on both sides."""
    available = sequence_files(files)
    groups = [_RowGroups(available.get(sequence, []), "t_us") for sequence in sequences]
    middle = [_rows_until(sequence, moment_us) for sequence in groups]
    band = _BAND_ROWS * widening
    while True:
        starts = [max(0, at - band) for at in middle]
        stops = [min(sequence.rows, at + band) for sequence, at in zip(groups, middle, strict=True)]
        msgs = [
            sequence.read_rows(start, stop, ("msg",))["msg"] if stop > start else np.empty(0, np.int64)
            for sequence, start, stop in zip(groups, starts, stops, strict=True)
        ]
        cut = _lower(msgs, [at - start for at, start in zip(middle, starts, strict=True)])
        inside = all(at > 0 or start == 0 for at, start in zip(cut, starts, strict=True))
        if inside or all(start == 0 for start in starts):
            return [start + at for start, at in zip(starts, cut, strict=True)]
        band *= 4


def _rows_until(sequence: _RowGroups, moment_us: int) -> int:
    """How many deliveries are not later than the moment, by bisection over row groups and then inside one."""
    first = int(np.searchsorted(sequence.high, moment_us, side="right"))
    if first >= len(sequence.high):
        return sequence.rows
    times = sequence.read(first, first + 1, ("t_us",))["t_us"]
    return int(sequence.start[first]) + int(np.searchsorted(times, moment_us, side="right"))


def _lower(msgs: list[Int64s], cut: list[int]) -> list[int]:
    """Moves cuts down until every message is on one side.

    A message that is above the cut in one sequence must be above it in all: the others are cut right before it, which
    takes the messages after it above as well, and these may move further cuts.
    """
    sizes = [len(msg) for msg in msgs]
    lane = np.repeat(np.arange(len(msgs)), sizes)
    at = np.concatenate([np.arange(size) for size in sizes])
    number = numbered(np.concatenate(msgs))
    bounds = np.cumsum([0, *sizes])
    cuts = np.array(cut)
    while True:
        is_above = at >= cuts[lane]
        above = np.zeros(len(number), np.bool_)
        above[number[is_above]] = True
        moves = above[number] & ~is_above
        if not moves.any():
            return [int(one) for one in cuts]
        for one in np.unique(lane[moves]).tolist():
            part = moves[bounds[one] : bounds[one + 1]]
            cuts[one] = min(int(cuts[one]), int(np.argmax(part)))


def numbered(msg: Int64s) -> Int64s:
    """Numbers 0, 1, 2, ... in place of ids. Sorting was faster than hashing for segments of all sizes."""
    return np.unique(msg, return_inverse=True)[1]


def prove_unstamped(
    files: RunFiles, sequences: list[tuple[int, int]], starts: list[int], stops: list[int]
) -> SegmentProof:
    """The rows of each sequence from start to below stop: their precedences have no cycle."""
    available = sequence_files(files)
    msgs = [
        _RowGroups(available[sequence], "t_us").read_rows(start, stop, ("msg",))["msg"]
        for sequence, start, stop in zip(sequences, starts, stops, strict=True)
        if stop > start
    ]
    if not msgs:
        return SegmentProof(True)
    sizes = [len(msg) for msg in msgs]
    number = numbered(np.concatenate(msgs))
    counts = np.bincount(number)
    # A message that is in one sequence only is part of no cycle.
    shared = np.cumsum(counts > 1) - 1
    keep = counts[number] > 1
    bounds = np.cumsum([0, *sizes])
    lanes = [shared[number[start:stop][keep[start:stop]]] for start, stop in pairwise(bounds.tolist())]
    return SegmentProof(not _has_cycle(lanes, int(shared[-1]) + 1), int(bounds[-1]), len(counts))


def _has_cycle(lanes: list[Int64s], messages: int) -> bool:
    """Whether a message precedes itself. Neighbours in a lane suffice: all other precedences follow from these."""
    before, after = (np.concatenate(part) for part in ([lane[:-1] for lane in lanes], [lane[1:] for lane in lanes]))
    if not len(before):
        return False
    graph = csr_matrix((np.ones(len(before), np.int8), (before, after)), shape=(messages, messages))
    return bool(connected_components(graph, directed=True, connection="strong")[0] < messages)
