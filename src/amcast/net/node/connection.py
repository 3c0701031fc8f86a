"""One accepted connection: who is behind it, what it may ask for, and whether what it sends is fit for the process."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from ...core import AppMessage, BadFrameError, GroupId, MessageId, ProcessId, Wire, encode
from ...core.batch import count_messages, problem_with_batch
from ...core.codec import FRAME_LIMIT
from ...core.ids import SEQ_BITS
from ...protocols import Reply, Start
from ..disk.deliveries import PositionGoneError
from ..disk.records import CorruptLogError
from ..security.access import Rights
from ..security.identity import Kind
from ..security.tls import PeerError, expect
from ..wire.control import (
    CLIENT_FRAME_LIMIT,
    HELLO_LIMIT,
    VERSION,
    Attach,
    Busy,
    Delivered,
    Detach,
    Follow,
    Gone,
    Hello,
    Refused,
    StatusQuery,
    Unfollow,
    Welcome,
    hello_decoder,
)
from ..wire.framing import Frame, FrameProtocol, frame
from ..wire.send_buffer import SendBuffer
from .node import app_messages

if TYPE_CHECKING:  # the server makes connections, and they ask it for what they share
    from .server import NodeServer

HELLO_TIMEOUT_S = 5.0
_FOLLOW_CHUNK = 256 << 10
_KNOWN_DST_MAX = 10_000
_SESSIONS_MAX = 100_000

logger = logging.getLogger("amcast.node")


class Connection(FrameProtocol):
    """One that was accepted. Who is behind it follows from HELLO, and from the certificate where there is one."""

    def __init__(self, server: NodeServer) -> None:
        super().__init__(HELLO_LIMIT)
        self._server = server
        self._node = server.node
        self._on_frame = self._on_hello
        self._timeout: asyncio.TimerHandle | None = None
        self.identity = "a stranger"
        self.peer: ProcessId | None = None
        self.boot = 0
        self.sessions: set[ProcessId] = set()  # the client ids for which it speaks, or spoke
        self._name = ""
        self.open: dict[MessageId, tuple[int, int]] = {}
        self._replies: dict[tuple[GroupId, ...], list[MessageId]] = {}  # of this turn
        self.sender = SendBuffer(server.config.limits.client_bytes * 2, None)
        self._rights = Rights.everything()
        self._known_dst: set[tuple[GroupId, ...]] = set()
        self.following: int | None = None  # the next position that this client wants
        self._is_reading = True

    # -- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timeout = self._server.loop.call_later(HELLO_TIMEOUT_S, self._refuse, "no HELLO came")
        self._server.connections.add(self)
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=self._server.config.limits.client_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._on_frame = self._ignore
        self._server.forget(self)
        self.sender.attach(None)

    def _refuse(self, reason: str) -> None:
        logger.warning("closing the connection of %s: %s", self.identity, reason)
        self._server.refused += 1
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(msgspec.msgpack.encode(Refused(reason))))
        super()._refuse(reason)

    def close(self) -> None:
        """In good order: nobody did anything wrong."""
        self._on_frame = self._ignore
        if self._transport is not None:
            self._transport.close()

    # Too much waits to be written to this client: it is not read from until it has read some of it.

    def pause_writing(self) -> None:
        if self._transport is not None and self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
        self._server.wake_followers()

    # -- hello

    def _on_hello(self, data: Frame) -> None:
        try:
            hello = hello_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._refuse("the first frame is no HELLO")
            return
        if hello.version != VERSION:
            self._refuse(f"version {hello.version} of the protocol is not spoken here, {VERSION} is")
        elif hello.kind == "process":
            self._welcome_peer(hello)
        elif hello.kind == "client":
            self._welcome_client(hello)
        elif hello.kind == "reader":
            self._welcome_reader(hello)
        else:
            self._refuse("HELLO is from neither a process nor a client")

    def _certified(self, kind: Kind, name: str) -> bool:
        """With TLS, the name in HELLO must be the one in the certificate."""
        assert self._transport is not None
        if self._server.security.server is None:
            return True
        try:
            expect(self._transport.get_extra_info("ssl_object"), kind, name)
        except PeerError:
            return False
        return True

    def _welcome_peer(self, hello: Hello) -> None:
        ids = self._server.ids
        if hello.cluster != self._server.config.cluster:
            self._refuse(f"this is cluster '{self._server.config.cluster}', not '{hello.cluster[:100]}'")
        elif hello.name not in ids or hello.name == self._node.name:
            self._refuse(f"no other process of this cluster is called '{hello.name[:100]}'")
        elif not self._certified("process", hello.name):
            self._refuse(f"the certificate is not that of process {hello.name}")
        elif (problem := self._server.replace_peer(ids[hello.name], hello.boot)) is not None:
            self._refuse(problem)
        else:
            self.identity, self.peer, self.boot = hello.name, ids[hello.name], hello.boot
            self._limit = FRAME_LIMIT
            self._on_frame = self._on_peer_frame
            self._server.peers[self.peer] = self
            self._accept(Welcome(self._node.name, 0, b"", b""))

    def _welcome_client(self, hello: Hello) -> None:
        server = self._server
        rights = server.access.check(hello.token)
        if hello.cluster and hello.cluster != server.config.cluster:
            self._refuse(f"this is cluster '{server.config.cluster}', not '{hello.cluster[:100]}'")
        elif not self._certified("client", hello.name):
            self._refuse("the certificate is not that of this client")
        elif rights is None:
            self._refuse("this token is not known here: ask for one (`amcast token`)")
        elif hello.client and not server.tickets.is_valid(hello.client, hello.name, hello.ticket):
            self._refuse("the ticket does not prove this client id")
        elif (problem := self._problem_with_one_more()) is not None:
            self._refuse(problem)
        elif (client := hello.client or server.client_ids.next()) is None:
            self._refuse(f"{self._node.name} can't give out client ids now: try another process")
        else:
            self._rights = rights
            self._name = hello.name
            self.identity = f"client {client}"
            self._limit = CLIENT_FRAME_LIMIT
            self._on_frame = self._on_client_frame
            ticket = server.tickets.issue(client, hello.name)
            delay = server.delay_to_region(hello.region)
            self.sender = SendBuffer(server.config.limits.client_bytes * 2, delay)
            self._accept(Welcome(self._node.name, client, ticket, server.layout))
            self._speak_for(client)

    def _problem_with_one_more(self) -> str | None:
        if len(self._node.clients) >= self._server.config.limits.clients:
            return "too many clients are connected: try another process"
        if len(self.sessions) >= _SESSIONS_MAX:
            return f"{_SESSIONS_MAX} client ids have used this connection: open another one"
        return None

    def _speak_for(self, client: ProcessId) -> None:
        clients = self._node.clients
        old = clients.get(client)
        clients[client] = self
        self.sessions.add(client)
        if isinstance(old, Connection) and old is not self:
            old.close()
        for data in self._node.claim_replies(client):
            self.send_frame(data)

    def _on_attach(self, message: Attach) -> None:
        if not self._server.tickets.is_valid(message.client, self._name, message.ticket):
            self._refuse("the ticket does not prove this client id")
        elif (problem := self._problem_with_one_more()) is not None:
            self._refuse(problem)
        else:
            self._speak_for(message.client)

    def _on_detach(self, message: Detach) -> None:
        """What it said before may still be on its way here, so it stays among those who may speak."""
        if self._node.clients.get(message.client) is self:
            del self._node.clients[message.client]
            for id_ in [id_ for id_ in self.open if id_ >> SEQ_BITS == message.client]:
                self._node.close_one(self, id_)  # nobody will be answered

    def _welcome_reader(self, hello: Hello) -> None:
        if hello.name not in self._server.ids or not self._certified("process", hello.name):
            self._refuse(f"'{hello.name[:100]}' is no process of this cluster, or can't prove it")
        else:
            self.identity = f"{hello.name}, reading"
            self._limit = HELLO_LIMIT
            self._on_frame = self._on_reader_frame
            self._accept(Welcome(self._node.name, 0, b"", b""))

    def _on_reader_frame(self, data: Frame) -> None:
        host = self._server.host
        if host is None:
            self._refuse(f"{self._node.name} runs no application")
        else:
            self._say(host.dump())

    def _accept(self, welcome: Welcome) -> None:
        assert self._timeout is not None
        assert self._transport is not None
        self._timeout.cancel()
        self._transport.write(frame(msgspec.msgpack.encode(welcome)))
        self.sender.attach(self._transport)

    # -- peers

    def _on_peer_frame(self, data: Frame) -> None:
        assert self.peer is not None
        try:
            self._node.receive(self.peer, data)
        except BadFrameError as error:
            self._refuse(str(error))
        except Exception as error:
            self._server.fail(error)

    # -- clients

    def reply(self, reply: Reply) -> bool:
        """Whether it is the first of this turn: the caller then sees to it that `send_replies` is called."""
        is_first = not self._replies
        ids = self._replies.get(reply.groups)
        if ids is None:
            self._replies[reply.groups] = [*reply.ids]
        else:
            ids += reply.ids
        return is_first

    def send_replies(self) -> None:
        replies, self._replies = self._replies, {}
        for groups, ids in replies.items():
            self.send_frame(frame(encode(Reply(groups, tuple(ids)))))

    def send_frame(self, data: bytes) -> None:
        self._node.touch_sender(self.sender, data)

    def _say(self, message: msgspec.Struct) -> None:
        self.send_frame(frame(msgspec.msgpack.encode(message)))

    def _on_client_frame(self, data: Frame) -> None:
        try:
            message = self._server.requests.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._refuse(f"not a request: {error}")
            return
        match message:
            case Start():
                self._on_start(message)
            case Attach():
                self._on_attach(message)
            case Detach():
                self._on_detach(message)
            case Follow():
                self._on_follow(message)
            case Unfollow():
                self._unfollow()
            case StatusQuery():
                self._say(self._server.status())
            case Wire():
                self._on_entry(message)

    def _on_start(self, message: Start) -> None:
        sessions, known_dst, limit = self.sessions, self._known_dst, self._server.config.limits.message_bytes
        size = 0
        for each in message.messages:
            if (
                each.count != 1
                or each.id >> SEQ_BITS not in sessions
                or each.dst not in known_dst
                or len(each.payload) > limit
            ):
                problem = self._problem_with(each)
                if problem is not None:
                    self._refuse(problem)
                    return
            size += len(each.payload)
        try:
            taken = self._admit(message, size)
            if taken.messages:
                self._node.take(taken.messages[0].id >> SEQ_BITS, taken)
        except Exception as error:
            self._server.fail(error)

    def _on_entry(self, message: Wire) -> None:
        """Where messages do not enter by a START: what a client says must be about messages of its own."""
        problem = None
        senders = {id_ >> SEQ_BITS for id_ in message.about()}
        if len(senders) != 1 or not senders <= self.sessions:
            problem = "a message carries another sender's id"
        for each in app_messages(message):
            problem = problem or self._problem_with(each)
        if problem is not None:
            self._refuse(problem)
            return
        try:
            self._node.take(senders.pop(), message)
        except Exception as error:
            self._server.fail(error)

    def _problem_with(self, message: AppMessage) -> str | None:
        limit = self._server.config.limits.message_bytes
        if message.id >> SEQ_BITS not in self.sessions:
            return "a message carries another sender's id"
        if message.count != 1:
            if not self._node.has_batches:
                return f"{self._server.config.protocol} orders each message by itself: no batch, please"
            problem = problem_with_batch(message, limit)
            if problem is not None:
                return problem
        elif len(message.payload) > limit:
            return f"a payload of {len(message.payload)} bytes is over the limit of {limit}"
        if message.dst in self._known_dst:
            return None
        if not message.dst or tuple(sorted(set(message.dst))) != message.dst:
            return "the destinations of a message are not a sorted list without repetition"
        for group in message.dst:
            if not self._node.topology.has_group(group):
                return f"there is no group g{group} to send to"
        if not self._rights.may_send(message.dst):
            return "this client has no right to send to " + ", ".join(f"g{group}" for group in message.dst)
        if len(self._known_dst) < _KNOWN_DST_MAX:
            self._known_dst.add(message.dst)
        return None

    def _admit(self, message: Start, size: int) -> Start:
        """Only a leader keeps count: what others get, they pass on and forget."""
        node, limits = self._node, self._server.config.limits
        if not node.process.is_leader:
            return message
        room = limits.open_messages - node.open_messages
        if count_messages(message.messages) > room or node.open_bytes + size > limits.open_bytes:
            return self._admit_some(message)
        for each in message.messages:
            if each.id not in self.open:
                self._open_one(each)
        return message

    def _admit_some(self, message: Start) -> Start:
        turned_away = [each.id for each in message.messages if not self._is_admitted(each)]
        if turned_away:
            self._server.busy += len(turned_away)
            self._say(Busy(self._node.group, tuple(turned_away)))
        return Start(tuple(each for each in message.messages if each.id in self.open))

    def _is_admitted(self, message: AppMessage) -> bool:
        node, limits = self._node, self._server.config.limits
        if message.id in self.open:
            return True
        has_room = node.open_messages < limits.open_messages  # a batch is taken whole, or it might never be
        if has_room and node.open_bytes + len(message.payload) <= limits.open_bytes:
            self._open_one(message)
            return True
        return False

    def _open_one(self, message: AppMessage) -> None:
        if self._node.clients.get(message.id >> SEQ_BITS) is not self:
            return  # its sender has left: there will be no answer that closes it
        count, size = message.count, len(message.payload)
        self.open[message.id] = (count, size)
        self._node.open_messages += count
        self._node.open_bytes += size

    def _on_follow(self, message: Follow) -> None:
        if message.group != self._node.group:
            self._refuse(f"{self._node.name} is no member of g{message.group}: follow a group at one of its members")
        elif not self._rights.may_follow(message.group):
            self._refuse(f"this client has no right to follow g{message.group}")
        elif message.position < 0:
            self._refuse("positions start at 0")
        else:
            self.following = message.position
            self._server.followers.add(self)
            self._server.wake_followers()

    def _unfollow(self) -> None:
        self.following = None
        self._server.followers.discard(self)

    def serve_follower(self) -> bool:
        """Sends the next chunk, if there is one and the client keeps up. Whether there may be more."""
        deliveries = self._node.deliveries
        if self.following is None or not self._is_reading or self.following >= deliveries.next:
            return False
        try:
            messages = deliveries.read(self.following, _FOLLOW_CHUNK)
        except PositionGoneError:
            self._say(Gone(deliveries.first))
            self._unfollow()
            return False
        except CorruptLogError as error:
            logger.error("%s", error)
            self._refuse(f"{self._node.name} can't read its log: follow another member")
            return False
        self._say(Delivered(self.following, tuple(messages)))
        self.following += len(messages)
        return bool(messages)
