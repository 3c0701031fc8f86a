"""What was delivered where: positions, integrity, validity, agreement, and replicas that delivered the same."""

from __future__ import annotations

import numpy as np

from ..core import ProcessId
from ..trace import FINAL
from ..trace.run import Int64s
from ..trace.schema import UNKNOWN
from ._index import ProcessDeliveries, RunIndex
from ._replicas import Replica, Replicas, excused_gaps, first_difference
from .report import CUT_SHORT, NO_SENDERS, VIOLATIONS_PER_PROPERTY, Findings, listing


def check_positions(index: RunIndex, groups: list[Replicas], findings: Findings) -> None:
    """Positions are 0, 1, 2, ... After one lost row all later ones look wrong: only the first is reported."""
    findings.begin("positions")
    for deliveries in index.by_process:
        if deliveries.odd_pos is not None:
            _check_numbering(index, deliveries, deliveries.odd_pos, findings)
    for replica in (replica for group in groups for replica in group.members if replica.lost is not None):
        name = index.name(replica.process)
        what = f"{name} was handed state over position {replica.lost}, which no replica of its group delivered"
        findings.fail_by_absence("positions", [], [replica.process], what)


def _check_numbering(index: RunIndex, deliveries: ProcessDeliveries, pos: Int64s, findings: Findings) -> None:
    before = np.concatenate(([-1], pos[:-1]))
    # Where rows are missing, so may be positions; but no process delivers two messages at one.
    wrong = pos == before if index.info.missing else pos != before + 1
    restored = index.restored.get(deliveries.process, ()) if deliveries.kind == FINAL else ()
    if restored:
        wrong &= ~np.isin(pos, [stop for _, stop in excused_gaps(deliveries, restored)])
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    message = int(deliveries.message[row])
    name, here = index.name(deliveries.process), index.message_name(message)
    position, previous = int(pos[row]), int(before[row])
    if position == previous:
        other = index.message_name(int(deliveries.message[row - 1]))
        what = f"{name} delivered two messages at position {position}: {other} and {here}"
    elif row == 0:
        what = f"the deliveries of {name} begin at position {position} with {here}, not at 0"
    else:
        what = f"the deliveries of {name} go from position {previous} to {position}, where {here} is"
    findings.fail("positions", [index.id_of(message)], [deliveries.process], what)


def check_integrity(index: RunIndex, findings: Findings) -> None:
    findings.begin("integrity")
    for msg, count in index.repeated_ids[:VIOLATIONS_PER_PROPERTY]:
        message = int(np.searchsorted(index.ids[: index.multicast_count], msg))
        what = f"{index.message_name(message)} was multicast {count} times: an id must name one message"
        findings.fail("integrity", [msg], [index.sender[message]], what)
    for deliveries in index.by_process:
        if not deliveries.is_clean:
            _check_addressed(index, deliveries, findings)
            _check_once(index, deliveries, findings)
        if deliveries.wrong_group is not None:
            row, group = deliveries.wrong_group
            what = f"as a member of {index.group_name(group)}, which it is not"
            _report_delivery(index, deliveries.process, int(deliveries.message[row]), f" {what}", findings)


def _check_addressed(index: RunIndex, deliveries: ProcessDeliveries, findings: Findings) -> None:
    wrong = np.flatnonzero(deliveries.slot < 0)
    if index.info.missing:  # a multicast that nobody recorded may be one of the rows that are missing
        wrong = wrong[deliveries.message[wrong] < index.multicast_count]
    for row in wrong[:VIOLATIONS_PER_PROPERTY]:
        message = int(deliveries.message[row])
        is_known = message < index.multicast_count
        why = f"which was multicast to {index.destinations(message)} only" if is_known else "which nobody multicast"
        _report_delivery(index, deliveries.process, message, f", {why}", findings)


def _check_once(index: RunIndex, deliveries: ProcessDeliveries, findings: Findings) -> None:
    # If multicasts are missing, a message that nobody recorded as sent may be addressed here too.
    known = deliveries.message if index.info.missing else deliveries.slot[deliveries.slot >= 0]
    if not len(known) or np.bincount(known).max() == 1:
        return
    messages, first, counts = np.unique(deliveries.message, return_index=True, return_counts=True)
    repeated = np.flatnonzero(counts > 1)
    for which in repeated[np.argsort(first[repeated])][:VIOLATIONS_PER_PROPERTY]:
        message = int(messages[which])
        positions = [str(position) for position in deliveries.pos[deliveries.message == message].tolist()]
        what = f" {counts[which]} times, at positions {listing(positions)}"
        _report_delivery(index, deliveries.process, message, what, findings)


def _report_delivery(index: RunIndex, process: ProcessId, message: int, what: str, findings: Findings) -> None:
    explanation = f"{index.name(process)} delivered {index.message_name(message)}{what}"
    findings.fail("integrity", [index.id_of(message)], [process], explanation)


def check_validity_and_agreement(index: RunIndex, groups: list[Replicas], findings: Findings) -> None:
    """Both ask what is missing at correct destinations: of what was multicast, and of what was delivered."""
    if not index.info.complete:
        findings.unknown("validity", CUT_SHORT)
        findings.unknown("agreement", CUT_SHORT)
        return
    findings.begin("validity")
    findings.begin("agreement")
    if index.info.missing:
        return
    missing = _missing(index, groups)
    lacked = np.unique(np.concatenate([np.arange(0), *missing.values()]))
    lacked = lacked[np.argsort(index.row[lacked])]  # in the order of the multicasts table, which is that of time
    if (index.sender[lacked] == UNKNOWN).any():
        findings.unknown("validity", NO_SENDERS)
    delivered = np.zeros(len(index.ids), np.bool_)
    for deliveries in index.all_final():
        delivered[deliveries.message] = True
    for message in lacked[index.sender_is_correct[lacked]][:VIOLATIONS_PER_PROPERTY].tolist():
        _report_lost(index, message, _who_lacks(missing, message), findings)
    for message in lacked[delivered[lacked]][:VIOLATIONS_PER_PROPERTY].tolist():
        _report_disagreement(index, message, _who_lacks(missing, message), findings)


def _missing(index: RunIndex, groups: list[Replicas]) -> dict[ProcessId, Int64s]:
    """For each correct process that lacks messages: these, ascending."""
    missing: dict[ProcessId, Int64s] = {}
    for group in groups:
        expected = group.group.messages
        for replica in group.members:
            # The messages in `ordered` are all different and all expected: as many as are expected is all of them.
            if replica.process in index.correct and len(replica.ordered) < len(expected):
                held = np.zeros(len(expected), np.bool_)
                held[replica.slots[replica.slots >= 0]] = True
                missing[replica.process] = expected[~held]
    return missing


def _who_lacks(missing: dict[ProcessId, Int64s], message: int) -> list[ProcessId]:
    return [process for process, lacked in missing.items() if (lacked == message).any()]


def _report_lost(index: RunIndex, message: int, processes: list[ProcessId], findings: Findings) -> None:
    sender = index.name(int(index.sender[message]))
    what = f"{sender} multicast {index.message_name(message)} to {index.destinations(message)}"
    explanation = f"{what}, but {index.names(processes)} never delivered it"
    findings.fail_by_absence("validity", [index.id_of(message)], processes, explanation)


def _report_disagreement(index: RunIndex, message: int, processes: list[ProcessId], findings: Findings) -> None:
    witness = next(each.process for each in index.all_final() if (each.message == message).any())
    what = f"{index.name(witness)} delivered {index.message_name(message)}"
    explanation = f"{what}, but {index.names(processes)} never did"
    findings.fail("agreement", [index.id_of(message)], [witness, *processes], explanation)


def check_replicas(index: RunIndex, groups: list[Replicas], findings: Findings) -> None:
    findings.begin("replicas")
    for group in groups:
        longest = max(group.members, key=lambda replica: len(replica.held))
        for replica in group.members:
            _check_same(index, replica, longest, findings)
        if index.info.complete and not index.info.missing:
            _check_same_end(index, group, findings)


def _check_same(index: RunIndex, replica: Replica, longest: Replica, findings: Findings) -> None:
    at = first_difference(replica.held, longest.held)
    if at is None:
        return
    here, there = int(replica.held[at]), int(longest.held[at])
    one = f"{index.name(replica.process)} delivered {index.message_name(here)} at position {at}"
    other = f"{index.name(longest.process)} delivered {index.message_name(there)}"
    messages = [index.id_of(here), index.id_of(there)]
    findings.fail("replicas", messages, [replica.process, longest.process], f"{one}, where {other}")


def _check_same_end(index: RunIndex, group: Replicas, findings: Findings) -> None:
    """Nothing will come any more: a correct replica that is behind another one stays behind."""
    correct = [replica for replica in group.members if replica.process in index.correct]
    if not correct:
        return
    longest = max(correct, key=lambda replica: len(replica.held))
    for replica in correct:
        end = len(replica.held)
        if end < len(longest.held) and first_difference(replica.held, longest.held) is None:
            message = int(longest.held[end])
            one = f"{index.name(replica.process)} delivered {end} messages and then nothing"
            other = f"{index.name(longest.process)} went on with {index.message_name(message)}"
            messages = [index.id_of(message)]
            findings.fail("replicas", messages, [replica.process, longest.process], f"{one}, while {other}")
