"""Uniform prefix order and uniform acyclic order, by merging what the groups delivered.

One message precedes another at a process that delivers it before the other, or without the other although both are
addressed there. Acyclic order: these precedences, of all processes together, have no cycle. Prefix order: they have no
cycle of two messages. So whatever breaks prefix order breaks acyclic order.

Where the replicas of a group agree, the one that delivered most has all the precedences of the others. Its deliveries
stand for the group and are called the group's *lane*. Two replicas that disagree are a cycle of two messages.

Merging: a message is at the head of a lane if everything before it in that lane was popped, and is popped when it is
at the head of the lanes of all its destinations. A group that never delivered the message counts as having it at the
very end of its lane. If everything can be popped, the order of popping is a total order that all lanes follow, so there
is no cycle. If something is left and nothing can be popped, the messages at the heads contain a cycle. Messages to a
single group are left out: they hold up no lane but their own, and a cycle through one is also a cycle without it.
"""

from __future__ import annotations

from array import array

import numpy as np

from ..trace.run import Int64s
from ._cycles import Knot, find_inversions, shortest_cycles
from ._index import RunIndex
from ._messages import Bools
from ._replicas import Replica, Replicas
from .report import VIOLATIONS_PER_PROPERTY, Findings


def check_order(index: RunIndex, groups: list[Replicas], findings: Findings) -> None:
    findings.begin("prefix")
    findings.begin("acyclic")
    for group in groups:
        for replica in group.members:
            at = group.divergence(replica)
            if at is not None:
                pair = [int(replica.ordered[at]), int(group.longest.ordered[at])]
                _report_cycle(index, pair, [replica, group.longest], ("prefix", "acyclic"), findings)
    knot = merge_on_heads(index, groups)
    if knot is None:
        return
    cycles = find_inversions(knot, VIOLATIONS_PER_PROPERTY)
    broken = ("prefix", "acyclic") if cycles else ("acyclic",)
    for cycle in cycles or shortest_cycles(knot, VIOLATIONS_PER_PROPERTY):
        messages = [int(knot.messages[number]) for number in cycle.messages]
        witnesses = [groups[int(knot.lanes[lane])].longest for lane in cycle.lanes]
        _report_cycle(index, messages, witnesses, broken, findings)


def _report_cycle(
    index: RunIndex, messages: list[int], witnesses: list[Replica], broken: tuple[str, ...], findings: Findings
) -> None:
    """witnesses[i] delivered messages[i] before or without messages[i + 1], the last one the last before the first."""
    steps = []
    for witness, first, then in zip(witnesses, messages, [*messages[1:], messages[0]], strict=True):
        how = "before" if (witness.ordered == then).any() else "without"
        one, other = index.message_name(first), index.message_name(then)
        steps.append(f"{index.name(witness.process)} delivered {one} {how} {other}")
    for name in broken:
        ids = [index.id_of(message) for message in messages]
        findings.fail(name, ids, [witness.process for witness in witnesses], "; ".join(steps))


# ------------------------------------------------------------------------------------------ merging


def merge_on_heads(index: RunIndex, groups: list[Replicas]) -> Knot | None:
    """What can't be merged; None if there is nothing such, so that one total order extends all lanes."""
    is_global = np.zeros(len(index.ids), np.bool_)
    is_global[: index.multicast_count] = index.sizes > 1
    lanes = [group.longest.ordered[is_global[group.longest.ordered]] for group in groups]
    somewhere = np.zeros(len(index.ids), np.bool_)
    for lane in lanes:
        somewhere[lane] = True
    absent = [_absent(group, lane, somewhere) for group, lane in zip(groups, lanes, strict=True)]
    waits = _small(index.sizes)
    heads = _drain(
        [_small(lane) for lane in lanes],
        [_small(missing) for missing in absent],
        waits,
        _small(index.dst_start),
        _small(index.dst),
    )
    if all(head == len(lane) for head, lane in zip(heads, lanes, strict=True)):
        return None
    return _knot([lane[head:] for head, lane in zip(heads, lanes, strict=True)], absent, np.array(waits))


def _absent(group: Replicas, lane: Int64s, somewhere: Bools) -> Int64s:
    """Messages to this group that only other groups delivered."""
    expected = group.group.messages[somewhere[group.group.messages]]
    return expected if len(expected) == 0 or len(lane) == 0 else np.setdiff1d(expected, lane, assume_unique=True)


def _small(column: Int64s) -> array[int]:
    """For a loop of Python: as fast as a list there, in a fifth of the memory."""
    return array("q", column.astype(np.int64, copy=False).tobytes())


def _drain(
    lanes: list[array[int]], absent: list[array[int]], waits: array[int], dst_start: array[int], dst: array[int]
) -> list[int]:
    """Pops what can be popped, counts `waits` down to 0 for it, and returns the position of each lane's head then.

    waits[m] is the number of destinations of m whose lane has not come to m yet. This loop is the one place of the
    checker that runs once for each message: it stays free of calls.
    """
    heads = [0] * len(lanes)
    ends = [len(lane) for lane in lanes]
    moved = list(range(len(lanes)))  # groups whose lane has a new head that was not looked at yet
    while moved:
        group = moved.pop()
        at = heads[group]
        for message in lanes[group][at : at + 1] if at < ends[group] else absent[group]:
            waits[message] -= 1
            if not waits[message]:
                for home in dst[dst_start[message] : dst_start[message + 1]]:
                    if heads[home] < ends[home]:  # else the lane is at its end, and this message is absent there
                        heads[home] += 1
                        moved.append(home)
    return heads


def _knot(rest: list[Int64s], absent: list[Int64s], waits: Int64s) -> Knot:
    """The rest of each lane. A lane that was popped to its end precedes nothing and takes no part."""
    groups = [group for group, lane in enumerate(rest) if len(lane)]
    lanes = [rest[group] for group in groups]
    stuck = [absent[group][waits[absent[group]] > 0] for group in groups]
    messages = np.unique(np.concatenate(lanes))
    pos = [
        np.concatenate((np.arange(len(lane)), np.full(len(missing), len(lane))))
        for lane, missing in zip(lanes, stuck, strict=True)
    ]
    parts = [np.concatenate(both) for both in zip(lanes, stuck, strict=True)]
    entry = np.searchsorted(messages, np.concatenate(parts))
    by_message = np.argsort(entry, kind="stable")
    return Knot(
        np.array(groups),
        messages,
        np.array([len(lane) for lane in lanes]),
        entry[by_message],
        np.repeat(np.arange(len(lanes)), [len(part) for part in parts])[by_message],
        np.concatenate(pos)[by_message],
    )
