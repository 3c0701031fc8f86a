"""How connections begin: HELLO, WELCOME, and all that can come instead. Links and clients dial in the same way."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from amcast.net.node._gate import Gate
from amcast.net.node._members import MEMBER_ERRORS, Address, Members
from amcast.net.node.links import Link
from amcast.net.security.certs import set_up
from amcast.net.security.identity import Identity
from amcast.net.security.keyring import Keyring
from amcast.net.security.tls import PeerError
from amcast.net.wire.control import VERSION, DeliveriesQuery, Gone, Hello, Life, Lost, Refused, StatusQuery, Welcome
from amcast.net.wire.dialer import Channel, LostError, RefusedError, dial
from amcast.net.wire.framing import frame
from amcast.net.wire.send_buffer import SendBuffer

from .clusters import eventually, run
from .net_certs import serve as server_tls
from .test_net_frames import framed

HELLO = Hello(VERSION, "c", "process", "g1.p1")
WELCOME = framed(Welcome("g1.p0", 0, b"", b""))


class Answerer:
    """A process that says one thing to whoever connects, after the first frame, and may then close."""

    def __init__(self, answer: bytes, closes: bool) -> None:
        self.answer = answer
        self.closes = closes
        self.heard: list[bytes] = []
        self.connections = 0  # now
        self.port = 0

    async def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            length = int.from_bytes(await reader.readexactly(4), "big")
            self.heard.append(await reader.readexactly(length))
            writer.write(self.answer)
            if not self.closes:
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the caller left
        finally:
            self.connections -= 1
            writer.close()


@asynccontextmanager
async def answering(answer: bytes, closes: bool = False, tls: ssl.SSLContext | None = None) -> AsyncIterator[Answerer]:
    answerer = Answerer(answer, closes)
    async with await asyncio.start_server(answerer.on_connection, "127.0.0.1", 0, ssl=tls) as server:
        answerer.port = server.sockets[0].getsockname()[1]
        yield answerer


async def call(answerer: Answerer, tls: Keyring | None = None) -> Channel:
    return await dial(("127.0.0.1", answerer.port), HELLO, tls, "g1.p0")


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    set_up(folder, [Identity("process", name, "c") for name in ("g1.p0", "g1.p1", "g1.p2")])
    return folder


def test_hello_is_said_first_and_welcome_is_waited_for() -> None:
    async def test() -> None:
        async with answering(WELCOME) as answerer:
            channel = await call(answerer)
            assert [frame(heard) for heard in answerer.heard] == [framed(HELLO)]
            assert channel.welcomed.result() == Welcome("g1.p0", 0, b"", b"")
            assert not channel.is_lost.is_set()
            channel.abort()
            await channel.is_lost.wait()

    run(test)


@pytest.mark.parametrize(
    ("answer", "closes", "kind", "text"),
    [
        (framed(Refused("too many clients")), False, RefusedError, "too many clients"),
        (framed(StatusQuery()), False, ConnectionError, "this is no node of an amcast cluster"),
        (frame(b"\xc1"), False, ConnectionError, "this is no node of an amcast cluster"),
        (b"", True, ConnectionError, "closed without a word: if this cluster uses TLS, name the folder of cert"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, ConnectionError, "no node of an amcast cluster, or it wants TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", False, ConnectionError, "it wants TLS"),
    ],
)
def test_without_a_welcome_there_is_a_reason_and_no_connection(
    answer: bytes, closes: bool, kind: type[Exception], text: str
) -> None:
    async def test() -> None:
        async with answering(answer, closes) as answerer:
            with pytest.raises(kind, match=text):
                await call(answerer)
            await eventually(lambda: answerer.connections == 0, "the connection is closed")

    run(test)


def test_with_tls_the_process_must_be_the_one_that_was_dialled(certs: Path) -> None:
    async def test() -> None:
        tls = Keyring(certs, "g1.p1")
        async with answering(WELCOME, tls=server_tls(certs, "g1.p0")) as right:
            (await call(right, tls)).abort()
        async with answering(WELCOME, tls=server_tls(certs, "g1.p2")) as wrong:
            expected = r"the peer is process g1\.p2 by its certificate, and process g1\.p0 is expected here"
            with pytest.raises(PeerError, match=expected):
                await call(wrong, tls)
            await eventually(lambda: wrong.connections == 0, "the connection is closed")
            assert wrong.heard == [], "HELLO may hold a token: nobody else hears it"

    run(test)


def test_a_process_of_another_cluster_hears_no_token(certs: Path) -> None:
    """Though its certificate comes from the same CA, and has the name that was dialled."""
    set_up(certs, [Identity("client", "alice", "other")])

    async def test() -> None:
        async with answering(WELCOME, tls=server_tls(certs, "g1.p0")) as stranger:
            with pytest.raises(PeerError, match="the peer is of cluster 'c' by its certificate, and this is 'other'"):
                await call(stranger, Keyring(certs, "alice"))
            await eventually(lambda: stranger.connections == 0, "the connection is closed")
            assert stranger.heard == []

    run(test)


def test_a_link_tells_each_piece_of_news_once_and_goes_on_trying(
    certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    set_up(tmp_path, [Identity("process", "g1.p0", "c")])

    async def news_of(
        answerer: Answerer, tls: Keyring | None, then: Callable[[Link, list[str]], bool], what: str
    ) -> list[str]:
        news: list[str] = []
        address, buffer = ("127.0.0.1", answerer.port), SendBuffer(1_000, None)
        link = Link("g1.p0", address, lambda: HELLO, tls, buffer, Gate(["g1.p0"], 1), news.append)
        task = asyncio.create_task(link.run())
        await eventually(lambda: then(link, news), what)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not link.buffer.is_connected
        return news

    async def test() -> None:
        async with answering(framed(Refused("not now"))) as answerer:

            def has_tried(link: Link, news: list[str]) -> bool:
                if len(answerer.heard) == 3:
                    answerer.answer = WELCOME
                return link.buffer.is_connected

            found = await news_of(answerer, None, has_tried, "it is welcome at last")
            assert found == ["g1.p0 refuses this process: not now", "connected to g1.p0"]
        tls = Keyring(certs, "g1.p1")
        async with answering(WELCOME, tls=server_tls(certs, "g1.p2")) as wrong:
            (found,) = await news_of(wrong, tls, lambda _, news: len(news) == 1, "somebody else answers")
            assert found.startswith("no connection to g1.p0: the peer is process g1.p2 by its certificate")
        async with answering(WELCOME, tls=server_tls(tmp_path, "g1.p0")) as stranger:
            (found,) = await news_of(stranger, tls, lambda _, news: len(news) == 1, "another authority's process")
            assert found.startswith("no connection to g1.p0: [SSL: CERTIFICATE_VERIFY_FAILED]")
        gc.collect()
        assert not caplog.messages, "no exception is left for the event loop to complain of"

    run(test)


def members_at(answerer: Answerer) -> Members:
    hello = Hello(VERSION, "c", "reader", "g1.p1")
    return Members([Address("g1.p0", ("127.0.0.1", answerer.port))], lambda: hello, None)


def test_a_member_that_says_lost_to_a_reader_is_one_that_does_not_answer() -> None:
    async def test() -> None:
        async with answering(framed(Lost(Life(1, 1, 1, 1), "a lie"))) as liar:
            members = members_at(liar)
            with pytest.raises(MEMBER_ERRORS) as found:
                async with members.converse(members.all[0]):
                    pass
            assert isinstance(found.value, LostError)

    run(test)


def test_a_member_that_answers_more_than_it_was_asked_is_left() -> None:
    """Otherwise what it says would pile up, until somebody asks."""

    async def test() -> None:
        async with answering(WELCOME + framed(Gone(1)) * 100) as liar:
            members = members_at(liar)
            async with members.converse(members.all[0]) as conversation:
                await eventually(lambda: liar.connections == 0, "the connection is closed")
                assert conversation._answers.qsize() <= 1
                with pytest.raises(ConnectionError):
                    await conversation.ask(DeliveriesQuery(0), 20)

    run(test)


def test_a_reader_hears_one_answer_to_each_question() -> None:
    async def test() -> None:
        async with answering(WELCOME) as answerer:
            members = members_at(answerer)
            async with members.converse(members.all[0]) as conversation:
                asked = [asyncio.create_task(conversation.ask(DeliveriesQuery(0), 20))]
                await asyncio.sleep(0)
                assert conversation._channel is not None
                conversation.hear(conversation._channel, Gone(5))
                assert await asked[0] == Gone(5)

    run(test)
