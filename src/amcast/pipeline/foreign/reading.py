"""A part of a file as rows with names, block by block, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from ...trace.operations import operation_problems
from ...trace.schema import OPERATIONS
from ..operations import operations_in
from .cells import Cells, read_cells, read_lines
from .found import Found
from .parts import WHOLE_FILE, Part, blocks_of
from .problems import Problem, Problems
from .sources import Source
from .values import Wrong, convert


class PartReader:
    """Iterates over tables of rows. Lines count from the beginning of the part, at 0."""

    def __init__(self, part: Part, progress: Callable[[int], None] | None = None) -> None:
        self._part = part
        self._progress = progress
        self.problems = Problems()
        self.found = Found()
        self.ignored: set[str] = set()
        self.lines = 0
        self.is_whole = True  # until something keeps it from being read to its end

    def __iter__(self) -> Iterator[pa.Table]:
        at = self._part.start
        for block in blocks_of(self._part):
            if isinstance(block, Problem):
                self.problems.add(block)
                self.is_whole = False
                return
            rows = self._read(block.lines, block.first)
            self.lines = block.first + block.lines.count(b"\n")
            if self._progress is not None:
                self._progress(block.end - at)
                at = block.end
            if not self.problems:
                self.found.add(self._part.source.table, rows)
                yield rows
            if self.found.problem() is not None:
                self.problems.add(Problem(self.found.problem() or "", line=WHOLE_FILE))
                self.is_whole = False
                return

    def _read(self, lines: bytes, first: int) -> pa.Table:
        source = self._part.source
        cells = read_cells(source, lines)
        rows, wrong = self._convert(cells)
        if wrong and cells.line_of is None:  # rows are right, and where they stand is not known
            cells = read_lines(source, lines)
            rows, wrong = self._convert(cells)
        self.ignored |= cells.ignored
        of_rows = [] if cells.line_of is None else [(cells.line_of[row], column, what) for row, column, what in wrong]
        for line, column, what in sorted([*cells.wrong, *of_rows]):
            self.problems.add(Problem(what, source.path, first + line, column))
        return rows

    def _convert(self, cells: Cells) -> tuple[pa.Table, Wrong]:
        """Also what is wrong with operations whose cells are all right, each by itself."""
        source = self._part.source
        rows, wrong = convert(source, cells)
        if source.table != OPERATIONS.name:
            return rows, wrong
        whole = np.setdiff1d(np.arange(len(rows)), [row for row, _, _ in wrong]).astype(np.int64)
        clients = pa.array(np.zeros(len(rows), np.int64))  # they still have names
        numbered = rows.set_column(rows.column_names.index("client"), "client", clients)
        found = operation_problems(operations_in(numbered.take(pa.array(whole))))
        return rows, sorted([*wrong, *((int(whole[row]), source.columns[name], what) for row, name, what in found)])


def placed(problem: Problem, source: Source, first_line: int) -> Problem:
    """With a line that counts from 1 at the beginning of the file. `first_line` is where the part begins."""
    line = 0 if problem.line == WHOLE_FILE else first_line + problem.line
    return Problem(problem.what, source.path, line, problem.column)
