"""One accepted connection: HELLO tells who has connected, and decides who takes the frames that follow.

Frames of a process go to the node, those of a client program to its `ClientService`, and those of a program that only
observes to its `ObserverService`. A reader is another replica that asks for what it misses. Whoever breaks a rule is
told which one, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING

import msgspec

from ...core import BadFrameError, ProcessId
from ...core.codec import FRAME_LIMIT
from ..layout import difference
from ..security.access import Rights
from ..security.identity import Kind
from ..security.tls import PeerError
from ..wire.control import (
    CLIENT_FRAME_LIMIT,
    HELLO_LIMIT,
    MARK,
    MARK_BYTES,
    VERSION,
    Hello,
    Life,
    Lost,
    Member,
    Refused,
    Welcome,
    hello_decoder,
)
from ..wire.framing import Frame, FrameProtocol, frame
from ..wire.send_buffer import SendBuffer
from ._client_service import TOO_MANY_CLIENTS, ClientService
from ._observer_service import ObserverService
from ._reader_service import ReaderService

if TYPE_CHECKING:  # the server makes connections, and they use what it holds for all of them
    from .server import NodeServer

HELLO_TIMEOUT_S = 5.0

logger = logging.getLogger("amcast.node")


class Connection(FrameProtocol):
    def __init__(self, server: NodeServer) -> None:
        super().__init__(HELLO_LIMIT)
        self._server = server
        self._node = server.node
        self._on_frame = self._on_hello
        self._timeout: asyncio.TimerHandle | None = None
        self.identity = "a stranger"  # for people
        self.peer: ProcessId | None = None
        self.life = Life(0, 0, 0, 0)  # the peer's, as it is remembered
        self.client: ClientService | None = None
        self.rights: Rights | None = None  # of a client program
        self.ends_s = float("inf")  # when its certificate or its token expires, in Unix seconds
        self.is_welcome = False
        self.takes_output = True  # not while too much waits to be written to it
        self._is_held = False  # not read from, since what it brings would wait for the disk
        self._is_reading = True
        self._send_buffer = SendBuffer(server.config.limits.client_bytes * 2, None)

    # -- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timeout = self._server.loop.call_later(HELLO_TIMEOUT_S, self.refuse, "no HELLO came")
        self._server.connections[self] = None
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=self._server.config.limits.client_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._on_frame = self._ignore
        self._server.forget(self)
        if self.client is not None:
            self.client.leave()
        self._send_buffer.attach(None)

    def refuse(self, reason: str, elsewhere: bool = False) -> None:
        if self._note("cut off" if self.is_welcome else "refused", reason):
            logger.warning("closing the connection of %s: %s", self.identity, reason)
        self._server.refused += 1
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(msgspec.msgpack.encode(Refused(reason, elsewhere))))
        super().refuse(reason)

    def close(self) -> None:
        """Without a reason, for a caller who did nothing wrong."""
        self._on_frame = self._ignore
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """For one that was told why it is closed, and does not leave."""
        if self._transport is not None:
            self._transport.abort()

    def _note(self, event: str, reason: str = "") -> bool:
        assert self._transport is not None
        name = self._transport.get_extra_info("peername")
        address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""
        token = "" if self.rights is None else self.rights.name
        return self._server.audit.note(event, self.identity, address, token, reason)

    @property
    def ssl_object(self) -> ssl.SSLObject | None:
        assert self._transport is not None
        found: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return found

    def _on_failure(self, error: Exception) -> None:
        self._server.fail(error)

    # -- back-pressure: while too much waits to be written to a client, or to the disk, nothing is read

    def pause_writing(self) -> None:
        self.takes_output = False
        self._regulate()

    def resume_writing(self) -> None:
        self.takes_output = True
        self._regulate()
        self._server.followers.wake()

    def hold(self, is_held: bool) -> None:
        """Whether it waits for the disk. Only connections that bring work for the disk do: a status query does not."""
        self._is_held = is_held and (self.peer is not None or (self.client is not None and self.client.has_sent))
        self._regulate()

    def _regulate(self) -> None:
        is_reading = self.takes_output and not self._is_held
        if self._transport is None or self._transport.is_closing() or is_reading == self._is_reading:
            return
        self._is_reading = is_reading
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def send_frame(self, data: bytes) -> None:
        self._node.write(self._send_buffer, data)

    def say(self, message: msgspec.Struct) -> None:
        """Unlike a reply it is never dropped, since nobody asks again. It can't pile up: while too much waits to be
        written, nothing is read, and followers get nothing."""
        self._node.write(self._send_buffer, frame(msgspec.msgpack.encode(message)), is_owed=True)

    # -- hello

    def _on_hello(self, data: Frame) -> None:
        try:
            hello = hello_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.refuse("the first frame is no HELLO")
            return
        if hello.version != VERSION:
            self.refuse(f"version {hello.version} of the protocol is not spoken here, {VERSION} is")
        elif hello.kind == "process":
            self._hear_peer(hello)
        elif hello.kind == "client":
            self._welcome_client(hello)
        elif hello.kind == "observer":
            self._welcome_observer(hello)
        elif hello.kind == "reader":
            self._welcome_reader(hello)
        else:
            self.refuse("HELLO is from neither a process nor a client")

    def _problem_with_certificate(self, kind: Kind, name: str) -> str | None:
        """With TLS, the name in HELLO must be the one in the certificate."""
        tls = self._server.security.tls
        try:
            if tls is not None:
                self.ends_s = tls.expect(self.ssl_object, kind, name)
                self.identity = f"{kind} {name}"
        except PeerError as error:
            return str(error)
        return None

    def _hear_peer(self, hello: Hello) -> None:
        ids = self._server.ids
        if hello.cluster != self._server.config.cluster:
            self.refuse(f"this is cluster '{self._server.config.cluster}', not '{hello.cluster[:100]}'")
        elif hello.name not in ids or hello.name == self._node.name:
            self.refuse(f"no other process of this cluster is called '{hello.name[:100]}'")
        elif (problem := self._problem_with_certificate("process", hello.name)) is not None:
            self.refuse(problem)
        elif hello.member is None:
            self.refuse(f"{hello.name} does not say how far it has got")
        elif (problem := self._problem_with(hello.name, hello.member)) is not None:
            self.refuse(problem)
        elif (doubt := self._server.witnesses.doubt(hello.name, hello.member.life)) is not None:
            self._answer_lost(hello.name, doubt)
        else:
            self._welcome_peer(hello.name, hello.member.life)

    def _problem_with(self, name: str, member: Member) -> str | None:
        config = self._server.config
        if member.cluster_id != config.id:
            return f"this is another cluster that is called '{config.cluster}' too: its id is {config.id}"
        known, old = self._server.witnesses.known(name), self._server.peers.get(self._server.ids[name])
        if known is not None and old is not None and member.life.is_before(known):
            return f"a newer start of {name} is connected already: is it running twice?"
        return difference(self._server.data_layout, f"at {self._node.name}", member.layout, f"at {name}")

    def _answer_lost(self, name: str, doubt: str) -> None:
        server = self._server
        known = server.witnesses.known(name)
        assert known is not None and self._transport is not None
        logger.warning("%s", doubt)
        if server.is_alone(name):
            logger.warning("%s is alone in its group: it may come back with the disk that it had", name)
        else:
            server.witnesses.condemn(name)
        self._transport.write(frame(msgspec.msgpack.encode(Lost(known, doubt))))
        self.close()

    def _welcome_peer(self, name: str, life: Life) -> None:
        """A new boot is welcome once it is written down: whoever forgot it could not tell an older disk from it."""
        server = self._server
        self.identity, self.peer = name, server.ids[name]
        self.life = server.witnesses.note(name, life)
        server.replace_peer(self)
        self._stop_waiting()
        if server.witnesses.is_saved(name, life):
            self._begin_peer(None)
        else:
            self._on_frame = self._ignore
            server.witnesses.when_saved(self._begin_peer)

    def _begin_peer(self, error: OSError | None) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        if error is not None:
            self.refuse(
                f"{self._node.name} can't write down that {self.identity} has started: {error.strerror or error}"
            )
            return
        self._limit = FRAME_LIMIT
        self._on_frame = self._on_peer_frame
        _notice_death(self._transport)
        self._accept(Welcome(self._node.name, 0, b"", b""))

    def _welcome_client(self, hello: Hello) -> None:
        server = self._server
        rights = self._rights_of(hello)
        if rights is None:
            return
        tickets = server.security.tickets
        problem = tickets.problem_with(hello.client, hello.name, hello.ticket) if hello.client else None
        if problem is not None:
            self.refuse(problem)
        elif self._node.clients.is_full:
            self.refuse(TOO_MANY_CLIENTS, elsewhere=True)
        elif (id_ := hello.client or server.client_ids.next()) is None:
            self.refuse(f"{self._node.name} can't give out client ids now: try another process", elsewhere=True)
        else:
            self.client = ClientService(server, self, hello.name, rights)
            self.identity = f"client {id_} ({hello.name[:64]})"
            self._limit = CLIENT_FRAME_LIMIT
            self._on_frame = self.client.on_frame
            self._emulate_distance(hello.region)
            ticket = tickets.issue(id_, hello.name)
            self._accept(Welcome(self._node.name, id_, ticket, server.layout, tickets.life_s))
            self.client.enter(id_)

    def _welcome_observer(self, hello: Hello) -> None:
        server = self._server
        rights = self._rights_of(hello)
        if rights is None:
            return
        if len(server.observers) >= server.config.limits.clients:
            self.refuse("too many observers are connected: try another process", elsewhere=True)
        else:
            self.identity = f"an observer ({hello.name[:64]})"
            self._limit = HELLO_LIMIT
            self._on_frame = ObserverService(server, self, rights).on_frame
            self._emulate_distance(hello.region)
            server.observers.add(self)
            self._accept(Welcome(self._node.name, 0, b"", server.layout))

    def _rights_of(self, hello: Hello) -> Rights | None:
        """What the client program may do. None if it may not connect: then it is told why."""
        cluster = self._server.config.cluster
        rights = self._server.security.access.check(hello.token)
        if hello.cluster and hello.cluster != cluster:
            self.refuse(f"this is cluster '{cluster}', not '{hello.cluster[:100]}'")
        elif (problem := self._problem_with_certificate("client", hello.name)) is not None:
            self.refuse(problem)
        elif rights is None:
            self.refuse("this token is not known here: ask for one (`amcast token add`)")
        else:
            self.rights, self.ends_s = rights, min(self.ends_s, rights.ends_s)
            return rights
        return None

    def _emulate_distance(self, region: str) -> None:
        delay = self._server.delay_to(region, region)
        self._send_buffer = SendBuffer(self._server.config.limits.client_bytes * 2, delay)

    def _welcome_reader(self, hello: Hello) -> None:
        if hello.name not in self._server.ids:
            self.refuse(f"no process of this cluster is called '{hello.name[:100]}'")
        elif (problem := self._problem_with_certificate("process", hello.name)) is not None:
            self.refuse(problem)
        else:
            self.identity = f"{hello.name}, reading"
            self._limit = HELLO_LIMIT
            self._on_frame = ReaderService(self._server, self).on_frame
            self._accept(Welcome(self._node.name, 0, b"", b""))

    def _stop_waiting(self) -> None:
        assert self._timeout is not None
        self._timeout.cancel()

    def _accept(self, welcome: Welcome) -> None:
        assert self._transport is not None
        self._stop_waiting()
        self.is_welcome = True
        self._note("connected")
        self._transport.write(frame(msgspec.msgpack.encode(welcome)))
        self._send_buffer.attach(self._transport)

    # -- frames of other processes

    def _on_peer_frame(self, data: Frame) -> None:
        assert self.peer is not None
        if len(data) == MARK_BYTES and data[0] == MARK:
            self.life.records = max(self.life.records, int.from_bytes(data[1:], "big"))
            return
        try:
            self._node.receive(self.peer, data)
        except BadFrameError as error:
            self.refuse(str(error))


def _notice_death(transport: asyncio.Transport) -> None:
    """Has the kernel look whether the other machine still lives: nothing is ever sent to a peer that would tell.

    While a dead connection counts as a newer start of its process, an older copy of it would be refused for ever.
    """
    socket_ = transport.get_extra_info("socket")
    if socket_ is not None:
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            for option, seconds in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
                socket_.setsockopt(socket.IPPROTO_TCP, option, seconds)
