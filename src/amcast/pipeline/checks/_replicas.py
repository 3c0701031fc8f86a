"""What the state of each replica went through, with what it was handed after a crash, and one log for each group.

A replica that was restored to position N goes on at N without having delivered what comes before: the gap counts as
delivered, with what the other replicas delivered there. Any other gap is a gap.

For order, only the first delivery of a message counts, and only where it is addressed: what is repeated or misplaced
is a matter of integrity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._layout import Bools, Lane, Layout, Log
from ._read import Int64s


@dataclass(frozen=True, slots=True)
class Replica:
    process: int
    held: Int64s  # numbers of messages by position
    ordered: Int64s  # of those, the first delivery of each that is addressed to the group
    lost: int | None  # the first position that was handed over and that no replica delivered


@dataclass(frozen=True, slots=True)
class Replicas:
    lane: Lane
    members: list[Replica]
    longest: Replica  # of the ordered logs

    def diverging(self) -> list[tuple[Replica, int]]:
        """Replicas whose order leaves that of the longest, and where."""
        found = [(member, first_difference(member.ordered, self.longest.ordered)) for member in self.members]
        return [(member, at) for member, at in found if at is not None]


def arrange(layout: Layout) -> list[Replicas]:
    return [_arrange(layout, lane) for lane in layout.lanes]


def _arrange(layout: Layout, lane: Lane) -> Replicas:
    logs = [layout.final_log(process) for process in lane.members]
    if any(process in layout.restored for process in lane.members):
        members = _filled(layout, logs)
    else:
        members = []
        for log in logs:
            # Replicas with equal logs share their arrays: what holds for one holds for the next.
            twin = members[-1] if members and members[-1].held is log.number else None
            ordered = twin.ordered if twin else _ordered(log.number, log.addressed)
            members.append(Replica(log.process, log.number, ordered, None))
    return Replicas(lane, members, max(members, key=lambda member: len(member.ordered)))


def _ordered(number: Int64s, addressed: Bools) -> Int64s:
    kept = number if addressed.all() else number[addressed]
    if not len(kept):
        return kept
    counts = np.bincount(kept)
    if counts.max() == 1:
        return kept
    _, first = np.unique(kept, return_index=True)
    return kept[np.sort(first)]


def excused_gaps(log: Log, restored: list[int]) -> list[tuple[int, int]]:
    """Ranges of positions that the process did not deliver because it was handed what they led to."""
    if not restored:
        return []
    pos = log.pos
    before = np.concatenate(([-1], pos[:-1])) if len(pos) else pos
    ends = np.flatnonzero((pos > before + 1) & np.isin(pos, restored))
    gaps = [(int(before[row]) + 1, int(pos[row])) for row in ends]
    following = int(pos[-1]) + 1 if len(pos) else 0
    if max(restored) > following:
        gaps.append((following, max(restored)))
    return gaps


def _filled(layout: Layout, logs: list[Log]) -> list[Replica]:
    by_length = sorted(logs, key=len, reverse=True)
    known, first = np.unique(np.concatenate([log.pos for log in by_length]), return_index=True)
    number = np.concatenate([log.number for log in by_length])[first]
    addressed = np.concatenate([log.addressed for log in by_length])[first]
    members = []
    for log in logs:
        fill, lost = [np.empty(0, np.int64)], None
        for start, stop in excused_gaps(log, layout.restored.get(log.process, [])):
            low, high = (int(at) for at in np.searchsorted(known, (start, stop)))
            fill.append(np.arange(low, high))
            if lost is None and high - low < stop - start:
                missing = np.flatnonzero(known[low:high] != start + np.arange(high - low))
                lost = start + (int(missing[0]) if len(missing) else high - low)
        handed = np.concatenate(fill)
        order = np.argsort(np.concatenate((log.pos, known[handed])), kind="stable")
        held = np.concatenate((log.number, number[handed]))[order]
        is_addressed = np.concatenate((log.addressed, addressed[handed]))[order]
        members.append(Replica(log.process, held, _ordered(held, is_addressed), lost))
    return members


def first_difference(one: Int64s, other: Int64s) -> int | None:
    """The first position at which both have something and it is not the same."""
    if one is other:
        return None
    common = min(len(one), len(other))
    different = one[:common] != other[:common]
    return int(np.argmax(different)) if different.any() else None
