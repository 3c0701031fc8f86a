"""Positions, integrity, validity, agreement, and replicas with one log: what was delivered, where and how often."""

from __future__ import annotations

import numpy as np

from ...check.report import CUT_SHORT, VIOLATIONS_PER_PROPERTY, Findings
from ...trace.schema import FINAL
from ._layout import Layout, Log
from ._read import Int64s
from ._replicas import Replica, Replicas, excused_gaps, first_difference

# ---------------------------------------------------------------------------------------------- positions


def check_positions(layout: Layout, groups: list[Replicas], findings: Findings) -> None:
    """Each log is numbered 0, 1, 2... After one lost row all others look wrong: only the first is named."""
    findings.begin("positions")
    for log in layout.logs:
        if log.given_pos is not None:
            _check_numbering(layout, log, log.given_pos, findings)
    for member in (member for group in groups for member in group.members):
        if member.lost is not None:
            what = f"was handed state over position {member.lost}, which no replica of its group delivered"
            findings.fail("positions", [], [member.process], f"{layout.name(member.process)} {what}")


def _check_numbering(layout: Layout, log: Log, pos: Int64s, findings: Findings) -> None:
    before = np.concatenate(([-1], pos[:-1]))
    wrong = pos != before + 1
    if log.kind == FINAL and log.process in layout.restored:
        wrong &= ~np.isin(pos, [stop for _, stop in excused_gaps(log, layout.restored[log.process])])
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    name, here, at = layout.name(log.process), layout.message(int(log.number[row])), int(pos[row])
    if row and at == before[row]:
        what = f"{name} delivered {layout.message(int(log.number[row - 1]))} and {here}, both at position {at}"
    elif row:
        what = f"{name} delivered {here} at position {at}, right after position {before[row]}"
    else:
        what = f"the first delivery of {name}, {here}, is at position {at} instead of 0"
    findings.fail("positions", [log.msg[row]], [log.process], what)


# ---------------------------------------------------------------------------------------------- integrity


def check_integrity(layout: Layout, findings: Findings) -> None:
    findings.begin("integrity")
    for message, count in layout.doubled[:VIOLATIONS_PER_PROPERTY]:
        number = int(np.searchsorted(layout.ids[: layout.multicast_count], message))
        what = f"{layout.message(number)} was multicast {count} times: an id must name one message"
        findings.fail("integrity", [message], [layout.sender[number]], what)
    for log in layout.logs:
        if not log.addressed.all():
            _report_misplaced(layout, log, findings)
        if len(log) and np.bincount(log.number).max() > 1:
            _report_repeated(layout, log, findings)
        if log.stray_group is not None:
            row, group = log.stray_group
            done = f"{layout.name(log.process)} delivered {layout.message(int(log.number[row]))}"
            what = f"{done} as a member of g{group}, which it is not"
            findings.fail("integrity", [log.msg[row]], [log.process], what)


def _report_misplaced(layout: Layout, log: Log, findings: Findings) -> None:
    for row in np.flatnonzero(~log.addressed)[:VIOLATIONS_PER_PROPERTY].tolist():
        number = int(log.number[row])
        done = f"{layout.name(log.process)} delivered {layout.message(number)}"
        if number >= layout.multicast_count:
            why = "which nobody multicast"
        else:
            why = f"which was multicast to {layout.destinations(number)} only"
        findings.fail("integrity", [log.msg[row]], [log.process], f"{done}, {why}")


def _report_repeated(layout: Layout, log: Log, findings: Findings) -> None:
    messages, counts = np.unique(log.number, return_counts=True)
    for number, count in zip(messages[counts > 1][:VIOLATIONS_PER_PROPERTY], counts[counts > 1], strict=False):
        at = log.pos[np.flatnonzero(log.number == number)[:2]].tolist()
        done = f"{layout.name(log.process)} delivered {layout.message(int(number))} {count} times"
        what = f"{done}, first at positions {at[0]} and {at[1]}"
        findings.fail("integrity", [layout.id_of(int(number))], [log.process], what)


# ---------------------------------------------------------------------------------- validity and agreement


def check_validity_and_agreement(layout: Layout, groups: list[Replicas], findings: Findings) -> None:
    """Both ask what correct destinations lack: of what was multicast, and of what was delivered anywhere."""
    if not layout.complete:
        findings.unknown("validity", CUT_SHORT)
        findings.unknown("agreement", CUT_SHORT)
        return
    findings.begin("validity")
    findings.begin("agreement")
    missing = _missing(layout, groups)
    if not missing:
        return
    candidates = np.unique(np.concatenate(list(missing.values())))
    candidates = candidates[np.argsort(layout.row[candidates])]  # by the time of their multicast
    is_due = ~np.isin(layout.sender[candidates], sorted(layout.faulty))
    for number in candidates[is_due][:VIOLATIONS_PER_PROPERTY].tolist():
        _report_lost(layout, number, _who_lacks(missing, number), findings)
    was_delivered = np.zeros(len(layout.ids), np.bool_)
    for log in layout.logs:
        if log.kind == FINAL:
            was_delivered[log.number] = True
    for number in candidates[was_delivered[candidates]][:VIOLATIONS_PER_PROPERTY].tolist():
        _report_disagreement(layout, number, _who_lacks(missing, number), findings)


def _missing(layout: Layout, groups: list[Replicas]) -> dict[int, Int64s]:
    """For each correct process that lacks something: what it lacks, ascending."""
    missing: dict[int, Int64s] = {}
    for group in groups:
        expected = group.lane.messages
        for member in group.members:
            if member.process in layout.correct and len(member.ordered) < len(expected):
                held = np.zeros(len(layout.ids), np.bool_)
                held[member.held] = True
                missing[member.process] = expected[~held[expected]]
    return missing


def _who_lacks(missing: dict[int, Int64s], number: int) -> list[int]:
    return [process for process, lacked in missing.items() if (lacked == number).any()]


def _report_lost(layout: Layout, number: int, processes: list[int], findings: Findings) -> None:
    sent = f"{layout.name(int(layout.sender[number]))} multicast {layout.message(number)}"
    what = f"{sent} to {layout.destinations(number)}, but {layout.listed(processes)} never delivered it"
    findings.fail("validity", [layout.id_of(number)], processes, what)


def _report_disagreement(layout: Layout, number: int, processes: list[int], findings: Findings) -> None:
    witness = next(log.process for log in layout.logs if log.kind == FINAL and (log.number == number).any())
    done = f"{layout.name(witness)} delivered {layout.message(number)}"
    what = f"{done}, but {layout.listed(processes)} never did"
    findings.fail("agreement", [layout.id_of(number)], [witness, *processes], what)


# ------------------------------------------------------------------------------------------------ replicas


def check_replicas(layout: Layout, groups: list[Replicas], findings: Findings) -> None:
    findings.begin("replicas")
    for group in groups:
        longest = max(group.members, key=lambda member: len(member.held))
        for member in group.members:
            _check_same(layout, member, longest, findings)
        if layout.complete:
            _check_same_end(layout, group, findings)


def _check_same(layout: Layout, member: Replica, longest: Replica, findings: Findings) -> None:
    at = first_difference(member.held, longest.held)
    if at is not None:
        pair = [int(member.held[at]), int(longest.held[at])]
        one = f"{layout.name(member.process)} delivered {layout.message(pair[0])} as number {at}"
        other = f"{layout.name(longest.process)} delivered {layout.message(pair[1])}"
        ids = [layout.id_of(number) for number in pair]
        findings.fail("replicas", ids, [member.process, longest.process], f"{one}, where {other}")


def _check_same_end(layout: Layout, group: Replicas, findings: Findings) -> None:
    """Nothing will come any more: a correct replica that is behind another one stays behind."""
    correct = [member for member in group.members if member.process in layout.correct]
    longest = max(correct, key=lambda member: len(member.held), default=None)
    for member in correct:
        assert longest is not None
        end = len(member.held)
        if end < len(longest.held) and first_difference(member.held, longest.held) is None:
            number = int(longest.held[end])
            one = f"{layout.name(member.process)} stopped after {end} deliveries"
            other = f"{layout.name(longest.process)} went on with {layout.message(number)}"
            findings.fail("replicas", [layout.id_of(number)], [member.process, longest.process], f"{one}; {other}")
