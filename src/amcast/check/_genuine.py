"""Genuineness, from the wire: only a message's sender and its destinations take steps for it.

A row that names a message must have both ends among that message's sender and the members of its
destinations. A row that names none must stay inside a group, or join two ends that some one message
involves both.
"""

from __future__ import annotations

import numpy as np

from ..core import ProcessId
from ..trace import NULL
from ..trace.run import Int32s, Int64s
from ._history import Bools, History
from .report import VIOLATIONS_PER_PROPERTY, Findings


def check_genuine(history: History, findings: Findings) -> None:
    if "genuine" not in history.info.claims:
        return
    wire = history.run.wire
    if not len(wire) and len(history.run.deliveries):
        findings.unknown("genuine", "the wire was not recorded: nobody can say who spoke to whom")
        return
    findings.begin("genuine")
    names_message = wire.msg != NULL
    check_named(history, "genuine", np.flatnonzero(names_message), findings)
    _check_unnamed(history, np.flatnonzero(~names_message), findings)


def check_named(history: History, name: str, rows: Int64s, findings: Findings) -> None:
    """Rows that name a message: both ends are its sender or a member of a destination."""
    wire = history.run.wire
    ids = history.ids[: history.multicast_count]
    message = np.searchsorted(ids, wire.msg[rows])
    known = message < len(ids)
    known[known] = ids[message[known]] == wire.msg[rows[known]]
    good = np.zeros(len(rows), np.bool_)
    for_message, known_rows = message[known], rows[known]
    good[known] = _is_involved(history, for_message, wire.src[known_rows]) & _is_involved(
        history, for_message, wire.dst[known_rows]
    )
    for row in rows[~good][:VIOLATIONS_PER_PROPERTY]:
        _report_named(history, name, int(row), findings)


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
    said = f"{history.name(ends[0])} sent {wire.kinds[wire.kind[row]]} to {history.name(ends[1])}"
    if not is_known:
        explanation = f"{said} about message {msg}, which nobody multicast"
    else:
        strangers = [end for end in dict.fromkeys(ends) if not _involves(history, at, end)]
        explanation = f"{said} about {history.message_name(at)}, which does not concern {history.names(strangers)}"
    findings.fail(name, [msg], ends, explanation)


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
            said = f"{history.name(ends[0])} sent {wire.kinds[wire.kind[rows[at]]]} to {history.name(ends[1])}"
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
