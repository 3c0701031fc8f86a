"""The folder of a study: its plan, what is finished, and in the end its table and its figure.

What is kept of finished cells (`CellFolder`) is the same for all plans of runs: a reproduction has such a folder too.

`cells.jsonl` gets a line for each cell when it is finished. A cell that has a line is not run again, also if the study
has more cells now: who wants more seeds says so and names the same folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Generic, TypeVar

import msgspec

from ..core import UsageError
from ..trace.whole import cannot_write, write_whole
from .cell import Result
from .export import csv_bytes, parquet_bytes
from .table import Row

R = TypeVar("R")  # the result of a cell

_PLAN, _CELLS = "study.json", "cells.jsonl"
TABLE = "results"
FIGURE = "figure"


class _Line(msgspec.Struct, frozen=True):
    key: str
    result: msgspec.Raw


class CellFolder(Generic[R]):
    """Results of the kind `kind`, by the keys of their cells. `what` is the word for the whole in error messages."""

    def __init__(self, folder: Path, kind: type[R], what: str) -> None:
        self.folder = folder
        self._kind = kind
        self._what = what
        self._journal: IO[bytes] | None = None

    def finished(self) -> dict[str, R]:
        """The results that are here, by the keys of their cells. Refuses a folder that is something else."""
        found: dict[str, R] = {}
        for number, text in enumerate(self._whole_lines().splitlines(), 1):
            try:
                line = msgspec.json.decode(text, type=_Line)
                found[line.key] = msgspec.json.decode(line.result, type=self._kind)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                what = f"line {number} is no result of a cell ({error})"
                raise UsageError(
                    f"{self.folder / _CELLS}: {what}; remove the line, and the cell is run again"
                ) from error
        return found

    def _whole_lines(self) -> bytes:
        """Without a last line that has no end: it was being written when the program stopped."""
        file = self.folder / _CELLS
        if not file.exists():
            if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
                raise UsageError(f"{self.folder} exists and is not the folder of a {self._what}: choose another folder")
            return b""
        try:
            content = file.read_bytes()
        except OSError as error:
            raise UsageError(f"{file}: can't be read: {error.strerror}") from error
        return content[: content.rfind(b"\n") + 1]

    @contextmanager
    def writing(self, plan: msgspec.Struct) -> Iterator[dict[str, R]]:
        """Begins the work, or goes on with it: gives what is finished. Only one program writes at a time."""
        self.finished()  # refuses another folder before anything is written
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / _CELLS).open("ab") as journal:
                self._lock(journal)
                journal.truncate(len(self._whole_lines()))
                write_whole(self.folder / _PLAN, msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
                self._journal = journal
                yield self.finished()
        except OSError as error:
            raise cannot_write(self.folder, self._what, error) from error
        finally:
            self._journal = None

    def _lock(self, journal: IO[bytes]) -> None:
        import fcntl  # not on every system: the other commands must start there

        try:
            fcntl.flock(journal.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{self.folder}: another program is at work on this {self._what}") from None

    def add(self, key: str, result: R) -> None:
        assert self._journal is not None, "results are added while the folder is being written"
        self._journal.write(msgspec.json.encode(_Line(key, msgspec.Raw(msgspec.json.encode(result)))) + b"\n")
        self._journal.flush()


class StudyFolder(CellFolder[Result]):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Result, "study")

    def write(self, table: Sequence[Row]) -> None:
        """The table, once all cells are finished. A figure of an earlier table goes."""
        for ending in (".svg", ".png"):
            (self.folder / f"{FIGURE}{ending}").unlink(missing_ok=True)
        write_whole(self.folder / f"{TABLE}.csv", csv_bytes(table))
        write_whole(self.folder / f"{TABLE}.parquet", parquet_bytes(table))

    def write_figure(self, svg: str, png: bytes) -> None:
        write_whole(self.folder / f"{FIGURE}.svg", svg.encode())
        write_whole(self.folder / f"{FIGURE}.png", png)

    def files(self) -> list[str]:
        """What people look at, where it is."""
        names = (f"{TABLE}.csv", f"{TABLE}.parquet", f"{FIGURE}.svg", f"{FIGURE}.png")
        return [str(self.folder / name) for name in names if (self.folder / name).exists()]
