"""What a run may take when it is read.

Equal values take no space in a file, but in memory: a megabyte may hold a billion rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..parquet.footer import Footer

ROW_GROUP_ROWS = 32 * 1024  # as they are written

ROWS_MAX = 20_000_000  # of a run that is read into memory; and of a row group, which is always read at once
TEXT_BYTES_MAX = 128 << 20  # of a column of strings in a file
_GROUP_BYTES_MAX = 2 << 30  # of a row group, when it is decompressed


class GroupSize(NamedTuple):
    values: int  # of the column that has most
    bytes: int  # of all columns, when they are decompressed


def group_sizes(footer: Footer) -> list[GroupSize]:
    return [
        GroupSize(
            max([group.rows, *(chunk.values for chunk in group.chunks)]),
            sum(chunk.bytes_unpacked for chunk in group.chunks),
        )
        for group in footer.groups
    ]


def row_groups_problem(groups: Iterable[GroupSize]) -> str | None:
    """Whether a row group is too large to be read at once, and what to do about it; None if none is."""
    for number, group in enumerate(groups):
        if group.values > ROWS_MAX:
            many = f"row group {number} has {group.values:,} values, and {ROWS_MAX:,} are allowed"
            return f"{many}; write smaller row groups"
        if group.bytes > _GROUP_BYTES_MAX:
            many = f"row group {number} has {group.bytes:,} bytes, and {_GROUP_BYTES_MAX:,} are allowed"
            return f"{many}; write smaller ones"
    return None
