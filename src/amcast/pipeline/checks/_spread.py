"""Linearizability of operations that no task can hold: object by object, on all cores.

1. *Scatter.* Tasks read the files and send what was done with each object to the same place: a few bytes for a read or
   a write of a register, as hashes. Many rows travel as one: Spark moves few large rows better than many small ones.
2. *Prove.* `amcast.check.linear.versions` proves the registers of a place linearizable, all at once. Left are suspects:
   other objects, registers in which a value was written twice, and those that are not linearizable.
3. *Judge.* Tasks read the files again, and send the whole rows about suspects to one place for all objects that
   transactions tie together. There they are judged as in memory, by `amcast.check.linear.judge`.

So a pass rests on hashes under a key that is drawn for each check, and a violation on the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from ...check.linear.judge import Judged, join, judge, together
from ...check.linear.versions import suspects
from ...core import UsageError
from ...trace.operations import check_operations
from ...trace.schema import OPERATIONS
from .._errors import first_line
from ..files import RunFiles, decode_files, names_of
from ..operations import operations_in
from ._read import open_parquet, read_from, refuse_nulls
from ._scatter import HARD, INITIAL, PLAIN, WRITE, Batch, Rows
from ._texts import UInt64s

_SHARE_ROWS = 1_000_000
_BATCH_ROWS = 1 << 18
_PLACES = 64
_TASKS, _TASK_ROWS = 16, 500_000  # so many tasks at most share the places; fewer if there are fewer rows
_NAMED_MAX = 200_000  # suspects that tasks are told; if there are more, they send all rows
_EDGES, _COUNTS, _REFUSAL = -1, -2, -3  # instead of a place: what else a task found
_SUSPECTS = 0

_FOUND = "place int, found binary"
_FOUND_SCHEMA = pa.schema([("place", pa.int32()), ("found", pa.binary())])

Found = tuple[int, bytes]  # a place, or what it is
_LookAtShare = Callable[["Share"], Iterable[Found]]
_LookAtPlace = Callable[[list[Found]], Iterable[Found]]


class Share(msgspec.Struct, frozen=True):
    """Some row groups of a file: a part of so many."""

    path: str
    part: int
    parts: int

    def tables(self) -> Iterator[pa.Table]:
        with open_parquet(self.path) as file:
            groups = [at for at in range(file.num_row_groups) if at * self.parts // file.num_row_groups == self.part]
            waiting: list[int] = []
            for number, group in enumerate(groups, 1):
                waiting.append(group)
                rows = sum(file.metadata.row_group(each).num_rows for each in waiting)
                if rows >= _BATCH_ROWS or number == len(groups):
                    table = read_from(file, self.path, OPERATIONS.names, waiting)
                    refuse_nulls(table, OPERATIONS, self.path)
                    waiting = []
                    yield table


def judge_spread(spark: SparkSession, run: RunFiles, key: int) -> Judged:
    """Raises UsageError if the rows can't be read, or mean nothing."""
    shares = [
        Share(file.path, part, -(-file.rows // _SHARE_ROWS))
        for file in run.table("operations")
        for part in range(-(-file.rows // _SHARE_ROWS))
    ]
    if not shares:
        return Judged()
    tasks = min(_TASKS, 1 + run.rows("operations") // _TASK_ROWS)
    found = _look(spark, shares, tasks, partial(_scatter, key), _prove)
    counts = together(msgspec.json.decode(each, type=Judged) for each in found[_COUNTS])
    doubted = np.unique(_hashes(found[_SUSPECTS]))
    if not len(doubted):
        return counts
    wanted = doubted if len(doubted) <= _NAMED_MAX else None
    gather = partial(_gather, key, None if wanted is None else wanted.tobytes(), _hashes(found[_EDGES]).tobytes())
    judged = _look(spark, shares, tasks, gather, partial(_judge, run.encode()))
    return together([counts, *(msgspec.json.decode(each, type=Judged) for each in judged[_COUNTS])])


def _hashes(parts: list[bytes]) -> UInt64s:
    return np.frombuffer(b"".join(parts), np.uint64)


def _look(
    spark: SparkSession, shares: list[Share], tasks: int, at_share: _LookAtShare, at_place: _LookAtPlace
) -> dict[int, list[bytes]]:
    """Lets tasks look at each share, and others at all that was sent to a place: what these found, by what it is."""
    rows = pa.table({"share": [msgspec.json.encode(share).decode() for share in shares]})
    frame = spark.createDataFrame(rows).coalesce(1).repartition(len(shares))
    sent = frame.mapInArrow(partial(_each_share, at_share), _FOUND).repartition(tasks, "place")
    found: dict[int, list[bytes]] = {_SUSPECTS: [], _EDGES: [], _COUNTS: []}
    for row in sent.mapInArrow(partial(_each_task, at_place), _FOUND).collect():
        if row.place == _REFUSAL:
            raise UsageError(bytes(row.found).decode())
        found[row.place].append(bytes(row.found))
    return found


def _each_share(look: _LookAtShare, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for frame in frames:
        for text in frame.column("share").to_pylist():
            share = msgspec.json.decode(text, type=Share)
            yield from _as_rows(look(share), share.path)


def _each_task(look: _LookAtPlace, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sent = [
        (place, found)
        for frame in frames
        for place, found in zip(frame.column("place").to_pylist(), frame.column("found").to_pylist(), strict=True)
    ]
    refused = [each for each in sent if each[0] == _REFUSAL]
    yield from _as_rows(refused or look(sent), "operations")


def _as_rows(found: Iterable[Found], where: str) -> Iterator[pa.RecordBatch]:
    """Row by row, since each may be large. What is wrong with a run must not fail the job: other runs go on."""
    try:
        for place, what in found:
            yield pa.record_batch([pa.array([place], pa.int32()), pa.array([what], pa.binary())], schema=_FOUND_SCHEMA)
    except UsageError as error:
        yield _refusal(str(error))
    except Exception as error:
        yield _refusal(f"{where}: can't be checked: {type(error).__name__}: {first_line(error)}")


def _refusal(words: str) -> pa.RecordBatch:
    columns = [pa.array([_REFUSAL], pa.int32()), pa.array([words.encode()], pa.binary())]
    return pa.record_batch(columns, schema=_FOUND_SCHEMA)


# ----------------------------------------------------------------------------------- 1. scatter, 2. prove


def _scatter(key: int, share: Share) -> Iterator[Found]:
    parts = [Batch(table, key, share.path).scattered() for table in share.tables()]
    rows = np.concatenate([np.empty(0, PLAIN), *(part.rows for part in parts)])
    edges = np.concatenate([np.empty(0, np.uint64), *(part.edges for part in parts)])
    yield _COUNTS, msgspec.json.encode(together(part.counts for part in parts))
    if len(edges):
        yield _EDGES, edges.tobytes()
    place = (rows["object"] % np.uint64(_PLACES)).astype(np.uint8)
    rows = rows[np.argsort(place, kind="stable")]
    ends = np.cumsum(np.bincount(place, minlength=_PLACES))
    for number, (start, end) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
        if end > start:
            yield number, rows[start:end].tobytes()


def _prove(sent: list[Found]) -> Iterator[Found]:
    for place, found in sent:
        if place < 0:
            yield place, found
    rows: Rows = np.frombuffer(b"".join(found for place, found in sent if place >= 0), PLAIN)
    hard = np.unique(rows["object"][rows["flags"] == HARD])
    if len(hard):
        rows = rows[~np.isin(rows["object"], hard)]
    columns = [np.ascontiguousarray(rows[name]) for name in PLAIN.names or ()]
    object_, version, invoked, returned, flags = columns
    doubted = suspects(object_, version, (flags & WRITE) > 0, (flags & INITIAL) > 0, invoked, returned)
    yield _SUSPECTS, np.concatenate((hard, doubted)).tobytes()


# ------------------------------------------------------------------------------------------------ 3. judge


def _gather(key: int, wanted: bytes | None, edges: bytes, share: Share) -> Iterator[Found]:
    """Whole rows. `wanted`: only those about these objects."""
    chosen = None if wanted is None else np.frombuffer(wanted, np.uint64)
    pairs = np.frombuffer(edges, np.uint64).reshape(-1, 2)
    home = join(pair.tolist() for pair in pairs)
    tied, homes = (np.array(list(numbers), np.uint64) for numbers in (home, home.values()))
    by_number = np.argsort(tied)
    for table in share.tables():
        objects = Batch(table, key, share.path).first
        rows = np.arange(len(table)) if chosen is None else np.flatnonzero(np.isin(objects, chosen))
        objects = _looked_up(objects[rows], tied[by_number], homes[by_number])
        place = (objects % np.uint64(_PLACES)).astype(np.int64)
        for number in np.unique(place).tolist():
            yield number, _packed(table.take(pa.array(rows[place == number])))


def _looked_up(numbers: UInt64s, known: UInt64s, values: UInt64s) -> UInt64s:
    if not len(known):
        return numbers
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[at] == numbers, values[at], numbers)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _judge(files: str, sent: list[Found]) -> Iterator[Found]:
    if not sent:
        return
    run = decode_files(files)
    tables = [pa.ipc.open_stream(found).read_all() for _, found in sent]
    operations = operations_in(pa.concat_tables(tables).unify_dictionaries())
    check_operations(operations, f"{run.path}/operations")
    judged = judge(operations, names_of(run))
    yield _COUNTS, msgspec.json.encode(msgspec.structs.replace(judged, rows=0, telling=0, silent=0))
