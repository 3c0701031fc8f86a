"""The files of one process or client in a folder of certificates (`certs.py`), read again when they change.

`ca.crt` may hold several CAs, of which each is trusted: that is how one follows another. `ca.crl`, if it is there,
holds lists of revoked certificates, each signed by one of the CAs. OpenSSL would refuse everybody as soon as one list
is out of date; so lists are compared here, after the handshake (`expect`), and an old one still revokes what it names.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from ...core import UsageError
from ..system import Stamp, system
from ._files import CA, CRL_FILE, cert_and_key, read_file
from .identity import Identity, Kind
from .tls import (
    LiveContext,
    PeerError,
    certificate_identity,
    client_context,
    expect,
    is_issued_by,
    load_certificates,
    server_context,
)


class Trust(NamedTuple):
    """Which certificates are believed."""

    authorities: tuple[x509.Certificate, ...]
    revoked: frozenset[tuple[x509.Name, int]]  # issuer and serial number
    dropped: tuple[x509.Certificate, ...] = ()  # CAs that were trusted since this program started, and are not now

    def problem_with(self, certificate: x509.Certificate) -> str | None:
        """None of what the handshake has looked at already."""
        if (certificate.issuer, certificate.serial_number) in self.revoked:
            return "the certificate is revoked"
        # A handshake that began under the old CAs may end under the new ones.
        if any(is_issued_by(certificate, old) for old in self.dropped):
            return "the certificate's CA is not trusted any more"
        return None

    def follows(self, before: Trust) -> Trust:
        """This trust, with what it dropped of an earlier one. A CA that was issued anew with its old key is no loss."""
        kept = {_key_of(each) for each in self.authorities}
        gone = dict.fromkeys((*before.dropped, *before.authorities))
        return self._replace(dropped=tuple(each for each in gone if _key_of(each) not in kept))


class _Loaded(NamedTuple):
    identity: Identity
    client: ssl.SSLContext
    server: ssl.SSLContext | None
    trust: Trust
    certificate: x509.Certificate
    ends_s: float


class Keyring:
    """Contexts for both sides, whose files may be replaced while they are used."""

    def __init__(self, folder: Path, name: str, on_refused: Callable[[str], None] | None = None) -> None:
        """`on_refused` is for a process: it is told why a handshake failed. Without it, this is for dialling alone."""
        self._ca, (self._cert, self._key) = cert_and_key(folder, CA)[0], cert_and_key(folder, name)
        self._crl = folder / CRL_FILE
        self._on_refused = on_refused
        self._stamps = self.stamps()
        loaded = self._load()
        self.identity = loaded.identity
        self.client = LiveContext(loaded.client)
        self.server = None if loaded.server is None else LiveContext(loaded.server)
        self.trust = loaded.trust
        self.certificate = loaded.certificate
        self.ends_s = loaded.ends_s  # when this side's certificate ends, or the CA that issued it

    def stamps(self) -> list[Stamp | None]:
        """Differ when a file has changed."""
        return [system().stamp(path) for path in (self._ca, self._cert, self._key, self._crl)]

    # -- reading again

    def refresh(self) -> None:
        """For a program that does not watch its files: reads them if they have changed. Broken ones change nothing."""
        stamps = self.stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            with suppress(UsageError):  # they may be half written, and change again
                self.reload()

    def reload(self) -> None:
        """All of it or, if a file can't be used, nothing: then it raises."""
        loaded = self._load()
        if loaded.identity != self.identity:
            who = f"{loaded.identity} of cluster '{loaded.identity.cluster}'"
            raise UsageError(f"{self._cert} is now that of {who}: it takes a new start to become somebody else")
        self.trust = loaded.trust.follows(self.trust)
        self.certificate, self.ends_s = loaded.certificate, loaded.ends_s
        self.client.current = loaded.client
        if self.server is not None and loaded.server is not None:
            self.server.current = loaded.server

    def _load(self) -> _Loaded:
        files = self._ca, self._cert, self._key
        client = client_context(*files)
        server = None if self._on_refused is None else server_context(*files, self._on_refused)
        authorities = load_certificates(self._ca, "the CA's certificate")
        own = load_certificates(self._cert, "the certificate")[0]
        ends = [each.not_valid_after_utc for each in authorities if is_issued_by(own, each)]
        ends_s = min(own.not_valid_after_utc, max(ends, default=own.not_valid_after_utc)).timestamp()
        trust = Trust(tuple(authorities), load_revoked(self._crl, authorities))
        return _Loaded(certificate_identity(self._cert), client, server, trust, own, ends_s)

    # -- who is at the other end

    def expect(self, ssl_object: ssl.SSLObject | None, kind: Kind, name: str | None = None) -> float:
        """Raises `PeerError` unless the peer is of this cluster, and this one. Returns when its certificate ends."""
        expect(ssl_object, self.identity.cluster, kind, name)
        problem = self.problem_with(ssl_object)
        if problem is not None:
            raise PeerError(problem)
        return _certificate_of(ssl_object).not_valid_after_utc.timestamp()

    def problem_with(self, ssl_object: ssl.SSLObject | None) -> str | None:
        """Why a peer that was believed is not believed any more."""
        return self.trust.problem_with(_certificate_of(ssl_object))


def load_revoked(path: Path, authorities: Sequence[x509.Certificate]) -> frozenset[tuple[x509.Name, int]]:
    """Lists of CAs that are not trusted any more are passed over: their certificates are refused anyway."""
    revoked: set[tuple[x509.Name, int]] = set()
    for crl in load_crls(path):
        issuers = [each for each in authorities if each.subject == crl.issuer]
        if not issuers:
            continue
        if not any(crl.is_signature_valid(each.public_key()) for each in issuers):  # type: ignore[arg-type]
            raise UsageError(f"{path}: a list was not signed by the CA that it names: take the CA's own")
        revoked |= {(crl.issuer, each.serial_number) for each in crl}
    return frozenset(revoked)


def load_crls(path: Path) -> list[x509.CertificateRevocationList]:
    """None if the file is missing."""
    if not system().exists(path):
        return []
    content = read_file(path, "the list of revoked certificates", "make it with `amcast certs --revoke`")
    ends = b"-----END X509 CRL-----\n"
    parts = [part + ends for part in (content.rstrip() + b"\n").split(ends) if part.strip()]
    try:
        return [x509.load_pem_x509_crl(part) for part in parts]
    except ValueError:
        raise UsageError(f"{path} is no list of revoked certificates in PEM form: take the CA's own") from None


def _certificate_of(ssl_object: ssl.SSLObject | None) -> x509.Certificate:
    shown = None if ssl_object is None else ssl_object.getpeercert(True)
    if shown is None:
        raise PeerError("the peer shows no certificate")
    return x509.load_der_x509_certificate(shown)


def _key_of(certificate: x509.Certificate) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return certificate.public_key().public_bytes(serialization.Encoding.DER, form)
