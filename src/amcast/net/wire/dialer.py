"""How a connection begins, whoever dials: say HELLO, hear WELCOME, or hear REFUSED or LOST and a reason.

Links between processes, clients, and replicas that ask others for what they miss all dial here. HELLO may hold a token:
it is said when the other side has shown that it is a process of this cluster, and the one that was dialled: by TLS, or
by a seal (`sealed.py`) where members may lie and there is no TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import msgspec

from ..security.keyring import Keyring
from ..security.seal import Seal, Session
from ..security.tls import PeerError
from .control import DECODE_ERRORS, HELLO_LIMIT, Hello, Lost, Refused, Welcome, to_client_decoder, welcome_decoder
from .framing import Frame, FrameProtocol, frame, ignore
from .sealed import SealedProtocol

_ANSWER_LIMIT = 64 << 20  # bytes of a frame
_CONNECT_TIMEOUT_S = 5.0
_STRANGE = "this is no node of an amcast cluster, or it wants TLS"

_refused_decoder = msgspec.msgpack.Decoder(Refused)

OnMessage = Callable[["Channel", Any], None]
Greeting = Hello | Callable[[bytes], Hello]  # made with the number of the connection; it has none without a seal
Answer = TypeVar("Answer")


class RefusedError(Exception):
    """The process answered REFUSED; the text is its reason."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.elsewhere = refused.elsewhere  # another process may say otherwise


class LostError(Exception):
    """The process answered LOST: it remembers more of this process than this process's own disk holds."""

    def __init__(self, answer: Lost) -> None:
        super().__init__(answer.reason)
        self.answer = answer


class Channel(FrameProtocol):
    """One connection to one process. Without `on_message`, frames after WELCOME are ignored: a link gets none."""

    def __init__(self, on_message: OnMessage | None) -> None:
        super().__init__(HELLO_LIMIT if on_message is None else _ANSWER_LIMIT)
        self.is_lost = asyncio.Event()
        self.welcomed: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._handle = on_message

    @property
    def transport(self) -> asyncio.Transport | None:
        """None when the connection has ended, or is ending."""
        transport = self._transport
        return None if transport is None or transport.is_closing() else transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._on_frame = self._on_welcome

    def _on_welcome(self, data: Frame) -> None:
        try:
            answer = welcome_decoder.decode(data)
        except DECODE_ERRORS as error:
            self.fail(ConnectionError(f"{_STRANGE}: {error}"))
            return
        if isinstance(answer, Refused):
            self.fail(RefusedError(answer))
        elif isinstance(answer, Lost):
            self.fail(LostError(answer))
        elif not self.welcomed.done():
            self._on_frame = ignore if self._handle is None else self._on_answer
            self.welcomed.set_result(answer)

    def _on_answer(self, data: Frame) -> None:
        assert self._handle is not None
        try:
            message = to_client_decoder.decode(data)
        except DECODE_ERRORS:
            self.refuse("not an answer")
            return
        self._handle(self, message)

    def refuse(self, reason: str) -> None:
        if not self.welcomed.done():
            self.welcomed.set_exception(ConnectionError(f"{_STRANGE}: {reason}"))
        super().refuse(reason)

    def fail(self, error: Exception) -> None:
        if not self.welcomed.done():
            self.welcomed.set_exception(error)
        self.refuse(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.is_lost.set()
        if not self.welcomed.done():
            self.welcomed.set_exception(exc or ConnectionError("closed without a word"))
            self.welcomed.exception()  # marks it as seen: after a failed handshake nobody waits for it

    @property
    def session(self) -> bytes:
        """The number of the connection, if it is sealed."""
        found = None if self._transport is None else self._transport.get_extra_info("session")
        return b"" if found is None else cast(Session, found).number

    # -- a connection that has ended takes all of these, and does nothing

    def say(self, message: msgspec.Struct) -> None:
        if (transport := self.transport) is not None:
            transport.write(frame(msgspec.msgpack.encode(message)))

    def pause_reading(self) -> None:
        if (transport := self.transport) is not None:
            transport.pause_reading()

    def resume_reading(self) -> None:
        if (transport := self.transport) is not None:
            transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def dial(
    address: tuple[str, int],
    hello: Greeting,
    tls: Keyring | None,
    name: str | None,
    on_message: OnMessage | None = None,
    seal: Seal | None = None,
) -> Channel:
    """Returns after WELCOME; if it raises, there is no connection. With TLS or a seal, the process proves its name."""
    host, port = address
    channel = Channel(on_message)
    protocol = channel if seal is None else _sealed(channel, seal, name, hello)
    async with asyncio.timeout(_CONNECT_TIMEOUT_S):
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: protocol,
            host,
            port,
            ssl=None if tls is None else tls.client,
            server_hostname=None if tls is None else "",
        )
        try:
            if tls is not None:
                tls.expect(transport.get_extra_info("ssl_object"), "process", name)
            if seal is None:
                channel.say(hello if isinstance(hello, Hello) else hello(b""))
            await channel.welcomed
        except ConnectionError as error:
            transport.abort()
            if tls is None and seal is None and not str(error).startswith(_STRANGE):
                raise ConnectionError(f"{error}: if this cluster uses TLS, name the folder of certificates") from error
            raise
        except BaseException:
            transport.abort()
            raise
    return channel


def _sealed(channel: Channel, seal: Seal, name: str | None, hello: Greeting) -> SealedProtocol:
    """HELLO is said as soon as the other side has proved its name."""

    def on_sealed(session: Session) -> None:
        channel.say(hello if isinstance(hello, Hello) else hello(session.number))

    def on_problem(error: PeerError, data: bytes) -> None:
        try:
            channel.fail(RefusedError(_refused_decoder.decode(data)))
        except DECODE_ERRORS:
            channel.fail(error)

    return SealedProtocol(channel, seal.dial(name), on_sealed, on_problem)


class Conversation:
    """Questions on one connection, each answered before the next one is asked."""

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._is_asking = False
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    def begin(self, channel: Channel) -> None:
        self._channel = channel

    def hear(self, channel: Channel, message: Any) -> None:
        """An answer that nobody asked for ends it: a liar could fill the memory with them."""
        is_refused = isinstance(message, Refused)
        if self._is_asking or is_refused:
            self._answers.put_nowait(message)
        if not self._is_asking or is_refused:
            channel.abort()
        self._is_asking = False

    def end(self, _: object) -> None:
        self._answers.put_nowait(ConnectionError("the connection broke"))

    async def ask(self, question: msgspec.Struct, timeout: float) -> Any:
        assert self._channel is not None
        self._is_asking = True
        self._channel.say(question)
        async with asyncio.timeout(timeout):
            answer = await self._answers.get()
        if isinstance(answer, Refused):
            raise RefusedError(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer


@asynccontextmanager
async def converse(dial_: Callable[[OnMessage], Awaitable[Channel]]) -> AsyncIterator[Conversation]:
    conversation = Conversation()
    channel = await dial_(conversation.hear)
    conversation.begin(channel)
    lost = asyncio.create_task(channel.is_lost.wait())
    lost.add_done_callback(conversation.end)
    try:
        yield conversation
    finally:
        lost.cancel()
        channel.abort()


async def ask(
    dial_: Callable[[OnMessage], Awaitable[Channel]], question: msgspec.Struct, kind: type[Answer], timeout: float
) -> Answer:
    """Asks one question on a connection of its own, and waits for an answer of this kind."""
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def on_message(channel: Channel, message: Any) -> None:
        if isinstance(message, kind) and not answer.done():
            answer.set_result(message)

    channel = await dial_(on_message)
    try:
        channel.say(question)
        async with asyncio.timeout(timeout):
            return await answer
    finally:
        channel.abort()
