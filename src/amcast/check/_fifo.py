"""FIFO order: each process delivers the messages of a sender in the order of their sequence numbers, none left out."""

from __future__ import annotations

import numpy as np

from ..trace.schema import UNKNOWN
from ._index import RunIndex
from ._replicas import Replica, Replicas
from .report import NO_NUMBERS, Findings


def check_fifo(index: RunIndex, groups: list[Replicas], findings: Findings) -> None:
    if "fifo" not in index.info.claims:
        return
    if ((index.seq == UNKNOWN) | (index.sender == UNKNOWN)).any():
        findings.unknown("fifo", NO_NUMBERS)
        return
    findings.begin("fifo")
    for group in groups:
        for replica in group.to_judge():
            _check_replica(index, group, replica, findings)


def _check_replica(index: RunIndex, group: Replicas, replica: Replica, findings: Findings) -> None:
    """The n-th message of a sender that the replica delivered must be the n-th that it sent to this group."""
    seq, senders, delivered = index.seq, index.sender, replica.ordered
    sent = group.group.messages
    sent = sent[np.lexsort((seq[sent], senders[sent]))]
    by_sender = np.argsort(senders[delivered], kind="stable")
    sender = senders[delivered][by_sender]
    nth = np.arange(len(delivered)) - np.searchsorted(sender, sender)
    expected = sent[np.searchsorted(senders[sent], sender) + nth]
    # Numbers are compared, not messages: two messages with one number may come in any order.
    wrong = np.flatnonzero(seq[expected] != seq[delivered][by_sender])
    if not len(wrong):
        return
    row = wrong[np.argmin(by_sender[wrong])]
    at = int(by_sender[row])
    message, due = int(delivered[at]), int(expected[row])
    # Several messages may have the number that was due: one of them was not delivered before.
    same = sent[(senders[sent] == senders[due]) & (seq[sent] == seq[due])]
    skipped = int(np.setdiff1d(same, delivered[:at])[0])
    how = "before" if (delivered == skipped).any() else "without"
    one, other = index.message_name(message), index.message_name(skipped)
    what = f"{index.name(replica.process)} delivered {one} {how} {other}"
    earlier = f"which {index.name(int(senders[message]))} had multicast earlier"
    findings.fail("fifo", [index.id_of(skipped), index.id_of(message)], [replica.process], f"{what}, {earlier}")
