"""Who takes steps for whom, from the wire: genuineness and two weaker promises.

- genuine: a row that names a message has both ends among its sender and the members of its destinations; one that
  names none stays inside a group or joins two ends that some one message involves both.
- minimality: whoever sends or receives something about a message is the sender or a destination of some message of the
  run. Rows that name no message are upkeep, and are not judged.
- quasi-genuine: only processes that some message of the run involves exchange anything at all. If run.json declares
  `senders_to`, that settles it: a row that names a message has both ends among its sender, its destinations and the
  groups that may send to one of these; one that names none stays inside a group, or joins a group and one that may send
  to it.
- partially-genuine: a row that names a message to a single group has both ends among its sender and that group.

The last one is the simple reading of its name; a protocol that means more by it adds a function to `_CHECKS`, which is
given the rows batch by batch. A run whose wire was not recorded gets no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...check.report import NO_WIRE, VIOLATIONS_PER_PROPERTY, Findings
from ..files import FileInfo
from ._layout import Bools, Layout
from ._read import NULL, Int64s, batches, numbers

_BATCH_ROWS = 1 << 19


@dataclass(frozen=True, slots=True)
class Rows:
    src: Int64s
    dst: Int64s
    msg: Int64s  # NULL: the row names none
    number: Int64s  # of the message; -1: it names none, or one that nobody multicast
    kind: list[str]


def check_wire(layout: Layout, findings: Findings, deliveries: int) -> None:
    claimed = [name for name in _CHECKS if name in layout.info.claims]
    files = layout.files.table("wire")
    for name in claimed:
        if files or not deliveries:
            findings.begin(name)
        else:
            findings.unknown(name, NO_WIRE)
    if claimed and files:
        who = _Who(layout)
        for rows in _read(layout, files):
            for name in claimed:
                _CHECKS[name](who, rows, findings)


def _read(layout: Layout, files: list[FileInfo]) -> Iterator[Rows]:
    ids = layout.ids[: layout.multicast_count]
    for file in files:
        for table in batches(file.path, ("src", "dst", "msg", "kind"), _BATCH_ROWS):
            msg = numbers(table, "msg", file.path, nullable=True)
            at = np.searchsorted(ids, msg)
            known = at < len(ids)
            known[known] = ids[at[known]] == msg[known]
            known &= msg != NULL
            src, dst = (numbers(table, name, file.path).astype(np.int64) for name in ("src", "dst"))
            yield Rows(src, dst, msg, np.where(known, at, -1), table.column("kind"))


class _Who:
    """Which processes and groups a message involves."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._members = np.array(sorted(layout.lane_of))
        self._lanes = np.array([layout.lane_of[process] for process in self._members.tolist()])
        self._lanes_of_lane: dict[int, Bools] = {}
        self._lanes_of_sender: dict[int, Bools] = {}
        self.senders = np.unique(layout.sender)

    def lane(self, process: Int64s) -> Int64s:
        """-1 for a client."""
        at = np.minimum(np.searchsorted(self._members, process), len(self._members) - 1)
        return np.where(self._members[at] == process, self._lanes[at], -1)

    def involves(self, number: Int64s, process: Int64s) -> Bools:
        """Element by element: does the message involve the process?"""
        layout = self.layout
        found: Bools = layout.sender[number] == process
        lane = self.lane(process)
        left = np.flatnonzero(~found)
        for nth in range(int(layout.sizes.max(initial=0))):
            left = left[layout.sizes[number[left]] > nth]
            hit = layout.dst[layout.dst_start[number[left]] + nth] == lane[left]
            found[left[hit]] = True
            left = left[~hit]
        return found

    def is_busy(self, process: Int64s) -> Bools:
        """Does any message involve the process?"""
        reached = np.zeros(len(self.layout.lanes) + 1, np.bool_)
        reached[self.layout.dst] = True
        reached[-1] = False  # clients
        return reached[self.lane(process)] | np.isin(process, self.senders)

    @cached_property
    def may_send(self) -> Bools:
        """may_send[x, h]: the group of lane x is in sendersTo of that of lane h, or is it."""
        lanes = {lane.id: lane.index for lane in self.layout.lanes}
        declared: dict[str, list[int]] = self.layout.info.extra["senders_to"]
        found = np.eye(len(lanes), dtype=np.bool_)
        for receiver, senders in declared.items():
            for sender in senders:
                found[lanes[int(sender)], lanes[int(receiver)]] = True
        return found

    def concerns(self, number: Int64s, process: Int64s) -> Bools:
        """Element by element: is the process the message's sender, or in a group that may send to a destination?"""
        layout = self.layout
        found: Bools = layout.sender[number] == process
        lane = self.lane(process)
        for nth in range(int(layout.sizes.max(initial=0))):
            rows = np.flatnonzero((layout.sizes[number] > nth) & (lane >= 0))
            found[rows] |= self.may_send[lane[rows], layout.dst[layout.dst_start[number[rows]] + nth]]
        return found

    def share_message(self, ends: tuple[int, int]) -> bool:
        """Does some message involve both?"""
        one, other = (int(lane) for lane in self.lane(np.array(ends)))
        if one >= 0 and other >= 0 and self._of_lane(one)[other]:
            return True
        if other >= 0 and self._of_sender(ends[0])[other]:
            return True
        return one >= 0 and bool(self._of_sender(ends[1])[one])

    def _of_lane(self, lane: int) -> Bools:
        if lane not in self._lanes_of_lane:
            self._lanes_of_lane[lane] = self._lanes_of(self.layout.lanes[lane].messages)
        return self._lanes_of_lane[lane]

    def _of_sender(self, sender: int) -> Bools:
        if sender not in self._lanes_of_sender:
            self._lanes_of_sender[sender] = self._lanes_of(np.flatnonzero(self.layout.sender == sender))
        return self._lanes_of_sender[sender]

    def _lanes_of(self, messages: Int64s) -> Bools:
        chosen = np.zeros(self.layout.multicast_count, np.bool_)
        chosen[messages] = True
        found = np.zeros(len(self.layout.lanes), np.bool_)
        found[self.layout.dst[np.repeat(chosen, self.layout.sizes)]] = True
        return found


def _check_genuine(who: _Who, rows: Rows, findings: Findings) -> None:
    named = np.flatnonzero(rows.msg != NULL)
    _report(who, "genuine", rows, named[~_is_involved(who, rows, named)], findings)
    silent = np.flatnonzero(rows.msg == NULL)
    src, dst = rows.src[silent], rows.dst[silent]
    lane = who.lane(src)
    crossing = silent[(src != dst) & ((lane != who.lane(dst)) | (lane < 0))]
    _, first = np.unique(rows.src[crossing] << 32 | rows.dst[crossing], return_index=True)
    for row in crossing[np.sort(first)].tolist():  # one row for each pair of ends
        if findings.is_full("genuine"):
            return
        ends = (int(rows.src[row]), int(rows.dst[row]))
        if not who.share_message(ends):
            findings.fail("genuine", [], ends, f"{_said(who, rows, row)}, and no message concerns both")


def _is_involved(who: _Who, rows: Rows, chosen: Int64s) -> Bools:
    """Both ends, of rows that name a message."""
    good = rows.number[chosen] >= 0
    known = chosen[good]
    number = rows.number[known]
    good[good] = who.involves(number, rows.src[known]) & who.involves(number, rows.dst[known])
    return good


def _check_quasi_genuine(who: _Who, rows: Rows, findings: Findings) -> None:
    if "senders_to" in who.layout.info.extra:
        _check_senders_to(who, rows, findings)
    else:
        idle = np.flatnonzero(~(who.is_busy(rows.src) & who.is_busy(rows.dst)))
        _report_idle(who, "quasi-genuine", rows, idle, findings)


def _check_senders_to(who: _Who, rows: Rows, findings: Findings) -> None:
    named = np.flatnonzero(rows.number >= 0)
    number = rows.number[named]
    concerned = who.concerns(number, rows.src[named]) & who.concerns(number, rows.dst[named])
    for row in named[~concerned][:VIOLATIONS_PER_PROPERTY].tolist():
        ends = [int(rows.src[row]), int(rows.dst[row])]
        message = np.array([rows.number[row]])
        strangers = [end for end in ends if not who.concerns(message, np.array([end]))[0]]
        about = f"{who.layout.message(int(rows.number[row]))}, which does not concern {who.layout.listed(strangers)}"
        findings.fail("quasi-genuine", [rows.msg[row]], ends, f"{_said(who, rows, row)} about {about}")
    silent = np.flatnonzero(rows.msg == NULL)
    src, dst = who.lane(rows.src[silent]), who.lane(rows.dst[silent])
    related = (src >= 0) & (dst >= 0) & (who.may_send[src, dst] | who.may_send[dst, src])
    for row in silent[~related][:VIOLATIONS_PER_PROPERTY].tolist():
        ends = [int(rows.src[row]), int(rows.dst[row])]
        what = f"{_said(who, rows, row)}, neither of which sends to the other"
        findings.fail("quasi-genuine", [], ends, what)


def _report_idle(who: _Who, name: str, rows: Rows, wrong: Int64s, findings: Findings) -> None:
    for row in wrong[:VIOLATIONS_PER_PROPERTY].tolist():
        ends = [int(rows.src[row]), int(rows.dst[row])]
        strangers = [end for end in dict.fromkeys(ends) if not who.is_busy(np.array([end]))[0]]
        what = f"{_said(who, rows, row)}, but no message concerns {who.layout.listed(strangers)}"
        findings.fail(name, [rows.msg[row]] if name == "minimality" else [], ends, what)


def _check_minimality(who: _Who, rows: Rows, findings: Findings) -> None:
    named = np.flatnonzero(rows.msg != NULL)
    good = who.is_busy(rows.src[named]) & who.is_busy(rows.dst[named])
    _report_idle(who, "minimality", rows, named[~good], findings)


def _check_partially_genuine(who: _Who, rows: Rows, findings: Findings) -> None:
    named = np.flatnonzero(rows.number >= 0)
    local = named[who.layout.sizes[rows.number[named]] == 1]
    _report(who, "partially-genuine", rows, local[~_is_involved(who, rows, local)], findings)


def _report(who: _Who, name: str, rows: Rows, wrong: Int64s, findings: Findings) -> None:
    for row in wrong[:VIOLATIONS_PER_PROPERTY].tolist():
        ends = [int(rows.src[row]), int(rows.dst[row])]
        number = int(rows.number[row])
        if number < 0:
            about = f"message {rows.msg[row]}, which nobody multicast"
        else:
            strangers = [end for end in dict.fromkeys(ends) if not who.involves(np.array([number]), np.array([end]))[0]]
            about = f"{who.layout.message(number)}, which does not concern {who.layout.listed(strangers)}"
        findings.fail(name, [rows.msg[row]], ends, f"{_said(who, rows, row)} about {about}")


def _said(who: _Who, rows: Rows, row: int) -> str:
    kind = rows.kind[row]
    word = kind.as_py() if hasattr(kind, "as_py") else kind
    return f"{who.layout.name(int(rows.src[row]))} sent {word} to {who.layout.name(int(rows.dst[row]))}"


_CHECKS: dict[str, Callable[[_Who, Rows, Findings], None]] = {
    "genuine": _check_genuine,
    "minimality": _check_minimality,
    "quasi-genuine": _check_quasi_genuine,
    "partially-genuine": _check_partially_genuine,
}
