"""The contract with every other program: what `run.json` holds, and the columns of the four tables.

A run is one folder: `run.json`, and for each table a folder of Parquet files. Readers refuse columns with other names
or types than those below. `RunInfo` has a field for all that the checks need; whatever else describes the run (its
whole configuration, regions, versions) is in `extra`, and survives reading and writing unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..core import GroupId, ProcessId, client_name, process_label
from ..parquet.column import TEXT, Column

RUN_FILE = "run.json"

FINAL = 0
OPTIMISTIC = 1
KIND_NAMES = {FINAL: "final", OPTIMISTIC: "optimistic"}

# Values of `what` in the faults table that the checks know. Drivers may write others.
CRASH = "crash"  # of a client, detail may be {"settled": N}: its messages 0 to N-1 had been answered
RESTART = "restart"
RESTORED = "restored"  # detail: {"position": N}; it was handed state instead of messages, and delivers on from N


NULL = -(1 << 63)  # in memory, a value that is missing


@dataclass(frozen=True, slots=True)
class Schema:
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


MULTICASTS = Schema(
    (
        Column("msg", "int64"),
        Column("sender", "int64"),
        Column("client_seq", "int64"),
        Column("dst", "int32", is_list=True),
        Column("t_us", "int64"),
        Column("bytes", "int32"),
    )
)

DELIVERIES = Schema(
    (
        Column("process", "int32"),
        Column("grp", "int32"),
        Column("pos", "int64"),  # 0, 1, 2... of each process and kind
        Column("msg", "int64"),
        Column("kind", "int8"),
        Column("ts", "int64", nullable=True),
        Column("t_us", "int64"),
    )
)

WIRE = Schema(
    (
        Column("src", "int64"),
        Column("dst", "int64"),
        Column("kind", TEXT),
        Column("msg", "int64", nullable=True),
        Column("bytes", "int32"),
        Column("sent_us", "int64"),
        Column("received_us", "int64", nullable=True),
    )
)

FAULTS = Schema(
    (
        Column("process", "int64"),
        Column("t_us", "int64"),
        Column("what", TEXT),
        Column("detail", TEXT),
    )
)

TABLES: dict[str, Schema] = {
    "multicasts": MULTICASTS,
    "deliveries": DELIVERIES,
    "wire": WIRE,
    "faults": FAULTS,
}
OPTIONAL_TABLES = frozenset({"wire", "faults"})  # wire can be off, and most runs have no faults
# Columns of int64 that may hold the id of a client. In older runs they are int32, and readers take that too.
CLIENT_COLUMNS = frozenset({"sender", "src", "dst", "process"})


def columns_problem(found: Sequence[Column], wanted: Schema) -> str | None:
    """What is wrong with a file's columns, and what to do about it; None if nothing is."""
    names = [column.name for column in found]
    for name in wanted.names:
        if name not in names:
            return f"column {name} is missing; write all columns of the schema"
    expected = {column.name: column for column in wanted.columns}
    for column in found:
        if column.name not in expected:
            return f"column {column.name} is not in the schema; remove it"
        if names.count(column.name) > 1:
            return f"column {column.name} is there twice; remove one"
        if str(column) != str(expected[column.name]) and not _was_narrower(column, expected[column.name]):
            return f"column {column.name} is {column} and must be {expected[column.name]}; cast it"
    return None


def _was_narrower(found: Column, wanted: Column) -> bool:
    """Ids of clients had 32 bits once."""
    return found.name in CLIENT_COLUMNS and str(found) == "int32" and str(wanted) == "int64"


@dataclass(frozen=True, slots=True)
class Fault:
    process: ProcessId
    t_us: int
    what: str
    detail: str


class GroupInfo(msgspec.Struct, frozen=True):
    id: GroupId
    processes: tuple[ProcessId, ...]  # the first one is called p0, the next p1


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    protocol: str
    seed: int
    complete: bool  # it ended by itself and drained: what is not delivered now never will be
    groups: tuple[GroupInfo, ...]
    correct: tuple[ProcessId, ...]  # processes that must have delivered everything
    claims: tuple[str, ...] = ()  # names of the properties that the protocol promises
    missing: tuple[str, ...] = ()  # what should have been recorded and was not, in words: "no trace of g2.p0"
    extra: dict[str, Any] = {}


_KNOWN = tuple(name for name in RunInfo.__struct_fields__ if name != "extra")
_INT32_LIMIT = 1 << 31


def encode_run_info(info: RunInfo) -> bytes:
    """Equal infos give equal bytes: keys are sorted, whatever order they were inserted in."""
    clash = sorted(set(_KNOWN) & set(info.extra))
    assert not clash, f"extra keys {clash} would hide fields of the run"
    fields: dict[str, Any] = {name: getattr(info, name) for name in _KNOWN}
    document = msgspec.json.encode({**fields, **info.extra}, order="deterministic")
    return msgspec.json.format(document, indent=2) + b"\n"


def decode_run_info(document: bytes) -> RunInfo:
    """Raises ValueError with one line that says what is wrong."""
    try:
        fields = msgspec.json.decode(document, type=dict[str, Any])
        known = {name: fields.pop(name) for name in _KNOWN if name in fields}
        info = msgspec.convert({**known, "extra": fields}, RunInfo)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error).splitlines()[0]) from error
    problem = info_problem(info)
    if problem is not None:
        raise ValueError(problem)
    return info


def info_problem(info: RunInfo) -> str | None:
    """What is wrong with a run's description: the first contradiction in words, or None."""
    if not info.groups:
        return "there is no group"
    groups: set[GroupId] = set()
    group_of: dict[ProcessId, GroupId] = {}
    for group in info.groups:
        if group.id in groups:
            return f"group g{group.id} is listed twice"
        groups.add(group.id)
        if not group.processes:
            return f"group g{group.id} has no processes"
        for process in group.processes:
            if process in group_of:
                both = f"g{group_of[process]} and in g{group.id}"
                return f"process {process} is in {both}: groups must be disjoint"
            group_of[process] = group.id
    for number in (*groups, *group_of):
        if not 0 <= number < _INT32_LIMIT:
            return f"id {number} is out of range: ids are 0 to {_INT32_LIMIT - 1}"
    for process in info.correct:
        if process not in group_of:
            return f"process {process} is listed as correct but is in no group"
    return None


def restored_position(detail: str) -> int | None:
    """The position in the detail of a RESTORED fault, None if there is none."""
    return _number_in(detail, "position")


def settled_below(detail: str) -> int:
    """From the detail of a client's CRASH: the sequence number below which all its messages had been answered."""
    return _number_in(detail, "settled") or 0


def _number_in(detail: str, name: str) -> int | None:
    try:
        document = msgspec.json.decode(detail)
    except (msgspec.DecodeError, RecursionError):
        return None
    number = document.get(name) if isinstance(document, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return number if 0 <= number < 1 << 63 else None


def group_of_process(info: RunInfo) -> Mapping[ProcessId, GroupId]:
    return {process: group.id for group in info.groups for process in group.processes}


def process_name(info: RunInfo, process: ProcessId) -> str:
    """`g1.p0` is the first process of group 1; a process in no group is a client, `c7`."""
    for group in info.groups:
        if process in group.processes:
            return process_label(group.id, group.processes.index(process))
    return client_name(process)
