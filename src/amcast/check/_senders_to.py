"""Quasi-genuineness, from the wire: who takes steps for a message is settled by sendersTo, not by the message alone.

`senders_to` in run.json names, for each group, those that may send to it. A row that names a message must have both
ends among its sender, its destinations, and the groups that may send to one of these. A row that names none must stay
inside a group, or join a group and one that may send to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..trace import NULL
from ..trace.run import Int32s, Int64s
from ._history import Bools, History
from .report import Findings


def check_by_senders_to(history: History, findings: Findings) -> None:
    wire = history.run.wire
    may_send = _relation(history)
    src, dst = (_group_indexes(history, ends) for ends in (wire.src, wire.dst))
    is_named = wire.msg != NULL
    _check_named(history, np.flatnonzero(is_named), may_send, (src, dst), findings)
    _check_unnamed(history, np.flatnonzero(~is_named), may_send, (src, dst), findings)


def _relation(history: History) -> Bools:
    """may_send[x, h]: x is in sendersTo(h), or is h itself."""
    count = len(history.groups)
    declared: dict[str, Any] = history.info.extra["senders_to"]
    index = {group.id: group.index for group in history.groups}
    may_send = np.eye(count, dtype=np.bool_)
    for receiver, senders in declared.items():
        for sender in senders:
            may_send[index[int(sender)], index[int(receiver)]] = True
    return may_send


def _group_indexes(history: History, processes: Int32s) -> Int64s:
    """-1 for a client."""
    ids, inverse = np.unique(processes, return_inverse=True)
    groups = [history.group_of.get(process) for process in ids.tolist()]
    return np.array([-1 if group is None else group.index for group in groups], np.int64)[inverse]


def _check_named(
    history: History, rows: Int64s, may_send: Bools, groups: tuple[Int64s, Int64s], findings: Findings
) -> None:
    wire = history.run.wire
    ids = history.ids[: history.multicast_count]
    concerned: dict[int, Bools] = {}
    for row in rows.tolist():
        at = int(np.searchsorted(ids, wire.msg[row]))
        if at == len(ids) or ids[at] != wire.msg[row]:
            continue  # integrity's business
        if at not in concerned:
            receivers = history.dst[history.dst_start[at] : history.dst_start[at + 1]]
            concerned[at] = np.logical_or.reduce(may_send[:, receivers], axis=1)
        ends = [int(wire.src[row]), int(wire.dst[row])]
        strangers = [
            end
            for end, group in zip(ends, (int(groups[0][row]), int(groups[1][row])), strict=True)
            if end != history.sender[at] and (group < 0 or not concerned[at][group])
        ]
        if strangers:
            what = f"{_said(history, row)} about {history.message_name(at)}, which does not concern"
            findings.fail("quasi-genuine", [history.id_of(at)], ends, f"{what} {history.names(strangers)}")


def _check_unnamed(
    history: History, rows: Int64s, may_send: Bools, groups: tuple[Int64s, Int64s], findings: Findings
) -> None:
    wire = history.run.wire
    src, dst = groups[0][rows], groups[1][rows]
    is_client = (src < 0) | (dst < 0)
    related = may_send[src, dst] | may_send[dst, src]
    for row in rows[is_client | ~related].tolist():
        if findings.is_full("quasi-genuine"):
            return
        ends = [int(wire.src[row]), int(wire.dst[row])]
        what = "neither of which sends to the other"
        findings.fail("quasi-genuine", [], ends, f"{_said(history, row)}, {what}")


def _said(history: History, row: int) -> str:
    wire = history.run.wire
    names = history.name(int(wire.src[row])), history.name(int(wire.dst[row]))
    return f"{names[0]} sent {wire.kinds[wire.kind[row]]} to {names[1]}"
