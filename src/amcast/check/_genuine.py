"""Genuineness, from the wire: only a message's sender and its destinations take steps for it. And weaker promises.

- genuine: a row that names a message has both ends among that message's sender and the members of its destinations.
  A row that names none stays inside a group, or joins two ends that some one message involves both.
- minimality: both ends of a row that names a message are involved in some message of the run, not necessarily in this
  one. Rows that name none are upkeep, and are not judged.
- quasi-genuine: as the run's own `senders_to` settles it, if it declares one (see `_senders_to`). Otherwise only
  processes that some message of the run involves exchange anything at all.
- partially-genuine: a row that names a message to a single group has both ends among its sender and that group.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core import ProcessId
from ..trace import NULL
from ..trace.run import Int32s, Int64s
from ._history import Bools, History
from ._senders_to import check_by_senders_to
from .report import NO_WIRE, VIOLATIONS_PER_PROPERTY, Findings


def check_wire(history: History, findings: Findings) -> None:
    for name, check in _CHECKS.items():
        if name not in history.info.claims:
            continue
        if not len(history.run.wire) and len(history.run.deliveries):
            findings.unknown(name, NO_WIRE)
        else:
            findings.begin(name)
            check(history, findings)


def _check_genuine(history: History, findings: Findings) -> None:
    names_message = history.run.wire.msg != NULL
    named = np.flatnonzero(names_message)
    message, known = _messages_of(history, named)
    good = known.copy()
    good[known] = _are_involved(history, message[known], named[known])
    for row in named[~good][:VIOLATIONS_PER_PROPERTY]:
        _report_named(history, "genuine", int(row), findings)
    _check_unnamed(history, np.flatnonzero(~names_message), findings)


def _check_minimality(history: History, findings: Findings) -> None:
    wire = history.run.wire
    named = wire.msg != NULL
    for row in np.flatnonzero(named & ~_are_busy(history))[:VIOLATIONS_PER_PROPERTY].tolist():
        _report_idle(history, "minimality", [int(wire.msg[row])], row, findings)


def _check_quasi_genuine(history: History, findings: Findings) -> None:
    if "senders_to" in history.info.extra:
        check_by_senders_to(history, findings)
        return
    for row in np.flatnonzero(~_are_busy(history))[:VIOLATIONS_PER_PROPERTY].tolist():
        _report_idle(history, "quasi-genuine", [], row, findings)


def _are_busy(history: History) -> Bools:
    """For each row, whether some message involves its ends, each of them."""
    wire = history.run.wire
    return _is_busy(history, wire.src) & _is_busy(history, wire.dst)


def _report_idle(history: History, name: str, messages: list[int], row: int, findings: Findings) -> None:
    wire = history.run.wire
    ends = [int(wire.src[row]), int(wire.dst[row])]
    strangers = [end for end in dict.fromkeys(ends) if not _is_busy(history, np.array([end], np.int32))[0]]
    what = f"{_said(history, row)}, but no message concerns {history.names(strangers)}"
    findings.fail(name, messages, ends, what)


def _check_partially_genuine(history: History, findings: Findings) -> None:
    named = np.flatnonzero(history.run.wire.msg != NULL)
    message, known = _messages_of(history, named)
    local = np.flatnonzero(known)[history.sizes[message[known]] == 1]
    bad = local[~_are_involved(history, message[local], named[local])]
    for row in named[bad][:VIOLATIONS_PER_PROPERTY]:
        _report_named(history, "partially-genuine", int(row), findings)


def _messages_of(history: History, rows: Int64s) -> tuple[Int64s, Bools]:
    """The numbers of the messages that rows name, and whether they were multicast."""
    ids, wanted = history.ids[: history.multicast_count], history.run.wire.msg[rows]
    message = np.searchsorted(ids, wanted)
    known = message < len(ids)
    known[known] = ids[message[known]] == wanted[known]
    return message, known


def _are_involved(history: History, message: Int64s, rows: Int64s) -> Bools:
    """Both ends."""
    wire = history.run.wire
    return _is_involved(history, message, wire.src[rows]) & _is_involved(history, message, wire.dst[rows])


def _is_busy(history: History, process: Int32s) -> Bools:
    """Does any message involve the process?"""
    reached = np.zeros(len(history.groups) + 1, np.bool_)
    reached[history.dst] = True
    reached[-1] = False  # clients
    return reached[group_indexes(history, process)] | np.isin(process, history.sender)


def _is_involved(history: History, message: Int64s, process: Int32s) -> Bools:
    is_sender: Bools = history.sender[message] == process
    is_sender[~is_sender] = history.is_addressed(message[~is_sender], group_indexes(history, process[~is_sender]))
    return is_sender


def group_indexes(history: History, processes: Int32s) -> Int64s:
    """-1 for a client."""
    members = np.array(sorted(history.group_of))
    index = np.array([history.group_of[process].index for process in members.tolist()])
    at = np.minimum(np.searchsorted(members, processes), len(members) - 1)
    return np.where(members[at] == processes, index[at], -1)


def _report_named(history: History, name: str, row: int, findings: Findings) -> None:
    wire = history.run.wire
    msg, ends = int(wire.msg[row]), [int(wire.src[row]), int(wire.dst[row])]
    at = int(np.searchsorted(history.ids[: history.multicast_count], msg))
    is_known = at < history.multicast_count and history.ids[at] == msg
    said = _said(history, row)
    if not is_known:
        explanation = f"{said} about message {msg}, which nobody multicast"
    else:
        strangers = [end for end in dict.fromkeys(ends) if not _involves(history, at, end)]
        explanation = f"{said} about {history.message_name(at)}, which does not concern {history.names(strangers)}"
    findings.fail(name, [msg], ends, explanation)


def _said(history: History, row: int) -> str:
    wire = history.run.wire
    src, dst = history.name(int(wire.src[row])), history.name(int(wire.dst[row]))
    return f"{src} sent {wire.kinds[wire.kind[row]]} to {dst}"


def _involves(history: History, message: int, process: ProcessId) -> bool:
    return bool(_is_involved(history, np.array([message]), np.array([process], np.int32))[0])


def _check_unnamed(history: History, rows: Int64s, findings: Findings) -> None:
    wire = history.run.wire
    src, dst = wire.src[rows].astype(np.int64), wire.dst[rows].astype(np.int64)
    from_group, to_group = group_indexes(history, wire.src[rows]), group_indexes(history, wire.dst[rows])
    crossing = np.flatnonzero((src != dst) & ((from_group != to_group) | (from_group < 0)))
    _, first = np.unique(src[crossing] << 32 | dst[crossing], return_index=True)
    pairs = crossing[np.sort(first)]  # one row of each pair of ends, in the order of the table
    shared = _Shared(history)
    for at in pairs.tolist():
        if findings.is_full("genuine"):
            return
        ends = [int(src[at]), int(dst[at])]
        if not shared.message_of(ends, [int(from_group[at]), int(to_group[at])]):
            said = _said(history, int(rows[at]))
            findings.fail("genuine", [], ends, f"{said}, and no message concerns both")


class _Shared:
    """Which groups, and which senders and groups, some message joins."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._with_group: dict[int, Bools] = {}
        self._with_sender: dict[ProcessId, Bools] = {}

    def message_of(self, ends: list[ProcessId], groups: list[int]) -> bool:
        one, other = groups
        if one >= 0 and other >= 0 and self._groups_of_group(one)[other]:
            return True
        if other >= 0 and self._groups_of_sender(ends[0])[other]:
            return True
        return one >= 0 and bool(self._groups_of_sender(ends[1])[one])

    def _groups_of_group(self, group: int) -> Bools:
        if group not in self._with_group:
            self._with_group[group] = self._destinations(self._history.groups[group].messages)
        return self._with_group[group]

    def _groups_of_sender(self, sender: ProcessId) -> Bools:
        if sender not in self._with_sender:
            self._with_sender[sender] = self._destinations(np.flatnonzero(self._history.sender == sender))
        return self._with_sender[sender]

    def _destinations(self, messages: Int64s) -> Bools:
        """All groups that any of these messages is addressed to."""
        history = self._history
        chosen = np.zeros(history.multicast_count, np.bool_)
        chosen[messages] = True
        found = np.zeros(len(history.groups), np.bool_)
        found[history.dst[np.repeat(chosen, history.sizes)]] = True
        return found


_CHECKS: dict[str, Callable[[History, Findings], None]] = {
    "genuine": _check_genuine,
    "minimality": _check_minimality,
    "quasi-genuine": _check_quasi_genuine,
    "partially-genuine": _check_partially_genuine,
}
