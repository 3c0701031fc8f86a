"""What was delivered where: positions, integrity, validity, agreement, and replicas with one log."""

from __future__ import annotations

import numpy as np

from ..trace import FINAL
from ..trace.run import Int64s
from ._history import History, Log
from ._replicas import Replica, Replicas, excused_gaps, first_difference
from .report import CUT_SHORT, VIOLATIONS_PER_PROPERTY, Findings, listing


def check_positions(history: History, groups: list[Replicas], findings: Findings) -> None:
    """Each log is numbered 0, 1, 2... After one lost row all others look wrong: only the first counts."""
    findings.begin("positions")
    for log in history.logs:
        _check_numbering(history, log, findings)
    for replica in (replica for group in groups for replica in group.members if replica.lost is not None):
        name = history.name(replica.process)
        findings.fail(
            "positions",
            [],
            [replica.process],
            f"{name} was handed state over position {replica.lost}, which no replica of its group delivered",
        )


def _check_numbering(history: History, log: Log, findings: Findings) -> None:
    if log.pos[0] == 0 and log.pos[-1] == len(log) - 1 and (np.diff(log.pos) == 1).all():
        return
    before = np.concatenate(([-1], log.pos[:-1]))
    wrong = log.pos != before + 1
    restored = history.run.restored.get(log.process, ()) if log.kind == FINAL else ()
    if restored:
        wrong &= ~np.isin(log.pos, [stop for _, stop in excused_gaps(log, restored)])
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    name, here = history.name(log.process), history.message_name(int(log.message[row]))
    position, previous = int(log.pos[row]), int(before[row])
    if position == previous:
        other = history.message_name(int(log.message[row - 1]))
        what = f"{name} delivered two messages at position {position}: {other} and {here}"
    elif row == 0:
        what = f"the log of {name} begins at position {position} with {here}, not at 0"
    else:
        what = f"the log of {name} goes from position {previous} to {position}, where {here} is"
    findings.fail("positions", [history.id_of(int(log.message[row]))], [log.process], what)


def check_integrity(history: History, findings: Findings) -> None:
    findings.begin("integrity")
    _check_ids(history, findings)
    for log in history.logs:
        _check_addressed(history, log, findings)
        _check_once(history, log, findings)
        _check_group_column(history, log, findings)


def _check_ids(history: History, findings: Findings) -> None:
    rows = history.run.multicasts
    if len(rows) == history.multicast_count:
        return
    ids, counts = np.unique(rows.msg, return_counts=True)
    for message in np.flatnonzero(counts > 1)[:VIOLATIONS_PER_PROPERTY]:
        name = history.message_name(int(message))
        what = f"{name} was multicast {counts[message]} times: an id must name one message"
        findings.fail("integrity", [int(ids[message])], [int(history.sender[message])], what)


def _check_addressed(history: History, log: Log, findings: Findings) -> None:
    for row in np.flatnonzero(log.slot < 0)[:VIOLATIONS_PER_PROPERTY]:
        message = int(log.message[row])
        name, process = history.message_name(message), history.name(log.process)
        if message >= history.multicast_count:
            what = f"{process} delivered {name}, which nobody multicast"
        else:
            what = f"{process} delivered {name}, which was multicast to {destinations(history, message)} only"
        findings.fail("integrity", [history.id_of(message)], [log.process], what)


def _check_once(history: History, log: Log, findings: Findings) -> None:
    addressed = log.slot[log.slot >= 0]
    if not len(addressed) or np.bincount(addressed).max() == 1:
        return
    messages, first, counts = np.unique(log.message, return_index=True, return_counts=True)
    repeated = np.flatnonzero(counts > 1)
    for which in repeated[np.argsort(first[repeated])][:VIOLATIONS_PER_PROPERTY]:
        message = int(messages[which])
        name, process = history.message_name(message), history.name(log.process)
        positions = [str(position) for position in log.pos[log.message == message].tolist()]
        what = f"{process} delivered {name} {counts[which]} times, at positions {listing(positions)}"
        findings.fail("integrity", [history.id_of(message)], [log.process], what)


def _check_group_column(history: History, log: Log, findings: Findings) -> None:
    if log.group is None:
        return
    claimed = history.run.deliveries.grp[log.start : log.stop]
    wrong = claimed != log.group.id
    if wrong.any():
        row = int(np.argmax(wrong))
        message = int(log.message[row])
        done = f"{history.name(log.process)} delivered {history.message_name(message)}"
        what = f"{done} as a member of g{claimed[row]}, which it is not"
        findings.fail("integrity", [history.id_of(message)], [log.process], what)


def check_validity_and_agreement(history: History, groups: list[Replicas], findings: Findings) -> None:
    """Both ask what is missing at correct destinations: of what was multicast, and of what was delivered."""
    if not history.complete:
        findings.unknown("validity", CUT_SHORT)
        findings.unknown("agreement", CUT_SHORT)
        return
    findings.begin("validity")
    findings.begin("agreement")
    delivered = np.zeros(len(history.ids), np.bool_)
    delivered[history.message[history.run.deliveries.kind == FINAL]] = True
    missing: dict[int, list[int]] = {}
    for group in groups:
        for replica in group.members:
            if replica.process in history.correct:
                for message in _missing_at(group, replica).tolist():
                    missing.setdefault(message, []).append(replica.process)
    # In the order of the multicasts table, which is that of time.
    for message in sorted(missing, key=lambda message: int(history.row[message])):
        if history.sender_is_correct[message]:
            _report_lost(history, message, missing[message], findings)
        if delivered[message]:
            _report_disagreement(history, message, missing[message], findings)


def _missing_at(group: Replicas, replica: Replica) -> Int64s:
    expected = group.group.messages
    if len(replica.ordered) == len(expected):
        return expected[:0]  # all different and all addressed: as many as there are is all of them
    held = np.zeros(len(expected), np.bool_)
    held[replica.slots[replica.slots >= 0]] = True
    return expected[~held]


def _report_lost(history: History, message: int, missing: list[int], findings: Findings) -> None:
    if not findings.is_full("validity"):
        sender = history.name(int(history.sender[message]))
        what = f"{sender} multicast {history.message_name(message)} to {destinations(history, message)}"
        explanation = f"{what}, but {history.names(missing)} never delivered it"
        findings.fail("validity", [history.id_of(message)], missing, explanation)


def _report_disagreement(history: History, message: int, missing: list[int], findings: Findings) -> None:
    if not findings.is_full("agreement"):
        rows = history.run.deliveries
        witness = int(rows.process[np.argmax((history.message == message) & (rows.kind == FINAL))])
        what = f"{history.name(witness)} delivered {history.message_name(message)}"
        explanation = f"{what}, but {history.names(missing)} never did"
        findings.fail("agreement", [history.id_of(message)], [witness, *missing], explanation)


def destinations(history: History, message: int) -> str:
    groups = history.dst[history.dst_start[message] : history.dst_start[message + 1]].tolist()
    return listing([f"g{history.groups[group].id}" for group in groups], limit=8)


def check_replicas(history: History, groups: list[Replicas], findings: Findings) -> None:
    findings.begin("replicas")
    for group in groups:
        longest = max(group.members, key=lambda replica: len(replica.held))
        for replica in group.members:
            _check_same_log(history, replica, longest, findings)
        if history.complete:
            _check_same_end(history, group, findings)


def _check_same_log(history: History, replica: Replica, longest: Replica, findings: Findings) -> None:
    at = first_difference(replica.held, longest.held)
    if at is None:
        return
    here, there = int(replica.held[at]), int(longest.held[at])
    one = f"{history.name(replica.process)} delivered {history.message_name(here)} at position {at}"
    other = f"{history.name(longest.process)} delivered {history.message_name(there)}"
    messages = [history.id_of(here), history.id_of(there)]
    findings.fail("replicas", messages, [replica.process, longest.process], f"{one}, where {other}")


def _check_same_end(history: History, group: Replicas, findings: Findings) -> None:
    """Nothing will come any more: a correct replica that is behind another one stays behind."""
    correct = [replica for replica in group.members if replica.process in history.correct]
    if not correct:
        return
    longest = max(correct, key=lambda replica: len(replica.held))
    for replica in correct:
        end = len(replica.held)
        if end < len(longest.held) and first_difference(replica.held, longest.held) is None:
            message = int(longest.held[end])
            one = f"{history.name(replica.process)} delivered {end} messages and then nothing"
            other = f"{history.name(longest.process)} went on with {history.message_name(message)}"
            messages = [history.id_of(message)]
            findings.fail("replicas", messages, [replica.process, longest.process], f"{one}, while {other}")
