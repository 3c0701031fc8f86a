"""What is wrong with the files of a foreign trace: all of it at once, each with its file, line and column."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...core import UsageError

PROBLEMS_MAX = 20  # that are told; the others are counted
_QUOTED_MAX = 60


class Problem(msgspec.Struct, frozen=True):
    what: str
    file: str = ""
    line: int = 0  # 0: it is about the whole file
    column: str = ""

    def __str__(self) -> str:
        parts = [self.file, f"line {self.line}" if self.line else "", self.column and f"column {self.column}"]
        where = ", ".join(part for part in parts if part)
        return f"{where}: {self.what}" if where else self.what


class ForeignTraceError(UsageError):
    """Nothing was written. Its text is the first problem; `lines` has all that are told."""

    def __init__(self, problems: Sequence[Problem], more: int = 0) -> None:
        self.problems = list(problems[:PROBLEMS_MAX])
        self.more = more + len(problems) - len(self.problems)
        super().__init__("; ".join(self.lines()[:1]))

    def lines(self) -> list[str]:
        return [*map(str, self.problems), *([f"and {self.more:,} more"] if self.more else [])]


class Problems:
    """Keeps the first ones and counts the others."""

    def __init__(self) -> None:
        self.kept: list[Problem] = []
        self.more = 0

    def add(self, problem: Problem) -> None:
        if len(self.kept) < PROBLEMS_MAX:
            self.kept.append(problem)
        else:
            self.more += 1

    def __len__(self) -> int:
        return len(self.kept) + self.more

    def refuse(self) -> None:
        if self.kept:
            raise ForeignTraceError(self.kept, self.more)


def quoted(text: str) -> str:
    """A text from a file, short enough for a line."""
    return repr(text if len(text) <= _QUOTED_MAX else text[: _QUOTED_MAX - 3] + "...")
