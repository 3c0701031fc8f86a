"""Finds run folders and prepares them for checks and metrics.

Each path is a run, a folder of runs, or a pattern such as `runs/demo-*`. A run that is damaged or incomplete (a table
is missing, a file is cut off, a column has another type, it is still being written) is set aside with the reason, and
so is a file that belongs to no run; the other runs are used. It is an error only if no run is left.
"""

from __future__ import annotations

import fnmatch
import os.path
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812

from ..core import UsageError
from ..parquet.column import Column
from ..trace.schema import RUN_FILE, TABLES, Schema
from ._errors import SPARK_ERRORS, first_line, was_stopped
from ._inspect import BadRunError, inspect_run
from .checks.checker import check_files, violations_frame
from .checks.report import RunReport
from .files import READ_OPTIONS, RunFiles, decode_files, filesystem_of

_DEPTH_MAX = 4  # of folders in folders that are searched for runs
_RUNS_A_TASK = 50
_PATTERN = "*?["


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A path of the input that is set aside, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Runs:
    spark: SparkSession
    runs: list[RunFiles]
    quarantined: list[Quarantined]

    def __len__(self) -> int:
        return len(self.runs)

    def table(self, name: str) -> DataFrame:
        """One table of all runs, with exactly the schema's columns and `run_id` before them."""
        schema = spark_schema(TABLES[name])
        columns = ["run_id", *TABLES[name].names]
        files = [(file.path, run.run_id) for run in self.runs for file in run.table(name)]
        if not files:
            empty = T.StructType([T.StructField("run_id", T.StringType()), *schema.fields])
            return self.spark.createDataFrame([], empty)
        owners = pa.table({"file": [_as_uri(path) for path, _ in files], "run_id": [run for _, run in files]})
        rows = self.spark.read.options(**READ_OPTIONS).schema(schema).parquet(*(path for path, _ in files))
        # Spark's file paths are percent-encoded and begin with file:/ or file:///; ours are plain and have file:///.
        # `url_decode` would turn a plus sign into a space.
        encoded = F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))
        file = F.regexp_replace(F.url_decode(encoded), "^file:/+", "file:///")
        return (
            rows.withColumn("file", file)
            .join(F.broadcast(self.spark.createDataFrame(owners)), on="file", how="inner")
            .select(*columns)
        )

    def without(self, reasons: Mapping[str, str]) -> Runs:
        """Sets runs aside: `reasons` has the path of each and the reason."""
        left = [run for run in self.runs if run.path not in reasons]
        aside = [Quarantined(run.path, reasons[run.path]) for run in self.runs if run.path in reasons]
        quarantined = [*self.quarantined, *aside]
        if not left:
            raise UsageError(_nothing_left([run.path for run in self.runs], quarantined))
        return Runs(self.spark, left, quarantined)

    def named_in(self, error: BaseException) -> str | None:
        """The path of the run that has the file which Spark's error is about."""
        text = unquote(str(error))
        files = ((run.path, file.path) for run in self.runs for table in run.tables.values() for file in table)
        return next((path for path, file in files if file in text), None)


def read_runs(spark: SparkSession, paths: str | Sequence[str]) -> Runs:
    wanted = [paths] if isinstance(paths, str) else [str(path) for path in paths]
    if not wanted:
        raise UsageError("name the folder of a run, or of several")
    quarantined: list[Quarantined] = []
    folders: dict[str, None] = {}
    for path in wanted:
        for folder in _expand(path.rstrip("/") or path, quarantined):
            folders[folder] = None
    runs = _with_names(_inspect(spark, list(folders), quarantined))
    if not runs:
        raise UsageError(_nothing_left(wanted, quarantined))
    return Runs(spark, runs, quarantined)


def check_runs(spark: SparkSession, runs: Runs, key: int | None = None) -> list[RunReport]:
    """A report for each run, in order. If a run can't be read to its end, all its verdicts are unknown."""
    return check_files(spark, runs.runs, key)


def violations(spark: SparkSession, runs: Runs) -> DataFrame:
    """A frame with run_id, property, messages, processes, explanation; no rows mean that all runs pass."""
    return violations_frame(spark, check_runs(spark, runs))


def spark_schema(schema: Schema) -> T.StructType:
    kinds = {"int8": T.ByteType(), "int32": T.IntegerType(), "int64": T.LongType(), "string": T.StringType()}

    def kind(column: Column) -> T.DataType:
        return T.ArrayType(kinds[column.type]) if column.is_list else kinds[column.type]

    return T.StructType([T.StructField(column.name, kind(column)) for column in schema.columns])


def _as_uri(path: str) -> str:
    return path if "://" in path else f"file://{path}"


# -------------------------------------------------------------------------------------- finding run folders


def _expand(uri: str, quarantined: list[Quarantined]) -> Iterator[str]:
    try:
        filesystem, path = filesystem_of(uri)
        if isinstance(filesystem, fs.LocalFileSystem):
            path = os.path.abspath(path)
            prefix = ""
        else:
            prefix = uri[: len(uri) - len(path)]
        places = _matches(filesystem, path) if any(char in path for char in _PATTERN) else [path]
        if not places:
            quarantined.append(Quarantined(uri, "nothing matches the pattern"))
        for place in places:
            yield from _walk(filesystem, place, prefix, quarantined, _DEPTH_MAX)
    except (OSError, pa.ArrowException) as error:
        quarantined.append(Quarantined(uri, f"can't be read: {first_line(error)}"))


def _matches(filesystem: fs.FileSystem, pattern: str) -> list[str]:
    """Folders and files that match a pattern: each part between slashes may have wildcards."""
    parts = pattern.split("/")
    places = [parts[0]]
    for part in parts[1:]:
        if not any(char in part for char in _PATTERN):
            places = [f"{place}/{part}" for place in places]
            continue
        places = [
            entry.path
            for place in places
            if filesystem.get_file_info(place or "/").type == fs.FileType.Directory
            for entry in sorted(filesystem.get_file_info(fs.FileSelector(place or "/")), key=lambda e: str(e.path))
            if fnmatch.fnmatchcase(entry.base_name, part) and (part.startswith(".") or entry.base_name[0] != ".")
        ]
    return [place for place in places if filesystem.get_file_info(place).type != fs.FileType.NotFound]


def _walk(
    filesystem: fs.FileSystem, path: str, prefix: str, quarantined: list[Quarantined], depth: int
) -> Iterator[str]:
    """The folder itself if it looks like a run, else the runs in it."""
    if filesystem.get_file_info(path).type != fs.FileType.Directory:
        yield prefix + path  # `inspect_run` says what is wrong with it
        return
    entries = sorted(filesystem.get_file_info(fs.FileSelector(path)), key=lambda entry: str(entry.path))
    names = {entry.base_name for entry in entries}
    if RUN_FILE in names or names & {"multicasts", "deliveries", "operations"} or not entries:
        yield prefix + path
        return
    for entry in entries:
        name, place = entry.base_name, prefix + entry.path
        if entry.type != fs.FileType.Directory:
            if not name.startswith((".", "_")):
                quarantined.append(Quarantined(place, "a file that belongs to no run"))
        elif name.startswith(".") or name.endswith(".tmp"):
            quarantined.append(Quarantined(place, "a run that is still being written, or was never finished"))
        elif depth and not name.startswith("_"):
            yield from _walk(filesystem, entry.path, prefix, quarantined, depth - 1)


# ----------------------------------------------------------------------------------------- looking into them


def _inspect(spark: SparkSession, folders: list[str], quarantined: list[Quarantined]) -> list[RunFiles]:
    """Inspects the runs in Spark tasks: there can be thousands of footers to read."""
    if not folders:
        return []
    rows = pa.table({"number": pa.array(range(len(folders)), pa.int32()), "path": pa.array(folders, pa.string())})
    tasks = -(-len(folders) // _RUNS_A_TASK)
    frame = spark.createDataFrame(rows).coalesce(1).repartition(tasks)
    try:
        found = frame.mapInArrow(_inspect_batch, "number int, files string, reason string").collect()
    except SPARK_ERRORS as error:
        if was_stopped(error):
            raise
        return _inspect_halves(spark, folders, quarantined)
    runs = []
    for row in sorted(found, key=lambda row: int(row.number)):
        if row.reason is None:
            runs.append(decode_files(row.files))
        else:
            quarantined.append(Quarantined(folders[row.number], row.reason))
    return runs


def _inspect_halves(spark: SparkSession, folders: list[str], quarantined: list[Quarantined]) -> list[RunFiles]:
    """After a task died: some damaged footers make the Parquet library abort the process. Halving finds the run."""
    if len(folders) == 1:
        quarantined.append(Quarantined(folders[0], "the footer of a file is damaged: reading it ends the process"))
        return []
    middle = len(folders) // 2
    return [run for half in (folders[:middle], folders[middle:]) for run in _inspect(spark, half, quarantined)]


def _inspect_batch(frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for frame in frames:
        results = [_inspect_one(path) for path in frame.column("path").to_pylist()]
        files, reasons = ([result[at] for result in results] for at in (0, 1))
        columns = [frame.column("number"), pa.array(files, pa.string()), pa.array(reasons, pa.string())]
        yield pa.record_batch(columns, ["number", "files", "reason"])


def _inspect_one(path: str) -> tuple[str | None, str | None]:
    try:
        return inspect_run(path).encode(), None
    except BadRunError as error:
        return None, str(error)
    except Exception as error:  # an error in one run must not stop the others
        return None, f"{path}: {type(error).__name__}: {first_line(error)}"


def _with_names(runs: list[RunFiles]) -> list[RunFiles]:
    """If two runs have one id, the later one is named by id and path: rows of runs are told apart by name."""
    seen: set[str] = set()
    named = []
    for run in runs:
        if run.run_id in seen:
            run = msgspec.structs.replace(run, name=f"{run.run_id} ({run.path})")
        seen.add(run.run_id)
        named.append(run)
    return named


def _nothing_left(paths: list[str], quarantined: list[Quarantined]) -> str:
    if len(quarantined) == 1:
        found = quarantined[0]
        return found.reason if found.path in found.reason else f"{found.path}: {found.reason}"
    if not quarantined:
        return f"{', '.join(paths)}: there is no run: name the folder of a run, or of several"
    first = quarantined[0]
    return f"{', '.join(paths)}: no usable run; {len(quarantined)} set aside, first {first.path}: {first.reason}"
