"""Mutual TLS 1.3: both sides show a certificate of the cluster's own CA, and the certificate says who they are.

No other CA is trusted, not even those of the system. Host names are not compared, since processes may move to other
hosts: it is the identity in the certificate that must be the expected one (`expect`). A client can't pose as a server:
TLS itself refuses its certificate, which was not issued for that use.

In TLS 1.3 the side that dials is done before the other side has looked at its certificate. If it is refused, it sees at
its first read that the connection was closed, without a reason. Only the server knows the reason, and event loops do
not report it; `on_refused` does, for the server's log.

Files are checked before use, so that an error is one line with the name of the file, and never quotes its content.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from ...core import UsageError
from ..system import system
from ._files import read_file
from .identity import Identity, Kind, parse_uri

_REMEDY = "make it with `amcast certs`, or name another file"
_EXAMPLE = "as amcast://shop/process/g1.p0"


class PeerError(UsageError):
    """The other side is not the one that is expected: the connection must be closed."""


class LiveContext(ssl.SSLContext):
    """Stands for the newest of a number of contexts: each new connection uses that one.

    A server or a link is given its context once. OpenSSL can't take a CA out of a context again, so that new files need
    a new context.
    """

    current: ssl.SSLContext

    def __new__(cls, current: ssl.SSLContext) -> Self:
        self = super().__new__(cls, current.protocol)
        self.current = current
        return self

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*args, **named)


def server_context(
    ca: str | Path, cert: str | Path, key: str | Path, on_refused: Callable[[str], None] | None = None
) -> ssl.SSLContext:
    """`on_refused` is told in a few words why a handshake failed."""
    own = certificate_identity(cert)
    if own.kind != "process":
        raise UsageError(f"{cert} is the certificate of {own}: a node needs that of a process")
    context = _context(ssl.PROTOCOL_TLS_SERVER, Path(ca), Path(cert), Path(key))
    context.num_tickets = 0  # no resumption of sessions: certificates are checked for each connection
    if on_refused is not None:
        context.sslobject_class = _reporting(on_refused)
    return context


def client_context(ca: str | Path, cert: str | Path, key: str | Path) -> ssl.SSLContext:
    return _context(ssl.PROTOCOL_TLS_CLIENT, Path(ca), Path(cert), Path(key))


def certificate_identity(cert: str | Path) -> Identity:
    """Whose certificate a file holds."""
    own = load_certificates(Path(cert), "the certificate")[0]
    try:
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        uris = []
    found = _only_identity(uris)
    if found is None:
        raise UsageError(f"{cert} names no process or client of a cluster ({_EXAMPLE}): {_REMEDY}")
    return found


def peer_identity(ssl_object: ssl.SSLObject | ssl.SSLSocket | None) -> Identity:
    """From the certificate that the handshake verified; `ssl_object` is the transport's extra info of that name."""
    if ssl_object is None:
        raise PeerError("the connection is not encrypted: the peer must use TLS")
    names = (ssl_object.getpeercert() or {}).get("subjectAltName", ())
    found = _only_identity([str(pair[1]) for pair in names if pair[0] == "URI"])
    if found is None:
        raise PeerError(f"the peer's certificate names no process or client of a cluster ({_EXAMPLE}): issue it anew")
    return found


def expect(
    ssl_object: ssl.SSLObject | ssl.SSLSocket | None, cluster: str, kind: Kind, name: str | None = None
) -> Identity:
    """The peer's identity, which must be of this cluster and kind and, if a name is given, have this name."""
    found = peer_identity(ssl_object)
    if found.cluster != cluster:
        raise PeerError(f"the peer is of cluster '{found.cluster}' by its certificate, and this is '{cluster}'")
    if found.kind != kind or name not in (None, found.name):
        wanted = f"a {kind}" if name is None else f"{kind} {name}"
        raise PeerError(f"the peer is {found} by its certificate, and {wanted} is expected here")
    return found


def handshake_problem(error: ssl.SSLError) -> str:
    """Why a handshake failed, in words for a log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    return f"no TLS handshake with the peer: {(error.reason or 'unknown reason').replace('_', ' ').lower()}"


def load_certificates(path: Path, what: str) -> list[x509.Certificate]:
    content = read_file(path, what, _REMEDY)
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise UsageError(f"{path}, {what}, is no certificate in PEM form: {_REMEDY}") from None


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _reporting(on_refused: Callable[[str], None]) -> type[ssl.SSLObject]:
    class ReportingObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):  # not done yet
                raise
            except ssl.SSLError as error:
                on_refused(handshake_problem(error))
                raise

    return ReportingObject


def _only_identity(uris: list[str]) -> Identity | None:
    """The identity that these URIs name; none if there is none, or more than one."""
    found = [who for who in map(parse_uri, uris) if who is not None]
    return found[0] if len(found) == 1 else None


def _context(protocol: int, ca: Path, cert: Path, key: Path) -> ssl.SSLContext:
    authorities = load_certificates(ca, "the CA's certificate")
    chain = load_certificates(cert, "the certificate")
    _refuse_out_of_date(cert, chain[0])
    _refuse_foreign_key(cert, chain[0], key)
    # While one CA follows another, the file holds both: one that has expired does no harm beside one that has not.
    issuers = [each for each in (*authorities, *chain[1:]) if is_issued_by(chain[0], each)]
    if not issuers:
        raise UsageError(f"{cert} was not issued by {ca}: take both from one folder, or issue the certificate anew")
    _refuse_out_of_date(ca, max(issuers, key=lambda issuer: issuer.not_valid_after_utc))
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        # With an empty password an encrypted key is an error. Without one, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(cert, key, password="")
        context.load_verify_locations(cafile=ca)
    except (OSError, ValueError):  # whose message may quote the file
        raise UsageError(f"{ca}, {cert} and {key} can't be used for TLS: make them anew with `amcast certs`") from None
    return context


def _refuse_out_of_date(path: Path, certificate: x509.Certificate) -> None:
    now = datetime.fromtimestamp(system().wall_us() / 1e6, UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        raise UsageError(f"{path} expired on {ends:%Y-%m-%d %H:%M} UTC: issue it anew with `amcast certs --force`")
    if now < begins:
        raise UsageError(f"{path} is not valid before {begins:%Y-%m-%d %H:%M} UTC: is this machine's clock right?")


def _refuse_foreign_key(cert: Path, certificate: x509.Certificate, key: Path) -> None:
    content = read_file(key, "the key", _REMEDY)
    try:
        private = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise UsageError(f"{key}, the key, is encrypted, and nobody will type a password: store it plain") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{key}, the key, is no private key in PEM form: {_REMEDY}") from None
    if private.public_key() != certificate.public_key():
        raise UsageError(f"{key} is not the key of {cert}: name the two that were made together, or issue them anew")
