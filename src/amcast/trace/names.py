"""What to call the groups, processes and messages of a run, in words for people.

Most runs are amcast's own: `g1.p0` is the first process of group 1, `c7` a client, `m12.7` message 7 of sender 12. An
imported run has the names that its system uses. Those of groups and members are in `run.json`; clients and messages can
be many, so their names are in tables of their own, `names/clients` and `names/messages`, and only what is asked for is
read. Names are for messages alone: no verdict depends on them, and where one can't be read a number stands for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ..core import GroupId, MessageId, ProcessId, message_name
from .parquet import columns_problem, row_groups_problem
from .schema import UNKNOWN, RunInfo

NAMES_FOLDER = "names"
_LENGTH_MAX = 500
NAMES = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string(), False)])  # sorted by id

LookUp = Callable[[str, int], str | None]  # the table, and a number in it


class Names:
    def __init__(self, info: RunInfo, look_up: LookUp | None = None) -> None:
        self._info = info.names
        self._look_up = look_up
        self._members = {
            process: f"g{group.id}.p{index}" for group in info.groups for index, process in enumerate(group.processes)
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
        return (self._read("clients", process) if named else None) or f"c{process}"

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


def names_in(path: str, filesystem: fs.FileSystem | None = None) -> LookUp:
    """Reads names from the folder of a run."""

    @cache
    def look_up(table: str, number: int) -> str | None:
        try:
            return _find(filesystem or fs.LocalFileSystem(), f"{path}/{NAMES_FOLDER}/{table}", number)
        except Exception:  # corrupt bytes make the library raise errors that it does not document
            return None

    return look_up


def _find(filesystem: fs.FileSystem, folder: str, number: int) -> str | None:
    for entry in sorted(filesystem.get_file_info(fs.FileSelector(folder)), key=lambda entry: str(entry.path)):
        # Names stay a dictionary: one long name may be in millions of rows.
        with pq.ParquetFile(entry.path, filesystem=filesystem, read_dictionary=["name"]) as file:
            if columns_problem(file.schema_arrow, NAMES) or row_groups_problem(file.metadata):
                return None
            for group in range(file.num_row_groups):
                range_ = file.metadata.row_group(group).column(file.schema_arrow.names.index("id")).statistics
                if range_ is None or not range_.has_min_max or not range_.min <= number <= range_.max:
                    continue
                row = pc.index(file.read_row_group(group, ["id"]).column("id"), number).as_py()
                if row >= 0:
                    return str(file.read_row_group(group, ["name"]).column("name")[row].as_py())
    return None
