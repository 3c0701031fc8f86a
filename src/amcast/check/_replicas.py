"""One log for each group: what its replicas delivered, with the gaps of restored replicas filled.

A process that was handed state does not deliver what the state covers. Its log jumps: the faults table says
`restored` to position N, and the next thing it delivers is at N. Such a gap counts as delivered with what
the other replicas delivered there; a gap that does not end at such an N is a gap.

For order, only a message's first delivery counts, and only where it is addressed: repeated and misplaced
deliveries are integrity's business and must not look like a wrong order as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core import ProcessId
from ..trace.run import Int64s
from ._history import Group, History, Log


@dataclass(frozen=True, slots=True)
class Replica:
    log: Log
    held: Int64s  # messages by position, gaps of a restored replica filled
    slots: Int64s  # of the same
    ordered: Int64s  # of those, the first delivery of each message that is addressed to the group
    lost: int | None  # the first position that was handed over and that no replica delivered

    @property
    def process(self) -> ProcessId:
        return self.log.process


@dataclass(frozen=True, slots=True)
class Replicas:
    group: Group
    members: list[Replica]
    longest: Replica  # stands for the group where its replicas agree

    def to_judge(self) -> list[Replica]:
        """The longest log and those that contradict it: what holds for these holds for all."""
        return [self.longest, *(other for other in self.members if self.divergence(other) is not None)]

    def divergence(self, other: Replica) -> int | None:
        """Where the order of another replica leaves that of the longest."""
        return first_difference(other.ordered, self.longest.ordered)


def arrange_replicas(history: History) -> list[Replicas]:
    return [_arrange(history, group) for group in history.groups]


def _arrange(history: History, group: Group) -> Replicas:
    logs = [history.final_log(process) for process in group.members]
    if any(log.process in history.run.restored for log in logs):
        members = _filled(history, logs)
    else:
        members = [_replica(log, log.message, log.slot, None) for log in logs]
    # max takes the first of equals, so the choice does not depend on anything but the data.
    return Replicas(group, members, max(members, key=lambda replica: len(replica.ordered)))


def _filled(history: History, logs: list[Log]) -> list[Replica]:
    by_length = sorted(logs, key=len, reverse=True)
    known, first = np.unique(np.concatenate([log.pos for log in by_length]), return_index=True)
    message = np.concatenate([log.message for log in by_length])[first]
    slot = np.concatenate([log.slot for log in by_length])[first]
    members = []
    for log in logs:
        pieces, lost = [np.arange(0)], None
        for start, stop in excused_gaps(log, history.run.restored.get(log.process, ())):
            low, high = np.searchsorted(known, (start, stop))
            pieces.append(np.arange(low, high))
            if high - low < stop - start and lost is None:
                lost = _first_missing(known[low:high], start)
        fill = np.concatenate(pieces)
        order = np.argsort(np.concatenate((log.pos, known[fill])), kind="stable")
        held = np.concatenate((log.message, message[fill]))[order]
        slots = np.concatenate((log.slot, slot[fill]))[order]
        members.append(_replica(log, held, slots, lost))
    return members


def excused_gaps(log: Log, restored: tuple[int, ...]) -> list[tuple[int, int]]:
    """Ranges of positions that this process did not deliver because it was handed their outcome."""
    if not restored:
        return []
    before = np.concatenate(([-1], log.pos[:-1])) if len(log) else log.pos
    ends = np.flatnonzero((log.pos > before + 1) & np.isin(log.pos, restored))
    gaps = [(int(before[row]) + 1, int(log.pos[row])) for row in ends]
    next_position = int(log.pos[-1]) + 1 if len(log) else 0
    if max(restored) > next_position:
        gaps.append((next_position, max(restored)))
    return gaps


def _first_missing(known: Int64s, start: int) -> int:
    wrong = np.flatnonzero(known != start + np.arange(len(known)))
    return start + int(wrong[0] if len(wrong) else len(known))


def _replica(log: Log, held: Int64s, slots: Int64s, lost: int | None) -> Replica:
    addressed = slots >= 0
    if addressed.all() and (not len(slots) or np.bincount(slots).max() == 1):
        return Replica(log, held, slots, held, lost)
    kept = held[addressed]
    _, first = np.unique(kept, return_index=True)
    return Replica(log, held, slots, kept[np.sort(first)], lost)


def first_difference(one: Int64s, other: Int64s) -> int | None:
    """The first position at which both have something and it is not the same."""
    common = min(len(one), len(other))
    different = one[:common] != other[:common]
    return int(np.argmax(different)) if different.any() else None
