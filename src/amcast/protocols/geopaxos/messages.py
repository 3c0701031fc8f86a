"""What clients and replicas say in GeoPaxos, and what a site's log orders."""

from __future__ import annotations

from hashlib import blake2b
from typing import ClassVar

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId, Timestamp, Topology, Wire
from .._messages import IngressMessage

OBJECTS_MAX = 1_024  # of one operation
NAME_MAX = 256  # characters of an object's name

Key = tuple[Timestamp, int]  # the place of something in the order of a site: see `track`


class Operation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The payload of a message: what is to be done, and the names of all objects that it reads or writes.

    With a `site` it moves the objects: from then on they belong to that site.
    """

    objects: tuple[str, ...]
    body: bytes = b""
    site: GroupId = 0


class MoveNote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why an object is where it is: the body of a move that a placer made, and kept of the latest moves."""

    at_us: int | None  # by the clock of the leader that made it; None: a client moved the object
    source: GroupId  # where it was before
    reason: str
    moves: int = 0  # how often it had moved shortly before: see `Use.moves`


_operation = msgspec.msgpack.Decoder(Operation)
_note = msgspec.msgpack.Decoder(MoveNote)


def decode_note(body: bytes) -> MoveNote:
    return _note.decode(body)


def decode_operation(payload: bytes) -> Operation:
    return _operation.decode(payload)


def object_number(name: str) -> int:
    """Stands for the object in traces: 63 bits of a hash of its name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


class Attempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One attempt to order an operation: by which sites, and the how-manieth it is.

    An attempt that was made with wrong sites, since an object had moved, is void. The next one has another number.
    """

    id: MessageId
    number: int
    dst: tuple[GroupId, ...]  # the sites that order it, sorted


class Order(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="step1"):
    """STEP1: a site orders an attempt. One of its sites gets the whole operation, the others only this."""

    attempt: Attempt
    settled: int  # as in the message
    message: AppMessage | None
    # The site that asks for it has followed the log of this one up to this instance, and the attempt is not there.
    followed: int = -1
    home: ProcessId = -1  # the replica that the client asked, if it is known


class Final(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="step2"):
    """STEP2: the final timestamp of an attempt that several sites order."""

    attempt: Attempt
    ts: Timestamp


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="mark"):
    """Here the replicas of this group execute what other sites have ordered, up to these places in their orders."""

    bounds: dict[GroupId, Key]


LogEntry = Order | Final | Mark
decode_entries = msgspec.msgpack.Decoder(list[LogEntry]).decode


class Request(IngressMessage, frozen=True, tag="REQUEST"):
    """A client's operation, to any replica. It is addressed to all groups, since all execute it."""

    message: AppMessage

    def about(self) -> tuple[MessageId, ...]:
        return (self.message.id,)

    def handed_over(self) -> tuple[AppMessage, ...]:
        return (self.message,)

    def problem_with_fields(self, client: ProcessId, topology: Topology) -> str | None:
        if self.message.dst != topology.groups:
            return "an operation is addressed to all groups: all of them execute it"
        return problem_with_operation(self.message.payload, topology)


def problem_with_operation(payload: bytes, topology: Topology) -> str | None:
    """Why no operation is made of this payload; none if it is one."""
    try:
        operation = _operation.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"not an operation: {error}"
    if not 0 < len(operation.objects) <= OBJECTS_MAX:
        return f"an operation names 1 to {OBJECTS_MAX} objects, not {len(operation.objects)}"
    if max(map(len, operation.objects)) > NAME_MAX:
        return f"the name of an object has at most {NAME_MAX} characters"
    if operation.site and not topology.has_group(operation.site):
        return f"there is no site g{operation.site} to move objects to"
    return None


class Step1(Wire, frozen=True, tag="STEP1"):
    """Please order these: to the members of a site, of which the leader does it."""

    orders: tuple[Order, ...]

    def about(self) -> tuple[MessageId, ...]:
        return tuple([order.attempt.id for order in self.orders if order.attempt.id >= 0])  # moves are no messages


class Followed(Wire, frozen=True, tag="FOLLOWED"):
    """The sender has all of the receiver's log below `position`, on disk."""

    position: int


class HoldThis(Wire, frozen=True, tag="HOLD"):
    """The sender's site keeps much for the receiver's group: please put on disk what you have followed."""


class Places(Wire, frozen=True, tag="PLACES"):
    """How far a replica has followed each log: it lacks instances that their sites have forgotten."""

    positions: dict[GroupId, int]


class SiteState(Wire, frozen=True, tag="SITE-STATE"):
    """For a peer that sent its `Places`."""

    hands_over_state: ClassVar[bool] = True
    state: bytes


GeoMessage = Request | Step1 | Followed | HoldThis | Places | SiteState
