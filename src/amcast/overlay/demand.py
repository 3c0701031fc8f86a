"""What a tree is laid out for: destination sets, and how many messages a second go to each; from a file or a run."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from ..core import GroupId, UsageError
from ..trace import Run, read_run
from .model import RATE_MAX, SETS_MAX, Destinations, in_units, names

COLUMNS = ("destinations", "rate")
_FILE_BYTES_MAX = 32 << 20
_GROUP = re.compile(r"g([1-9][0-9]{0,4})")


class Demand(msgspec.Struct, frozen=True):
    rates: dict[Destinations, float]  # in messages a second
    groups: tuple[GroupId, ...] | None = None  # all that there are, if it is known


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    destinations: tuple[str, ...]
    rate: Annotated[float, msgspec.Meta(ge=0, le=RATE_MAX)]


def read_demand(path: Path) -> Demand:
    """From a run folder, or from a file whose name ends in .json or .csv."""
    if path.is_dir():
        return demand_of_run(read_run(path), str(path))
    if path.suffix.lower() not in (".json", ".csv"):
        what = "has another name" if path.exists() else "does not exist"
        raise UsageError(f"{path} {what}: a workload is a file called .json or .csv, or the folder of a run")
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise UsageError(f"{path} is no workload: it has more than {_FILE_BYTES_MAX:,} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no workload: byte {error.start:,} is no UTF-8 text") from error
    rows = _json_rows(text, path) if path.suffix.lower() == ".json" else _csv_rows(text, path)
    return Demand(_gathered(rows, path))


def demand_of_run(run: Run, where: str = "the run") -> Demand:
    """Each destination set that occurs; its rate is the number of its messages by the time from first to last."""
    table = run.multicasts
    span_us = int(table.t_us.max() - table.t_us.min()) if len(table) else 0
    if not span_us:
        raise UsageError(
            f"{where}: all {len(table):,} multicasts are at one time, so there are no rates: give them in a file"
        )
    sizes = np.diff(table.dst_start)
    rates: dict[Destinations, float] = {}
    for size in np.unique(sizes).tolist():
        first = table.dst_start[:-1][sizes == size]
        rows = np.sort(table.dst[first[:, None] + np.arange(size)], axis=1)
        found, counts = np.unique(rows, axis=0, return_counts=True)
        for dst, count in zip(found.tolist(), counts.tolist(), strict=True):
            rates[tuple(dst)] = count * 1e6 / span_us
    return Demand(rates, tuple(sorted(group.id for group in run.info.groups)))


Row = tuple[str, Iterable[str], float]  # where it stands


def _json_rows(text: str, path: Path) -> Iterator[Row]:
    try:
        entries = msgspec.json.decode(text, type=list[_Entry])
    except (msgspec.DecodeError, RecursionError) as error:
        example = '[{"destinations": ["g1", "g2"], "rate": 1200}, ...]'
        raise UsageError(f"{path} is no workload: {str(error).splitlines()[0]}; write {example}") from error
    for number, entry in enumerate(entries, 1):
        yield f"entry {number}", entry.destinations, entry.rate


def _csv_rows(text: str, path: Path) -> Iterator[Row]:
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        head = tuple([cell.strip() for cell in next(reader, [])])
        if head != COLUMNS:
            raise UsageError(f"{path}: line 1 must be {','.join(COLUMNS)}, and the next ones such as g1 g2,1200")
        for cells in reader:
            where = f"line {reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(COLUMNS):
                raise UsageError(f"{path}: {where} has {len(cells)} fields instead of 2: write g1 g2,1200")
            yield where, re.split(r"[\s,]+", cells[0].strip()), _rate(cells[1], f"{path}: {where}")
    except csv.Error as error:
        raise UsageError(f"{path}: line {reader.line_num}: {error}") from error


def _rate(text: str, where: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        raise UsageError(f"{where}: rate '{text.strip()}' is no number of messages a second") from None
    in_units(rate, f"{where}: rate")
    return rate


def _gathered(rows: Iterable[Row], path: Path) -> dict[Destinations, float]:
    rates: dict[Destinations, float] = {}
    places: dict[Destinations, str] = {}
    for where, words, rate in rows:
        dst = _destinations(words, f"{path}: {where}")
        if dst in rates:
            raise UsageError(f"{path}: {where} has {names(dst)} again, as {places[dst]}: give one rate for both")
        rates[dst], places[dst] = rate, where
        if len(rates) > SETS_MAX:
            raise UsageError(f"{path}: more than {SETS_MAX:,} destination sets are too many")
    if not rates:
        raise UsageError(f"{path} has no destination set: give at least one, with its rate")
    return rates


def _destinations(words: Iterable[str], where: str) -> Destinations:
    groups: list[GroupId] = []
    for word in words:
        found = _GROUP.fullmatch(word)
        if found is None:
            raise UsageError(f"{where}: destinations: '{word}' is no group: write g1, g2, ...")
        groups.append(int(found[1]))
    if not groups or len(set(groups)) != len(groups):
        raise UsageError(f"{where}: destinations: name one group or more, none twice")
    return tuple(sorted(groups))
