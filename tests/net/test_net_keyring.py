"""The files of one process or client: which certificates are believed, and what happens when the files change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from amcast.core import UsageError
from amcast.net.security.certs import add_authority, drop_authorities, revoke, set_up
from amcast.net.security.identity import Identity
from amcast.net.security.keyring import Keyring
from amcast.net.security.tls import load_certificates

ALICE, BOB = Identity("client", "alice", "c"), Identity("client", "bob", "c")


def certificate(folder: Path, name: str) -> x509.Certificate:
    return load_certificates(folder / f"{name}.crt", "the certificate")[0]


def test_a_list_that_the_ca_did_not_sign_is_refused(tmp_path: Path) -> None:
    set_up(tmp_path / "true", [ALICE, BOB])
    ring = Keyring(tmp_path / "true", "bob")
    shutil.copytree(tmp_path / "true", tmp_path / "false")
    revoke(tmp_path / "false", ["alice"])
    crl = (tmp_path / "false" / "ca.crl").read_bytes()
    signature = bytearray(x509.load_pem_x509_crl(crl).public_bytes(Encoding.DER))
    signature[-1] ^= 1
    forged = x509.load_der_x509_crl(bytes(signature)).public_bytes(Encoding.PEM)
    (tmp_path / "true" / "ca.crl").write_bytes(forged)
    with pytest.raises(UsageError, match=r"ca\.crl: a list was not signed by the CA that it names"):
        ring.reload()
    assert ring.trust.problem_with(certificate(tmp_path / "true", "alice")) is None
    (tmp_path / "true" / "ca.crl").write_bytes(crl)
    ring.reload()
    assert ring.trust.problem_with(certificate(tmp_path / "true", "alice")) == "the certificate is revoked"


def test_a_list_of_another_ca_revokes_nothing_here(tmp_path: Path) -> None:
    for name in ("one", "other"):
        set_up(tmp_path / name, [ALICE])
    revoke(tmp_path / "other", ["alice"])
    shutil.copy(tmp_path / "other" / "ca.crl", tmp_path / "one" / "ca.crl")
    assert Keyring(tmp_path / "one", "alice").trust.revoked == frozenset()


def test_certificates_of_a_ca_that_was_dropped_are_not_believed(tmp_path: Path) -> None:
    set_up(tmp_path, [ALICE, BOB])
    ring, old = Keyring(tmp_path, "alice"), certificate(tmp_path, "bob")
    add_authority(tmp_path)
    ring.reload()
    assert ring.trust.problem_with(old) is None
    set_up(tmp_path, [ALICE, BOB], force=True)
    ring.reload()
    assert ring.trust.problem_with(old) is None
    drop_authorities(tmp_path)
    ring.reload()
    assert ring.trust.problem_with(old) == "the certificate's CA is not trusted any more"
    assert ring.trust.problem_with(certificate(tmp_path, "bob")) is None


def test_nobody_becomes_somebody_else_by_a_new_file(tmp_path: Path) -> None:
    set_up(tmp_path, [ALICE, BOB])
    ring = Keyring(tmp_path, "alice")
    for kind in ("crt", "key"):
        shutil.copy(tmp_path / f"bob.{kind}", tmp_path / f"alice.{kind}")
    with pytest.raises(UsageError, match="is now that of client bob of cluster 'c'"):
        ring.reload()
    assert ring.identity == ALICE


def test_files_that_changed_are_read_for_the_next_connection(tmp_path: Path) -> None:
    set_up(tmp_path, [ALICE])
    ring = Keyring(tmp_path, "alice")
    context = ring.client.current
    ring.refresh()
    assert ring.client.current is context
    (tmp_path / "alice.key").write_text("broken")
    ring.refresh()
    assert ring.client.current is context
    set_up(tmp_path, [ALICE], force=True)
    ring.refresh()
    assert ring.client.current is not context
    assert ring.certificate == certificate(tmp_path, "alice")
