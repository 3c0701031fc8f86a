"""The order of conflicts: all processes execute the messages that touch an object in one order.

For each object, what a process executed of its messages is a sequence, and of any two sequences one must begin with the
other. Where the replicas of a group agree, the longest stands for all of them (see `_replicas`); those that do not are
looked at one by one. The longest sequence of an object is what the others are compared with: if two of them contradict
each other, one of them contradicts it.
"""

from __future__ import annotations

import numpy as np

from ..trace import Objects
from ..trace.run import Int64s
from ._index import RunIndex
from ._replicas import Replica, Replicas, first_difference
from .report import CONFLICT_ORDER, Findings

NO_OBJECTS = "the run does not say which objects its messages touch"


def check_conflict_order(index: RunIndex, groups: list[Replicas], objects: Objects, findings: Findings) -> None:
    if not len(objects) and index.multicast_count:
        findings.unknown(CONFLICT_ORDER, NO_OBJECTS)
        return
    findings.begin(CONFLICT_ORDER)
    touched = _touched(index, objects)
    silent = _silent(groups, touched[0])
    if silent:
        findings.unknown(CONFLICT_ORDER, f"messages of which the run does not say which objects they touch: {silent:,}")
    longest: dict[int, tuple[Replica, Int64s]] = {}
    lanes = [(replica, _by_object(replica, touched)) for group in groups for replica in group.to_judge()]
    for replica, sequences in lanes:
        for object_, sequence in sequences.items():
            if object_ not in longest or len(sequence) > len(longest[object_][1]):
                longest[object_] = (replica, sequence)
    for replica, sequences in lanes:
        for object_, sequence in sequences.items():
            _compare(index, object_, replica, sequence, *longest[object_], findings)


def _touched(index: RunIndex, objects: Objects) -> tuple[Int64s, Int64s]:
    """The messages that touch objects, as numbers, ascending; and the objects."""
    ids = index.ids[: index.multicast_count]
    message = np.minimum(np.searchsorted(ids, objects.msg), max(0, len(ids) - 1))
    known = ids[message] == objects.msg if len(ids) else np.zeros(len(objects), np.bool_)
    by_message = np.argsort(message[known], kind="stable")
    return message[known][by_message], objects.object[known][by_message]


def _silent(groups: list[Replicas], touching: Int64s) -> int:
    """How many messages were executed, by any of the replicas that are looked at, whose objects are not known."""
    executed = [replica.ordered for group in groups for replica in group.to_judge()]
    messages = np.unique(np.concatenate(executed)) if executed else np.empty(0, np.int64)
    return int(np.count_nonzero(~np.isin(messages, touching)))


def _by_object(replica: Replica, touched: tuple[Int64s, Int64s]) -> dict[int, Int64s]:
    """The messages that a replica executed, in its order, for each object."""
    message, object_ = touched
    start = np.searchsorted(message, replica.ordered)
    sizes = np.searchsorted(message, replica.ordered, side="right") - start
    rows = np.repeat(start - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    executed, objects = message[rows], object_[rows]
    by_object = np.argsort(objects, kind="stable")
    executed, objects = executed[by_object], objects[by_object]
    bounds = np.flatnonzero(np.diff(objects)) + 1
    return {int(part_objects[0]): part for part, part_objects in _parts(executed, objects, bounds)}


def _parts(executed: Int64s, objects: Int64s, bounds: Int64s) -> list[tuple[Int64s, Int64s]]:
    if not len(objects):
        return []
    return list(zip(np.split(executed, bounds), np.split(objects, bounds), strict=True))


def _compare(
    index: RunIndex,
    object_: int,
    replica: Replica,
    sequence: Int64s,
    longest: Replica,
    reference: Int64s,
    findings: Findings,
) -> None:
    at = first_difference(sequence, reference)
    if at is None:
        return
    here, there = int(sequence[at]), int(reference[at])
    one = f"of the messages that touch object {object_}, {index.name(replica.process)} executed"
    how = f"{index.message_name(here)} before or without {index.message_name(there)}"
    other = f"{index.name(longest.process)} executed {index.message_name(there)} before or without"
    explanation = f"{one} {how}; {other} {index.message_name(here)}"
    messages, processes = [index.id_of(here), index.id_of(there)], [replica.process, longest.process]
    findings.fail(CONFLICT_ORDER, messages, processes, explanation)
