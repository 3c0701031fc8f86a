"""Finds cycles in the order of messages, as soon as no later delivery can make the order right.

The lane of a group holds the messages to several groups that it delivered and that are not merged yet. A message that a
group has yet to deliver comes after all that is in its lane. For example, g1 delivered a and not b, g2 delivered b and
not a: whatever follows, g1 has a before b and g2 has b before a. So the lanes are merged as if the run ended here, and
at the end of its lane a group may take any message that the lane lacks. Messages that can't be merged even so are in a
cycle, or behind one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ...core import GroupId, MessageId

Lanes = dict[GroupId, list[MessageId]]
Destinations = Mapping[MessageId, Sequence[GroupId]]


class Cycle(NamedTuple):
    """Lane i has message i before message i + 1; the last lane has the last message before the first one."""

    messages: list[MessageId]
    lanes: list[GroupId]


def find_cycle(lanes: Lanes, dst: Destinations) -> Cycle | None:
    """A cycle of two messages if there is one, else the shortest among heads of lanes; None if all can be merged."""
    stuck, absent = _stuck(lanes, dst)
    if not stuck:
        return None
    return _inversion(stuck, absent, dst) or _among_heads(stuck, dst)


def _stuck(lanes: Lanes, dst: Destinations) -> tuple[Lanes, Lanes]:
    """For each lane: its messages that can't be merged, and those of other lanes that its group has yet to deliver."""
    present = {group: set(lane) for group, lane in lanes.items()}
    absent: Lanes = {group: [] for group in lanes}
    waits: dict[MessageId, int] = {}
    for lane in lanes.values():
        for message in lane:
            if message not in waits:
                waits[message] = len(dst[message])
                for group in dst[message]:
                    if message not in present[group]:
                        absent[group].append(message)
    heads = dict.fromkeys(lanes, 0)
    moved = list(lanes)
    while moved:
        group = moved.pop()
        lane, at = lanes[group], heads[group]
        for message in lane[at : at + 1] if at < len(lane) else absent[group]:
            waits[message] -= 1
            if not waits[message]:
                for home in dst[message]:
                    if heads[home] < len(lanes[home]):  # else the lane lacks the message, and had come to its end
                        heads[home] += 1
                        moved.append(home)
    left = {group: lane[heads[group] :] for group, lane in lanes.items() if heads[group] < len(lane)}
    return left, {group: [message for message in absent[group] if waits[message]] for group in left}


def _inversion(lanes: Lanes, absent: Lanes, dst: Destinations) -> Cycle | None:
    places: dict[GroupId, dict[MessageId, int]] = {}
    for group, lane in lanes.items():
        places[group] = {message: at for at, message in enumerate(lane)}
        places[group].update(dict.fromkeys(absent[group], len(lane)))
    pairs: dict[tuple[GroupId, GroupId], list[tuple[int, int, MessageId]]] = {}
    for message in dict.fromkeys(message for lane in lanes.values() for message in lane):
        homes = [group for group in dst[message] if group in lanes]
        for index, one in enumerate(homes):
            for other in homes[index + 1 :]:
                place = (places[one][message], places[other][message], message)
                pairs.setdefault((one, other), []).append(place)
    for (one, other), found in sorted(pairs.items()):
        found.sort()
        for (_, there, first), (_, then, second) in pairwise(found):
            if then < there:  # `one` has first before second, `other` has second before first
                return Cycle([first, second], [one, other])
    return None


def _among_heads(lanes: Lanes, dst: Destinations) -> Cycle:
    """The shortest cycle: each head waits until it is at the head of another lane too, which has another head."""
    head = {group: lane[0] for group, lane in lanes.items()}
    # Message -> (lane, message that comes after it in this lane), where it is the head and both are heads of lanes.
    after: dict[MessageId, list[tuple[GroupId, MessageId]]] = {}
    for message in dict.fromkeys(head.values()):
        for group in dst[message]:
            if group in head and head[group] != message:
                after.setdefault(head[group], []).append((group, message))
    best: Cycle | None = None
    for source in after:
        found = _shortest_from(source, after)
        if found is not None and (best is None or len(found.messages) < len(best.messages)):
            best = found
    assert best is not None, "what can't be merged has a cycle among its heads"
    return best


def _shortest_from(source: MessageId, after: dict[MessageId, list[tuple[GroupId, MessageId]]]) -> Cycle | None:
    came: dict[MessageId, tuple[MessageId, GroupId]] = {}
    layer = [source]
    while layer:
        following = []
        for message in layer:
            for group, then in after.get(message, ()):
                if then == source:
                    messages, lanes = [message], [group]
                    while messages[0] != source:
                        before, lane = came[messages[0]]
                        messages.insert(0, before)
                        lanes.insert(0, lane)
                    return Cycle(messages, lanes)
                if then not in came:
                    came[then] = (message, group)
                    following.append(then)
        layer = following
    return None
