"""Writes the report of some runs into a folder: a page that needs no other file, the figures, and the tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...check import Violation
from ...core import UsageError
from ...trace import Run
from ...trace.export import csv_bytes, parquet_bytes
from ...trace.whole import new_folder
from .._errors import SPARK_ERRORS, first_line
from ..checks import RunReport
from ..figures import Picture, all_figures
from ..ingest import Runs
from ..metrics import compute, frames_of
from ._excerpt import run_around
from ._page import Content, page

PAGE = "index.html"
_SMALL_ROWS = 5_000_000

Draw = Callable[[Run, Violation], str]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Written:
    folder: Path
    files: list[str]  # relative to the folder
    tables: Mapping[str, pa.Table]
    runs: Runs
    reports: list[RunReport]  # of these runs


def free_place(root: Path, run_ids: Sequence[str]) -> Path:
    """`reports/<run_id>`, with a number behind it if that is taken."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_ids[0]).strip(".-") or "run"
    if len(run_ids) > 1:
        name += f"-and-{len(run_ids) - 1}-more"
    place, number = root / name, 1
    while place.exists() or place.is_symlink():
        number += 1
        place = root / f"{name}-{number}"
    return place


def write_report(
    runs: Runs,
    reports: Sequence[RunReport],
    target: Path,
    draw: Draw | None = None,
    progress: Progress = lambda what: None,
) -> Written:
    """Writes the folder `target`, which must not exist yet or be empty. `draw` makes the SVG of a violation.

    A run whose damage shows only when metrics read its rows is set aside, and the report begins again without it.
    """
    damaged = {report.path: report.unreadable for report in reports if report.unreadable is not None}
    while True:
        if damaged:
            runs = runs.without(damaged)
            reports = [report for report in reports if report.path not in damaged]
        try:
            return _write(runs, list(reports), target, draw, progress)
        except SPARK_ERRORS as error:
            path = runs.named_in(error)
            if path is None:
                raise UsageError(f"Spark could not work through the runs: {first_line(error)}") from error
            damaged = {path: f"can't be read to its end ({first_line(error)})"}


def _write(runs: Runs, reports: list[RunReport], target: Path, draw: Draw | None, progress: Progress) -> Written:
    with new_folder(target, "report") as folder:
        tables = compute(frames_of(runs), _is_small(runs), progress)
        names = [run.run_id for run in runs.runs]
        pictures = all_figures(tables, _faults_by_run(tables["faults"]), names)
        progress("figures")
        diagrams = _diagrams(runs, reports, draw) if draw is not None else {}
        content = Content(runs.runs, reports, tables, pictures, diagrams, runs.quarantined)
        (folder / PAGE).write_text(page(content), encoding="utf-8", errors="replace")
        _write_figures(folder / "figures", pictures, diagrams)
        write_tables(folder / "tables", tables)
        progress("page")
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return Written(target, files, tables, runs, reports)


def _is_small(runs: Runs) -> bool:
    return sum(run.rows(name) for run in runs.runs for name in run.tables) <= _SMALL_ROWS


def _faults_by_run(faults: pa.Table) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in faults.to_pylist():
        found.setdefault(row["run_id"], []).append(row)
    return found


def _diagrams(runs: Runs, reports: Sequence[RunReport], draw: Draw) -> dict[str, str]:
    drawn = {}
    for run, report in zip(runs.runs, reports, strict=True):
        if report.violations:
            try:
                drawn[run.run_id] = draw(run_around(run, report.violations[0]), report.violations[0])
            except UsageError:
                continue  # the tables of the run do not fit each other: no diagram, the explanation must do
    return drawn


def _write_figures(folder: Path, pictures: Sequence[Picture], diagrams: Mapping[str, str]) -> None:
    folder.mkdir()
    for picture in pictures:
        (folder / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
        (folder / f"{picture.name}.png").write_bytes(picture.png)
    for number, svg in enumerate(diagrams.values(), 1):
        (folder / f"counterexample-{number}.svg").write_text(svg, encoding="utf-8")


def write_tables(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    folder.mkdir()
    for name, data in tables.items():
        (folder / f"{name}.csv").write_bytes(csv_bytes(data))
        (folder / f"{name}.parquet").write_bytes(parquet_bytes(data))
