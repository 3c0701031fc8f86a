"""Imports traces of other systems that no memory holds. The result is that of `amcast.pipeline.foreign.memory`.

1. Tasks read parts of the files, by the same code as in memory, and write rows with names as Parquet. What they found
   besides comes back: errors, who there is, who crashed.
2. The description of the run is settled here, once.
3. Names of messages are sorted by Spark, and numbered file by file.
4. Rows are joined with the numbers of their messages, sorted as the tables of a run are, and written by tasks.

The files and the folder of the run must have the same path on all machines.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ..core import UsageError
from ..trace.limits import ROW_GROUP_ROWS
from ..trace.names import NAMES, NAMES_FOLDER
from ..trace.schema import KIND_NAMES, RUN_FILE, TABLES, UNKNOWN, encode_run_info
from ..trace.whole import new_folder, refuse_occupied
from ._arrow import arrow_schema, parquet_options
from ._errors import SPARK_ERRORS, first_line, was_stopped
from .files import READ_OPTIONS
from .foreign.found import Found
from .foreign.numbers import Numbering, RowNumberer, names_table
from .foreign.parts import Part, parts_of
from .foreign.problems import Problem, Problems
from .foreign.reading import PartReader, placed
from .foreign.settle import Declared, Imported, Settled, has_multicasts, has_positions, settle
from .foreign.sources import Source
from .foreign.values import NAMED
from .work import answers_of

PART_BYTES = 64 << 20
_ROW = "_row"  # where a row stands among all rows of its table
_ROW_BITS = 40  # for the rows of a part
_BUFFER_ROWS = 4 * ROW_GROUP_ROWS
_COUNT = "rows bigint"
_Described = tuple[Numbering, dict[str, list[str]]]  # what a task needs to number rows


def import_on_spark(
    spark: SparkSession,
    sources: Sequence[Source],
    declared: Declared,
    out: Path,
    say: Callable[[str], None] = lambda what: None,
    part_bytes: int = PART_BYTES,
) -> Imported:
    """Writes the run folder `out`, whole or not at all."""
    refuse_occupied(out, "run")
    if re.search(r"[\[\]{}*?\\]", str(out.resolve())):
        raise UsageError(f"{out}: Spark takes such a path for a pattern: choose one without any of []{{}}*?\\")
    with new_folder(out, "run") as draft, tempfile.TemporaryDirectory(dir=draft.parent) as scratch:
        work = Path(scratch).resolve()
        try:
            say("reading")
            found, ignored = _read(spark, sources, work, part_bytes)
            settled = settle(found, declared, sources, out, ignored)
            writing = _Writing(spark, work, draft.resolve(), settled, say)
            rows = writing.write(has_positions(sources), has_multicasts(sources))
        except SPARK_ERRORS as error:
            if was_stopped(error):
                raise
            raise UsageError(f"{out}: Spark could not import the trace: {first_line(error)}") from error
        (draft / RUN_FILE).write_bytes(encode_run_info(settled.info))
    return Imported(str(out), settled.info, rows, settled.words)


# ---------------------------------------------------------------------------------- 1. rows with names


class _ReadTask(msgspec.Struct, frozen=True):
    part: Part
    number: int
    target: str


class _ReadAnswer(msgspec.Struct, frozen=True):
    found: Found
    lines: int
    is_whole: bool  # else it was not read to its end, and nobody knows the lines of what follows
    problems: list[Problem]
    more: int
    ignored: list[str]


def _read(spark: SparkSession, sources: Sequence[Source], work: Path, part_bytes: int) -> tuple[Found, set[str]]:
    for name in TABLES:
        (work / name).mkdir()
    owners: list[Source] = []
    tasks: list[str] = []
    for source in sources:
        there = msgspec.structs.replace(source, path=str(Path(source.path).resolve()))
        for part in parts_of(there, part_bytes):
            target = str(work / source.table / f"part-{len(tasks):08d}.parquet")
            tasks.append(msgspec.json.encode(_ReadTask(part, len(tasks), target)).decode())
            owners.append(source)
    answers = [msgspec.json.decode(text, type=_ReadAnswer) for text in answers_of(spark, tasks, _read_part)]
    return _joined(owners, answers)


def _joined(owners: Sequence[Source], answers: Sequence[_ReadAnswer]) -> tuple[Found, set[str]]:
    found, ignored, problems = Found(), set[str](), Problems()
    line, before, broken = 0, None, None
    for source, answer in zip(owners, answers, strict=True):
        if source is broken:
            continue
        line = source.line if source is not before else line
        before = source
        broken = None if answer.is_whole else source
        for problem in answer.problems:
            problems.add(placed(problem, source, line))
        problems.more += answer.more
        line += answer.lines
        found.join(answer.found)
        ignored |= set(answer.ignored)
    problems.refuse()
    return found, ignored


def _read_part(text: str) -> str:
    task = msgspec.json.decode(text, type=_ReadTask)
    schema = NAMED[task.part.source.table].append(pa.field(_ROW, pa.int64()))
    reader = PartReader(task.part)
    row = task.number << _ROW_BITS
    with pq.ParquetWriter(task.target, schema, compression="zstd") as writer:
        for rows in reader:
            numbers = pa.array(np.arange(row, row + len(rows)))
            writer.write_table(rows.append_column(_ROW, numbers), row_group_size=_BUFFER_ROWS)
            row += len(rows)
    problems = reader.problems
    answer = _ReadAnswer(
        reader.found, reader.lines, reader.is_whole, problems.kept, problems.more, sorted(reader.ignored)
    )
    return msgspec.json.encode(answer).decode()


# --------------------------------------------------------------------------------- 3. numbers of messages


class _NumberTask(msgspec.Struct, frozen=True):
    file: str
    first: int
    target: str


def _number_names(text: str) -> str:
    task = msgspec.json.decode(text, type=_NumberTask)
    first = task.first
    schema = arrow_schema(NAMES)
    with pq.ParquetFile(task.file) as file, pq.ParquetWriter(task.target, schema) as writer:
        for batch in file.iter_batches(_BUFFER_ROWS, columns=["msg"]):
            numbers = pa.array(np.arange(first, first + len(batch)))
            writer.write_table(pa.table([numbers, batch.column(0)], schema=schema), row_group_size=ROW_GROUP_ROWS)
            first += len(batch)
    return ""


# ----------------------------------------------------------------------------------------- 4. the tables


class _Writing:
    def __init__(
        self, spark: SparkSession, work: Path, draft: Path, settled: Settled, say: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._work = work
        self._draft = draft
        self._settled = settled
        self._say = say

    def write(self, has_positions: bool, has_multicasts: bool) -> dict[str, int]:
        numbering = self._settled.numbering
        if not numbering.messages_are_numbers:
            self._say("numbering messages")
            self._number_messages()
        if numbering.clients and not numbering.are_own:
            folder = self._draft / NAMES_FOLDER / "clients"
            folder.mkdir(parents=True)
            names = names_table(numbering.clients)
            made = pa.table([names.id, names.name], schema=arrow_schema(NAMES))
            pq.write_table(made, folder / "part-00000.parquet", row_group_size=ROW_GROUP_ROWS)
        rows: dict[str, int] = {}
        for table in ("deliveries", *(name for name in TABLES if name != "deliveries")):
            self._say(f"writing {table}")
            (self._draft / table).mkdir()
            if table == "deliveries":
                rows[table] = self._write_deliveries(has_positions)
            elif table == "multicasts" and not has_multicasts:
                rows[table] = self._write_inferred()
            else:
                rows[table] = self._write_in_order(table)
            if not rows[table]:
                pq.write_table(arrow_schema(TABLES[table]).empty_table(), self._draft / table / "part-00000.parquet")
        return {table: rows[table] for table in TABLES}

    def _named(self, table: str) -> DataFrame | None:
        """The rows of a table as they were read; None if no file has this table."""
        files = sorted(map(str, (self._work / table).iterdir()))
        return self._spark.read.options(**READ_OPTIONS).parquet(*files) if files else None

    def _number_messages(self) -> None:
        found = [self._named(table) for table, schema in NAMED.items() if "msg" in schema.names]
        frames = [frame.select("msg") for frame in found if frame is not None]
        names = frames[0]
        for frame in frames[1:]:
            names = names.unionAll(frame)
        target = self._work / "messages"
        names.where(F.col("msg").isNotNull()).distinct().orderBy("msg").write.parquet(str(target))
        files = sorted(target.glob("*.parquet"))  # Spark numbers its files in the order of what it sorted
        counts = [pq.read_metadata(file).num_rows for file in files]
        folder = self._draft / NAMES_FOLDER / "messages"
        folder.mkdir(parents=True)
        tasks = [
            _NumberTask(str(file), first, str(folder / f"part-{number:05d}.parquet"))
            for number, (file, first) in enumerate(zip(files, accumulate([0, *counts[:-1]]), strict=True))
        ]
        answers_of(self._spark, [msgspec.json.encode(task).decode() for task in tasks], _number_names)

    def _numbered(self, table: str) -> DataFrame | None:
        """Rows whose messages have their numbers; all other names are still there."""
        rows = self._named(table)
        if rows is None or "msg" not in rows.columns:
            return rows
        if self._settled.numbering.messages_are_numbers:
            return rows.withColumn("msg", F.col("msg").cast("bigint"))
        names = self._spark.read.parquet(str(self._draft / NAMES_FOLDER / "messages"))
        joined = rows.join(names, on=rows["msg"] == names["name"], how="left")
        columns = [F.col("id").alias("msg") if name == "msg" else F.col(name) for name in rows.columns]
        return joined.select(*columns)

    def _write_deliveries(self, has_positions: bool) -> int:
        rows = self._numbered("deliveries")
        if rows is None:
            return 0
        order = ["process", "kind", *(["pos"] if has_positions else []), _ROW]
        return self._run(rows.repartition("process", "kind").sortWithinPartitions(*order), "deliveries")

    def _write_in_order(self, table: str) -> int:
        rows = self._numbered(table)
        return 0 if rows is None else self._run(rows.orderBy(_ROW), table)

    def _write_inferred(self) -> int:
        """As in memory: to the groups that delivered it, at the time of its first delivery."""
        delivered = self._spark.read.parquet(str(self._draft / "deliveries"))
        multicasts = delivered.groupBy("msg").agg(
            F.lit(UNKNOWN).cast("bigint").alias("sender"),
            F.lit(UNKNOWN).cast("bigint").alias("client_seq"),
            F.sort_array(F.collect_set("grp")).alias("dst"),
            F.min("t_us").alias("t_us"),
            F.lit(0).alias("bytes"),
        )
        rows = multicasts.orderBy("msg").withColumn(_ROW, F.col("msg"))
        return self._run(rows, "multicasts", is_numbered=True)

    def _run(self, rows: DataFrame, table: str, is_numbered: bool = False) -> int:
        settled = self._settled
        described = "" if is_numbered else msgspec.json.encode([settled.numbering, settled.groups]).decode()
        write = partial(_write_sorted, table, str(self._draft / table), described)
        return sum(row.rows for row in rows.mapInArrow(write, _COUNT).collect())


def _write_sorted(
    table: str, folder: str, described: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Sorted rows as files: of deliveries one for each process and kind, else one, named by its first row."""
    numberer = (
        RowNumberer(*msgspec.json.decode(described, type=tuple[Numbering, dict[str, list[str]]])) if described else None
    )
    files = _DeliveryFiles(folder) if table == "deliveries" else _TableFile(folder, table)
    rows = 0
    try:
        for part in _joined_batches(batches):
            numbered = part if numberer is None else numberer.number(table, part)
            files.write(numbered, part.column(_ROW)[0].as_py())
            rows += len(part)
    finally:
        files.close()
    yield pa.record_batch([pa.array([rows], pa.int64())], ["rows"])


def _joined_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Spark's batches are smaller than row groups should be."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if len(batch):
            waiting.append(batch)
        if sum(map(len, waiting)) >= _BUFFER_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


class _TableFile:
    def __init__(self, folder: str, table: str) -> None:
        self._folder = folder
        self._schema = arrow_schema(TABLES[table])
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table, first_row: int) -> None:
        if self._writer is None:
            self._writer = self._open(f"part-{first_row:020d}")
        self._append(rows)

    def _open(self, stem: str) -> pq.ParquetWriter:
        return pq.ParquetWriter(f"{self._folder}/{stem}.parquet", self._schema, **parquet_options(self._schema))

    def _append(self, rows: pa.Table) -> None:
        assert self._writer is not None
        self._writer.write_table(rows.select(self._schema.names).cast(self._schema), row_group_size=ROW_GROUP_ROWS)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _DeliveryFiles(_TableFile):
    """Rows come process by process and kind by kind. Where they have no positions, these follow from their order."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder, "deliveries")
        self._owner: tuple[int, int] | None = None
        self._next_pos = 0

    def write(self, rows: pa.Table, first_row: int) -> None:
        process, kind = (rows.column(name).to_numpy() for name in ("process", "kind"))
        changes = np.flatnonzero((process[1:] != process[:-1]) | (kind[1:] != kind[:-1])) + 1
        for start, stop in zip([0, *changes.tolist()], [*changes.tolist(), len(rows)], strict=True):
            self._write_of((int(process[start]), int(kind[start])), rows.slice(start, stop - start))

    def _write_of(self, owner: tuple[int, int], rows: pa.Table) -> None:
        if owner != self._owner:
            self.close()
            self._owner, self._next_pos = owner, 0
            self._writer = self._open(f"p{owner[0]:08d}-{KIND_NAMES[owner[1]]}")
        if rows.column("pos").null_count:
            pos = pa.array(np.arange(self._next_pos, self._next_pos + len(rows)))
            rows = rows.set_column(rows.column_names.index("pos"), "pos", pos)
            self._next_pos += len(rows)
        self._append(rows)
