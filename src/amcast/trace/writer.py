"""Writes a run so that it appears whole or not at all, and so that equal runs are equal byte for byte.

Everything goes into a scratch folder beside the target, which is renamed when the last table is in it. An
error or Ctrl-C removes the scratch folder and leaves no trace. Nothing is ever overwritten. A run that is watched
while it goes on grows file by file instead.

Each process log is one file in position order (final and optimistic deliveries apart), so that a reader can
go through all logs at once; positions, timestamps and times are stored as differences, which are nearly
free.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core import UsageError
from .recorder import Recorder
from .run import log_order
from .schema import KIND_NAMES, OPTIONAL_TABLES, RUN_FILE, TABLES, RunInfo, encode_run_info, info_problem

_ROW_GROUP_ROWS = 32 * 1024

# Values that are close to their neighbours, and values that are few. The others have no pattern to use.
_DELTA_COLUMNS = frozenset({"pos", "ts", "t_us", "client_seq", "sent_us", "received_us"})
_DICTIONARY_PATHS = frozenset(
    {"process", "grp", "kind", "sender", "src", "dst", "dst.list.element", "what", "detail", "bytes"}
)


def write_run(path: str | Path, info: RunInfo, source: Recorder | Mapping[str, pa.Table]) -> None:
    """Writes the folder `path`, which must not exist yet or be empty."""
    target = Path(path)
    _refuse_problem(target, info)
    tables = source.tables() if isinstance(source, Recorder) else source
    try:
        _refuse_occupied(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
            # One level below, because the scratch folder itself is closed to other users and a run is not.
            draft = Path(scratch) / "run"
            draft.mkdir()
            for name, schema in TABLES.items():
                table = tables.get(name, schema.empty_table()) if name in OPTIONAL_TABLES else tables[name]
                _write_table(draft / name, name, table)
            (draft / RUN_FILE).write_bytes(encode_run_info(info))
            os.rename(draft, target)
    except OSError as error:
        raise _cannot_write(target, error) from error


class GrowingRun:
    """A run folder for `amcast watch`: described first, then file by file, said to be complete when all is there.

    A file is whole when it appears, and never changes.
    """

    def __init__(self, path: str | Path, info: RunInfo) -> None:
        self._folder = Path(path)
        self._files = 0
        self._written: set[str] = set()
        _refuse_problem(self._folder, info)
        try:
            _refuse_occupied(self._folder)
            self._folder.mkdir(parents=True, exist_ok=True)
            self._describe(msgspec.structs.replace(info, complete=False))
        except OSError as error:
            raise _cannot_write(self._folder, error) from error

    def append(self, tables: Mapping[str, pa.Table]) -> None:
        """More rows of any of the tables. Deliveries come last: who sees one finds the rest."""
        self._files += 1
        try:
            for name in sorted(tables, key=lambda name: name == "deliveries"):
                if len(tables[name]):
                    self._append(name, tables[name])
        except OSError as error:
            raise _cannot_write(self._folder, error) from error

    def close(self, info: RunInfo) -> None:
        """Nothing comes any more; only now may it be complete."""
        _refuse_problem(self._folder, info)
        try:
            for name, schema in TABLES.items():
                if name not in self._written and name not in OPTIONAL_TABLES:
                    self._append(name, schema.empty_table())
            self._describe(info)
        except OSError as error:
            raise _cannot_write(self._folder, error) from error

    def _append(self, name: str, table: pa.Table) -> None:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        self._written.add(name)
        for stem, part in _files_of(name, table):
            draft = folder / f".{stem}"
            _write_file(draft, part)
            os.replace(draft, folder / f"{stem}-{self._files:06d}.parquet")

    def _describe(self, info: RunInfo) -> None:
        draft = self._folder / f".{RUN_FILE}"
        draft.write_bytes(encode_run_info(info))
        os.replace(draft, self._folder / RUN_FILE)


def _refuse_problem(target: Path, info: RunInfo) -> None:
    problem = info_problem(info)
    if problem is not None:
        raise UsageError(f"{target / RUN_FILE}: {problem}")


def _cannot_write(target: Path, error: OSError) -> UsageError:
    return UsageError(f"{target}: can't write the run there: {error.strerror or error}")


def _refuse_occupied(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"{target} exists and is not a folder: choose another place for the run")
    if target.is_dir() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty: remove it, or choose another place for the run")


def _write_table(folder: Path, name: str, table: pa.Table) -> None:
    folder.mkdir()
    for stem, part in _files_of(name, table):
        _write_file(folder / f"{stem}.parquet", part)


def _files_of(name: str, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The files that a table is written as, and how each is called."""
    exact = table.select(TABLES[name].names).cast(TABLES[name])
    if name == "deliveries" and len(exact):
        yield from _logs(exact)
    else:
        yield "part-00000", exact


def _logs(deliveries: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """One table for each process and kind, by position, with a name that sorts by process."""
    process, kind, pos = (deliveries.column(name).to_numpy() for name in ("process", "kind", "pos"))
    order = log_order(process, kind, pos)
    if order is not None:
        deliveries, process, kind = deliveries.take(pa.array(order)), process[order], kind[order]
    changes = np.flatnonzero(np.diff(process) | np.diff(kind)) + 1
    bounds = [0, *changes.tolist(), len(process)]
    for start, stop in pairwise(bounds):
        suffix = KIND_NAMES.get(int(kind[start]), str(kind[start]))
        yield f"p{process[start]:08d}-{suffix}", deliveries.slice(start, stop - start)


def _write_file(path: Path, table: pa.Table) -> None:
    delta = [name for name in table.column_names if name in _DELTA_COLUMNS]
    pq.write_table(
        table,
        path,
        row_group_size=_ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=[path for path in _leaf_paths(table) if path in _DICTIONARY_PATHS],
        column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
    )


def _leaf_paths(table: pa.Table) -> list[str]:
    """Parquet's names of the columns: a list's values are a column of their own."""
    return [f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in table.schema]
