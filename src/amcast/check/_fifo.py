"""FIFO order: in each log the messages of a sender come in the order of their sequence numbers, none left
out."""

from __future__ import annotations

import numpy as np

from ..trace.run import Int64s
from ._history import History
from ._replicas import Replica, Replicas
from .report import Findings


def check_fifo(history: History, groups: list[Replicas], findings: Findings) -> None:
    if "fifo" not in history.info.claims:
        return
    findings.begin("fifo")
    seq = history.run.multicasts.client_seq[history.row]
    for group in groups:
        for replica in group.to_judge():
            _check_log(history, group, replica, seq, findings)


def _check_log(history: History, group: Replicas, replica: Replica, seq: Int64s, findings: Findings) -> None:
    """The n-th message of a sender in the log must be the n-th that it sent to this group."""
    sent = group.group.messages
    sent = sent[np.lexsort((seq[sent], history.sender[sent]))]
    log = replica.ordered
    by_sender = np.argsort(history.sender[log], kind="stable")
    sender = history.sender[log][by_sender]
    nth = np.arange(len(log)) - np.searchsorted(sender, sender)
    expected = sent[np.searchsorted(history.sender[sent], sender) + nth]
    # Numbers are compared, not messages: two messages with one number may come in any order.
    wrong = np.flatnonzero(seq[expected] != seq[log][by_sender])
    if not len(wrong):
        return
    row = wrong[np.argmin(by_sender[wrong])]
    at = int(by_sender[row])
    delivered = int(log[at])
    skipped = _skipped(sent, seq, history, log[:at], int(expected[row]))
    how = "before" if skipped in log else "without"
    sender_name = history.name(int(history.sender[delivered]))
    names = history.message_name(delivered), history.message_name(skipped)
    findings.fail(
        "fifo",
        [history.id_of(skipped), history.id_of(delivered)],
        [replica.process],
        f"{history.name(replica.process)} delivered {names[0]} {how} {names[1]},"
        f" which {sender_name} had multicast earlier",
    )


def _skipped(sent: Int64s, seq: Int64s, history: History, delivered: Int64s, expected: int) -> int:
    same = sent[(history.sender[sent] == history.sender[expected]) & (seq[sent] == seq[expected])]
    return int(np.setdiff1d(same, delivered)[0])
