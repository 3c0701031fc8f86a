"""Proves that a large run is right, in pieces that tasks work on apart from each other.

A proof is one-sided. Where every piece holds, the run passes. Where one does not, nothing is said, and the run is
judged as a whole by `amcast.check`, which then names what is wrong. So a proof need not find out what a violation is,
but it must never overlook one.

1. *Replicas*, one task a group: positions are 0, 1, 2, ..., all replicas delivered the same, timestamps rise. The
   deliveries of one replica, called the group's sequence, then stand for the group. A keyed hash of its messages is
   summed up.
2. *Multicasts*, one task a run: ids are unique, and the same hash is summed up for each destination. The key is drawn
   anew for each check, so no run can be made to fit it. Equal sums mean that each group delivered exactly what was
   multicast to it, each message once: integrity, validity and agreement.
3. *Segments*, one task each: all groups' sequences are cut into the same number of parts; the first parts of all are
   the first segment, and so on. Counting the different messages of each segment shows that no message is in two of
   them. So every group delivers the messages of a segment before those of the next one, and a cycle could only be
   among messages of one segment. Their timestamps show that there is none, if the run has them, or the graph of their
   precedences, in which no message may reach itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...trace import FINAL, NULL
from ...trace.run import Int64s
from ...trace.schema import RESTORED
from ..files import FileInfo, RunFiles
from ._read import batches, destinations, numbers, read_columns

UInt64s = npt.NDArray[np.uint64]

_GROUP_ID_MAX = 1 << 20  # groups are looked up in a table
_CHUNK_ROWS = 1 << 17  # rows at a time: their columns fit into the cache of a core


class GroupProof(msgspec.Struct, frozen=True):
    """What the deliveries of one group's members have shown."""

    holds: bool
    rows: int = 0  # of the sequence that stands for the group
    stands: tuple[int, int] = (-1, FINAL)  # the process whose deliveries these are, and their kind
    hash: int = 0
    is_stamped: bool = False
    samples: list[int] = []  # timestamps, or times where there are none, at even distances


class MulticastProof(msgspec.Struct, frozen=True):
    holds: bool
    messages: int = 0
    hashes: list[int] = []  # of each group
    counts: list[int] = []


# ---------------------------------------------------------------------------------------------- the hash


def keyed_hash(msg: Int64s, key: int) -> UInt64s:
    """For each message 64 bits that nobody can foresee without the key."""
    mixed = msg.astype(np.uint64)
    mixed += np.uint64(key & 0xFFFFFFFFFFFFFFFF)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor ^ (key >> 64 & 0xFFFFFFFFFFFFFFFE))
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _sum(hashes: UInt64s) -> int:
    return int(np.add.reduce(hashes, dtype=np.uint64))  # modulo 2 ** 64


_MASK = 0xFFFFFFFFFFFFFFFF


# ------------------------------------------------------------------------------------------- sequences in order


class SequenceReader:
    """The files of one sequence as one sequence of rows."""

    def __init__(self, files: list[FileInfo], columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._parts = self._tables(files)
        self._pending: list[tuple[pa.Table, str]] = []
        self._pending_rows = 0

    def _tables(self, files: list[FileInfo]) -> Iterator[tuple[pa.Table, str]]:
        for file in files:
            for table in batches(file.path, self._columns, _CHUNK_ROWS):
                yield table, file.path

    def take(self, rows: int) -> dict[str, npt.NDArray[np.int64]]:
        """The next rows, fewer at the end."""
        while self._pending_rows < rows:
            part = next(self._parts, None)
            if part is None:
                break
            self._pending.append(part)
            self._pending_rows += len(part[0])
        taken: list[tuple[pa.Table, str]] = []
        while self._pending and rows:
            table, path = self._pending.pop(0)
            taken.append((table.slice(0, rows), path))
            if len(table) > rows:
                self._pending.insert(0, (table.slice(rows), path))
            rows -= len(taken[-1][0])
        self._pending_rows = sum(len(table) for table, _ in self._pending)
        return {name: _column(taken, name) for name in self._columns}


def _column(parts: list[tuple[pa.Table, str]], name: str) -> npt.NDArray[np.int64]:
    columns = [numbers(table, name, path, nullable=name == "ts") for table, path in parts]
    if len(columns) == 1:
        return columns[0]
    return np.concatenate([np.empty(0, np.int64), *columns])


def sequence_files(files: RunFiles) -> dict[tuple[int, int], list[FileInfo]]:
    """The files of each sequence, by process and kind, in the order of positions."""
    sequences: dict[tuple[int, int], list[FileInfo]] = {}
    for file in sorted(files.table("deliveries"), key=lambda file: file.first_pos):
        assert file.process is not None and file.kind is not None
        sequences.setdefault((file.process, file.kind), []).append(file)
    return sequences


# ------------------------------------------------------------------------------------------ 1. replicas

_GROUP_COLUMNS = ("process", "grp", "kind", "pos", "msg", "ts", "t_us")


def prove_group(files: RunFiles, lane: int, key: int, kind: int = FINAL) -> GroupProof:
    """The deliveries of one kind by all members of a group. A process that crashed may have delivered less."""
    group = files.info.groups[lane]
    sequences = {
        process: sequence for (process, its_kind), sequence in sequence_files(files).items() if its_kind == kind
    }
    sizes = {process: sum(file.rows for file in sequences.get(process, [])) for process in group.processes}
    longest = max(group.processes, key=lambda process: sizes[process])
    if any(sizes[process] < sizes[longest] for process in group.processes if process in files.info.correct):
        return GroupProof(False)
    members = [process for process in group.processes if sizes[process]]
    if not members:
        return GroupProof(True, 0, (longest, kind))
    members.sort(key=lambda process: process != longest)
    return _GroupWalk(sequences, members, group.id, kind, key).run(sizes[longest])


class _GroupWalk:
    def __init__(
        self, sequences: dict[int, list[FileInfo]], members: list[int], group: int, kind: int, key: int
    ) -> None:
        self._members = members
        # Times are needed only of the sequence that stands for the group.
        columns = [_GROUP_COLUMNS if process == members[0] else _GROUP_COLUMNS[:-1] for process in members]
        self._readers = [
            SequenceReader(sequences[process], names) for process, names in zip(members, columns, strict=True)
        ]
        self._group = group
        self._kind = kind
        self._key = key
        self._hash = 0
        self._last_ts: int | None = None
        self._is_stamped: bool | None = None

    def run(self, rows: int) -> GroupProof:
        samples = []
        for start in range(0, rows, _CHUNK_ROWS):
            first = self._readers[0].take(_CHUNK_ROWS)
            if not self._is_plain(first, self._members[0], start) or not self._stamps_hold(first["ts"]):
                return GroupProof(False)
            for process, reader in zip(self._members[1:], self._readers[1:], strict=True):
                if not self._is_same(first, reader.take(_CHUNK_ROWS), process, start):
                    return GroupProof(False)
            self._hash += _sum(keyed_hash(first["msg"], self._key))
            samples.append(int(first["ts" if self._is_stamped else "t_us"][0]))
        stands = (self._members[0], self._kind)
        return GroupProof(True, rows, stands, self._hash & _MASK, bool(self._is_stamped), samples)

    def _is_plain(self, rows: dict[str, Int64s], process: int, start: int) -> bool:
        wanted = {"process": process, "grp": self._group, "kind": self._kind}
        pos = rows["pos"]
        return (
            len(pos) > 0
            and pos[0] == start
            and pos[-1] == start + len(pos) - 1
            and bool((pos[1:] - pos[:-1] == 1).all())
            and all(bool((rows[name] == value).all()) for name, value in wanted.items())
        )

    def _is_same(self, first: dict[str, Int64s], rows: dict[str, Int64s], process: int, start: int) -> bool:
        size = len(rows["msg"])
        if not size:
            return True  # it ended before this chunk. Only a process that crashed may: the caller compared the sizes
        return (
            self._is_plain(rows, process, start)
            and np.array_equal(rows["msg"], first["msg"][:size])
            and np.array_equal(rows["ts"], first["ts"][:size])
        )

    def _stamps_hold(self, ts: Int64s) -> bool:
        missing = int(np.count_nonzero(ts == NULL))
        is_stamped = not missing
        if missing not in (0, len(ts)) or self._is_stamped not in (None, is_stamped):
            return False  # some rows have a timestamp and some have none: for the exact judge
        self._is_stamped = is_stamped
        if not is_stamped or self._kind != FINAL:
            return True
        rises = bool((ts[1:] > ts[:-1]).all()) and (self._last_ts is None or int(ts[0]) > self._last_ts)
        self._last_ts = int(ts[-1])
        return rises


# ---------------------------------------------------------------------------------------- 2. multicasts


def prove_multicasts(files: RunFiles, key: int) -> MulticastProof:
    """Also that no replica was restored: gaps that handed state explains are for the exact judge."""
    for file in files.table("faults"):
        if RESTORED in read_columns(file.path, ("what",)).column("what").to_pylist():
            return MulticastProof(False)
    if max(group.id for group in files.info.groups) > _GROUP_ID_MAX:
        return MulticastProof(False)
    walk = _MulticastWalk(files, key)
    for file in files.table("multicasts"):
        for table in batches(file.path, ("msg", "dst"), _CHUNK_ROWS):
            if not walk.add(table, file.path):
                return MulticastProof(False)
    return walk.result()


class _MulticastWalk:
    def __init__(self, files: RunFiles, key: int) -> None:
        self._key = key
        known = [group.id for group in files.info.groups]
        self._lanes = len(known)
        # Small integers are sorted in linear time. The last place of the table is for ids that no group has.
        kind = np.uint8 if self._lanes < 1 << 8 else np.uint16 if self._lanes < 1 << 16 else np.uint32
        self._lane = np.full(max(known) + 2, self._lanes, kind)
        self._lane[known] = np.arange(self._lanes)
        self._hashes = np.zeros(self._lanes, np.uint64)
        self._counts = np.zeros(self._lanes, np.int64)
        self._ids: list[Int64s] = []

    def add(self, table: pa.Table, path: str) -> bool:
        msg = numbers(table, "msg", path)
        sizes, dst = destinations(table, path)
        if not sizes.all() or not self._ascend(sizes, dst):
            return False
        lane = self._lane[np.clip(dst, -1, len(self._lane) - 1)]
        if (lane == self._lanes).any():
            return False
        order = np.argsort(lane, kind="stable")
        counts = np.bincount(lane, minlength=self._lanes)
        hashes = np.repeat(keyed_hash(msg, self._key), sizes)[order]
        present = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[present]
        self._hashes[present] += np.add.reduceat(hashes, starts)
        self._counts += counts
        self._ids.append(np.array(msg))
        return True

    @staticmethod
    def _ascend(sizes: Int64s, dst: Int64s) -> bool:
        """Destinations of each message rise, so none is named twice. Unsorted ones are left to the exact judge."""
        rises = np.empty(len(dst), np.bool_)
        rises[1:] = dst[1:] > dst[:-1]
        rises[np.cumsum(sizes) - sizes] = True
        return bool(rises.all())

    def result(self) -> MulticastProof:
        ids = np.concatenate([np.empty(0, np.int64), *self._ids])
        self._ids.clear()
        ids.sort()
        if (ids[1:] == ids[:-1]).any():
            return MulticastProof(False)
        return MulticastProof(True, len(ids), self._hashes.tolist(), self._counts.tolist())
