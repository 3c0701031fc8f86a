"""What is said on a connection besides the protocol's own messages.

A connection starts with HELLO. The answer is WELCOME, or REFUSED with a reason, after which it is closed. A process may
also hear LOST: the other one remembers more of it than its own disk holds. Once welcome, a process sends its protocol's
messages, and marks that say how many of its records are durable. Nothing comes back: each pair of processes has one
connection for each direction. A client sends START and the requests below, and gets answers; a connection may speak for
many client ids, each of them proved by a ticket. An observer is a client program that only asks and follows: it has no
id, since it has nothing to multicast. A reader is a process that asks another member of its group for what it misses:
deliveries, or the application's state.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId
from ...protocols import Reply, Start
from ...protocols.geopaxos.placer import ObjectPlacement, PlacementStatus
from ..config import ClusterConfig
from ..layout import DataLayout

VERSION = 5
HELLO_LIMIT = 60 << 10  # bytes of a frame, as long as it is not known who sends
MARK = 0xC1  # the first byte of a frame between processes that is no message of the protocol: no msgpack begins with it
MARK_BYTES = 9  # of one that counts records: its second byte is 0, and that of a word between applications is not
EXCHANGE_HEAD = 2  # bytes before a word between applications
CLIENT_FRAME_LIMIT = 8 << 20
RESULTS_MAX = 1_000  # messages, in a question for results
QUERIES_MAX = 1_000  # in one frame

# What decoding a frame can raise, whoever made it. Arrays that are nested a thousand times are a RecursionError.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Life(msgspec.Struct, array_like=True):
    """How far a process has got, by its own disk. Others remember it, and recognise a disk that is older or empty."""

    incarnation: int  # goes up whenever the process has lost its records
    boot: int  # how often it was started
    nonce: int  # drawn for each boot: two copies of one disk count their boots alike
    records: int  # how many are durable, in this incarnation; at HELLO, how many were when this boot began

    def is_before(self, other: Life) -> bool:
        """Whether this is an older boot, or another one with the same number, which a copy of the disk counted."""
        mine, others = (self.incarnation, self.boot), (other.incarnation, other.boot)
        return mine < others or (mine == others and self.nonce != other.nonce)


class Member(msgspec.Struct, frozen=True, array_like=True):
    """What a process says of itself at HELLO."""

    cluster_id: str
    layout: DataLayout
    life: Life


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    version: int
    cluster: str  # empty: a client that does not know it yet
    kind: str  # process, client, observer or reader
    name: str
    member: Member | None = None  # of a process
    token: str = ""
    client: ProcessId = 0  # the id of a client that has one already; 0: it gets a new one
    ticket: bytes = b""  # proves that id
    region: str = "local"


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    name: str
    client: ProcessId
    ticket: bytes
    layout: bytes  # the cluster's `Layout` as msgpack, for a client
    ticket_s: int = 0  # how long the ticket is valid; 0: it does not end


class Attach(msgspec.Struct, frozen=True, array_like=True, tag="attach"):
    """From now on this connection speaks for this client id as well."""

    client: ProcessId
    ticket: bytes


class Renew(msgspec.Struct, frozen=True, array_like=True, tag="renew"):
    """Please send a new ticket for this client id, for which the connection speaks."""

    client: ProcessId


class Renewed(msgspec.Struct, frozen=True, array_like=True, tag="renewed"):
    client: ProcessId
    ticket: bytes


class Detach(msgspec.Struct, frozen=True, array_like=True, tag="detach"):
    """From now on this connection does not speak for this client id."""

    client: ProcessId
    settled: int = 0  # all its messages with lower sequence numbers were answered


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    reason: str
    elsewhere: bool = False  # it is not for good, and has nothing to do with the client: another process may take it


class Lost(msgspec.Struct, frozen=True, array_like=True, tag="lost"):
    """The process that said HELLO has lost its disk, or runs on an older copy of it."""

    known: Life  # what is remembered of it
    reason: str


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """What a client must know of a cluster."""

    cluster: str
    protocol: str
    groups: dict[GroupId, tuple[ProcessId, ...]]
    names: dict[ProcessId, str]
    addresses: dict[ProcessId, tuple[str, int]]
    regions: dict[ProcessId, str]
    network: str
    options: dict[str, Any]
    epoch_s: int
    message_bytes: int
    id: str = ""  # of the cluster


def cluster_layout(config: ClusterConfig) -> Layout:
    topology = config.topology()
    return Layout(
        config.cluster,
        config.protocol,
        {group: topology.members(group) for group in topology.groups},
        {id_: name for name, id_ in config.ids().items()},
        config.addresses(),
        {process: topology.region(process) for process in topology.processes},
        config.network,
        config.options,
        config.epoch_s,
        config.limits.message_bytes,
        config.id,
    )


class Busy(msgspec.Struct, frozen=True, array_like=True, tag="busy"):
    """These messages were not taken, since too many are open. It is safe to send them again, under the same ids."""

    group: GroupId
    ids: tuple[MessageId, ...]


class Refusal(IntEnum):
    """Why an application did not execute a message that its group has delivered."""

    SKIPPED = 1
    OTHER_REQUEST = 2
    FORGOTTEN = 3
    TOO_EARLY = 4

    @property
    def text(self) -> str:
        return _REFUSAL_TEXTS[self]


_REFUSAL_TEXTS = {
    Refusal.SKIPPED: "this message was skipped by a decision of the operator: it was not executed",
    Refusal.OTHER_REQUEST: "this key was used before, for another request: choose another key",
    Refusal.FORGOTTEN: "this request was executed before, and its answer is not kept any more",
    Refusal.TOO_EARLY: "nothing is skipped: the group has not delivered that position before this decision",
}

Result = bytes | Refusal | None  # what an application answered to a message


class ResultsQuery(msgspec.Struct, frozen=True, array_like=True, tag="results?"):
    """What did the application of this group answer to these messages?"""

    ids: Annotated[tuple[MessageId, ...], msgspec.Meta(max_length=RESULTS_MAX)]


class Results(msgspec.Struct, frozen=True, array_like=True, tag="results"):
    """What the application of a group answered. Of messages that are missing here it is not known yet, or no longer."""

    group: GroupId
    ids: tuple[MessageId, ...]
    results: tuple[Result, ...]
    problem: str = ""  # why there never will be any result


# What an application read for another group, or why the message is not executed in any group; none if there is nothing.
ReadValue = bytes | Refusal | None


class Told(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """To another group: what the application read for the messages that both groups execute, from this number on."""

    first: int
    values: tuple[ReadValue, ...]
    kept_from: int  # values of lower numbers are gone


class Tell(msgspec.Struct, frozen=True, array_like=True, tag="tell"):
    """To another group: so many exchanges are executed here, and so many are in the durable state."""

    executed: int
    durable: int
    wants: bool  # please tell what comes next


class Query(msgspec.Struct, frozen=True, array_like=True, tag="query"):
    """Please ask the application of this group. Nothing is ordered: the answer shows what the group has delivered.

    The numbers are the asker's own, to tell the answers apart. `max_age_ms` of 0 asks for the newest state; otherwise
    the state of any member will do that is not older.
    """

    group: GroupId
    max_age_ms: int
    numbers: Annotated[tuple[int, ...], msgspec.Meta(max_length=QUERIES_MAX)]
    payloads: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=QUERIES_MAX)]


class Answers(msgspec.Struct, frozen=True, array_like=True, tag="answers"):
    """To queries with these numbers."""

    group: GroupId
    leader: ProcessId | None  # of the group, if it is a member: whoever asks there is answered sooner
    numbers: tuple[int, ...]
    answers: tuple[bytes | None, ...]


class Unanswered(msgspec.Struct, frozen=True, array_like=True, tag="unanswered"):
    """Queries with these numbers have no answer, for a reason that is one of the constants below."""

    group: GroupId
    numbers: tuple[int, ...]
    kind: str
    reason: str


WRONG = "wrong"  # there never will be an answer: no right, no application, ...
FAILED = "failed"  # the application raised
BUSY = "busy"  # too many queries wait
ELSEWHERE = "elsewhere"  # this process can't answer now: another one may, or this one later


class Follow(msgspec.Struct, frozen=True, array_like=True, tag="follow"):
    """Please send what the group delivered from this position on, and then what it delivers from now on."""

    group: GroupId
    position: int


class Unfollow(msgspec.Struct, frozen=True, array_like=True, tag="unfollow"):
    pass


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag="delivered"):
    first: int
    messages: tuple[tuple[AppMessage, int | None], ...]


class Gone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """The position that was asked for is missing here. `first` is the next one that is not."""

    first: int


class DeliveriesQuery(msgspec.Struct, frozen=True, array_like=True, tag="deliveries?"):
    """From another member, whose log has a gap at this position. GONE is an answer too."""

    position: int


class StoredDeliveries(msgspec.Struct, frozen=True, array_like=True, tag="deliveries"):
    """As the log has them, batches as they were delivered. The first may begin below the position that was asked for.

    None: the position is not delivered here yet.
    """

    first: int
    messages: tuple[tuple[AppMessage, int | None], ...]


class AppStateQuery(msgspec.Struct, frozen=True, array_like=True, tag="app-state?"):
    """From another member, whose application needs messages that nobody keeps any more.

    It wants the state after at least so many positions. If it has a part of a state already, it tells of which one, and
    how many bytes.
    """

    at_least: int
    position: int = -1
    checksum: int = 0
    offset: int = 0
    digest: bytes = b""  # instead of the checksum, where members may lie


class AppStatePart(msgspec.Struct, frozen=True, array_like=True, tag="app-state"):
    """Bytes from an offset on, of the state of an application that has applied all positions below this one."""

    position: int
    size: int  # of the whole state, as the checksum
    checksum: int
    offset: int
    data: bytes


class NoAppState(msgspec.Struct, frozen=True, array_like=True, tag="no-app-state"):
    """There is no application here, or it is not that far."""


class StateDigest(msgspec.Struct, frozen=True, array_like=True):
    """A state of the application that several members may have."""

    position: int  # all positions below are applied
    size: int
    digest: bytes


class AppDigestsQuery(msgspec.Struct, frozen=True, array_like=True, tag="app-digests?"):
    """Where members may lie, before a state is asked for: which states are there, after at least so many positions?"""

    at_least: int
    wanted: int = 0  # please keep the state after this position, once it is reached


class AppDigests(msgspec.Struct, frozen=True, array_like=True, tag="app-digests"):
    position: int  # where the application is now
    states: tuple[StateDigest, ...]


class StatusQuery(msgspec.Struct, frozen=True, array_like=True, tag="status?"):
    pass


class Status(msgspec.Struct, frozen=True, array_like=True, tag="status"):
    """How a process is, as it says itself: what `amcast status --json` shows."""

    name: str
    group: str
    protocol: str
    boot: int  # how often it was started
    is_leader: bool
    leader: str | None  # of its group, as far as it knows
    delivered: int  # positions
    open_messages: int  # taken from clients, and not replied to yet
    clients: int  # sessions
    peers: dict[str, bool]  # connected to it or not
    messages_in: int
    messages_out: int
    dropped: int  # messages to peers that were away or too slow
    durability: str
    undurable: int  # records on their way to the disk
    uptime_s: float
    rss_mb: float  # the most memory that it had
    problem: str | None = None  # such as a full disk
    application: int | None = None  # the next position that the application applies, if there is one
    incarnation: int = 0  # how often it lost its disk
    connections: int = 0  # accepted and open, of everybody
    strangers: int = 0  # of these, those that have not said who they are
    followers: int = 0
    forwarded_bytes: int = 0  # passed on to the leader, and not delivered yet
    refused: dict[str, int] = {}  # connections that were refused or cut off, by cause
    held_at: int | None = None  # the application waits at this position for the decision to skip it
    warnings: tuple[str, ...] = ()  # it goes on, but somebody should act: such as a certificate that ends soon


class PlacementQuery(msgspec.Struct, frozen=True, array_like=True, tag="placement?"):
    """Where is this object, and why? Or without one: how does placement go?"""

    object: str = ""
    moves: int = 0  # so many of the latest moves, please


class Placement(msgspec.Struct, frozen=True, array_like=True, tag="placement"):
    """What one process knows of the sites of objects: what `amcast placement` shows."""

    name: str
    group: str
    is_leader: bool
    object: ObjectPlacement | None = None  # that was asked for
    status: PlacementStatus | None = None  # if none was
    problem: str | None = None  # why there is no answer


hello_decoder: msgspec.msgpack.Decoder[Hello] = msgspec.msgpack.Decoder(Hello)
welcome_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Welcome | Refused | Lost)
Observation = Follow | Unfollow | StatusQuery | PlacementQuery | Query
observation_decoder: msgspec.msgpack.Decoder[Observation] = msgspec.msgpack.Decoder(Observation)
Request = Start | Attach | Renew | Detach | ResultsQuery | Observation
to_client_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    Reply
    | Results
    | Answers
    | Unanswered
    | Busy
    | Delivered
    | Gone
    | Refused
    | Renewed
    | Status
    | Placement
    | StoredDeliveries
    | AppStatePart
    | AppDigests
    | NoAppState
)
exchange_decoder: msgspec.msgpack.Decoder[Told | Tell] = msgspec.msgpack.Decoder(Told | Tell)
reader_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    DeliveriesQuery | AppStateQuery | AppDigestsQuery
)
layout_decoder: msgspec.msgpack.Decoder[Layout] = msgspec.msgpack.Decoder(Layout)


def mark(records: int) -> bytes:
    """Says on a link how many records of the sender are durable now."""
    return bytes((MARK,)) + records.to_bytes(MARK_BYTES - 1, "big")
