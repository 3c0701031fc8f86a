"""A development CA: certificates for processes and clients, and the secret with which nodes sign session tickets.

One folder holds it all:

    ca.crt       ca.key         the CA; its key is needed to issue certificates, and by no node: keep it safe
    g1.p0.crt    g1.p0.key      a process, which serves and dials
    alice.crt    alice.key      a client, which dials only: its certificate is refused as a server's
    cluster.secret              32 random bytes, the same on all nodes
    ca.crl                      which certificates are revoked, once there is one

Keys are EC P-256. Files appear whole or not at all, and none is overwritten without `force`. Certificates of a
company's own PKI do as well, if they have an identity among their alternative names (`identity.py`).

A CA is followed by another one in three steps, with time for files to reach all machines after each: `add_authority`
puts a new CA in front of the old one in `ca.crt`, so that both are trusted; then all certificates are issued anew; then
`drop_authorities` leaves the new one alone.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...core import UsageError
from ._files import CA, CRL_FILE, PUBLIC, SECRET, SECRET_FILE, Draft, cert_and_key, read_file, write_all
from .identity import Identity
from .keyring import load_crls
from .tls import is_issued_by, load_certificates

_SECRET_BYTES = 32
_CA_VALIDITY = timedelta(days=3653)
_LEAF_VALIDITY = timedelta(days=365)
_CLOCK_SKEW = timedelta(hours=1)  # so much earlier a certificate is valid, for machines whose clocks are behind
_LOOPBACK = (  # for other programs that connect to a process: nodes and clients look at the identity alone
    x509.DNSName("localhost"),
    x509.IPAddress(ip_address("127.0.0.1")),
    x509.IPAddress(ip_address("::1")),
)


class Made(NamedTuple):
    """Files that were made. The secret has no certificate and no date."""

    what: Literal["ca", "process", "client", "secret"]
    name: str
    cert: Path | None
    key: Path
    valid_until: datetime | None


class _Signed(NamedTuple):
    """A certificate with its key, in memory."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"_Signed({self.cert.subject.rfc4514_string()!r})"


def set_up(
    folder: str | Path, wanted: Sequence[Identity], *, force: bool = False, now: datetime | None = None
) -> list[Made]:
    """Makes the wanted certificates, and the CA and the secret if they are missing: all of it or nothing.

    `force` replaces wanted certificates that exist, but never the CA or the secret.
    """
    folder = Path(folder)
    now = now or datetime.now(UTC)
    made: list[Made] = []
    drafts: list[Draft] = []
    if any(os.path.lexists(path) for path in cert_and_key(folder, CA)):
        authority = _load_authority(folder)
    else:
        authority = _new_authority(now)
        drafts += _drafts(folder, CA, authority, False)
        made.append(_made("ca", folder, CA, authority))
    for who in wanted:
        signed = _new_leaf(authority, who, now)
        drafts += _drafts(folder, who.name, signed, force)
        made.append(_made(who.kind, folder, who.name, signed))
    secret = folder / SECRET_FILE
    if not os.path.lexists(secret):
        drafts.append(Draft(secret, secrets.token_bytes(_SECRET_BYTES), SECRET))
        made.append(Made("secret", "cluster", None, secret, None))
    write_all(drafts)
    return made


def add_authority(folder: str | Path, now: datetime | None = None) -> Made:
    """Makes a new CA, which issues from now on. Certificates of those before it stay valid."""
    folder = Path(folder)
    _load_authority(folder)
    authority = _new_authority(now or datetime.now(UTC))
    cert = cert_and_key(folder, CA)[0]
    key_draft, cert_draft = _drafts(folder, CA, authority, True)
    both = cert_draft.content + read_file(cert, "the CA's certificate", "restore it")
    write_all([cert_draft._replace(content=both), key_draft])
    return _made("ca", folder, CA, authority)


def drop_authorities(folder: str | Path) -> int:
    """Leaves the CA that issues now alone in `ca.crt`, and its list in `ca.crl`. Returns how many were dropped."""
    folder = Path(folder)
    authority = _load_authority(folder)
    cert, crl = cert_and_key(folder, CA)[0], folder / CRL_FILE
    old = load_certificates(cert, "the CA's certificate")[1:]
    for path in sorted(folder.glob("*.crt")):
        if path != cert and any(is_issued_by(load_certificates(path, "a certificate")[0], each) for each in old):
            raise UsageError(f"{path} is still of the old CA: issue it anew with --force first, or remove it")
    drafts = [Draft(cert, _pem(authority.cert), PUBLIC, replace=True)]
    if crl.exists():
        own = [_pem(each) for each in load_crls(crl) if each.issuer == authority.cert.subject]
        drafts.append(Draft(crl, b"".join(own), PUBLIC, replace=True))
    write_all(drafts)
    return len(old)


def revoke(folder: str | Path, names: Sequence[str], now: datetime | None = None) -> None:
    """Adds the certificates of these processes and clients to the list of the CA that issued them."""
    folder = Path(folder)
    now = now or datetime.now(UTC)
    authority, path = _load_authority(folder), folder / CRL_FILE
    serials: dict[int, datetime] = {}
    others: list[bytes] = []
    for crl in load_crls(path):
        if crl.issuer == authority.cert.subject:
            serials |= {each.serial_number: each.revocation_date_utc for each in crl}
        else:
            others.append(_pem(crl))
    for name in names:
        cert = cert_and_key(folder, name)[0]
        certificate = load_certificates(cert, "the certificate")[0]
        if not is_issued_by(certificate, authority.cert):
            raise UsageError(f"{cert} was not issued by the CA of now: a list of another CA can't be signed here")
        serials.setdefault(certificate.serial_number, now)
    signed = _new_list(authority, serials, now)
    write_all([Draft(path, b"".join([_pem(signed), *others]), PUBLIC, replace=True)])


def _new_list(authority: _Signed, serials: Mapping[int, datetime], now: datetime) -> x509.CertificateRevocationList:
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.cert.subject)
        .last_update(now)
        .next_update(now + _LEAF_VALIDITY)
    )
    for serial, date in serials.items():
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(date).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(authority.key, hashes.SHA256())


def _pem(what: x509.Certificate | x509.CertificateRevocationList) -> bytes:
    return what.public_bytes(serialization.Encoding.PEM)


def file_names(names: Sequence[str]) -> list[str]:
    """Of all files that `set_up` makes for these identities, if none of them is there."""
    return [file for name in (CA, *names) for file in (f"{name}.crt", f"{name}.key")] + [SECRET_FILE]


def _made(what: Literal["ca", "process", "client"], folder: Path, name: str, signed: _Signed) -> Made:
    return Made(what, name, *cert_and_key(folder, name), signed.cert.not_valid_after_utc)


def _drafts(folder: Path, name: str, signed: _Signed, force: bool) -> list[Draft]:
    cert, key = cert_and_key(folder, name)
    plain = signed.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return [
        Draft(key, plain, SECRET, force),
        Draft(cert, _pem(signed.cert), PUBLIC, force),
    ]


def _load_authority(folder: Path) -> _Signed:
    cert_file, key_file = cert_and_key(folder, CA)
    cert_bytes = read_file(cert_file, "the CA's certificate", "restore it, or start in a new folder")
    key_bytes = read_file(key_file, "the CA's key", "issue where it is kept, or start in a new folder")
    try:
        cert = x509.load_pem_x509_certificate(cert_bytes)
    except ValueError:
        raise UsageError(f"{cert_file} holds no certificate: restore it, or start in a new folder") from None
    try:
        key = serialization.load_pem_private_key(key_bytes, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{key_file} holds no plain EC key: restore it, or start in a new folder")
    if key.public_key() != cert.public_key():
        raise UsageError(f"{key_file} is not the key of {cert_file}: restore both, or start in a new folder")
    return _Signed(cert, key)


def _new_authority(now: datetime) -> _Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: lists of revoked certificates name the CA that signed them.
    name = _common_name(f"amcast development CA {secrets.token_hex(4)}")
    builder = (
        _builder(key, name, name, now, now + _CA_VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return _Signed(builder.sign(key, hashes.SHA256()), key)


def _new_leaf(authority: _Signed, who: Identity, now: datetime) -> _Signed:
    ends = min(now + _LEAF_VALIDITY, authority.cert.not_valid_after_utc)
    if ends <= now:
        raise UsageError(f"the CA expired on {ends:%Y-%m-%d}: start in a new folder, and give all nodes its files")
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(who.uri)]
    if who.kind == "process":
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names += _LOOPBACK
    authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(key, _common_name(who.name), authority.cert.subject, now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(authority_key, critical=False)
    )
    return _Signed(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - _CLOCK_SKEW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
