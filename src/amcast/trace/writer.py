"""Writes run folders. A finished run appears whole or not at all, and equal runs are equal byte for byte.

`write_run` fills a scratch folder beside the target and renames it when the last table is in it. Nothing is ever
overwritten. `GrowingRun` is for a run that is watched while it goes on: it grows file by file.

Deliveries are one file for each process and kind (final, optimistic), by position, so that a reader can walk through
the deliveries of all processes at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from ..core import UsageError
from ..parquet.values import Values
from ..parquet.writer import write_table
from ._convert import (
    answer_values,
    delivery_values,
    fault_values,
    multicast_values,
    object_values,
    operation_values,
    wire_values,
)
from .encodings import ENCODINGS
from .limits import ROW_GROUP_ROWS
from .names import NAMES, NAMES_FOLDER, NamesTable
from .recorder import Recorder
from .run import Deliveries, Tables, by_position
from .schema import KIND_NAMES, OPTIONAL_TABLES, RUN_FILE, TABLES, RunInfo, Schema, encode_run_info, info_problem
from .whole import cannot_write, new_folder, refuse_occupied


def write_run(
    path: str | Path, info: RunInfo, source: Recorder | Tables, names: Mapping[str, NamesTable] | None = None
) -> None:
    """Writes the folder `path`, which must not exist yet or be empty. `names`: tables of names, of an imported run."""
    target = Path(path)
    _refuse_problem(target, info)
    tables = source.tables() if isinstance(source, Recorder) else source
    with new_folder(target, "run") as draft:
        for name, schema in TABLES.items():
            (draft / name).mkdir()
            for stem, values in _files_of(name, tables):
                _write_file(draft / name / f"{stem}.parquet", schema, values)
        for name, table in (names or {}).items():
            (draft / NAMES_FOLDER / name).mkdir(parents=True)
            _write_file(draft / NAMES_FOLDER / name / "part-00000.parquet", NAMES, table.values())
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

    def append(self, tables: Tables) -> None:
        """Adds rows to any of the tables. Deliveries are written last: whoever reads one finds its multicast."""
        self._files += 1
        try:
            for name in sorted(TABLES, key=lambda name: name == "deliveries"):
                if len(getattr(tables, name)):
                    self._append(name, tables)
        except OSError as error:
            raise cannot_write(self._folder, "run", error) from error

    def describe(self, info: RunInfo) -> None:
        """Says something else of the run, such as what is missing, before rows are added."""
        try:
            self._describe(info)
        except OSError as error:
            raise cannot_write(self._folder, "run", error) from error

    def close(self, info: RunInfo) -> None:
        """Ends the run: no rows follow, so `info` may say that it is complete."""
        _refuse_problem(self._folder, info)
        try:
            for name in TABLES:
                if name not in self._written and name not in OPTIONAL_TABLES:
                    self._append(name, Recorder().tables())
            self._describe(info)
        except OSError as error:
            raise cannot_write(self._folder, "run", error) from error

    def _append(self, name: str, tables: Tables) -> None:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        self._written.add(name)
        for stem, values in _files_of(name, tables):
            draft = folder / f".{stem}"
            _write_file(draft, TABLES[name], values)
            os.replace(draft, folder / f"{stem}-{self._files:06d}.parquet")

    def _describe(self, info: RunInfo) -> None:
        draft = self._folder / f".{RUN_FILE}"
        draft.write_bytes(encode_run_info(info))
        os.replace(draft, self._folder / RUN_FILE)


def _refuse_problem(target: Path, info: RunInfo) -> None:
    problem = info_problem(info)
    if problem is not None:
        raise UsageError(f"{target / RUN_FILE}: {problem}")


def _files_of(name: str, tables: Tables) -> Iterator[tuple[str, list[Values]]]:
    """The files that a table is written as: name without ending, and columns."""
    match name:
        case "multicasts":
            yield "part-00000", multicast_values(tables.multicasts)
        case "wire":
            yield "part-00000", wire_values(tables.wire)
        case "faults":
            yield "part-00000", fault_values(tables.faults)
        case "answers":
            yield "part-00000", answer_values(tables.answers)
        case "operations":
            yield "part-00000", operation_values(tables.operations)
        case "objects":
            yield "part-00000", object_values(tables.objects)
        case _:
            yield from _by_process(by_position(tables.deliveries))


def _by_process(rows: Deliveries) -> Iterator[tuple[str, list[Values]]]:
    """A file for each process and kind, by position, with a name that sorts by process."""
    if not len(rows):
        yield "part-00000", delivery_values(rows)
        return
    changes = np.flatnonzero(np.diff(rows.process) | np.diff(rows.kind)) + 1
    for start, stop in pairwise([0, *changes.tolist(), len(rows)]):
        kind = int(rows.kind[start])
        part = Deliveries(*(getattr(rows, field.name)[start:stop] for field in fields(rows)))
        yield f"p{rows.process[start]:08d}-{KIND_NAMES.get(kind, str(kind))}", delivery_values(part)


def _write_file(path: Path, schema: Schema, values: list[Values]) -> None:
    write_table(path, schema.columns, values, ENCODINGS, ROW_GROUP_ROWS)
