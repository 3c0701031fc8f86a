"""Reads the columns of Parquet files, whose footers were read before.

Whatever is wrong with a file is a `ParquetError`, another `ValueError`, or a missing key or index.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ._pages import Levels, Page, pages_of
from .column import TEXT, Column
from .footer import Footer, Leaf, ParquetError
from .values import INTEGERS, Lists, TextLists, Texts

_CODE = np.dtype(np.int32)


class Gathered:
    """The values of one column, page by page, from any number of files. Missing ones are replaced, and counted."""

    def __init__(self, column: Column, rows: int, null: int = 0) -> None:
        self.nulls = 0
        self.text_bytes = 0  # if each text had its own copy
        self._null = null if column.nullable else 0
        dtype = INTEGERS.get(column.type, _CODE)
        self._values = np.empty(0 if column.is_list else rows, dtype)
        self._filled = 0
        self._code_of: dict[str, int] = {}
        self._sizes = [np.zeros(1, np.int64)]  # of lists, after a zero
        self._elements = [np.zeros(0, dtype)]

    def integers(self) -> npt.NDArray[Any]:
        assert self._filled == len(self._values), "all files were read"
        return self._values

    def texts(self) -> Texts:
        return Texts(self.integers(), tuple(self._code_of))

    def lists(self) -> Lists:
        return Lists(np.cumsum(np.concatenate(self._sizes)), np.concatenate(self._elements))

    def text_lists(self) -> TextLists:
        lists = self.lists()
        return TextLists(lists.start, lists.values, tuple(self._code_of))

    def add(self, page: Page, leaf: Leaf) -> None:
        values = self._codes(page) if leaf.column.type == TEXT else np.asarray(page.values)
        if leaf.repeated:
            self._elements.append(values.astype(self._values.dtype))
            return
        room = self._values[self._filled : self._filled + page.count]
        if len(room) < page.count:
            raise ParquetError("it has more rows than it says")
        self._filled += page.count
        if page.definition is None or len(values) == page.count:
            room[:] = values
        else:
            self.nulls += page.count - len(values)
            room[:] = self._null
            room[page.definition == leaf.defined] = values

    def add_levels(self, repetition: Levels, definition: Levels, leaf: Leaf) -> None:
        """Of all lists of a file, whose values were added: where each begins, and what of it is there."""
        if len(repetition) and repetition[0]:
            raise ParquetError("its first list has no beginning")
        is_element = definition >= leaf.listed
        counted = np.concatenate(([0], np.cumsum(is_element, dtype=np.int64)))
        self._sizes.append(np.diff(counted[np.append(np.flatnonzero(repetition == 0), len(repetition))]))
        no_list = int(np.count_nonzero(definition < leaf.listed - 1))
        self.nulls += no_list or int(np.count_nonzero(is_element & (definition < leaf.defined)))

    def _codes(self, page: Page) -> npt.NDArray[np.int32]:
        words = page.values if page.words is None else page.words
        assert isinstance(words, list)
        codes = np.array([self._code_of.setdefault(word.decode(), len(self._code_of)) for word in words], _CODE)
        sizes = np.array([len(word) for word in words], np.int64)
        if page.words is not None:
            numbers = np.asarray(page.values)
            codes, sizes = codes[numbers], sizes[numbers]
        self.text_bytes += int(sizes.sum())
        return codes


def read_column(file: BinaryIO, footer: Footer, name: str, into: Gathered) -> None:
    """A column of integers, texts or lists of either, of all row groups."""
    at = next(at for at, leaf in enumerate(footer.leaves) if leaf.column.name == name)
    leaf = footer.leaves[at]
    rows = 0
    repetition: list[Levels] = [np.zeros(0, np.uint8)]
    definition: list[Levels] = [np.zeros(0, np.uint8)]
    for group in footer.groups:
        chunk = group.chunks[at]
        file.seek(chunk.start)
        for page in pages_of(file.read(chunk.bytes), chunk, leaf):
            into.add(page, leaf)
            rows += page.count
            if page.repetition is not None and page.definition is not None:
                repetition.append(page.repetition)
                definition.append(page.definition)
    if leaf.repeated:
        starts = np.concatenate(repetition)
        into.add_levels(starts, np.concatenate(definition), leaf)
        rows = int(np.count_nonzero(starts == 0))
    if rows != footer.rows:
        raise ParquetError(f"column {name} has {rows} rows, and the table {footer.rows}")
