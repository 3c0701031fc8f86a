"""What the files of a trace say besides their rows: who there is, who belongs where, who crashed.

It is small, whatever the size of the trace, and that of two parts can be put together: tasks on Spark send it back.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ...trace.schema import CRASH, RESTART

NAMES_MAX = 1_000_000  # of groups, processes and clients; messages can be any number
_CANONICAL = "^(0|[1-9][0-9]{0,18})$"  # integers that have one way to write them


class Found(msgspec.Struct):
    rows: dict[str, int] = {}
    groups_of: dict[str, set[str]] = {}  # of each process that delivers: the groups that it does so for, if it says so
    addressed: set[str] = set()  # groups
    others: set[str] = set()  # who else there is: senders, ends of wire messages, who had a fault
    are_numbers: bool = True  # all messages are integers
    least_pos: int | None = None
    is_wire_named: bool = False  # some wire message says which message it is about
    latest: dict[str, tuple[int, bool]] = {}  # of who crashed or restarted: when last, and whether it is down since

    def add(self, table: str, rows: pa.Table) -> None:
        self.rows[table] = self.rows.get(table, 0) + len(rows)
        if table == "deliveries":
            self._add_members(rows)
        elif table == "multicasts":
            self.addressed.update(_distinct(pc.list_flatten(rows.column("dst").combine_chunks())))
            self.others.update(_distinct(rows.column("sender")))
        elif table == "wire":
            self.others.update(_distinct(rows.column("src")), _distinct(rows.column("dst")))
            self.is_wire_named |= rows.column("msg").null_count < len(rows)
        elif table == "operations":
            self.others.update(_distinct(rows.column("client")))
        elif table == "faults":
            self.others.update(_distinct(rows.column("process")))
            self._add_faults(rows)
        if "msg" in rows.column_names and self.are_numbers:
            self.are_numbers = _are_numbers(rows.column("msg"))

    def _add_members(self, rows: pa.Table) -> None:
        pairs = rows.select(["process", "grp"]).group_by(["process", "grp"]).aggregate([])
        for process, group in zip(pairs.column("process").to_pylist(), pairs.column("grp").to_pylist(), strict=True):
            groups = self.groups_of.setdefault(process, set())
            if group is not None:
                groups.add(group)
        self._merge_pos(pc.min(rows.column("pos")).as_py())

    def _merge_pos(self, pos: int | None) -> None:
        if pos is not None:
            self.least_pos = pos if self.least_pos is None else min(pos, self.least_pos)

    def _add_faults(self, rows: pa.Table) -> None:
        columns = (rows.column(name).to_pylist() for name in ("process", "t_us", "what"))
        self._merge_latest(
            (process, (t_us, what == CRASH))
            for process, t_us, what in zip(*columns, strict=True)
            if what in (CRASH, RESTART)
        )

    def _merge_latest(self, faults: Iterable[tuple[str, tuple[int, bool]]]) -> None:
        for process, fault in faults:
            if process not in self.latest or self.latest[process][0] <= fault[0]:
                self.latest[process] = fault

    def join(self, later: Found) -> None:
        """Adds what was found in a later part."""
        for table, rows in later.rows.items():
            self.rows[table] = self.rows.get(table, 0) + rows
        for process, groups in later.groups_of.items():
            self.groups_of.setdefault(process, set()).update(groups)
        self.addressed |= later.addressed
        self.others |= later.others
        self.are_numbers = self.are_numbers and later.are_numbers
        self.is_wire_named = self.is_wire_named or later.is_wire_named
        self._merge_pos(later.least_pos)
        self._merge_latest(later.latest.items())

    def problem(self) -> str | None:
        if len(self.others) + len(self.groups_of) + len(self.addressed) <= NAMES_MAX:
            return None
        return f"there are more than {NAMES_MAX:,} groups, processes and clients: is a column taken for another?"

    def down(self) -> set[str]:
        return {process for process, (_, is_down) in self.latest.items() if is_down}


def is_number(name: str, limit: int) -> bool:
    """Whether it is an integer, written in its one way, from 0 up to the limit."""
    return len(name) < 20 and name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < limit


def _are_numbers(names: pa.ChunkedArray) -> bool:
    if not pc.all(pc.match_substring_regex(names, _CANONICAL), min_count=0).as_py():
        return False
    try:
        names.cast(pa.int64())
    except pa.ArrowInvalid:  # it has 19 digits and is above 2^63
        return False
    return True


def _distinct(names: pa.Array | pa.ChunkedArray) -> list[str]:
    return [name for name in pc.unique(names).to_pylist() if name is not None]
