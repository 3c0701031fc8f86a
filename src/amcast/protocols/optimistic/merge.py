"""What a destination knows: how far it has followed each of its senders' logs, and what it delivered from them.

The delivered sequence is a merge of logs by timestamp, the same at every replica of a group, however far each of them
is. So the states of two replicas can be joined: the longer prefix of each log, the longer sequence of deliveries, and
whatever either of them has yet to deliver.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId, Timestamp
from .._replica import DeliveriesState
from .source import Source

END_OF_TIME: Timestamp = (1 << 63) - 1


class Admission(msgspec.Struct, array_like=True):
    """How often a group was admitted to the senders of this one."""

    count: int = 0
    # For admissions that the group's own log has not confirmed with a Join yet: no message of it comes before this.
    since: dict[int, Timestamp] = {}


class Kept(msgspec.Struct, array_like=True):
    """What a group has sent to another one, until a majority there holds it durably."""

    floor: int = 0  # entries of instances below are dropped
    entries: list[tuple[int, AppMessage, Timestamp]] = []


class RemoteState(msgspec.Struct, array_like=True):
    """For a replica of another group that needs what the log has forgotten."""

    source: Source
    kept: Kept


class MergeState(msgspec.Struct, array_like=True):
    sources: dict[GroupId, Source]
    admissions: dict[GroupId, Admission]
    kept: dict[GroupId, Kept]
    pending: list[tuple[Timestamp, AppMessage]]
    delivered_ts: Timestamp
    deliveries: DeliveriesState


decode_merge = msgspec.msgpack.Decoder(MergeState).decode
decode_remote = msgspec.msgpack.Decoder(RemoteState).decode


class Merger:
    def __init__(self, group: GroupId, sources: dict[GroupId, Source], admissions: dict[GroupId, Admission]) -> None:
        self._group = group
        self.sources = sources
        self.admissions = admissions
        self.kept: dict[GroupId, Kept] = {}
        self.delivered_ts: Timestamp = 0
        self._stamped: list[tuple[Timestamp, MessageId, AppMessage]] = []  # the paper's stamped, without delivered
        self._ids: set[MessageId] = set()
        self._acked: dict[GroupId, dict[ProcessId, int]] = {}  # volatile: who in other groups holds how much

    @property
    def own(self) -> Source:
        return self.sources[self._group]

    # -- stamped messages

    def __len__(self) -> int:
        return len(self._stamped)

    def __contains__(self, id_: MessageId) -> bool:
        return id_ in self._ids

    def add(self, ts: Timestamp, message: AppMessage) -> None:
        assert ts > self.delivered_ts, "a barrier promises that nothing earlier is still to come"
        self._ids.add(message.id)
        heappush(self._stamped, (ts, message.id, message))

    @property
    def head(self) -> tuple[Timestamp, AppMessage] | None:
        return (self._stamped[0][0], self._stamped[0][2]) if self._stamped else None

    def pop(self) -> tuple[Timestamp, AppMessage]:
        ts, id_, message = heappop(self._stamped)
        assert ts > self.delivered_ts, "messages are delivered in the order of their timestamps"
        self._ids.discard(id_)
        self.delivered_ts = ts
        return ts, message

    # -- barriers

    def barrier(self, group: GroupId) -> Timestamp:
        """Nothing below this timestamp comes from that group any more."""
        source = self.sources[group]
        if source.reaches(self._group):
            return source.barrier()
        # It left, or has not begun to send: its next message comes after its next admission, if there is one.
        return self.admissions[group].since.get(self._joins(group) + 1, END_OF_TIME)

    def _joins(self, group: GroupId) -> int:
        link = self.sources[group].links.get(self._group)
        return 0 if link is None else link.count

    def horizon(self) -> Timestamp:
        """Line 34: messages below may be delivered."""
        return min(map(self.barrier, self.sources))

    def behind(self, ts: Timestamp) -> list[GroupId]:
        """The groups whose barriers are missing."""
        return [group for group in self.sources if self.barrier(group) <= ts]

    def senders(self) -> tuple[GroupId, ...]:
        """sendersTo of this group as it stands here, the group itself included: it always waits for its own barrier."""
        return tuple(group for group in sorted(self.sources) if self.barrier(group) != END_OF_TIME)

    def admit(self, group: GroupId, count: int, ts: Timestamp) -> bool:
        admission = self.admissions.setdefault(group, Admission())
        if count != admission.count + 1:
            return False
        admission.count = count
        joins = self._joins(group)  # so many admissions are confirmed by its log
        admission.since = {each: since for each, since in admission.since.items() if each > joins}
        admission.since[count] = ts
        return True

    # -- what other groups may still need

    def keep(self, group: GroupId, instance: int, message: AppMessage, ts: Timestamp) -> None:
        self.kept.setdefault(group, Kept()).entries.append((instance, message, ts))

    def acknowledge(self, group: GroupId, process: ProcessId, position: int, majority: int) -> None:
        """A process of the other group holds all below this instance: what a majority there holds is forgotten."""
        acked = self._acked.setdefault(group, {})
        acked[process] = max(position, acked.get(process, 0))
        if len(acked) < majority:
            return
        floor = sorted(acked.values(), reverse=True)[majority - 1]
        kept = self.kept.setdefault(group, Kept())
        if floor > kept.floor:
            kept.floor = floor
            kept.entries = [entry for entry in kept.entries if entry[0] >= floor]

    def remote_state(self, group: GroupId) -> RemoteState:
        return RemoteState(self.own, self.kept.get(group, Kept()))

    # -- state

    def positions(self) -> dict[GroupId, int]:
        return {group: source.position for group, source in self.sources.items()}

    def dump(self, deliveries: DeliveriesState) -> MergeState:
        pending = [(ts, message) for ts, _, message in self._stamped]
        return MergeState(self.sources, self.admissions, self.kept, pending, self.delivered_ts, deliveries)

    def join(self, other: MergeState) -> None:
        """Takes over what another replica of the group has and this one lacks. Deliveries are the caller's business."""
        if other.sources[self._group].position > self.own.position:
            self.admissions, self.kept = other.admissions, other.kept
        for group, source in other.sources.items():
            if group not in self.sources or source.position > self.sources[group].position:
                self.sources[group] = source
        self.delivered_ts = max(self.delivered_ts, other.delivered_ts)
        self._merge_pending(other.pending)

    def join_remote(self, remote: RemoteState) -> bool:
        """Takes over what a sender has kept for this group; False if this replica lacks some that is kept no more."""
        source = self.sources[remote.source.group]
        if source.position < remote.kept.floor:
            return False
        if remote.source.position > source.position:
            entries = [(ts, message) for at, message, ts in remote.kept.entries if at >= source.position]
            self.sources[source.group] = remote.source
            self._merge_pending(entries)
        return True

    def _merge_pending(self, more: list[tuple[Timestamp, AppMessage]]) -> None:
        entries = {ts: message for ts, _, message in self._stamped}
        entries.update(more)
        self._stamped = [(ts, message.id, message) for ts, message in entries.items() if ts > self.delivered_ts]
        self._ids = {message.id for _, _, message in self._stamped}
        heapify(self._stamped)
