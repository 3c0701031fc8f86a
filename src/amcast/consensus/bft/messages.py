"""What the Byzantine log says.

    proposer      leader          all members
       |--entry----->|                 |
       |             |--PROPOSE------->|   value, view, instance; the leader's WRITE as well, if its disk has the value
       |             |                 |--WRITE---->|   to all: its digest, if the layer above approves of the value
       |             |                 |            |   decided: all n members wrote the same digest; otherwise:
       |             |                 |--ACCEPT--->|   to all: n-f members wrote the same digest; it is prepared
       |             |                 |            |   decided: n-f members accepted

Two delays from the leader to every member if all are up and in time, otherwise three. Votes carry digests and no
signature: the link says whose they are, and nobody shows them to others. What is shown to others is signed:
VIEW-CHANGE and NEW-VIEW.
"""

from __future__ import annotations

from hashlib import sha256
from typing import ClassVar

import msgspec

from ...core import ProcessId, Record
from ..base import LogWire
from ..multipaxos.messages import COMMAND, NOTHING, Incarnation, Readd, decode_readd, encode_readd, has_entries

View = int  # the leader of view v is member v mod n of the group
Digest = bytes

NO_DIGEST: Digest = b""
DIGEST_BYTES = 32


def digest_of(data: bytes) -> Digest:
    """Each member hashes all that it votes for: processors have instructions for this hash."""
    return sha256(data).digest()


class Propose(LogWire, frozen=True, tag="propose"):
    view: View
    instance: int
    value: bytes
    is_written: bool = False  # its leader has it on disk: the proposal is its WRITE as well


class Write(LogWire, frozen=True, tag="write"):
    view: View
    instance: int
    digest: Digest
    again: bool = False  # it was sent before: the sender still waits for the others' votes


class Accept(LogWire, frozen=True, tag="accept"):
    view: View
    instance: int
    digest: Digest
    again: bool = False  # it was sent before: the sender still waits for the others' votes


class Checkpoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The digest of the state after all instances below `next`, which the sender has on disk."""

    next: int
    digest: Digest


class Status(LogWire, frozen=True, tag="status"):
    """Every few ticks, to all members: how far the sender is."""

    view: View
    installed: bool  # whether it has seen how this view begins; if not, it needs the NEW-VIEW
    next: int
    checkpoints: tuple[Checkpoint, ...]


class AskValues(LogWire, frozen=True, tag="ask-values"):
    """The sender lacks instances from `first` on. Everybody tells their digests, and `giver` the values too."""

    first: int
    giver: ProcessId


class Values(LogWire, frozen=True, tag="values"):
    """What was decided from instance `first` on. If nothing: the sender has forgotten what was asked for."""

    first: int
    digests: tuple[Digest, ...]
    values: tuple[bytes, ...] = ()


class AskValue(LogWire, frozen=True, tag="ask-value"):
    """A new leader has to propose the value with this digest, and does not have it."""

    instance: int
    digest: Digest


class Value(LogWire, frozen=True, tag="value"):
    instance: int
    value: bytes


class AskState(LogWire, frozen=True, tag="ask-state"):
    next: int


class HandedState(LogWire, frozen=True, tag="handed-state"):
    """The state at a checkpoint: whoever asked knows its digest from f+1 members."""

    hands_over_state: ClassVar[bool] = True
    next: int
    state: bytes


class Voted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member did for one instance. The members' words together tell what may have been decided."""

    instance: int
    prepared_view: View  # -1: never prepared here
    prepared: Digest
    written: tuple[tuple[View, Digest], ...]  # each digest that it wrote, with the last view in which it did
    decided: Digest = NO_DIGEST


class ViewChange(LogWire, frozen=True, tag="view-change"):
    """The sender leaves for this view, and votes in no lower one any more."""

    view: View
    process: ProcessId
    incarnation: Incarnation
    low: int  # the words below are about instances from here on
    checkpoints: tuple[Checkpoint, ...]  # its own, on disk, from `low` on
    votes: tuple[Voted, ...]
    proof: bytes = b""

    def signed(self) -> bytes:
        return msgspec.msgpack.encode(
            (
                "view-change",
                self.group,
                self.view,
                self.process,
                self.incarnation,
                self.low,
                self.checkpoints,
                self.votes,
            )
        )


class NewView(LogWire, frozen=True, tag="new-view"):
    """n-f members or more have left for this view: what has to be proposed first follows from what they said."""

    view: View
    changes: tuple[ViewChange, ...]
    proof: bytes = b""

    def signed(self) -> bytes:
        return msgspec.msgpack.encode(("new-view", self.group, self.view, [each.proof for each in self.changes]))


class AskRejoin(LogWire, frozen=True, tag="ask-rejoin"):
    """A member that lost its disk asks to be taken back under a new incarnation."""

    incarnation: Incarnation


class Outrun(LogWire, frozen=True, tag="outrun"):
    """The log has taken the member back under this incarnation, so one that it asks for needs a higher number."""

    known: Incarnation


class AskRead(LogWire, frozen=True, tag="ask-read"):
    read: int


class ReadUpTo(LogWire, frozen=True, tag="read-up-to"):
    """All that the sender knows of is in instances below `next`."""

    read: int
    next: int


BftMessage = (
    Propose
    | Write
    | Accept
    | Status
    | AskValues
    | Values
    | AskValue
    | Value
    | AskState
    | HandedState
    | ViewChange
    | NewView
    | AskRejoin
    | Outrun
    | AskRead
    | ReadUpTo
)


class BftMemberRecord(Record, frozen=True, tag="bft-member"):
    """The first record of a disk: without it, the disk is not the one that this process voted with."""

    incarnation: Incarnation


class ViewRecord(Record, frozen=True, tag="bft-view"):
    view: View


class WrittenRecord(Record, frozen=True, tag="bft-written"):
    view: View
    instance: int
    value: bytes


class PreparedRecord(Record, frozen=True, tag="bft-prepared"):
    view: View
    instance: int
    digest: Digest


class CheckpointRecord(Record, frozen=True, tag="bft-checkpoint"):
    incarnation: Incarnation
    view: View
    base: int  # the last checkpoint, which is where the state is from unless the member was just taken back
    base_bytes: int  # of values since
    low: int
    checkpoints: tuple[Checkpoint, ...]
    votes: tuple[Voted, ...]  # from `low` on
    values: tuple[tuple[int, bytes], ...]  # instance and value, of those that are not in the state
    state: bytes  # an encoded `CheckpointState`
    known_from: int = 0  # a member that lost its disk knows nothing of instances before this one


BftRecord = BftMemberRecord | ViewRecord | WrittenRecord | PreparedRecord | CheckpointRecord


class CheckpointState(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint's digest is of."""

    next: int
    incarnations: dict[ProcessId, Incarnation]
    state: bytes


__all__ = [
    "COMMAND",
    "NOTHING",
    "Incarnation",
    "Readd",
    "decode_readd",
    "encode_readd",
    "has_entries",
]
