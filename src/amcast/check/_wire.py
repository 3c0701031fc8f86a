"""Genuineness, from the wire: only a message's sender and its destinations take steps for it. And weaker promises.

- genuine: a row that names a message has both ends among that message's sender and the members of its destinations.
  A row that names none stays inside a group, or joins two ends that some one message involves both.
- minimality: both ends of a row that names a message are involved in some message of the run, not necessarily in this
  one. Rows that name none are upkeep, and are not judged.
- quasi-genuine: `senders_to` in run.json names, for each group, those that may send to it. A row that names a message
  has both ends among its sender, its destinations, and the groups that may send to one of these. A row that names none
  stays inside a group, or joins a group and one that may send to it. Without `senders_to` in run.json, only processes
  that some message of the run involves exchange anything at all.
- partially-genuine: a row that names a message to a single group has both ends among its sender and that group.

The wire is the largest table of a run: it is read and judged part by part. Most findings are that
no message explains a row. If multicasts are missing from the run, one of those may explain it: then only rows about a
known message are judged.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core import ProcessId
from ..trace import NULL
from ..trace.run import Int64s
from ..trace.schema import UNKNOWN
from ._involved import Involved
from ._messages import Bools, MessageIndex
from .report import NO_SENDERS, NO_WIRE, VIOLATIONS_PER_PROPERTY, Findings
from .source import RunSource, WireColumns


def check_wire(index: MessageIndex, source: RunSource, findings: Findings) -> None:
    claimed = [name for name in _CHECKS if name in index.info.claims]
    if (index.sender == UNKNOWN).any():  # whoever spoke of a message may be its sender
        for name in claimed:
            findings.unknown(name, NO_SENDERS)
        return
    for name in claimed:
        if source.wire_rows or not source.delivery_rows:
            findings.begin(name)
        else:
            findings.unknown(name, NO_WIRE)
    judged = [name for name in claimed if not index.info.missing or name in _OF_A_KNOWN_MESSAGE]
    if judged and source.wire_rows:
        wire = _Wire(index, findings)
        for rows in source.wire():
            wire.take(rows)
            for name in judged:
                _CHECKS[name](wire)


class _Wire:
    """The rows that are judged now, and what is known about the whole run."""

    def __init__(self, index: MessageIndex, findings: Findings) -> None:
        self.index = index
        self.findings = findings
        self.involved = Involved(index)
        self.asked: set[tuple[ProcessId, ProcessId]] = set()  # ends of unnamed rows whose answer is known

    def take(self, rows: WireColumns) -> None:
        self.src, self.dst, self.msg, self.kind = rows.src, rows.dst, rows.msg, rows.kind
        is_named = rows.msg != NULL
        self.named, self.unnamed = np.flatnonzero(is_named), np.flatnonzero(~is_named)
        ids, wanted = self.index.ids[: self.index.multicast_count], rows.msg[self.named]
        at = np.searchsorted(ids, wanted)
        known = at < len(ids)
        known[known] = ids[at[known]] == wanted[known]
        self.message = np.full(len(rows.msg), -1)  # -1: it names none, or one that nobody multicast
        self.message[self.named[known]] = at[known]
        self.known = self.named[known]

    def both(self, test: Callable[[Int64s, Int64s], Bools], rows: Int64s) -> Bools:
        """For rows that name a known message: whether a test of message and process holds at both ends."""
        message = self.message[rows]
        return test(message, self.src[rows]) & test(message, self.dst[rows])

    def are_busy(self, rows: Int64s) -> Bools:
        """For rows: whether messages of the run involve both ends, the same message or two."""
        return self.involved.by_any(self.src[rows]) & self.involved.by_any(self.dst[rows])

    def ends(self, row: int) -> list[ProcessId]:
        return [int(self.src[row]), int(self.dst[row])]

    def said(self, row: int) -> str:
        src, dst = (self.index.name(end) for end in self.ends(row))
        return f"{src} sent {self.kind(row)} to {dst}"

    def report(self, name: str, row: int, messages: list[int], what: str) -> None:
        self.findings.fail(name, messages, self.ends(row), f"{self.said(row)}{what}")

    def report_named(self, name: str, row: int, test: Callable[[Int64s, Int64s], Bools]) -> None:
        """The row is about a message that does not concern one end, or both, by this test."""
        message, msg = int(self.message[row]), int(self.msg[row])
        if message < 0:
            self.report(name, row, [msg], f" about {self.index.name_of(msg)}, which nobody multicast")
            return
        ends = dict.fromkeys(self.ends(row))
        strangers = [end for end in ends if not test(np.array([message]), np.array([end]))[0]]
        about = f" about {self.index.message_name(message)}, which does not concern"
        self.report(name, row, [msg], f"{about} {self.index.names(strangers)}")

    def report_idle(self, name: str, row: int, messages: list[int]) -> None:
        ends = dict.fromkeys(self.ends(row))
        strangers = [end for end in ends if not self.involved.by_any(np.array([end]))[0]]
        self.report(name, row, messages, f", but no message concerns {self.index.names(strangers)}")


def _check_genuine(wire: _Wire) -> None:
    if wire.index.info.missing:
        wrong = wire.known[~wire.both(wire.involved.by, wire.known)]
    else:
        good = wire.message[wire.named] >= 0
        good[good] = wire.both(wire.involved.by, wire.known)
        wrong = wire.named[~good]
    for row in _first(wrong):
        wire.report_named("genuine", row, wire.involved.by)
    if not wire.index.info.missing:
        _check_unnamed(wire)


def _check_unnamed(wire: _Wire) -> None:
    src, dst = wire.src[wire.unnamed], wire.dst[wire.unnamed]
    group = wire.involved.group(src)
    crossing = np.flatnonzero((src != dst) & ((group != wire.involved.group(dst)) | (group < 0)))
    for at in crossing[_first_of_pairs(src[crossing], dst[crossing])].tolist():
        if wire.findings.is_full("genuine"):
            return
        ends = (int(src[at]), int(dst[at]))
        if ends not in wire.asked and not wire.involved.both(*ends):
            wire.report("genuine", int(wire.unnamed[at]), [], ", and no message concerns both")
        wire.asked.add(ends)


def _check_minimality(wire: _Wire) -> None:
    for row in _first(wire.named[~wire.are_busy(wire.named)]):
        wire.report_idle("minimality", row, [int(wire.msg[row])])


def _check_quasi_genuine(wire: _Wire) -> None:
    if "senders_to" in wire.index.info.extra:
        _check_senders_to(wire)
        return
    for row in _first(np.flatnonzero(~wire.are_busy(np.arange(len(wire.msg))))):
        wire.report_idle("quasi-genuine", row, [])


def _check_senders_to(wire: _Wire) -> None:
    """A row about a message that nobody multicast is passed over: that is for integrity to find."""
    for row in _first(wire.known[~wire.both(wire.involved.concerned, wire.known)]):
        wire.report_named("quasi-genuine", row, wire.involved.concerned)
    src, dst = (wire.involved.group(ends[wire.unnamed]) for ends in (wire.src, wire.dst))
    may_send = wire.involved.may_send
    related = (src >= 0) & (dst >= 0) & (may_send[src, dst] | may_send[dst, src])
    for row in _first(wire.unnamed[~related]):
        wire.report("quasi-genuine", row, [], ", neither of which sends to the other")


def _check_partially_genuine(wire: _Wire) -> None:
    local = wire.known[wire.index.sizes[wire.message[wire.known]] == 1]
    for row in _first(local[~wire.both(wire.involved.by, local)]):
        wire.report_named("partially-genuine", row, wire.involved.by)


def _first_of_pairs(src: Int64s, dst: Int64s) -> Int64s:
    """The first row of each pair of ends, in the order of the table."""
    ends, number = np.unique(np.concatenate((src, dst)), return_inverse=True)  # two ids need not fit into 64 bits
    _, first = np.unique(number[: len(src)] * len(ends) + number[len(src) :], return_index=True)
    return np.sort(first)


def _first(rows: Int64s) -> list[int]:
    few: list[int] = rows[:VIOLATIONS_PER_PROPERTY].tolist()
    return few


_CHECKS: dict[str, Callable[[_Wire], None]] = {
    "genuine": _check_genuine,
    "minimality": _check_minimality,
    "quasi-genuine": _check_quasi_genuine,
    "partially-genuine": _check_partially_genuine,
}
_OF_A_KNOWN_MESSAGE = ("genuine", "partially-genuine")
