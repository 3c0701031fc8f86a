"""What the state of each replica went through: its own deliveries, and those that it was handed the outcome of.

A process that was handed state does not deliver what the state covers, so its positions jump: the faults table says
`restored` to position 8, say, and the next thing that it delivers is at 8 although the one before was at 2. Such a gap
counts as delivered, with what the other replicas delivered at 3 to 7. A gap that does not end at a position to which
the process was restored is a gap.

If rows of the run are missing, a gap may be where they were. Then a process is judged up to its first gap: what it
delivered after that can't be placed.

For order, only a message's first delivery counts, and only where it is addressed: repeated and misplaced deliveries
break integrity, and must not look like a wrong order as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core import ProcessId
from ..trace.run import Int32s, Int64s
from ._index import ProcessDeliveries, RunIndex
from ._messages import Group


@dataclass(frozen=True, slots=True)
class Replica:
    process: ProcessId
    held: Int64s  # messages by position, gaps of a restored replica filled
    slots: Int32s  # of the same
    ordered: Int64s  # of those, the first delivery of each message that is addressed to the group
    lost: int | None  # the first position that was handed over and that no replica delivered


@dataclass(frozen=True, slots=True)
class Replicas:
    group: Group
    members: list[Replica]
    longest: Replica  # stands for the group where its replicas agree

    def to_judge(self) -> list[Replica]:
        """The longest order and those that contradict it: what holds for these holds for all."""
        return [self.longest, *(other for other in self.members if self.divergence(other) is not None)]

    def divergence(self, other: Replica) -> int | None:
        """Where the order of another replica leaves that of the longest."""
        return first_difference(other.ordered, self.longest.ordered)


def arrange_replicas(index: RunIndex) -> list[Replicas]:
    return [_arrange(index, group) for group in index.groups]


def _arrange(index: RunIndex, group: Group) -> Replicas:
    delivered = [index.final(process) for process in group.members]
    if index.info.missing:
        delivered = [_up_to_gap(each, index.restored.get(each.process, ())) for each in delivered]
    if any(process in index.restored for process in group.members):
        members = _filled(index, delivered)
    else:
        members = []
        for each in delivered:
            # Replicas that delivered the same share their arrays.
            is_same = members and members[-1].held is each.message
            ordered = members[-1].ordered if is_same else _ordered(each.message, each.slot, each.is_clean)
            members.append(Replica(each.process, each.message, each.slot, ordered, None))
    # max takes the first of equals, so the choice does not depend on anything but the data.
    return Replicas(group, members, max(members, key=lambda replica: len(replica.ordered)))


def _filled(index: RunIndex, delivered: list[ProcessDeliveries]) -> list[Replica]:
    by_length = sorted(delivered, key=len, reverse=True)
    known, first = np.unique(np.concatenate([each.pos for each in by_length]), return_index=True)
    message = np.concatenate([each.message for each in by_length])[first]
    slot = np.concatenate([each.slot for each in by_length])[first]
    members = []
    for each in delivered:
        pieces, lost = [np.arange(0)], None
        for start, stop in excused_gaps(each, index.restored.get(each.process, ())):
            low, high = np.searchsorted(known, (start, stop))
            pieces.append(np.arange(low, high))
            if high - low < stop - start and lost is None:
                lost = _first_missing(known[low:high], start)
        fill = np.concatenate(pieces)
        order = np.argsort(np.concatenate((each.pos, known[fill])), kind="stable")
        if index.info.missing and lost is not None:
            order = order[np.concatenate((each.pos, known[fill]))[order] < lost]
        held = np.concatenate((each.message, message[fill]))[order]
        slots = np.concatenate((each.slot, slot[fill]))[order]
        members.append(Replica(each.process, held, slots, _ordered(held, slots), lost))
    return members


def _up_to_gap(deliveries: ProcessDeliveries, restored: Sequence[int]) -> ProcessDeliveries:
    """What a process delivered before its first gap that no received state explains."""
    pos = deliveries.pos
    before = np.concatenate(([-1], pos[:-1])) if len(pos) else pos
    gaps = np.flatnonzero((pos > before + 1) & ~np.isin(pos, restored))
    if not len(gaps):
        return deliveries
    end = int(gaps[0])
    return replace(deliveries, message=deliveries.message[:end], slot=deliveries.slot[:end], odd_pos=pos[:end])


def excused_gaps(deliveries: ProcessDeliveries, restored: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of positions that this process did not deliver because it was handed their outcome."""
    if not restored:
        return []
    pos = deliveries.pos
    before = np.concatenate(([-1], pos[:-1])) if len(pos) else pos
    ends = np.flatnonzero((pos > before + 1) & np.isin(pos, restored))
    gaps = [(int(before[row]) + 1, int(pos[row])) for row in ends]
    next_position = int(pos[-1]) + 1 if len(pos) else 0
    if max(restored) > next_position:
        gaps.append((next_position, max(restored)))
    return gaps


def _first_missing(known: Int64s, start: int) -> int:
    wrong = np.flatnonzero(known != start + np.arange(len(known)))
    return start + int(wrong[0] if len(wrong) else len(known))


def _ordered(held: Int64s, slots: Int32s, is_clean: bool = False) -> Int64s:
    if is_clean:
        return held
    kept = held[slots >= 0]
    _, first = np.unique(kept, return_index=True)
    return kept[np.sort(first)]


def first_difference(one: Int64s, other: Int64s) -> int | None:
    """The first position at which both have something and it is not the same."""
    if one is other:
        return None
    common = min(len(one), len(other))
    different = one[:common] != other[:common]
    return int(np.argmax(different)) if different.any() else None
