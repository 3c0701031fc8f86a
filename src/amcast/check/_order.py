"""Uniform prefix order and uniform acyclic order, by merging the groups' logs on their heads.

One message precedes another at a process that delivers it before the other, or without the other although
both are addressed there. Acyclic order: these precedences, of all processes together, have no cycle. Prefix
order: they have no cycle of two messages. So whatever breaks prefix order breaks acyclic order.

Replicas of a group that agree are prefixes of the longest log, which then has all their precedences: one
log stands for a group. Replicas that do not agree are a cycle of two messages by themselves.

Merging: a message pops when it is at the head of the log of every destination group. A group whose log has
ended without the message waits for it at its end. Popping everything is a total order that extends all
logs, so there is no cycle; when nothing can pop, the heads hold one. Messages to a single group block
nobody but their own log and are left out: a path through one is a path without it.
"""

from __future__ import annotations

from array import array

import numpy as np

from ..trace.run import Int64s
from ._cycles import Cycle, Knot, find_inversions, shortest_cycles
from ._index import RunIndex
from ._messages import Bools
from ._replicas import Replicas
from .report import VIOLATIONS_PER_PROPERTY, Findings


def check_order(index: RunIndex, groups: list[Replicas], findings: Findings) -> None:
    findings.begin("prefix")
    findings.begin("acyclic")
    for group in groups:
        _check_inside(index, group, findings)
    knot = merge_on_heads(index, groups)
    if knot is None:
        return
    cycles = find_inversions(knot, VIOLATIONS_PER_PROPERTY)
    broken = ("prefix", "acyclic") if cycles else ("acyclic",)
    for cycle in cycles or shortest_cycles(knot, VIOLATIONS_PER_PROPERTY):
        _report_cycle(index, groups, knot, cycle, broken, findings)


def _check_inside(index: RunIndex, group: Replicas, findings: Findings) -> None:
    for replica in group.members:
        at = group.divergence(replica)
        if at is None:
            continue
        pair = (int(replica.ordered[at]), int(group.longest.ordered[at]))
        steps = [
            _step(index, replica.process, replica.ordered, pair[0], pair[1]),
            _step(index, group.longest.process, group.longest.ordered, pair[1], pair[0]),
        ]
        processes = [replica.process, group.longest.process]
        for name in ("prefix", "acyclic"):
            findings.fail(name, [index.id_of(message) for message in pair], processes, "; ".join(steps))


def _step(index: RunIndex, process: int, log: Int64s, first: int, then: int) -> str:
    how = "before" if (log == then).any() else "without"
    return f"{index.name(process)} delivered {index.message_name(first)} {how} {index.message_name(then)}"


def _report_cycle(
    index: RunIndex,
    groups: list[Replicas],
    knot: Knot,
    cycle: Cycle,
    broken: tuple[str, ...],
    findings: Findings,
) -> None:
    messages = [int(knot.messages[number]) for number in cycle.messages]
    witnesses = [groups[int(knot.lanes[lane])].longest for lane in cycle.lanes]
    followers = [*messages[1:], messages[0]]
    steps = [
        _step(index, witness.process, witness.ordered, first, then)
        for witness, first, then in zip(witnesses, messages, followers, strict=True)
    ]
    for name in broken:
        ids = [index.id_of(message) for message in messages]
        findings.fail(name, ids, [witness.process for witness in witnesses], "; ".join(steps))


# ------------------------------------------------------------------------------------------ merging


def merge_on_heads(index: RunIndex, groups: list[Replicas]) -> Knot | None:
    """What can't be merged, or None: then one total order extends all logs."""
    is_global = np.zeros(len(index.ids), np.bool_)
    is_global[: index.multicast_count] = index.sizes > 1
    logs = [group.longest.ordered[is_global[group.longest.ordered]] for group in groups]
    somewhere = np.zeros(len(index.ids), np.bool_)
    for log in logs:
        somewhere[log] = True
    absent = [_absent(group, log, somewhere) for group, log in zip(groups, logs, strict=True)]
    waits = _small(index.sizes)
    heads = _drain(
        [_small(log) for log in logs],
        [_small(missing) for missing in absent],
        waits,
        _small(index.dst_start),
        _small(index.dst),
    )
    if all(head == len(log) for head, log in zip(heads, logs, strict=True)):
        return None
    return _knot([log[head:] for head, log in zip(heads, logs, strict=True)], absent, np.array(waits))


def _absent(group: Replicas, log: Int64s, somewhere: Bools) -> Int64s:
    """Messages to this group that only other groups delivered."""
    expected = group.group.messages[somewhere[group.group.messages]]
    return expected if len(expected) == 0 or len(log) == 0 else np.setdiff1d(expected, log, assume_unique=True)


def _small(column: Int64s) -> array[int]:
    """For a loop of Python: as fast as a list there, in a fifth of the memory."""
    return array("q", column.astype(np.int64, copy=False).tobytes())


def _drain(
    logs: list[array[int]], absent: list[array[int]], waits: array[int], dst_start: array[int], dst: array[int]
) -> list[int]:
    """Pops what can be popped, counts `waits` down to 0 for it, and returns where each log is then.

    waits[m] is the number of destination groups that are not yet waiting for m. This loop is the one place of
    the checker that runs once for each message: it stays free of calls.
    """
    heads = [0] * len(logs)
    ends = [len(log) for log in logs]
    moved = list(range(len(logs)))  # groups that have come to a new head and have not yet looked at it
    while moved:
        group = moved.pop()
        at = heads[group]
        for message in logs[group][at : at + 1] if at < ends[group] else absent[group]:
            waits[message] -= 1
            if not waits[message]:
                for home in dst[dst_start[message] : dst_start[message + 1]]:
                    if heads[home] < ends[home]:  # else it waited for this message at its end
                        heads[home] += 1
                        moved.append(home)
    return heads


def _knot(
    logs: list[Int64s],
    absent: list[Int64s],
    waits: Int64s,
) -> Knot:
    """Only groups with something left take part; who has ended precedes nobody."""
    lanes = [index for index, log in enumerate(logs) if len(log)]
    stuck = [missing[waits[missing] > 0] for missing in absent]
    messages = np.unique(np.concatenate([logs[index] for index in lanes]))
    parts = [np.concatenate((logs[index], stuck[index])) for index in lanes]
    positions = [
        np.concatenate((np.arange(len(logs[index])), np.full(len(stuck[index]), len(logs[index])))) for index in lanes
    ]
    entry = np.searchsorted(messages, np.concatenate(parts))
    lane = np.repeat(np.arange(len(lanes)), [len(part) for part in parts])
    by_message = np.argsort(entry, kind="stable")
    return Knot(
        np.array(lanes),
        messages,
        np.array([len(logs[index]) for index in lanes]),
        entry[by_message],
        lane[by_message],
        np.concatenate(positions)[by_message],
    )
