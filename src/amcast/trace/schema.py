"""The contract with every other program: what `run.json` holds, and the columns of the tables.

A run is one folder: `run.json`, and for each table a folder of Parquet files. Readers refuse columns with other names
or types than those below. `RunInfo` has a field for all that the checks need; whatever else describes the run (its
whole configuration, regions, versions) is in `extra`, and survives reading and writing unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedColumn(Column):
    """A column of a run. What is said here is what `amcast schema` and docs/trace-format.md print."""

    meaning: str
    names: Literal["process", "group", "message"] | None = None  # whose number it is: importers take names for these
    also: str = ""  # another name that importers take for it
    absent: str | None = None  # what importers do where a file has no such column; None: they refuse the file
    may_be_blank: bool = False  # for importers: single cells may be empty
    is_json: bool = False  # its texts are JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Schema):
    name: str
    meaning: str
    columns: tuple[DescribedColumn, ...]
    is_optional: bool = False  # the wire can be off, most runs have no faults, clients of clusters no trace

    def column(self, name: str) -> DescribedColumn:
        return next(column for column in self.columns if column.name == name)


UNKNOWN = -1  # in `sender` and `client_seq`, where the trace does not say it

_NO_TIME = "all times are 0"

FORMAT: tuple[Table, ...] = (
    Table(
        name="multicasts",
        meaning="What was multicast: one row for each message.",
        columns=(
            DescribedColumn(
                "msg", "int64", meaning="the message; no two have the same", names="message", also="message"
            ),
            DescribedColumn(
                "sender",
                "int64",
                meaning=f"the client or process that multicast it; {UNKNOWN} if that is not known",
                names="process",
                absent="senders are unknown: a lost message makes validity unknown, and FIFO order is not judged",
                may_be_blank=True,
            ),
            DescribedColumn(
                "client_seq",
                "int64",
                meaning=f"its number among the messages of its sender, 0, 1, 2, ...; {UNKNOWN} if that is not known",
                absent="FIFO order is not judged",
                may_be_blank=True,
            ),
            DescribedColumn(
                "dst",
                "int32",
                is_list=True,
                meaning="the groups that it is addressed to, at least one, none twice",
                names="group",
            ),
            DescribedColumn(
                "t_us", "int64", meaning="when it was multicast, in microseconds", also="time", absent=_NO_TIME
            ),
            DescribedColumn("bytes", "int32", meaning="the size of its payload", absent="0"),
        ),
    ),
    Table(
        name="deliveries",
        meaning="Who delivered what: one row for each delivery of a message by a process.",
        columns=(
            DescribedColumn("process", "int32", meaning="who delivered it", names="process"),
            DescribedColumn(
                "grp",
                "int32",
                meaning="the group that it did so for, its own",
                names="group",
                also="group",
                absent="the group that is declared for the process; else `g1` of a process `g1.p0`",
            ),
            DescribedColumn(
                "pos",
                "int64",
                meaning="where it stands among the deliveries of the process (of that kind): 0, 1, 2, ...",
                also="position",
                absent="the order of the rows is taken, and the property positions is unknown",
            ),
            DescribedColumn("msg", "int64", meaning="the message", names="message", also="message"),
            DescribedColumn(
                "kind", "int8", meaning=f"{FINAL}: final, {OPTIMISTIC}: optimistic", absent="all are final"
            ),
            DescribedColumn(
                "ts",
                "int64",
                meaning="the timestamp that the protocol ordered it by, if it has one",
                nullable=True,
                absent="there are none",
                may_be_blank=True,
            ),
            DescribedColumn(
                "t_us",
                "int64",
                meaning="when it was delivered, in microseconds",
                also="time",
                absent=f"{_NO_TIME}, and local order is unknown",
            ),
        ),
    ),
    Table(
        name="wire",
        meaning="Who sent what to whom: one row for each message between processes. Claims about the wire need it.",
        columns=(
            DescribedColumn("src", "int64", meaning="the sending process or client", names="process"),
            DescribedColumn("dst", "int64", meaning="the receiving process or client", names="process"),
            DescribedColumn("kind", TEXT, meaning="the kind of wire message, such as START", absent="empty"),
            DescribedColumn(
                "msg",
                "int64",
                meaning="the multicast message that it is about, if it is about one",
                nullable=True,
                names="message",
                also="message",
                absent="none is about a message, and claims about the wire can't pass",
                may_be_blank=True,
            ),
            DescribedColumn("bytes", "int32", meaning="its size", absent="0"),
            DescribedColumn(
                "sent_us", "int64", meaning="when it was sent, in microseconds", also="sent", absent=_NO_TIME
            ),
            DescribedColumn(
                "received_us",
                "int64",
                meaning="when it was received, in microseconds; null if it never was",
                nullable=True,
                also="received",
                absent="null",
                may_be_blank=True,
            ),
        ),
        is_optional=True,
    ),
    Table(
        name="faults",
        meaning="What went wrong: one row for each fault.",
        columns=(
            DescribedColumn("process", "int64", meaning="the process or client that it happened to", names="process"),
            DescribedColumn("t_us", "int64", meaning="when, in microseconds", also="time", absent=_NO_TIME),
            DescribedColumn(
                "what",
                TEXT,
                meaning=f"`{CRASH}`, `{RESTART}`, `{RESTORED}` (handed state instead of messages), or any other word",
            ),
            DescribedColumn(
                "detail",
                TEXT,
                meaning=f'more about it; of `{RESTORED}` {{"position": N}}, from which it delivers on;'
                f" of a client's `{CRASH}`"
                ' it may be {"settled": N}: its messages 0 to N-1 had been answered',
                absent="empty",
                may_be_blank=True,
            ),
        ),
        is_optional=True,
    ),
    Table(
        name="answers",
        meaning="When messages were answered: one row for each. Only the latency at the client needs it.",
        columns=(
            DescribedColumn("msg", "int64", meaning="the message", names="message", also="message"),
            DescribedColumn(
                "t_us",
                "int64",
                meaning="when its sender had the replies of all its destination groups, in microseconds",
                also="time",
            ),
        ),
        is_optional=True,
    ),
    Table(
        name="operations",
        meaning="What clients did with objects, and were answered: one row for each operation. Leave out those that"
        " certainly had no effect.",
        columns=(
            DescribedColumn("client", "int64", meaning="who called it", names="process", also="process"),
            DescribedColumn(
                "invoked_us",
                "int64",
                meaning="when it was called, in microseconds, by one clock for all",
                also="invoked",
            ),
            DescribedColumn(
                "returned_us",
                "int64",
                meaning="when the client had the answer; null if it never had one: it may have taken effect, or not",
                nullable=True,
                also="returned",
                may_be_blank=True,
            ),
            DescribedColumn("operation", TEXT, meaning="what was done: `read`, `write`, `transaction`, ..."),
            DescribedColumn(
                "arguments",
                TEXT,
                meaning='a JSON list, as `[5]`; of a transaction its steps, as `[["read", "x"], ["write", "y", 5]]`',
                absent="`[]`",
                may_be_blank=True,
                is_json=True,
            ),
            DescribedColumn(
                "result",
                TEXT,
                meaning="the answer as JSON; null if it was not recorded. Of a transaction a list, one for each step",
                nullable=True,
                absent="null, and the property can't pass",
                may_be_blank=True,
                is_json=True,
            ),
            DescribedColumn(
                "objects",
                TEXT,
                is_list=True,
                meaning="the names of the objects that it is about: one, or all those of a transaction, none twice",
                also="object",
            ),
        ),
        is_optional=True,
    ),
    Table(
        name="objects",
        meaning="What operations touch: one row for each object of a message. The property conflict-order needs it.",
        columns=(
            DescribedColumn("msg", "int64", meaning="the message", names="message", also="message"),
            DescribedColumn(
                "object", "int64", meaning="an object that it reads or writes, as a number: a hash of its name"
            ),
        ),
        is_optional=True,
    ),
)

TABLES: dict[str, Table] = {table.name: table for table in FORMAT}
MULTICASTS, DELIVERIES, WIRE, FAULTS, ANSWERS, OPERATIONS, OBJECTS = FORMAT
OPTIONAL_TABLES = frozenset(table.name for table in FORMAT if table.is_optional)
# Columns of int64 that may hold the id of a client. In older runs they are int32, and readers take that too.
CLIENT_COLUMNS = frozenset({"sender", "src", "dst", "process"})


def needed_tables(info: RunInfo) -> frozenset[str]:
    """A run without groups is one of operations alone."""
    return frozenset(TABLES) - OPTIONAL_TABLES if info.groups else frozenset()


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


@dataclass(frozen=True, slots=True)
class Property:
    """What a run can be judged by. A claim is the name of one."""

    name: str
    meaning: str
    is_always_judged: bool = False  # else only if `claims` has it
    needs_wire: bool = False
    about_operations: bool = False  # also judged if there are any


PROPERTIES: tuple[Property, ...] = (
    Property("positions", "each process numbers its deliveries 0, 1, 2, ... without a gap", True),
    Property(
        "integrity", "each process delivers a message at most once, and only if it was multicast to its group", True
    ),
    Property("validity", "what a correct sender multicast is delivered by all correct destinations", True),
    Property("agreement", "what one process delivered is delivered by all correct destinations", True),
    Property("replicas", "the processes of a group deliver the same messages at the same positions", True),
    Property("prefix", "no two processes deliver two messages in opposite orders, or each one without the other", True),
    Property("acyclic", "what all processes delivered, taken together, has no cycle: one total order extends it", True),
    Property(
        "timestamps",
        "each message has one timestamp, no two the same, rising at every process; also judged if any delivery has one",
    ),
    Property("fifo", "each process delivers the messages of a sender in the order of `client_seq`, none left out"),
    Property("genuine", "only the sender and the destinations of a message take steps for it", needs_wire=True),
    Property(
        "minimality", "who sends or receives anything about a message is involved in some message", needs_wire=True
    ),
    Property(
        "quasi-genuine",
        "as genuine, but groups that may send to a destination (`senders_to` in run.json) take part too",
        needs_wire=True,
    ),
    Property(
        "partially-genuine",
        "for a message to a single group, only its sender and that group take steps",
        needs_wire=True,
    ),
    Property(
        "conflict-order",
        "all processes execute the messages that touch an object (table `objects`) in one order. It takes the place of"
        " `prefix` and `acyclic`, which are not judged then: messages that share no object may come in any order",
    ),
    Property("local-order", "no process delivers a message optimistically after it delivered it for good"),
    Property(
        "linearizability",
        "some order of all operations, in which none stands before one that had ended when it began, explains every"
        " answer; with transactions, this is strict serializability",
        about_operations=True,
    ),
)


class GroupInfo(msgspec.Struct, frozen=True):
    id: GroupId
    processes: tuple[ProcessId, ...]  # the first one is called p0, the next p1


class NamesInfo(msgspec.Struct, frozen=True):
    """What a foreign system calls its groups and processes, by number, and whether the folder `names` has more."""

    groups: dict[GroupId, str] = {}
    processes: dict[ProcessId, str] = {}  # members of groups
    clients: bool = False  # names/clients has the names of clients
    messages: bool = False  # names/messages has those of messages; else their numbers are their names


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    protocol: str
    seed: int
    complete: bool  # it ended by itself and drained: what is not delivered now never will be
    groups: tuple[GroupInfo, ...]
    correct: tuple[ProcessId, ...]  # processes that must have delivered everything
    claims: tuple[str, ...] = ()  # names of the properties that the protocol promises
    missing: tuple[str, ...] = ()  # what should have been recorded and was not, in words: "no trace of g2.p0"
    unproven: dict[str, str] = {}  # properties that the tables can break but not prove, and why
    names: NamesInfo | None = None
    extra: dict[str, Any] = {}


FIELDS: dict[str, str] = {
    "run_id": "what the run is called",
    "protocol": "the protocol or system that made it, any word",
    "seed": "of a simulated run, else 0",
    "complete": "true: it ended by itself, and what is not delivered now never will be. Else validity and agreement are"
    " unknown",
    "groups": "each group's number and its processes; the first process is called p0. Groups are disjoint. A run of"
    " operations alone has none, and no other table",
    "correct": "the processes that must have delivered everything: those that did not crash for good",
    "claims": "properties that are promised, besides those that are always judged",
    "missing": "what should have been recorded and was not, in words. Then no property passes",
    "unproven": "properties that the tables could break but can't prove, each with the reason: they don't pass."
    " It may be left out",
    "names": "what groups and processes are called, by number, and whether the folder `names` has names of clients and"
    " messages. It may be left out",
}

EXAMPLE = RunInfo(
    run_id="orders-2026-11-17",
    protocol="orders-db",
    seed=0,
    complete=True,
    groups=(GroupInfo(1, (0, 1, 2)), GroupInfo(2, (3, 4, 5))),
    correct=(0, 1, 2, 3, 5),
    claims=("timestamps", "fifo"),
    extra={"version": "7.1"},
)


def is_bare(names: Iterable[str]) -> bool:
    """Whether a folder with these names in it is a run that has nothing but operations, not even a description."""
    return {name for name in names if not name.startswith((".", "_"))} == {OPERATIONS.name}


def bare_info(run_id: str) -> RunInfo:
    return RunInfo(run_id=run_id, protocol="unknown", seed=0, complete=True, groups=(), correct=())


_KNOWN = tuple(name for name in RunInfo.__struct_fields__ if name != "extra")
_LEFT_OUT_IF_EMPTY = ("unproven", "names")
_INT32_LIMIT = 1 << 31


def encode_run_info(info: RunInfo) -> bytes:
    """Equal infos give equal bytes: keys are sorted, whatever order they were inserted in."""
    clash = sorted(set(_KNOWN) & set(info.extra))
    assert not clash, f"extra keys {clash} would hide fields of the run"
    fields: dict[str, Any] = {name: getattr(info, name) for name in _KNOWN}
    fields["names"] = msgspec.to_builtins(info.names, str_keys=True)
    for name in _LEFT_OUT_IF_EMPTY:
        if not fields[name]:
            del fields[name]
    document = msgspec.json.encode({**fields, **info.extra}, order="deterministic")
    return msgspec.json.format(document, indent=2) + b"\n"


def decode_run_info(document: bytes) -> RunInfo:
    """Raises ValueError with one line that says what is wrong."""
    try:
        fields = msgspec.json.decode(document, type=dict[str, Any])
        known = {name: fields.pop(name) for name in _KNOWN if name in fields}
        info = msgspec.convert({**known, "extra": fields}, RunInfo, str_keys=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error).splitlines()[0]) from error
    problem = info_problem(info)
    if problem is not None:
        raise ValueError(problem)
    return info


def info_problem(info: RunInfo) -> str | None:
    """What is wrong with a run's description: the first contradiction in words, or None."""
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
