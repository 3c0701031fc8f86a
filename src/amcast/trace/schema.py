"""The contract with every other program: what `run.json` holds, and the columns of the tables.

A run is one folder: `run.json`, and for each table a folder of Parquet files. Readers refuse columns with other names
or types than those below. `RunInfo` has a field for all that the checks need; whatever else describes the run (its
whole configuration, regions, versions) is in `extra`, and survives reading and writing unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from ..core import GroupId, ProcessId

RUN_FILE = "run.json"

FINAL = 0
OPTIMISTIC = 1
KIND_NAMES = {FINAL: "final", OPTIMISTIC: "optimistic"}

# Values of `what` in the faults table that the checks know. Drivers may write others.
CRASH = "crash"  # of a client, detail may be {"settled": N}: its messages 0 to N-1 had been answered
RESTART = "restart"
RESTORED = "restored"  # detail: {"position": N}; it was handed state instead of messages, and delivers on from N


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


MULTICASTS = pa.schema(
    [
        _required("msg", pa.int64()),
        _required("sender", pa.int64()),
        _required("client_seq", pa.int64()),
        _required("dst", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        _required("t_us", pa.int64()),
        _required("bytes", pa.int32()),
    ]
)

DELIVERIES = pa.schema(
    [
        _required("process", pa.int32()),
        _required("grp", pa.int32()),
        _required("pos", pa.int64()),  # 0, 1, 2... of each process and kind
        _required("msg", pa.int64()),
        _required("kind", pa.int8()),
        pa.field("ts", pa.int64()),
        _required("t_us", pa.int64()),
    ]
)

WIRE = pa.schema(
    [
        _required("src", pa.int64()),
        _required("dst", pa.int64()),
        _required("kind", pa.string()),
        pa.field("msg", pa.int64()),
        _required("bytes", pa.int32()),
        _required("sent_us", pa.int64()),
        pa.field("received_us", pa.int64()),
    ]
)

FAULTS = pa.schema(
    [
        _required("process", pa.int64()),
        _required("t_us", pa.int64()),
        _required("what", pa.string()),
        _required("detail", pa.string()),
    ]
)

ANSWERS = pa.schema(
    [
        _required("msg", pa.int64()),
        _required("t_us", pa.int64()),  # when its sender had the replies of all its destination groups
    ]
)

TABLES: dict[str, pa.Schema] = {
    "multicasts": MULTICASTS,
    "deliveries": DELIVERIES,
    "wire": WIRE,
    "faults": FAULTS,
    "answers": ANSWERS,
}
# The wire can be off, most runs have no faults, and the clients of a real cluster keep no trace.
OPTIONAL_TABLES = frozenset({"wire", "faults", "answers"})
# Columns of int64 that may hold the id of a client. In older runs they are int32, and readers take that too.
CLIENT_COLUMNS = frozenset({"sender", "src", "dst", "process"})


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
            return f"g{group.id}.p{group.processes.index(process)}"
    return f"c{process}"
