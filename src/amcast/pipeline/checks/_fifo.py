"""FIFO order: the messages of a sender come in the order of their sequence numbers in every log, none left out."""

from __future__ import annotations

import numpy as np

from ...check.report import Findings
from ._layout import Layout
from ._replicas import Replica, Replicas


def check_fifo(layout: Layout, groups: list[Replicas], findings: Findings) -> None:
    if "fifo" not in layout.info.claims:
        return
    findings.begin("fifo")
    for group in groups:
        for member in [group.longest, *(member for member, _ in group.diverging())]:
            _check_log(layout, group, member, findings)


def _check_log(layout: Layout, group: Replicas, member: Replica, findings: Findings) -> None:
    """The n-th message of a sender in the log must have the n-th number that it sent to this group."""
    sent, log = group.lane.messages, member.ordered
    sent = sent[np.lexsort((layout.seq[sent], layout.sender[sent]))]
    by_sender = np.argsort(layout.sender[log], kind="stable")
    sender = layout.sender[log[by_sender]]
    nth = np.arange(len(log)) - np.searchsorted(sender, sender)
    expected = sent[np.searchsorted(layout.sender[sent], sender) + nth]
    wrong = np.flatnonzero(layout.seq[expected] != layout.seq[log[by_sender]])
    if not len(wrong):
        return
    first = wrong[np.argmin(by_sender[wrong])]
    at = int(by_sender[first])
    due = int(expected[first])
    # The messages with the number that was due: one of them is not among what was delivered so far.
    equal = sent[(layout.sender[sent] == layout.sender[due]) & (layout.seq[sent] == layout.seq[due])]
    skipped = int(np.setdiff1d(equal, log[:at])[0])
    how = "before" if (log == skipped).any() else "without"
    done = f"{layout.name(member.process)} delivered {layout.message(int(log[at]))} {how} {layout.message(skipped)}"
    what = f"{done}, which {layout.name(int(layout.sender[skipped]))} had multicast earlier"
    findings.fail("fifo", [layout.id_of(skipped), layout.id_of(int(log[at]))], [member.process], what)
