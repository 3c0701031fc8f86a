"""What processes say in Optimistic Atomic Multicast, and what a group's log orders."""

from __future__ import annotations

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId, Topology, Wire, client_name, encode
from .._messages import IngressMessage

Time = int  # microseconds of some process's clock; with the group that gave it, a timestamp

SKEW_MAX_US = 1_000_000  # so far ahead of a replica's clock may be what a sender's clock says; more is not believed
# A timestamp has 47 bits for the time. Clocks are believed up to a bit less than 4.5 years after the cluster began;
# from then on, what is still to come is numbered one by one, for which the rest is more than enough.
TIME_MAX: Time = (1 << 47) - (1 << 40)
BARRIER_MAX: Time = TIME_MAX + (1 << 39)  # barriers must get above messages that are numbered so


_TIME_LIMIT: Time = 1 << 62  # no clock shows such a time, however wrong it is


def home_of(sender: ProcessId, topology: Topology) -> GroupId:
    """The source group of a sender's messages: its own group, or that of a client by its number."""
    group = topology.group_of(sender)
    return topology.groups[sender % len(topology.groups)] if group is None else group


def _problem_with_stamp(client: ProcessId, time: Time, group: GroupId, topology: Topology) -> str | None:
    """A client stamps its messages with the time of its clock, as messages of its home group."""
    if not 0 <= time < _TIME_LIMIT:
        return f"{time} is not the time of a clock"
    home = home_of(client, topology)
    name = client_name(client)
    return None if group == home else f"the messages of client {name} belong to g{home}, not to g{group}"


def believed(time: Time, now_us: int) -> Time:
    return min(time, now_us + SKEW_MAX_US)


class FrMcast(IngressMessage, frozen=True, tag="FR-MCAST"):
    """The initial copy of a message, stamped by its sender's clock.

    It goes to the source group, and in the optimistic protocol to the destinations as well. `asked` are the groups
    whose barriers the sender has requested; `again`: a repetition, which says nothing about delays.
    """

    message: AppMessage
    source: GroupId
    time: Time
    asked: tuple[GroupId, ...]
    again: bool = False

    def about(self) -> tuple[MessageId, ...]:
        return (self.message.id,)

    def handed_over(self) -> tuple[AppMessage, ...]:
        return (self.message,)

    def problem_with_fields(self, client: ProcessId, topology: Topology) -> str | None:
        if len(self.asked) > len(topology.groups) or not all(map(topology.has_group, self.asked)):
            return "barriers were asked of groups that are none"
        return _problem_with_stamp(client, self.time, self.source, topology)


class BarrierRequest(IngressMessage, frozen=True, tag="BARRIER-REQUEST"):
    """Please promise to send nothing any more that comes before (time, group), the timestamp of this message."""

    id: MessageId
    time: Time
    group: GroupId

    def about(self) -> tuple[MessageId, ...]:
        return (self.id,)

    def problem_with_fields(self, client: ProcessId, topology: Topology) -> str | None:
        return _problem_with_stamp(client, self.time, self.group, topology)


class JoinRequest(Wire, frozen=True, tag="JOIN-REQUEST"):
    """`group` wants to send to the receiver's group, for the `count`-th time."""

    group: GroupId
    count: int


class JoinResponse(Wire, frozen=True, tag="JOIN-RESPONSE"):
    """`group` waits for the joiner's barriers from this time on; the joiner's timestamps must exceed it."""

    group: GroupId
    count: int
    time: Time
    senders: tuple[GroupId, ...]


class SendersTo(Wire, frozen=True, tag="SENDERS-TO"):
    """Who sends to `group` now: all its senders must ask each other for barriers."""

    group: GroupId
    version: int
    senders: tuple[GroupId, ...]


class Received(Wire, frozen=True, tag="RECEIVED"):
    """The sender of this holds, durably, all of a group's log below `position`."""

    group: GroupId
    position: int


class Positions(Wire, frozen=True, tag="POSITIONS"):
    """How far a replica has followed each log; `stuck`: it can't go on without what its peers have."""

    positions: dict[GroupId, int]
    stuck: bool


class MergedState(Wire, frozen=True, tag="MERGED-STATE"):
    state: bytes


OptimisticMessage = (
    FrMcast | BarrierRequest | JoinRequest | JoinResponse | SendersTo | Received | Positions | MergedState
)


class Stamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="stamp"):
    """A message of this group, with the timestamp that the leader proposes."""

    message: AppMessage
    time: Time


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="note"):
    """What is left of a Stamp for groups that it does not concern."""

    id: MessageId
    dst: tuple[GroupId, ...]
    time: Time


class Barrier(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="barrier"):
    """The paper's null message: nothing of this group comes at or before this time any more."""

    time: Time


class Admit(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="admit"):
    """From here on this group waits for barriers of another one, which joins its senders."""

    group: GroupId
    count: int


class Join(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="join"):
    """From here on this group sends to another one, which admitted it at `time`."""

    group: GroupId
    count: int
    time: Time


class Leave(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="leave"):
    """From here on this group sends nothing to another one, unless it joins anew."""

    group: GroupId


LogEntry = Stamp | Note | Barrier | Admit | Join | Leave
decode_entries = msgspec.msgpack.Decoder(list[LogEntry]).decode


def project(value: bytes, group: GroupId) -> bytes:
    """A group sees the messages that are addressed to it, and of others only what decides on timestamps."""
    entries = decode_entries(value)
    if all(not isinstance(entry, Stamp) or group in entry.message.dst for entry in entries):
        return value
    return encode([_note(entry, group) for entry in entries])


def _note(entry: LogEntry, group: GroupId) -> LogEntry:
    if isinstance(entry, Stamp) and group not in entry.message.dst:
        return Note(entry.message.id, entry.message.dst, entry.time)
    return entry
