"""Reads the columns of a Parquet file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ._pages import Page, pages_of
from .column import TEXT
from .footer import Leaf, ParquetError, read_footer
from .values import INTEGERS, Integers, Lists, Texts, Values


class ParquetFile:
    """Whatever is wrong with the file is a `ParquetError`, another `ValueError`, or a missing key or index."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            self.footer = read_footer(self._file)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def read(self, name: str) -> Values:
        """A column of integers, texts or lists, of all row groups."""
        at = next(at for at, leaf in enumerate(self.footer.leaves) if leaf.column.name == name)
        leaf = self.footer.leaves[at]
        parts = _Parts(leaf)
        for group in self.footer.groups:
            chunk = group.chunks[at]
            self._file.seek(chunk.start)
            for page in pages_of(self._file.read(chunk.bytes), chunk, leaf):
                parts.add(page)
        values = parts.values()
        if len(values) != self.footer.rows:
            raise ParquetError(f"column {name} has {len(values)} rows, and the table {self.footer.rows}")
        return values


@dataclass(slots=True)
class _Parts:
    """The pages of a column, until they become one."""

    leaf: Leaf
    repetition: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    definition: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    numbers: list[npt.NDArray[Any]] = field(default_factory=list)
    code_of: dict[bytes, int] = field(default_factory=dict)

    def add(self, page: Page) -> None:
        if page.repetition is not None:
            self.repetition.append(page.repetition)
        if page.definition is not None:
            self.definition.append(page.definition)
        if page.words is not None:
            codes = np.array([self._code(word) for word in page.words], np.int32)
            self.numbers.append(codes[np.asarray(page.values)])
        elif isinstance(page.values, list):
            self.numbers.append(np.array([self._code(text) for text in page.values], np.int32))
        else:
            self.numbers.append(page.values)

    def _code(self, word: bytes) -> int:
        return self.code_of.setdefault(word, len(self.code_of))

    def values(self) -> Values:
        column = self.leaf.column
        if column.type == TEXT and not column.is_list:
            return self._texts()
        if column.type not in INTEGERS:
            raise ParquetError(f"columns of {column} are not read")
        return self._lists() if column.is_list else self._integers()

    def _integers(self) -> Integers:
        dtype = INTEGERS[self.leaf.column.type]
        values = _joined(self.numbers, dtype)
        present = self._present()
        return Integers(values) if present is None else Integers(_spread(values, present, 0), present)

    def _texts(self) -> Texts:
        codes = _joined(self.numbers, np.dtype(np.int32))
        present = self._present()
        words = tuple(word.decode() for word in self.code_of)
        return Texts(codes if present is None else _spread(codes, present, -1), words)

    def _present(self) -> npt.NDArray[np.bool_] | None:
        """None if nothing is missing."""
        definition = _joined(self.definition, np.dtype(np.uint32))
        present: npt.NDArray[np.bool_] = definition == self.leaf.defined
        return None if present.all() else present

    def _lists(self) -> Lists:
        leaf = self.leaf
        repetition = _joined(self.repetition, np.dtype(np.uint32))
        definition = _joined(self.definition, np.dtype(np.uint32))
        if len(repetition) and repetition[0]:
            raise ParquetError("its first list has no beginning")
        rows = np.flatnonzero(repetition == 0)
        is_element = definition >= leaf.listed
        counted = np.concatenate(([0], np.cumsum(is_element, dtype=np.int64)))
        start = counted[np.append(rows, len(repetition))]
        no_list = int(np.count_nonzero(definition < leaf.listed - 1))
        no_value = int(np.count_nonzero(is_element & (definition < leaf.defined)))
        values = _joined(self.numbers, INTEGERS[leaf.column.type])
        if no_value:
            values = _spread(values, (definition == leaf.defined)[is_element], 0)
        return Lists(start, values, no_list or no_value)


def _joined(parts: list[npt.NDArray[Any]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A copy that may be changed: pages are views of bytes."""
    return np.concatenate(parts, dtype=dtype, casting="unsafe") if parts else np.zeros(0, dtype)


def _spread(values: npt.NDArray[Any], present: npt.NDArray[np.bool_], null: int) -> npt.NDArray[Any]:
    spread = np.full(len(present), null, values.dtype)
    spread[present] = values
    return spread
