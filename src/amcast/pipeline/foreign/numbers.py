"""Names become numbers, by one rule, so that equal traces give equal runs, in memory and on Spark.

Where all names are integers they stay what they are. Otherwise groups are numbered from 1 and processes from 0, group
after group, both as people sort (g2 before g10); clients follow, sorted alike. Messages are numbered by the order of
their names as bytes, which any machine can sort without knowing the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...trace.names import NamesTable
from ...trace.schema import MULTICASTS, TABLES, UNKNOWN, GroupInfo, NamesInfo
from .._arrow import arrow_schema, arrow_type
from .found import is_number

_DIGITS = re.compile(r"([0-9]+)", re.ASCII)


class Numbering(msgspec.Struct, frozen=True):
    groups: dict[str, int]
    members: dict[str, int]
    clients: dict[str, int]
    are_own: bool  # processes and clients had numbers, which they keep
    messages_are_numbers: bool

    def names_info(self) -> NamesInfo:
        are_groups_named = any(name != str(number) for name, number in self.groups.items())
        return NamesInfo(
            {number: name for name, number in self.groups.items()} if are_groups_named else {},
            {number: f"p{name}" if self.are_own else name for name, number in self.members.items()},
            bool(self.clients) and not self.are_own,
            not self.messages_are_numbers,
        )


def people_sort(names: Iterable[str]) -> list[str]:
    """g2 before g10."""
    return sorted(names, key=_key)


def _key(name: str) -> tuple[list[Any], str]:
    parts: list[Any] = _DIGITS.split(name)
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def number_names(groups: Mapping[str, list[str]], others: Iterable[str], messages_are_numbers: bool) -> Numbering:
    """`groups` has the processes of each, in order."""
    order = people_sort(groups)
    members = [process for group in order for process in groups[group]]
    clients = people_sort(set(others) - set(members))
    are_own = all(is_number(name, 1 << 31) for name in members) and all(is_number(name, 1 << 63) for name in clients)
    return Numbering(
        _numbered(order, 1, all(is_number(name, 1 << 31) for name in order)),
        _numbered(members, 0, are_own),
        _numbered(clients, len(members), are_own),
        are_own,
        messages_are_numbers,
    )


def _numbered(names: list[str], first: int, are_own: bool) -> dict[str, int]:
    return {name: int(name) if are_own else number for number, name in enumerate(names, first)}


def group_infos(numbering: Numbering, groups: Mapping[str, list[str]]) -> tuple[GroupInfo, ...]:
    return tuple(
        GroupInfo(number, tuple(numbering.members[process] for process in groups[name]))
        for name, number in numbering.groups.items()
    )


class RowNumberer:
    """Turns rows with names into rows of the schema. Messages must have their numbers already.

    Positions that the trace does not have stay null: they follow from the order of all rows.
    """

    def __init__(self, numbering: Numbering, groups: Mapping[str, list[str]]) -> None:
        self._processes = _Dictionary({**numbering.clients, **numbering.members})
        self._groups = _Dictionary(numbering.groups)
        own = {process: numbering.groups[group] for group, members in groups.items() for process in members}
        self._own_group = _Dictionary(own)

    def number(self, table: str, rows: pa.Table) -> pa.Table:
        columns = []
        for column in TABLES[table].columns:
            values = rows.column(column.name)
            if column.name == "grp" and values.null_count:
                values = self._own_group.look_up(rows.column("process"))
            elif column.names == "process":
                values = self._processes.look_up(values)
            elif column.is_list and column.names is None:
                values = _relisted(values, arrow_type(column))
            elif column.name == "dst":
                values = self._destinations(values)
            elif column.names == "group":
                values = self._groups.look_up(values)
            if column.name in ("sender", "client_seq"):
                values = pc.fill_null(values, UNKNOWN)
            columns.append(values.cast(arrow_type(column)))
        return pa.table(columns, schema=pa.schema([pa.field(c.name, arrow_type(c)) for c in TABLES[table].columns]))

    def _destinations(self, lists: pa.ChunkedArray) -> pa.ChunkedArray:
        """Sorted by number, as our own recorder has them."""
        joined = lists.combine_chunks()
        flat = self._groups.look_up(pc.list_flatten(joined))
        row = pc.list_parent_indices(joined)
        order = pc.sort_indices(pa.table({"row": row, "group": flat}), [("row", "ascending"), ("group", "ascending")])
        starts = pa.concat_arrays(
            [pa.array([0], pa.int64()), pc.cumulative_sum(pc.list_value_length(joined).cast(pa.int64()))]
        )
        element = arrow_schema(MULTICASTS).field("dst").type
        made = pa.ListArray.from_arrays(starts.cast(pa.int32()), flat.take(order).cast(pa.int32()), type=element)
        return pa.chunked_array([made])


def _relisted(lists: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same lists: Spark says that their elements may be null."""
    joined = lists.combine_chunks()
    ends = pc.cumulative_sum(pc.list_value_length(joined).cast(pa.int32()))
    starts = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.chunked_array([pa.ListArray.from_arrays(starts, pc.list_flatten(joined), type=kind)])


class _Dictionary:
    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._names = pa.array(list(numbers), pa.string())
        self._numbers = pa.array(list(numbers.values()), pa.int64())

    def look_up(self, names: pa.Array | pa.ChunkedArray) -> Any:
        at = pc.index_in(names, self._names)
        assert at.null_count == names.null_count, "every name has a number"
        return pc.take(self._numbers, at)


def names_table(numbers: Mapping[str, int]) -> NamesTable:
    by_number = sorted(numbers.items(), key=lambda item: item[1])
    return NamesTable(np.array([number for _, number in by_number], np.int64), [name for name, _ in by_number])
