"""Certificates for tests: whatever `amcast certs` makes, and some that it would never make."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from amcast.net.security.certs import Made, set_up
from amcast.net.security.identity import Identity
from amcast.net.security.tls import client_context, server_context

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
FAR_AHEAD = datetime(2120, 1, 1, tzinfo=UTC)


def make_ca(folder: Path, now: datetime | None = None) -> Made:
    return set_up(folder, [], now=now)[0]


def issue(folder: Path, who: Identity, now: datetime | None = None) -> Made:
    """By the CA that is in the folder already, with the secret."""
    (made,) = set_up(folder, [who], now=now)
    return made


def serve(folder: Path, name: str) -> ssl.SSLContext:
    return server_context(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


def dial(folder: Path, name: str) -> ssl.SSLContext:
    return client_context(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


def careless(protocol: int, folder: Path, name: str | None) -> ssl.SSLContext:
    """As an attacker or an old node has it: nothing of its own is looked at before it is used."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if name is not None:
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return context


def sign_strange(folder: Path, name: str, uris: list[str]) -> None:
    """By the true CA, with any alternative names, or none."""
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "g1.p0")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(authority.not_valid_before_utc)
        .not_valid_after(authority.not_valid_after_utc)
    )
    if uris:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        builder = builder.add_extension(names, critical=False)
    signed = builder.sign(signer, hashes.SHA256())
    (folder / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(key_bytes(key, serialization.NoEncryption()))


def key_bytes(key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def load(made: Made) -> x509.Certificate:
    assert made.cert is not None
    return x509.load_pem_x509_certificate(made.cert.read_bytes())
