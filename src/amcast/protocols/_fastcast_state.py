"""What a FastCast process remembers of messages on their way."""

from __future__ import annotations

import msgspec

from ..core import AppMessage, GroupId, MessageId, ProcessId, SeenOfSender, Timestamp
from ._fastcast_messages import Given, Stamp
from ._replica import DeliveriesState, ReplicaConfig

LOCAL = b""  # for the digest of a message that no other group has to recognise


class Tracked(msgspec.Struct, array_like=True):
    """A message on its way: the timestamps known of it. `soft` and `synced` come from the log, `hard` from anywhere."""

    message: AppMessage | None = None  # None: others know it, this group's SET-HARD is still to come
    digest: bytes = LOCAL
    soft: dict[GroupId, Given] = {}
    hard: dict[GroupId, Given] = {}
    synced: dict[GroupId, Given] = {}
    ticks: int = 0

    def final(self, own_group: GroupId) -> Timestamp | None:
        """Task 6 and 7: every destination's timestamp is in the log, as a hard one or as a guess that was right."""
        assert self.message is not None
        hard, digest = self.hard, self.digest
        final = 0
        for group in self.message.dst:
            given = self.synced.get(group)
            if given is None:
                given = hard.get(group)
                if given is None or (group != own_group and self.soft.get(group) != given):
                    return None
            if given[1] != digest:
                return None  # the group has another message with this id, and will say so
            if given[0] > final:
                final = given[0]
        return final

    def possible_final(self, own_group: GroupId) -> Timestamp | None:
        """The final timestamp with which another replica, that has no more of the log than this one, may have delivered
        the message: it may have heard from other groups that their guesses in the log are right. None: it has not."""
        assert self.message is not None
        final = 0
        for group in self.message.dst:
            given = self.synced.get(group) or (self.hard if group == own_group else self.soft).get(group)
            if given is None or given[1] != self.digest:
                return None
            if group not in self.synced and self.hard.get(group, given) != given:
                return None  # the guess was wrong, so the log must have the true one first
            if given[0] > final:
                final = given[0]
        return final

    def lacks(self, group: GroupId, digest: bytes) -> bool:
        """Whether this is the message with this digest, and the log lacks that destination's timestamp of it."""
        is_it = self.message is not None and self.digest == digest and group in self.message.dst
        given = self.synced.get(group)
        return is_it and (given is None or given[1] != digest)


class Kept(msgspec.Struct, array_like=True):
    """A timestamp that this group gave, and the destinations whose logs are not known to have it."""

    given: Given
    groups: list[GroupId]
    ticks: int = 0


class Retold:
    """Messages that another group is told of again, with this group's timestamps: what one frame takes."""

    def __init__(self) -> None:
        self.messages: list[AppMessage] = []
        self.stamps: list[Stamp] = []
        self._bytes = 0

    def add(self, message: AppMessage, given: Given) -> None:
        self.messages.append(message)
        self.stamps.append((message.id, *given))
        self._bytes += len(message.payload)

    def is_full(self, config: ReplicaConfig) -> bool:
        return len(self.messages) >= config.resend_max or self._bytes >= config.resend_bytes


class FastCastState(msgspec.Struct, array_like=True):
    clock: int
    seen: dict[ProcessId, SeenOfSender]
    pending: list[tuple[MessageId, Timestamp, bool]]
    tracked: dict[MessageId, Tracked]
    ahead: dict[MessageId, dict[GroupId, Given]]
    kept: dict[MessageId, Kept]
    deliveries: DeliveriesState
