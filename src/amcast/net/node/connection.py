"""One accepted connection: HELLO tells who has connected, and decides who takes the frames that follow.

Frames of a process go to the node, those of a client program to its `ClientService`, and those of a program that only
observes to its `ObserverService`. A reader is another replica that asks for what it misses. Whoever breaks a rule is
told which one, and the connection is closed. Whatever a stranger or a client sends can end its own connection, and
nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING

import msgspec

from ...core import BadFrameError, ProcessId, client_name
from ...core.codec import FRAME_LIMIT
from ..layout import difference
from ..security.access import Rights
from ..security.identity import Kind
from ..security.seal import Session
from ..security.tls import PeerError
from ..wire.acceptor import Caller
from ..wire.control import (
    CLIENT_FRAME_LIMIT,
    DECODE_ERRORS,
    EXCHANGE_HEAD,
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
from ..wire.framing import Frame, FrameProtocol, frame, ignore
from ..wire.sealed import SealedProtocol
from ..wire.send_buffer import SendBuffer
from ._accounts import Account
from ._client_service import ClientService
from ._observer_service import ObserverService
from ._reader_service import ReaderService
from ._refusals import Cause

if TYPE_CHECKING:  # the server makes connections, and they use what it holds for all of them
    from .server import NodeServer

_GOODBYE_S = 1.0  # for whoever is told why its connection is closed, to read it

logger = logging.getLogger("amcast.node")


class Connection(FrameProtocol, Caller):
    def __init__(self, server: NodeServer) -> None:
        super().__init__(HELLO_LIMIT)
        self._server = server
        self._node = server.node
        self._timeout: asyncio.TimerHandle | None = None  # for HELLO, then for the end
        self._throttle: asyncio.TimerHandle | None = None
        self.address, self.number = "", -1  # how it is counted
        self.identity = "a stranger"  # for people
        self.peer: ProcessId | None = None
        self.life = Life(0, 0, 0, 0)  # the peer's, as it is remembered
        self.client: ClientService | None = None
        self.rights: Rights | None = None  # of a client program
        self.ends_s = float("inf")  # when its certificate or its token expires, in Unix seconds
        self.is_welcome = False
        self.account: Account | None = None  # of a client or an observer
        self._is_process = False
        self.paused_at: float | None = None  # since then too much waits to be written to it
        self._is_held = False  # not read from, since what it brings would wait for the disk
        self._is_reading = True
        self._send_buffer = SendBuffer(server.config.limits.client_bytes * 2, None)
        self._held = 0  # bytes of a buffer for a large frame, as they are counted

    # -- life

    def protocol(self) -> asyncio.BaseProtocol:
        seal = self._server.security.seal
        if seal is None:
            return self
        return SealedProtocol(self, seal.accept(), lambda session: None, self._on_broken_seal)

    def _on_broken_seal(self, error: PeerError, data: bytes) -> None:
        self.refuse(str(error), cause=Cause.HANDSHAKE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._transport is not None
        if not self.address:  # it had to give way meanwhile
            self._transport.abort()
            return
        self._on_frame = self._on_hello
        limits = self._server.config.limits
        self._timeout = self._server.loop.call_later(limits.hello_ms / 1_000, self._on_deadline)
        self._server.connections[self] = None
        self._transport.set_write_buffer_limits(high=limits.client_bytes)

    def never_made(self, error: OSError) -> None:
        if isinstance(error, ConnectionAbortedError):  # so event loops call it; other problems are known already
            self._server.refuse_stranger(Cause.DEADLINE, f"a stranger at {self.address}", "no TLS handshake came")
        self._server.forget(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._timeout, self._throttle):
            if timer is not None:
                timer.cancel()
        self._may_hold(0)
        self._timeout = self._throttle = None  # a timer keeps what it calls, even when it is over
        self._server.forget(self)
        if self.client is not None:
            self.client.leave()
        self.client = None
        self._send_buffer.attach(None)

    def _on_deadline(self) -> None:
        self.refuse("no HELLO came", cause=Cause.DEADLINE)

    def refuse(self, reason: str, elsewhere: bool = False, cause: Cause | None = None) -> None:
        """Says why, and closes. Whoever does not read it has a moment, and is cut off."""
        if self._transport is None or self._transport.is_closing():
            return
        if cause is None:
            cause = Cause.HELLO if self.number >= 0 else Cause.REQUEST
        self._server.refusals.note(cause, f"{self.identity} at {self.address}", reason)
        self._note("cut off" if self.is_welcome else "refused", reason)
        self._transport.write(frame(msgspec.msgpack.encode(Refused(reason, elsewhere))))
        self.close()

    def close(self) -> None:
        """Without a reason, for a caller who did nothing wrong."""
        self._on_frame = ignore
        if self._transport is None or self._transport.is_closing():
            return
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = self._server.loop.call_later(_GOODBYE_S, self.cut)
        self._transport.close()

    def _note(self, event: str, reason: str = "") -> None:
        assert self._transport is not None
        name = self._transport.get_extra_info("peername")
        address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""
        token = "" if self.rights is None else self.rights.name
        self._server.audit.note(event, self.identity, address, token, reason)

    @property
    def ssl_object(self) -> ssl.SSLObject | None:
        assert self._transport is not None
        found: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return found

    @property
    def session(self) -> Session | None:
        """Of a sealed connection: who is at the other end."""
        assert self._transport is not None
        found: Session | None = self._transport.get_extra_info("session")
        return found

    @property
    def session_number(self) -> bytes:
        return b"" if self.session is None else self.session.number

    def _on_failure(self, error: Exception) -> None:
        """What nobody foresaw. A process is believed, so the state of this one may be wrong; a client is not.

        Where processes may lie, one that only asks, and so changes no state, is believed as little as a client.
        """
        if self._is_process and (self.peer is not None or not self._server.config.survives_liars):
            self._server.fail(error)
        else:
            self.refuse(f"this frame can't be handled: {type(error).__name__}", cause=Cause.FAILURE)

    # -- back-pressure: while too much waits to be written to a client, or to the disk, nothing is read

    @property
    def is_lost(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def takes_output(self) -> bool:
        return self.paused_at is None

    @property
    def is_client(self) -> bool:
        """Or an observer."""
        return self.account is not None

    @property
    def waiting_bytes(self) -> int:
        return self._send_buffer.waiting_bytes

    def pause_writing(self) -> None:
        self.paused_at = self._server.loop.time()
        self._regulate()

    def resume_writing(self) -> None:
        self.paused_at = None
        self._regulate()
        self._server.followers.wake()

    def hold(self, is_held: bool) -> None:
        """Whether it waits for the disk. Only connections that bring work for the disk do: a status query does not."""
        self._is_held = is_held and (self.peer is not None or (self.client is not None and self.client.has_sent))
        self._regulate()

    def _may_hold(self, size: int) -> bool:
        if self.account is None:  # a process, or one whose frames are small
            return True
        if self._server.accounts.hold(self.account, self._held, size):
            self._held = size
            return True
        self.refuse("too many large frames come in at a time: try again", elsewhere=True, cause=Cause.BUDGET)
        return False

    def throttle(self, wait_us: int) -> None:
        """Nothing is taken from it for so long: it has sent more than it may in this time."""
        if self._throttle is not None:
            self._throttle.cancel()
        self._is_waiting = True
        self._throttle = self._server.loop.call_later(wait_us / 1e6, self._end_throttle)
        self._regulate()

    def _end_throttle(self) -> None:
        self._throttle = None
        self._go_on()  # which may end in another pause
        self._regulate()

    def _regulate(self) -> None:
        is_reading = self.takes_output and not self._is_held and self._throttle is None
        if self._transport is None or self._transport.is_closing() or is_reading == self._is_reading:
            return
        self._is_reading = is_reading
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def keep_waiting_below(self, bytes_max: int) -> None:
        """For a follower: deliveries are much, and little of it may wait for this connection."""
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=bytes_max)

    def send_frame(self, data: bytes, is_owed: bool = False) -> None:
        """What is owed is never dropped, unlike a reply, since nobody asks again. It can't pile up: while too much
        waits to be written, nothing is read, and followers get nothing."""
        self._node.write(self._send_buffer, data, is_owed)

    def say(self, message: msgspec.Struct) -> None:
        self.send_frame(frame(msgspec.msgpack.encode(message)), is_owed=True)

    # -- hello

    def _on_hello(self, data: Frame) -> None:
        try:
            hello = hello_decoder.decode(data)
        except DECODE_ERRORS:
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

    def _problem_with_identity(self, kind: Kind, name: str) -> str | None:
        """The name in HELLO must be the one that was proved, by a certificate or at the handshake of a seal."""
        tls, session = self._server.security.tls, self.session
        if session is not None and (session.peer.kind, session.peer.name) != (kind, name):
            return f"this connection is one of {session.peer}, not of {kind} '{name[:64]}'"
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
        elif (problem := self._problem_with_identity("process", hello.name)) is not None:
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
        self.identity, self.peer, self._is_process = name, server.ids[name], True
        self.life = server.witnesses.note(name, life)
        server.replace_peer(self)
        self._introduce()
        if server.witnesses.is_saved(name, life):
            self._begin_peer(None)
        else:
            self._on_frame = ignore
            server.witnesses.when_saved(self._begin_peer)

    def _begin_peer(self, error: OSError | None) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if error is not None:
            self.refuse(
                f"{self._node.name} can't write down that {self.identity} has started: {error.strerror or error}"
            )
            return
        self._take_frames(FRAME_LIMIT, self._on_peer_frame)
        _notice_death(self._transport)
        self._accept(Welcome(self._node.name, 0, b"", b""))

    def _welcome_client(self, hello: Hello) -> None:
        server = self._server
        rights = self._rights_of(hello)
        if rights is None:
            return
        tickets = server.security.tickets
        account = self._open_account(hello, rights)
        if not rights.may_send_anything:
            self.refuse("this client may send to no group, so it gets no id: it may observe (`amcast.observe`)")
        elif hello.client and (problem := self._problem_with_ticket(hello)) is not None:
            self.refuse(problem)
        elif (problem := self._node.clients.problem_with_one_more(account)) is not None:
            self.refuse(problem, elsewhere=True, cause=Cause.BUDGET)
        elif not hello.client and not account.take_id(server.now_us()):
            self.refuse("too many ids were given to this client: try again later", elsewhere=True, cause=Cause.BUDGET)
        elif (id_ := hello.client or server.client_ids.next()) is None:
            self.refuse(f"{self._node.name} can't give out client ids now: try another process", elsewhere=True)
        else:
            self.client = ClientService(server, self, hello, rights, account)
            self.identity = f"client {client_name(id_)} ({hello.name[:64]})"
            self._take_frames(CLIENT_FRAME_LIMIT, self.client.on_frame)
            self._emulate_distance(hello.region)
            ticket = tickets.issue(id_, hello.name)
            self._accept(Welcome(self._node.name, id_, ticket, server.layout, tickets.life_s))
            self.client.enter(id_)

    def _problem_with_ticket(self, hello: Hello) -> str | None:
        tickets = self._server.security.tickets
        return tickets.problem_with(hello.client, hello.name, hello.ticket, self.session_number)

    def _welcome_observer(self, hello: Hello) -> None:
        server = self._server
        rights = self._rights_of(hello)
        if rights is None:
            return
        account = self._open_account(hello, rights)
        self.identity = f"an observer ({hello.name[:64]})"
        self._take_frames(HELLO_LIMIT, ObserverService(server, self, rights, account).on_frame)
        self._emulate_distance(hello.region)
        self._accept(Welcome(self._node.name, 0, b"", server.layout))

    def _rights_of(self, hello: Hello) -> Rights | None:
        """What the client program may do. None if it may not connect: then it is told why."""
        cluster = self._server.config.cluster
        rights = self._server.security.access.check(hello.token)
        if hello.cluster and hello.cluster != cluster:
            self.refuse(f"this is cluster '{cluster}', not '{hello.cluster[:100]}'")
        elif (problem := self._problem_with_identity("client", hello.name)) is not None:
            self.refuse(problem)
        elif rights is None:
            self.refuse("this token is not known here: ask for one (`amcast token add`)")
        elif (cause := self._server.budget.problem_of_client(self)) is not None:
            self.refuse("too many clients are connected: try another process", elsewhere=True, cause=cause)
        else:
            self.rights, self.ends_s = rights, min(self.ends_s, rights.ends_s)
            return rights
        return None

    def _open_account(self, hello: Hello, rights: Rights) -> Account:
        """By what the client has proved: its token, its certificate, or where it is."""
        server = self._server
        if server.config.tokens is not None:
            name = f"token {rights.name}"
        elif server.security.tls is not None:
            name = f"client {hello.name}"
        else:
            name = f"address {self.address}"
        self.account = server.accounts.open(name, rights.limits_of(server.config.limits.client))
        return self.account

    def _emulate_distance(self, region: str) -> None:
        delay = self._server.delay_to(region, region)
        self._send_buffer = SendBuffer(self._server.config.limits.client_bytes * 2, delay)

    def _welcome_reader(self, hello: Hello) -> None:
        if hello.name not in self._server.ids:
            self.refuse(f"no process of this cluster is called '{hello.name[:100]}'")
        elif not self._server.may_read(hello.name):
            self.refuse(f"{hello.name} is no member of this group")
        elif (problem := self._problem_with_identity("process", hello.name)) is not None:
            self.refuse(problem)
        else:
            self.identity, self._is_process = f"{hello.name}, reading", True
            self._take_frames(HELLO_LIMIT, ReaderService(self._server, self, hello.name).on_frame)
            self._accept(Welcome(self._node.name, 0, b"", b""))

    def _introduce(self) -> None:
        """It is known who has connected: no stranger any more."""
        assert self._timeout is not None
        self._timeout.cancel()
        if self.number >= 0:
            self._server.budget.introduce(self)
        if self._is_process and self._server.security.knows_processes:
            self._server.budget.expect_processes((self.address,))

    def _accept(self, welcome: Welcome) -> None:
        assert self._transport is not None
        self._introduce()
        self.is_welcome = True
        self._note("connected")
        self._transport.write(frame(msgspec.msgpack.encode(welcome)))
        self._send_buffer.attach(self._transport)

    # -- frames of other processes

    def _on_peer_frame(self, data: Frame) -> None:
        assert self.peer is not None
        if len(data) > 1 and data[0] == MARK:
            self._on_word(self.peer, data)
            return
        try:
            self._node.receive(self.peer, data)
        except BadFrameError as error:
            self.refuse(str(error))

    def _on_word(self, peer: ProcessId, data: Frame) -> None:
        """What a process says besides its protocol's messages."""
        if len(data) == MARK_BYTES and data[1] == 0:
            self.life.records = max(self.life.records, int.from_bytes(data[1:], "big"))
        elif (problem := self._server.on_exchange(peer, data[EXCHANGE_HEAD:])) is not None:
            self.refuse(problem)


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
