"""Final timestamps: a logical clock value and the group that gave it, as one number.

A group's clock gives each value to one message only, so (clock, group) belongs to one message in the whole run: final
timestamps never tie, and no message waits for ever behind an equal one. The integers compare as the pairs do.
"""

from __future__ import annotations

from .ids import GROUP_ID_LIMIT, GroupId

Timestamp = int


def timestamp(clock: int, group: GroupId) -> Timestamp:
    return clock * GROUP_ID_LIMIT + group


def clock_of(ts: Timestamp) -> int:
    return ts // GROUP_ID_LIMIT


def group_of(ts: Timestamp) -> GroupId:
    return ts % GROUP_ID_LIMIT
