"""What Multi-Paxos says.

    proposer      leader        acceptors       learners (the members, and other groups' processes that asked)
       |--entry----->|              |               |
       |             |--2a--------->|-------------->|   value, ballot, instance
       |             |              |--2b---------->|   a vote, sent when it is durable
       |             |              |               |   decided: a majority voted in one ballot

Two delays from the leader to every learner. Phase 1 (1a, 1b) runs once for a leader, not for an instance. Where votes
wait for a disk, a `2a` is no vote: the leader's own `2b` follows when its disk has it, so that the disks of leader and
acceptors work in parallel. Where they do not, the vote goes with the `2a`, and in a group of three each acceptor knows
with its own vote that the instance is decided: it tells the leader, and nobody else.

Every message names the group whose log it is about: a process may learn several groups' logs.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ...core import ProcessId, Record
from ...core.ids import PROCESS_ID_LIMIT
from ..base import LogWire

Ballot = int  # round * PROCESS_ID_LIMIT + owner: ordered by round, unique to its owner


def ballot_of(round_: int, owner: ProcessId) -> Ballot:
    return round_ * PROCESS_ID_LIMIT + owner


def round_of(ballot: Ballot) -> int:
    return ballot // PROCESS_ID_LIMIT


def owner_of(ballot: Ballot) -> ProcessId:
    return ballot % PROCESS_ID_LIMIT


# Which disk of a member it is: `number << 40 | nonce`. The disk that a member begins with is incarnation 0. Each later
# one has a higher number than those before it; the nonce tells two apart that asked for the same number.
Incarnation = int
NONCE_BITS = 40


def incarnation_of(number: int, nonce: int) -> Incarnation:
    return number << NONCE_BITS | nonce


def number_of(incarnation: Incarnation) -> int:
    return incarnation >> NONCE_BITS


def nonce_of(incarnation: Incarnation) -> int:
    return incarnation & ((1 << NONCE_BITS) - 1)


class Vote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value, and the highest ballot in which an acceptor voted for it."""

    instance: int
    ballot: Ballot
    value: bytes


class Prepare(LogWire, frozen=True, tag="1a"):
    ballot: Ballot
    first: int  # the first instance that the candidate does not know


class Promise(LogWire, frozen=True, tag="1b"):
    ballot: Ballot
    incarnation: Incarnation
    floor: int  # what is below was decided and is not kept any more
    votes: tuple[Vote, ...]


class Accept(LogWire, frozen=True, tag="2a"):
    ballot: Ballot
    instance: int
    value: bytes
    voted: bool = False  # the leader's own vote is with it


class Accepted(LogWire, frozen=True, tag="2b"):
    ballot: Ballot
    instance: int


class Nack(LogWire, frozen=True, tag="nack"):
    """The sender has promised a higher ballot."""

    promised: Ballot


class Heartbeat(LogWire, frozen=True, tag="heartbeat"):
    ballot: Ballot
    decided: int  # all instances below are decided
    floor: int  # all learners have what is below: it may be forgotten


class HeartbeatAck(LogWire, frozen=True, tag="heartbeat-ack"):
    ballot: Ballot
    applied: int  # durably: a restart of the sender needs nothing below


class ReadIndex(LogWire, frozen=True, tag="read-index"):
    """The sender has begun a read, and asks the leader what it has to wait for."""

    read: int


class Confirm(LogWire, frozen=True, tag="confirm"):
    """Is this still the highest ballot that you promised?"""

    ballot: Ballot
    round: int


class Confirmed(LogWire, frozen=True, tag="confirmed"):
    ballot: Ballot
    round: int


class ReadAt(LogWire, frozen=True, tag="read-at"):
    """All that anybody was handed before the read began is in instances below `next`."""

    read: int
    next: int


class CatchUp(LogWire, frozen=True, tag="catch-up"):
    first: int  # the first instance that the asker lacks


class Learn(LogWire, frozen=True, tag="learn"):
    """Decided values, from instance `first` on."""

    first: int
    values: tuple[bytes, ...]


class State(LogWire, frozen=True, tag="state"):
    """The state after all instances below `next`, for a replica that needs what the log has forgotten."""

    hands_over_state: ClassVar[bool] = True
    next: int
    incarnations: dict[ProcessId, Incarnation]
    state: bytes


class Rejoin(LogWire, frozen=True, tag="rejoin"):
    """A member that lost its disk asks to be taken back under a new incarnation."""

    incarnation: Incarnation


class Outdated(LogWire, frozen=True, tag="outdated"):
    """The log has taken the member back under this incarnation, so one that it asks for needs a higher number."""

    known: Incarnation


class Readmission(LogWire, frozen=True, tag="welcome"):
    """The member is taken back: it may vote once it has learned all below `decided`, at this ballot or higher."""

    # "welcome" is its former name: the tag stays, so that nodes of different versions understand each other.

    incarnation: Incarnation
    ballot: Ballot
    decided: int


PaxosMessage = (
    Accepted
    | Accept
    | Heartbeat
    | HeartbeatAck
    | Prepare
    | Promise
    | Nack
    | CatchUp
    | Learn
    | State
    | Rejoin
    | Outdated
    | Readmission
    | ReadIndex
    | Confirm
    | Confirmed
    | ReadAt
)


class MemberRecord(Record, frozen=True, tag="member"):
    """The first record of a disk: without it, the disk is not the one that this process voted with."""

    incarnation: Incarnation


class PromiseRecord(Record, frozen=True, tag="promise"):
    ballot: Ballot


class VoteRecord(Record, frozen=True, tag="vote"):
    vote: Vote


class SnapshotRecord(Record, frozen=True, tag="snapshot"):
    incarnation: Incarnation
    promised: Ballot
    next: int
    incarnations: dict[ProcessId, Incarnation]
    state: bytes
    votes: tuple[Vote, ...]


class LearnedRecord(Record, frozen=True, tag="learned"):
    """A remote learner has learned this instance since its last snapshot."""

    instance: int
    value: bytes


class LearnerRecord(Record, frozen=True, tag="learner"):
    """A remote learner's snapshot."""

    next: int
    incarnations: dict[ProcessId, Incarnation]
    state: bytes


PaxosRecord = LearnedRecord | LearnerRecord | MemberRecord | PromiseRecord | VoteRecord | SnapshotRecord

# A value is a msgpack array of entries, nothing at all (a gap that a new leader closed), or the log's own command
# behind a byte that msgpack never uses.
NOTHING = b""
COMMAND = b"\xc1"


def has_entries(value: bytes) -> bool:
    return value != NOTHING and value[:1] != COMMAND


class Readd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    process: ProcessId
    incarnation: Incarnation

    def apply_to(self, incarnations: dict[ProcessId, Incarnation]) -> None:
        """Two lives of a member may have asked, and both requests may be in the log: the higher number holds, and the
        first of two equal ones. A late request of an earlier life changes nothing, whenever it comes."""
        known = incarnations.get(self.process, 0)
        if number_of(self.incarnation) > number_of(known):
            incarnations[self.process] = self.incarnation


_readd_decoder = msgspec.msgpack.Decoder(Readd)


def encode_readd(readd: Readd) -> bytes:
    return COMMAND + msgspec.msgpack.encode(readd)


def decode_readd(value: bytes) -> Readd | None:
    return _readd_decoder.decode(value[1:]) if value[:1] == COMMAND else None
