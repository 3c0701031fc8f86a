"""`amcast certs` and `amcast token`: what they write, what they print, and what they refuse."""

from __future__ import annotations

import stat
from datetime import date
from pathlib import Path

import pytest

from amcast.net.security.access import Access, read_token
from amcast.net.security.identity import Identity
from amcast.net.security.keyring import Keyring
from amcast.net.security.tls import certificate_identity, client_context, load_certificates, server_context
from tests.cli.cli_harness import Cli


def test_certs_for_a_whole_cluster(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("certs", "certs", "--cluster", "c", "--groups", 2, "--replicas", 3, "--client", "alice", "--json")
    assert outcome.code == 0
    document = outcome.json
    processes = [f"g{group}.p{index}" for group in (1, 2) for index in range(3)]
    assert [each["name"] for each in document["made"]] == ["ca", *processes, "alice", "cluster"]
    for each in document["made"]:
        assert stat.S_IMODE((tmp_path / each["key"]).stat().st_mode) == 0o600
        assert (each["cert"] is None) == (each["valid_until"] is None) == (each["what"] == "secret")
    folder = tmp_path / "certs"
    for name in processes:
        assert certificate_identity(folder / f"{name}.crt") == Identity("process", name, "c")
        server_context(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
    client_context(folder / "ca.crt", folder / "alice.crt", folder / "alice.key")
    assert len(list(folder.iterdir())) == 2 * len(document["made"]) - 1


def test_certs_prints_a_table_and_no_key(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("certs", "d", "--cluster", "c", "--process", "g1.p0", "--process", "g1.p0", "--client", "bob")
    assert outcome.code == 0
    assert [line.split()[:4] for line in outcome.out.splitlines()[1:]] == [
        ["ca", "ca", "d/ca.crt", "d/ca.key"],
        ["process", "g1.p0", "d/g1.p0.crt", "d/g1.p0.key"],
        ["client", "bob", "d/bob.crt", "d/bob.key"],
        ["secret", "cluster", "d/cluster.secret"],
    ]
    for line in (tmp_path / "d" / "g1.p0.key").read_text().splitlines()[1:-1]:
        assert line not in outcome.out


def test_certs_overwrites_only_what_is_named_and_forced(cli: Cli, tmp_path: Path) -> None:
    assert cli("certs", "d", "--cluster", "c", "--groups", 1).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    says = cli.refuses("certs", "d", "--cluster", "c", "--client", "carol", "--process", "g1.p2")
    assert "d/g1.p2.key exists: nothing is overwritten, use --force to replace it" in says
    assert {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()} == before
    made = cli("certs", "d", "--cluster", "c", "--process", "g1.p2", "--force", "--json").json["made"]
    assert [each["name"] for each in made] == ["g1.p2"]
    after = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"g1.p2.key", "g1.p2.crt"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "nothing is named: use --groups 2, --process g1.p0 or --client alice"),
        (("--replicas", 3), "--replicas goes with --groups"),
        (("--client", "alice"), "certificates name their cluster: use --cluster"),
        (("--cluster", "a b", "--client", "alice"), "'a b' is no name of a cluster"),
        (("--new-ca", "--client", "alice"), "one thing at a time"),
        (("--new-ca",), "ca.crt does not exist"),
        (("--revoke", "alice"), "ca.crt does not exist"),
        (("--cluster", "c", "--process", "alice"), "'alice' is no name of a process: write g1.p0"),
        (("--cluster", "c", "--client", "g1.p0"), "a client can't be called g1.p0"),
        (("--cluster", "c", "--client", "../alice"), "is no name for a client"),
        (("--groups", 0), "--groups"),
    ],
)
def test_certs_refuses(cli: Cli, tmp_path: Path, args: tuple[object, ...], says: str) -> None:
    assert says in cli.refuses("certs", "d", *args)
    assert list(tmp_path.iterdir()) == []


def test_a_token_is_shown_once_alone_on_stdout(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("token", "add", "alice", "--send", "g1, g2", "--follow", "*")
    assert outcome.code == 0
    secret = outcome.out.strip()
    assert len(outcome.out.splitlines()) == 1
    assert "tokens.toml" in outcome.err
    assert secret not in outcome.err
    assert secret not in (tmp_path / "tokens.toml").read_text()
    rights = Access.load(tmp_path / "tokens.toml").check(secret)
    assert repr(rights) == "Rights('alice', send=g1,g2, follow=*)"


def test_tokens_share_a_file(cli: Cli, tmp_path: Path) -> None:
    made = [cli("token", "add", name, "--follow", "g1", "--file", "t.toml", "--json").json for name in ("alice", "bob")]
    known = Access.load(tmp_path / "t.toml")
    assert [known.check(each["token"]).name for each in made] == ["alice", "bob"]  # type: ignore[union-attr]
    assert [each["file"] for each in made] == ["t.toml", "t.toml"]
    before = (tmp_path / "t.toml").read_text()
    assert "have the same name" in cli.refuses("token", "add", "alice", "--file", "t.toml")
    assert (tmp_path / "t.toml").read_text() == before


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("add", "alice", "--send", "g1,,g2"), "the token alice: send: entry 2 is no group: write g1, g2 and so on"),
        (("add", "alice", "--follow", "*,g1"), "follow: entry 1 is no group"),
        (("add", "a b"), "name must be 1 to 64 letters"),
        (("add", "alice", "--file", "."), "can't read"),
        (("add", "alice", "--expires", "soon"), "'soon' is no day: write for example 2027-01-31"),
        (("list",), "tokens.toml does not exist"),
        (("revoke", "alice"), "tokens.toml does not exist"),
    ],
)
def test_token_refuses(cli: Cli, tmp_path: Path, args: tuple[object, ...], says: str) -> None:
    assert says in cli.refuses("token", *args)
    assert list(tmp_path.iterdir()) == []


def test_a_token_in_a_file_of_its_own(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("token", "add", "alice", "--send", "g1", "--expires", "2127-01-31", "--out", "alice.token")
    assert outcome.code == 0
    assert outcome.out == ""
    assert stat.S_IMODE((tmp_path / "alice.token").stat().st_mode) == 0o600
    rights = Access.load(tmp_path / "tokens.toml").check(read_token(tmp_path / "alice.token"))
    assert rights is not None
    assert rights.expires == date(2127, 1, 31)
    assert "alice.token exists" in cli.refuses("token", "add", "bob", "--out", "alice.token")
    assert [entry.name for entry in Access.load(tmp_path / "tokens.toml").all] == ["alice"]


def test_tokens_are_listed_and_revoked(cli: Cli, tmp_path: Path) -> None:
    secrets = {
        name: cli("token", "add", name, "--send", send, "--follow", "*").out.strip()
        for name, send in (("alice", "g1,g2"), ("bob", ""))
    }
    file = tmp_path / "tokens.toml"
    file.write_text("# mine\n" + file.read_text())
    listed = cli("token", "list", "--json")
    assert listed.json["tokens"] == [
        {"name": "alice", "send": "g1,g2", "follow": "*", "operate": "", "expires": ""},
        {"name": "bob", "send": "none", "follow": "*", "operate": "", "expires": ""},
    ]
    assert "alice" in cli("token", "list").out
    assert "there is no token 'carol' in tokens.toml: it has alice, bob" in cli.refuses("token", "revoke", "carol")
    assert cli("token", "revoke", "alice").code == 0
    left = Access.load(file)
    assert left.check(secrets["alice"]) is None
    assert left.check(secrets["bob"]) is not None
    assert file.read_text().startswith("# mine\n")
    assert cli("token", "revoke", "bob").code == 0
    assert Access.load(file).all == ()


def test_a_file_that_somebody_wrote_otherwise_is_left_to_them(cli: Cli, tmp_path: Path) -> None:
    before = f'token = [{{name = "alice", sha256 = "{"0" * 64}"}}]\n'
    (tmp_path / "tokens.toml").write_text(before)
    assert "take the entry of 'alice' out by hand" in cli.refuses("token", "revoke", "alice")
    assert (tmp_path / "tokens.toml").read_text() == before


def test_one_ca_follows_another(cli: Cli, tmp_path: Path) -> None:
    issue = ("certs", "d", "--cluster", "c", "--process", "g1.p0", "--client", "alice")
    assert cli(*issue).code == 0
    before = load_certificates(tmp_path / "d" / "ca.crt", "the CA")
    assert [each["what"] for each in cli("certs", "d", "--new-ca", "--json").json["made"]] == ["ca"]
    new, old = load_certificates(tmp_path / "d" / "ca.crt", "the CA")
    assert [old] == before
    assert new.subject != old.subject
    Keyring(tmp_path / "d", "alice")  # of the old CA, which is trusted as well
    says = cli.refuses("certs", "d", "--drop-old-ca")
    assert "d/alice.crt is still of the old CA: issue it anew with --force first" in says
    assert cli(*issue, "--force").code == 0
    assert cli("certs", "d", "--drop-old-ca").code == 0
    assert load_certificates(tmp_path / "d" / "ca.crt", "the CA") == [new]
    Keyring(tmp_path / "d", "alice")


def test_certificates_are_revoked_one_after_the_other(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    assert cli("certs", "d", "--cluster", "c", "--process", "g1.p0", "--client", "alice", "--client", "bob").code == 0
    for name in ("alice", "bob"):
        assert cli("certs", "d", "--revoke", name).code == 0
    trust = Keyring(folder, "g1.p0").trust
    certificates = {name: load_certificates(folder / f"{name}.crt", "one")[0] for name in ("g1.p0", "alice", "bob")}
    problems = {name: trust.problem_with(certificate) for name, certificate in certificates.items()}
    assert problems == {"g1.p0": None, "alice": "the certificate is revoked", "bob": "the certificate is revoked"}
    assert cli("certs", "d", "--new-ca").code == 0
    assert "was not issued by the CA of now" in cli.refuses("certs", "d", "--revoke", "g1.p0")
    assert Keyring(folder, "g1.p0").trust.problem_with(certificates["alice"]) == "the certificate is revoked"
