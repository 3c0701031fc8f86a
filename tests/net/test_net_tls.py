"""Real handshakes over loopback: who is let in, who is not, and what files make of a context."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
import uvloop
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from amcast.core import UsageError
from amcast.net.security.certs import set_up
from amcast.net.security.identity import Identity, Kind
from amcast.net.security.tls import (
    PeerError,
    certificate_identity,
    client_context,
    expect,
    peer_identity,
    server_context,
)
from tests.net.net_certs import FAR_AHEAD, LONG_AGO, careless, dial, key_bytes, serve, sign_strange

LIMIT_S = 20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    set_up(
        folder, [Identity("process", "g1.p0", "c"), Identity("process", "g1.p1", "c"), Identity("client", "alice", "c")]
    )
    set_up(folder, [Identity("process", "g9.p0", "c"), Identity("client", "bob", "c")], now=LONG_AGO)
    sign_strange(folder, "nobody", [])
    sign_strange(folder, "two", ["amcast://c/process/g1.p0", "amcast://c/client/alice"])
    sign_strange(folder, "other", ["https://example.org/", "amcast://c/root/g1.p0"])
    return folder


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same names by another CA."""
    folder = tmp_path_factory.mktemp("strangers")
    set_up(folder, [Identity("process", "g1.p0", "c"), Identity("client", "alice", "c")])
    return folder


class Meeting(NamedTuple):
    """What each side found out: an identity, or why there is none. None at the server: nobody was let in."""

    server: Identity | Exception | None
    client: Identity | Exception
    said: bytes | Exception


class Meet(Protocol):
    def __call__(
        self, server: ssl.SSLContext | None, client: ssl.SSLContext | None, guest: Kind | None = None
    ) -> Meeting: ...


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def meet(request: pytest.FixtureRequest) -> Meet:
    def run(server: ssl.SSLContext | None, client: ssl.SSLContext | None, guest: Kind | None = None) -> Meeting:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(_meet(server, client, guest), LIMIT_S))

    return run


def _identity(writer: asyncio.StreamWriter, kind: Kind | None = None) -> Identity | Exception:
    connection = writer.get_extra_info("ssl_object")
    try:
        return peer_identity(connection) if kind is None else expect(connection, "c", kind)
    except UsageError as error:
        return error


async def _meet(server_tls: ssl.SSLContext | None, client_tls: ssl.SSLContext | None, guest: Kind | None) -> Meeting:
    """The server greets guests that its TLS lets in, and closes. What the client reads tells that it is over."""
    seen: list[Identity | Exception] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        who = _identity(writer, guest)
        seen.append(who)
        if isinstance(who, Identity):
            writer.write(b"welcome")
        await _close(writer)

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server_tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_tls)
        except OSError as error:
            return Meeting(seen[0] if seen else None, error, error)
        client = _identity(writer)
        said: bytes | Exception
        try:
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            said = await reader.read()
        except OSError as error:
            said = error
        await _close(writer)
    return Meeting(seen[0] if seen else None, client, said)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):  # the other side was faster
        await writer.wait_closed()


def refused_by_server(meeting: Meeting) -> bool:
    return meeting.server is None and meeting.said != b"welcome"


# -- who is let in


def test_two_processes_know_each_other(made: Path, meet: Meet) -> None:
    meeting = meet(serve(made, "g1.p0"), dial(made, "g1.p1"))
    assert meeting == (Identity("process", "g1.p1", "c"), Identity("process", "g1.p0", "c"), b"welcome")


def test_a_client_is_known_as_one(made: Path, meet: Meet) -> None:
    meeting = meet(serve(made, "g1.p0"), dial(made, "alice"))
    assert meeting == (Identity("client", "alice", "c"), Identity("process", "g1.p0", "c"), b"welcome")


def test_it_is_tls_1_3_with_no_ticket_to_resume(made: Path) -> None:
    for context in (serve(made, "g1.p0"), dial(made, "alice")):
        assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1
    assert serve(made, "g1.p0").num_tickets == 0


def test_a_client_is_refused_where_a_process_is_expected(made: Path, meet: Meet) -> None:
    assert meet(serve(made, "g1.p0"), dial(made, "g1.p1"), guest="process").said == b"welcome"
    meeting = meet(serve(made, "g1.p0"), dial(made, "alice"), guest="process")
    assert isinstance(meeting.server, PeerError)
    assert meeting.said != b"welcome"


# -- who is not


def test_a_client_of_another_ca_is_refused(made: Path, strangers: Path, meet: Meet) -> None:
    assert refused_by_server(meet(serve(made, "g1.p0"), careless(ssl.PROTOCOL_TLS_CLIENT, strangers, "g1.p0")))


def test_a_server_of_another_ca_is_refused(made: Path, strangers: Path, meet: Meet) -> None:
    meeting = meet(careless(ssl.PROTOCOL_TLS_SERVER, strangers, "g1.p0"), dial(made, "alice"))
    assert isinstance(meeting.client, ssl.SSLCertVerificationError)


def test_who_shows_no_certificate_is_refused(made: Path, meet: Meet) -> None:
    assert refused_by_server(meet(serve(made, "g1.p0"), careless(ssl.PROTOCOL_TLS_CLIENT, made, None)))


def test_a_client_that_expired_is_refused(made: Path, meet: Meet) -> None:
    for name in ("bob", "g9.p0"):
        assert refused_by_server(meet(serve(made, "g1.p0"), careless(ssl.PROTOCOL_TLS_CLIENT, made, name)))


def test_a_server_that_expired_is_refused(made: Path, meet: Meet) -> None:
    meeting = meet(careless(ssl.PROTOCOL_TLS_SERVER, made, "g9.p0"), dial(made, "alice"))
    assert isinstance(meeting.client, ssl.SSLCertVerificationError)
    assert "expired" in str(meeting.client)


def test_a_client_can_not_pose_as_a_server(made: Path, meet: Meet) -> None:
    meeting = meet(careless(ssl.PROTOCOL_TLS_SERVER, made, "alice"), dial(made, "g1.p0"))
    assert isinstance(meeting.client, ssl.SSLCertVerificationError)
    assert "purpose" in str(meeting.client)


def test_old_tls_is_refused(made: Path, meet: Meet) -> None:
    old = careless(ssl.PROTOCOL_TLS_CLIENT, made, "g1.p1")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert refused_by_server(meet(serve(made, "g1.p0"), old))


def test_plain_text_is_refused_by_both_sides(made: Path, meet: Meet) -> None:
    assert refused_by_server(meet(serve(made, "g1.p0"), None))
    assert isinstance(meet(None, dial(made, "g1.p0")).client, OSError)


@pytest.mark.parametrize("name", ["nobody", "two", "other"])
def test_a_certificate_without_one_identity_is_nobody(made: Path, meet: Meet, name: str) -> None:
    """Its common name, g1.p0, does not count."""
    meeting = meet(serve(made, "g1.p0"), dial(made, name))
    assert isinstance(meeting.server, PeerError)
    assert "the peer's certificate names no process or client" in str(meeting.server)


def test_the_server_learns_why_it_refused(made: Path, strangers: Path, meet: Meet) -> None:
    reasons: list[str] = []
    files = (made / "ca.crt", made / "g1.p0.crt", made / "g1.p0.key")
    context = server_context(*files, on_refused=reasons.append)
    assert meet(context, dial(made, "alice")).said == b"welcome"
    assert reasons == []
    for guest in (
        careless(ssl.PROTOCOL_TLS_CLIENT, made, "bob"),
        careless(ssl.PROTOCOL_TLS_CLIENT, strangers, "alice"),
        careless(ssl.PROTOCOL_TLS_CLIENT, made, None),
        None,
    ):
        assert refused_by_server(meet(context, guest))
    expired, foreign, none, plain = reasons  # in the words of OpenSSL, which change
    assert expired.startswith("the peer's certificate is refused: ")
    assert "expired" in expired
    assert foreign.startswith("the peer's certificate is refused: ")
    assert none.startswith("no TLS handshake with the peer: ")
    assert "certificate" in none
    assert plain.startswith("no TLS handshake with the peer: ")
    assert not any("_" in reason or "\n" in reason for reason in reasons)


class Shown:
    """The part of a connection that knows the peer's certificate."""

    def __init__(self, *uris: str) -> None:
        self._names = tuple(("URI", uri) for uri in uris)

    def getpeercert(self) -> dict[str, object]:
        return {"subjectAltName": (("DNS", "localhost"), *self._names)}


def test_the_peer_must_be_the_one_that_is_expected() -> None:
    process, client = Shown("amcast://c/process/g1.p0"), Shown("amcast://c/client/alice")
    assert expect(process, "c", "process") == Identity("process", "g1.p0", "c")  # type: ignore[arg-type]
    assert expect(process, "c", "process", "g1.p0").name == "g1.p0"  # type: ignore[arg-type]
    assert expect(client, "c", "client").name == "alice"  # type: ignore[arg-type]
    with pytest.raises(PeerError, match="the peer is client alice by its certificate, and a process is expected here"):
        expect(client, "c", "process")  # type: ignore[arg-type]
    with pytest.raises(PeerError, match=r"the peer is process g1\.p0 .* process g1\.p1 is expected"):
        expect(process, "c", "process", "g1.p1")  # type: ignore[arg-type]
    with pytest.raises(PeerError, match="a client is expected"):
        expect(process, "c", "client")  # type: ignore[arg-type]
    with pytest.raises(PeerError, match="the peer is of cluster 'c' by its certificate, and this is 'd'"):
        expect(process, "d", "process", "g1.p0")  # type: ignore[arg-type]
    with pytest.raises(PeerError, match="not encrypted"):
        expect(None, "c", "process")


# -- files


@pytest.mark.parametrize("make", [server_context, client_context])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (Path.unlink, "does not exist: .* is missing; make it with `amcast certs`, or name another file"),
        (lambda path: path.write_text("SECRET"), "in PEM form: make it with `amcast certs`, or name another file"),
        (lambda path: path.write_bytes(path.read_bytes()[:99]), "in PEM form"),
        (lambda path: (path.unlink(), path.mkdir()), "can't read .*: Is a directory"),
    ],
)
def test_a_file_that_can_not_be_used_is_named(
    made: Path, tmp_path: Path, make: Callable[..., ssl.SSLContext], which: int, damage: object, says: str
) -> None:
    files = [tmp_path / name for name in ("ca.crt", "g1.p0.crt", "g1.p0.key")]
    for file in files:
        shutil.copy(made / file.name, file)
    damage(files[which])  # type: ignore[operator]
    with pytest.raises(UsageError, match=says) as error:
        make(*files)
    assert str(files[which]) in str(error.value)
    assert "SECRET" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [server_context, client_context])
@pytest.mark.parametrize(
    ("cert", "key", "says"),
    [
        ("g1.p0.crt", "g1.p1.key", r"g1\.p1\.key is not the key of .*g1\.p0\.crt"),
        ("g9.p0.crt", "g9.p0.key", r"g9\.p0\.crt expired on 2020-12-31 00:00 UTC: issue it anew"),
        ("g1.p0.key", "g1.p0.crt", r"g1\.p0\.key, the certificate, is no certificate"),
    ],
)
def test_files_that_do_not_fit(made: Path, make: Callable[..., ssl.SSLContext], cert: str, key: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        make(made / "ca.crt", made / cert, made / key)
    assert "\n" not in str(error.value)


def test_a_certificate_of_another_ca_is_refused_at_once(made: Path, strangers: Path) -> None:
    with pytest.raises(UsageError, match=r"g1\.p0\.crt was not issued by .*ca\.crt"):
        server_context(strangers / "ca.crt", made / "g1.p0.crt", made / "g1.p0.key")


def test_a_certificate_for_later_is_refused(tmp_path: Path) -> None:
    set_up(tmp_path, [Identity("process", "g1.p0", "c")], now=FAR_AHEAD)
    with pytest.raises(UsageError, match=r"is not valid before .* clock right"):
        serve(tmp_path, "g1.p0")


def test_an_encrypted_key_asks_nobody(made: Path, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key((made / "g1.p0.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    locked = tmp_path / "locked.key"
    locked.write_bytes(key_bytes(key, serialization.BestAvailableEncryption(b"SECRET")))
    with pytest.raises(UsageError, match=r"locked\.key, the key, is encrypted"):
        server_context(made / "ca.crt", made / "g1.p0.crt", locked)


def test_a_node_needs_the_certificate_of_a_process(made: Path) -> None:
    with pytest.raises(UsageError, match=r"alice\.crt is the certificate of client alice: a node needs"):
        serve(made, "alice")
    with pytest.raises(UsageError, match=r"nobody\.crt names no process or client"):
        serve(made, "nobody")
    assert certificate_identity(made / "g1.p0.crt") == Identity("process", "g1.p0", "c")
    assert certificate_identity(made / "alice.crt") == Identity("client", "alice", "c")
