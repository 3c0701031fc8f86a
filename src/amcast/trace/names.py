"""What to call the groups, processes and messages of a run, in words for people.

Most runs are amcast's own: `g1.p0` is the first process of group 1, `c7` a client, `m12.7` message 7 of sender 12. An
imported run has the names that its system uses. Those of groups and members are in `run.json`; clients and messages can
be many, so their names are in tables of their own, `names/clients` and `names/messages`, and only what is asked for is
read. Names are for messages alone: no verdict depends on them, and where one can't be read a number stands for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..core import GroupId, MessageId, ProcessId, client_name, message_name, process_label
from ..parquet.column import TEXT, Column
from ..parquet.footer import Footer, read_footer
from ..parquet.reader import Gathered, read_column
from ..parquet.values import Int64s, Integers, Texts, Values
from .limits import group_sizes, row_groups_problem
from .schema import UNKNOWN, RunInfo, Schema, columns_problem

NAMES_FOLDER = "names"
_LENGTH_MAX = 500
NAMES = Schema((Column("id", "int64"), Column("name", TEXT)))


@dataclass(frozen=True, slots=True)
class NamesTable:
    """Of clients, or of messages: rows are sorted by number."""

    id: Int64s
    name: Sequence[str]

    def values(self) -> list[Values]:
        return [Integers(self.id), Texts(np.arange(len(self.id), dtype=np.int32), tuple(self.name))]


LookUp = Callable[[str, int], str | None]  # the table, and a number in it


class Names:
    def __init__(self, info: RunInfo, look_up: LookUp | None = None) -> None:
        self._info = info.names
        self._look_up = look_up
        self._members = {
            process: process_label(group.id, index)
            for group in info.groups
            for index, process in enumerate(group.processes)
        }
        if self._info is not None:
            self._members |= {process: _shown(name) for process, name in self._info.processes.items()}

    def group(self, group: GroupId) -> str:
        named = None if self._info is None else self._info.groups.get(group)
        return f"g{group}" if named is None else _shown(named)

    def process(self, process: ProcessId) -> str:
        if process in self._members:
            return self._members[process]
        if process == UNKNOWN:
            return "an unknown sender"
        named = self._info is not None and self._info.clients
        return (self._read("clients", process) if named else None) or client_name(process)

    def message(self, message: MessageId) -> str:
        if self._info is None:
            return message_name(message)
        return (self._read("messages", message) if self._info.messages else None) or f"m{message}"

    def _read(self, table: str, number: int) -> str | None:
        found = None if self._look_up is None else self._look_up(table, number)
        return None if found is None else _shown(found)


def _shown(name: str) -> str:
    """A name from anywhere, for a word in a line and in a picture."""
    kept = name if len(name) <= _LENGTH_MAX else name[: _LENGTH_MAX - 3] + "..."
    return "".join(character if character.isprintable() else "\ufffd" for character in kept)


Open = Callable[[], AbstractContextManager[BinaryIO]]


def names_in_folder(run: Path) -> LookUp:
    """Reads names from the folder of a run."""
    return names_in(lambda table: [partial(_open, path) for path in sorted((run / NAMES_FOLDER / table).iterdir())])


def _open(path: Path) -> BinaryIO:
    return path.open("rb")


def names_in(files_of: Callable[[str], Sequence[Open]]) -> LookUp:
    """Reads names from the files of a table, wherever they are. Together these are sorted, as they are listed."""

    @cache
    def groups_of(table: str) -> list[_Group]:
        return [group for open_ in files_of(table) for group in _groups_in(open_)]

    @cache
    def look_up(table: str, number: int) -> str | None:
        try:
            return _find(groups_of(table), number)
        except Exception:  # corrupt bytes may be wrong in more ways than there are words for
            return None

    return look_up


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group: all that is read at a time, since names can be many."""

    open: Open
    footer: Footer  # as if the file had no other

    def ids(self) -> Int64s:
        return self._read("id").integers()

    def name(self, row: int) -> str:
        texts = self._read("name").texts()
        return texts.words[int(texts.codes[row])]

    def _read(self, name: str) -> Gathered:
        column = next(column for column in NAMES.columns if column.name == name)
        made = Gathered(column, self.footer.rows)
        with self.open() as file:
            read_column(file, self.footer, name, made)
        return made


def _groups_in(open_: Open) -> list[_Group]:
    with open_() as file:
        footer = read_footer(file)
    problem = columns_problem(footer.columns, NAMES) or row_groups_problem(group_sizes(footer))
    if problem is not None:
        raise ValueError(problem)
    return [_Group(open_, replace(footer, rows=group.rows, groups=(group,))) for group in footer.groups if group.rows]


def _find(groups: Sequence[_Group], number: int) -> str | None:
    at = bisect_left(groups, number, key=lambda group: int(group.ids()[-1]))
    if at == len(groups):
        return None
    ids = groups[at].ids()
    row = int(np.searchsorted(ids, number))
    return groups[at].name(row) if row < len(ids) and ids[row] == number else None
