"""The development CA: what is in a certificate, and what happens to files."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from amcast.core import UsageError
from amcast.net.security import _files
from amcast.net.security.certs import set_up
from amcast.net.security.identity import Identity, identity, parse_uri
from tests.net.net_certs import FAR_AHEAD, issue, load, make_ca

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
P0, P1 = Identity("process", "g1.p0", "c"), Identity("process", "g1.p1", "c")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- what is in a certificate


def test_the_ca_signs_leaves_and_nothing_else(tmp_path: Path) -> None:
    made = make_ca(tmp_path, now=NOW)
    cert = load(made)
    constraints = cert.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert cert.not_valid_before_utc <= NOW
    assert made.valid_until == cert.not_valid_after_utc == datetime(2036, 3, 1, 12, tzinfo=UTC)
    key = cert.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


@pytest.mark.parametrize(
    ("kind", "name", "usages"),
    [
        ("process", "g1.p0", {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}),
        ("client", "alice", {ExtendedKeyUsageOID.CLIENT_AUTH}),
    ],
)
def test_a_leaf_says_who_it_is_and_what_for(tmp_path: Path, kind: str, name: str, usages: set[object]) -> None:
    authority = load(make_ca(tmp_path, now=NOW))
    made = issue(tmp_path, Identity(kind, name, "c"), now=NOW)  # type: ignore[arg-type]
    cert = load(made)
    cert.verify_directly_issued_by(authority)
    (common_name,) = cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value == name
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"amcast://c/{kind}/{name}"]
    is_process = kind == "process"
    assert names.get_values_for_type(x509.DNSName) == (["localhost"] if is_process else [])
    addresses = [ip_address("127.0.0.1"), ip_address("::1")]
    assert names.get_values_for_type(x509.IPAddress) == (addresses if is_process else [])
    assert set(cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == usages
    assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert made.valid_until == cert.not_valid_after_utc == NOW + timedelta(days=365)


def test_a_leaf_does_not_outlive_its_ca(tmp_path: Path) -> None:
    ends = load(make_ca(tmp_path, now=NOW)).not_valid_after_utc
    late = issue(tmp_path, P0, now=ends - timedelta(days=3))
    assert load(late).not_valid_after_utc == ends
    with pytest.raises(UsageError, match="the CA expired on 2036-03-01"):
        issue(tmp_path, P1, now=FAR_AHEAD)


@pytest.mark.parametrize("name", ["", "g1", "g0.p0", "g1.p", "g1.p01", "g01.p1", "g1.p0\n", "../g1.p0", "alice"])
def test_names_that_no_process_has(name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a process"):
        identity("process", name, "c")


@pytest.mark.parametrize("name", ["", "-x", ".x", "a/b", "a b", "a\n", "ä", "a" * 65, "ca", "cluster", "g1.p0"])
def test_names_that_no_client_can_have(name: str) -> None:
    with pytest.raises(UsageError, match=r"no name for a client|can't be called"):
        identity("client", name, "c")


def test_identities_survive_their_uri() -> None:
    for who in (Identity("process", "g65535.p12", "c"), Identity("client", "a.b-c_D9", "c")):
        assert parse_uri(who.uri) == who
    for uri in (
        "amcast://c/process/alice",
        "amcast://c/client/g1.p0",
        "amcast://c/root/x",
        "amcast://process/g1.p0",
        "amcast://c d/client/alice",
        "amcast:///client/alice",
        "amcast://c/client",
        "spiffe://a/b",
    ):
        assert parse_uri(uri) is None


# -- files


def test_keys_and_the_secret_are_closed_to_others(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        authority, leaf, secret = set_up(tmp_path / "certs", [P0])
    finally:
        os.umask(old)
    assert {mode(made.key) for made in (authority, leaf, secret)} == {0o600}
    assert mode(tmp_path / "certs") == 0o700
    assert len(secret.key.read_bytes()) == 32
    for path in (authority.cert, leaf.cert):
        assert path is not None
        assert mode(path) == 0o644
        assert b"PRIVATE" not in path.read_bytes()


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    set_up(tmp_path, [P0])
    before = snapshot(tmp_path)
    with pytest.raises(UsageError, match="exists: nothing is overwritten, use --force to replace it"):
        set_up(tmp_path, [P0])
    assert snapshot(tmp_path) == before
    set_up(tmp_path, [P0], force=True)
    after = snapshot(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"g1.p0.crt", "g1.p0.key"}
    assert mode(tmp_path / "g1.p0.key") == 0o600


@pytest.mark.parametrize("existing", ["g2.p0.key", "g2.p0.crt", "alice.key"])
def test_all_that_is_wanted_or_nothing(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("mine")
    wanted = [P0, Identity("process", "g2.p0", "c"), Identity("client", "alice", "c")]
    with pytest.raises(UsageError, match=existing):
        set_up(tmp_path, wanted)
    assert snapshot(tmp_path) == {existing: b"mine"}


def test_a_disk_that_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_link, calls = os.link, []

    def failing_link(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        true_link(source, target)

    monkeypatch.setattr(_files.os, "link", failing_link)
    with pytest.raises(UsageError, match="No space left on device"):
        set_up(tmp_path, [P0])
    assert len(calls) == 4
    assert snapshot(tmp_path) == {}


def test_who_comes_second_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program makes the file after this one has looked for it."""
    (tmp_path / "cluster.secret").write_text("mine")
    monkeypatch.setattr(_files.os.path, "lexists", lambda path: False)
    with pytest.raises(UsageError, match=r"cluster\.secret exists"):
        set_up(tmp_path, [P0])
    assert snapshot(tmp_path) == {"cluster.secret": b"mine"}


def test_set_up_adds_to_what_is_there(tmp_path: Path) -> None:
    first = set_up(tmp_path, [P0])
    assert [each.what for each in first] == ["ca", "process", "secret"]
    before = snapshot(tmp_path)
    second = set_up(tmp_path, [Identity("client", "alice", "c")])
    assert [(each.what, each.name) for each in second] == [("client", "alice")]
    forced = set_up(tmp_path, [P0], force=True)
    assert [each.name for each in forced] == ["g1.p0"]
    after = snapshot(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"g1.p0.crt", "g1.p0.key"}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "ca.key").unlink(), r"ca\.key does not exist: the CA's key is missing"),
        (lambda folder: (folder / "ca.crt").unlink(), r"ca\.crt does not exist: the CA's certificate is missing"),
        (lambda folder: (folder / "ca.key").write_text("SECRET"), r"ca\.key holds no plain EC key"),
        (lambda folder: (folder / "ca.crt").write_text("SECRET"), r"ca\.crt holds no certificate"),
        (lambda folder: os.replace(folder / "g1.p0.key", folder / "ca.key"), r"ca\.key is not the key of .*ca\.crt"),
    ],
)
def test_a_damaged_ca_issues_nothing(tmp_path: Path, damage: object, says: str) -> None:
    set_up(tmp_path, [P0])
    damage(tmp_path)  # type: ignore[operator]
    before = snapshot(tmp_path)
    with pytest.raises(UsageError, match=says) as error:
        set_up(tmp_path, [P1])
    assert "SECRET" not in str(error.value)
    assert "\n" not in str(error.value)
    assert snapshot(tmp_path) == before


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="file is not a folder: choose another place"):
        make_ca(tmp_path / "file")
    with pytest.raises(UsageError, match="can't write to"):
        make_ca(tmp_path / "file" / "deeper")


def test_reprs_show_no_key(tmp_path: Path) -> None:
    draft = _files.Draft(tmp_path / "x.key", b"SECRET", _files.SECRET)
    assert "SECRET" not in f"{draft!r} {draft}"
