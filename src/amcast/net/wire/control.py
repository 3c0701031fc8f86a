"""What is said on a connection besides the protocol's own messages.

A connection starts with HELLO. The answer is WELCOME, or REFUSED with a reason, after which it is closed. A process
then sends its protocol's messages, and nothing comes back: each pair of processes has one connection for each
direction. A client sends START and the requests below, and gets answers; a connection may speak for many client ids,
each of them proved by a ticket. An observer is a client program that only asks and follows: it has no id, since it has
nothing to multicast. A reader is a process that asks another one for its application's state.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId
from ...protocols import Reply, Start

VERSION = 2
HELLO_LIMIT = 16 << 10  # bytes of a frame, as long as it is not known who sends
CLIENT_FRAME_LIMIT = 8 << 20


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    version: int
    cluster: str  # empty: a client that does not know it yet
    kind: str  # process, client, observer or reader
    name: str
    boot: int = 0  # of a process: how often it was started, so that a newer start replaces an older one
    token: str = ""
    client: ProcessId = 0  # the id of a client that has one already; 0: it gets a new one
    ticket: bytes = b""  # proves that id
    region: str = "local"


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    name: str
    client: ProcessId
    ticket: bytes
    layout: bytes  # the cluster's `Layout` as msgpack, for a client


class Attach(msgspec.Struct, frozen=True, array_like=True, tag="attach"):
    """From now on this connection speaks for this client id as well."""

    client: ProcessId
    ticket: bytes


class Detach(msgspec.Struct, frozen=True, array_like=True, tag="detach"):
    """From now on this connection does not speak for this client id."""

    client: ProcessId


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    reason: str
    elsewhere: bool = False  # it is not for good, and has nothing to do with the client: another process may take it


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


class Busy(msgspec.Struct, frozen=True, array_like=True, tag="busy"):
    """These messages were not taken, since too many are open. It is safe to send them again, under the same ids."""

    group: GroupId
    ids: tuple[MessageId, ...]


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
    """The position that was asked for is no longer kept. `first` is the first one that is."""

    first: int


class AppStateQuery(msgspec.Struct, frozen=True, array_like=True, tag="app-state?"):
    """From another replica, whose application needs messages that are no longer kept."""


class AppState(msgspec.Struct, frozen=True, array_like=True, tag="app-state"):
    """The state of an application that has applied all positions below this one."""

    position: int
    state: bytes


class StatusQuery(msgspec.Struct, frozen=True, array_like=True, tag="status?"):
    pass


class Status(msgspec.Struct, frozen=True, array_like=True, tag="status"):
    name: str
    group: str
    protocol: str
    boot: int
    is_leader: bool
    leader: str | None
    delivered: int  # positions
    open_messages: int
    clients: int
    peers: dict[str, bool]  # connected to it or not
    messages_in: int
    messages_out: int
    dropped: int  # messages to peers that were away or too slow
    durability: str
    undurable: int  # records on their way to the disk
    uptime_s: float
    rss_mb: float
    problem: str | None = None  # such as a full disk
    application: int | None = None  # the next position that the application applies, if there is one


hello_decoder: msgspec.msgpack.Decoder[Hello] = msgspec.msgpack.Decoder(Hello)
welcome_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Welcome | Refused)
Observation = Follow | Unfollow | StatusQuery
observation_decoder: msgspec.msgpack.Decoder[Observation] = msgspec.msgpack.Decoder(Observation)
Request = Start | Attach | Detach | Observation
to_client_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    Reply | Busy | Delivered | Gone | Refused | Status | AppState
)
layout_decoder: msgspec.msgpack.Decoder[Layout] = msgspec.msgpack.Decoder(Layout)
