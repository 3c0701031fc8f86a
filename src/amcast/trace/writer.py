"""Writes run folders. A finished run appears whole or not at all, and equal runs are equal byte for byte.

`write_run` fills a scratch folder beside the target and renames it when the last table is in it. Nothing is ever
overwritten. `GrowingRun` is for a run that is watched while it goes on: it grows file by file.

Deliveries are one file for each process and kind (final, optimistic), by position, so that a reader can walk through
the deliveries of all processes at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core import UsageError
from .names import NAMES_FOLDER
from .parquet import ROW_GROUP_ROWS, parquet_options
from .recorder import Recorder
from .run import delivery_order
from .schema import KIND_NAMES, OPTIONAL_TABLES, RUN_FILE, TABLES, RunInfo, encode_run_info, info_problem
from .whole import cannot_write, new_folder, refuse_occupied


def write_run(
    path: str | Path,
    info: RunInfo,
    source: Recorder | Mapping[str, pa.Table],
    names: Mapping[str, pa.Table] | None = None,
) -> None:
    """Writes the folder `path`, which must not exist yet or be empty. `names`: tables of names, of an imported run."""
    target = Path(path)
    _refuse_problem(target, info)
    tables = source.tables() if isinstance(source, Recorder) else source
    with new_folder(target, "run") as draft:
        for name, schema in TABLES.items():
            table = tables.get(name, schema.empty_table()) if name in OPTIONAL_TABLES else tables[name]
            (draft / name).mkdir()
            for stem, part in _files_of(name, table):
                _write_file(draft / name / f"{stem}.parquet", part)
        for name, table in (names or {}).items():
            (draft / NAMES_FOLDER / name).mkdir(parents=True)
            pq.write_table(table, draft / NAMES_FOLDER / name / "part-00000.parquet", row_group_size=ROW_GROUP_ROWS)
        (draft / RUN_FILE).write_bytes(encode_run_info(info))


class GrowingRun:
    """A run folder for `amcast watch`: first `run.json`, which says that the run is not complete, then files of tables.

    A file is whole when it appears, and never changes. `close` replaces `run.json`.
    """

    def __init__(self, path: str | Path, info: RunInfo) -> None:
        self._folder = Path(path)
        self._files = 0
        self._written: set[str] = set()
        _refuse_problem(self._folder, info)
        try:
            refuse_occupied(self._folder, "run")
            self._folder.mkdir(parents=True, exist_ok=True)
            self._describe(msgspec.structs.replace(info, complete=False))
        except OSError as error:
            raise cannot_write(self._folder, "run", error) from error

    def append(self, tables: Mapping[str, pa.Table]) -> None:
        """Adds rows to any of the tables. Deliveries are written last: whoever reads one finds its multicast."""
        self._files += 1
        try:
            for name in sorted(tables, key=lambda name: name == "deliveries"):
                if len(tables[name]):
                    self._append(name, tables[name])
        except OSError as error:
            raise cannot_write(self._folder, "run", error) from error

    def close(self, info: RunInfo) -> None:
        """Ends the run: no rows follow, so `info` may say that it is complete."""
        _refuse_problem(self._folder, info)
        try:
            for name, schema in TABLES.items():
                if name not in self._written and name not in OPTIONAL_TABLES:
                    self._append(name, schema.empty_table())
            self._describe(info)
        except OSError as error:
            raise cannot_write(self._folder, "run", error) from error

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


def _files_of(name: str, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The files that a table is written as: name without ending, and rows."""
    exact = table.select(TABLES[name].names).cast(TABLES[name])
    if name == "deliveries" and len(exact):
        yield from _by_process(exact)
    else:
        yield "part-00000", exact


def _by_process(deliveries: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """One table for each process and kind, by position, with a name that sorts by process."""
    process, kind, pos = (deliveries.column(name).to_numpy() for name in ("process", "kind", "pos"))
    order = delivery_order(process, kind, pos)
    if order is not None:
        deliveries, process, kind = deliveries.take(pa.array(order)), process[order], kind[order]
    changes = np.flatnonzero(np.diff(process) | np.diff(kind)) + 1
    bounds = [0, *changes.tolist(), len(process)]
    for start, stop in pairwise(bounds):
        suffix = KIND_NAMES.get(int(kind[start]), str(kind[start]))
        yield f"p{process[start]:08d}-{suffix}", deliveries.slice(start, stop - start)


def _write_file(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, row_group_size=ROW_GROUP_ROWS, **parquet_options(table.schema))
