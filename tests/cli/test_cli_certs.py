"""`amcast certs` and `amcast token`: what they write, what they print, and what they refuse."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from amcast.net.security.access import Access
from amcast.net.security.identity import Identity
from amcast.net.security.tls import certificate_identity, client_context, server_context
from tests.cli.cli_harness import Cli


def test_certs_for_a_whole_cluster(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("certs", "certs", "--groups", 2, "--replicas", 3, "--client", "alice", "--json")
    assert outcome.code == 0
    document = outcome.json
    processes = [f"g{group}.p{index}" for group in (1, 2) for index in range(3)]
    assert [each["name"] for each in document["made"]] == ["ca", *processes, "alice", "cluster"]
    for each in document["made"]:
        assert stat.S_IMODE((tmp_path / each["key"]).stat().st_mode) == 0o600
        assert (each["cert"] is None) == (each["valid_until"] is None) == (each["what"] == "secret")
    folder = tmp_path / "certs"
    for name in processes:
        assert certificate_identity(folder / f"{name}.crt") == Identity("process", name)
        server_context(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
    client_context(folder / "ca.crt", folder / "alice.crt", folder / "alice.key")
    assert len(list(folder.iterdir())) == 2 * len(document["made"]) - 1


def test_certs_prints_a_table_and_no_key(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("certs", "d", "--process", "g1.p0", "--process", "g1.p0", "--client", "bob")
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
    assert cli("certs", "d", "--groups", 1).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    says = cli.refuses("certs", "d", "--client", "carol", "--process", "g1.p2")
    assert "d/g1.p2.key exists: nothing is overwritten, use --force to replace it" in says
    assert {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()} == before
    assert [each["name"] for each in cli("certs", "d", "--process", "g1.p2", "--force", "--json").json["made"]] == [
        "g1.p2"
    ]
    after = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"g1.p2.key", "g1.p2.crt"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "nothing is named: use --groups 2, --process g1.p0 or --client alice"),
        (("--replicas", 3), "--replicas goes with --groups"),
        (("--process", "alice"), "'alice' is no name of a process: write g1.p0"),
        (("--client", "g1.p0"), "a client can't be called g1.p0"),
        (("--client", "../alice"), "is no name for a client"),
        (("--groups", 0), "--groups"),
    ],
)
def test_certs_refuses(cli: Cli, tmp_path: Path, args: tuple[object, ...], says: str) -> None:
    assert says in cli.refuses("certs", "d", *args)
    assert list(tmp_path.iterdir()) == []


def test_a_token_is_shown_once_alone_on_stdout(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("token", "alice", "--send", "g1, g2", "--follow", "*")
    assert outcome.code == 0
    secret = outcome.out.strip()
    assert len(outcome.out.splitlines()) == 1
    assert "tokens.toml" in outcome.err
    assert secret not in outcome.err
    assert secret not in (tmp_path / "tokens.toml").read_text()
    rights = Access.load(tmp_path / "tokens.toml").check(secret)
    assert repr(rights) == "Rights('alice', send=g1,g2, follow=*)"


def test_tokens_share_a_file(cli: Cli, tmp_path: Path) -> None:
    made = [cli("token", name, "--follow", "g1", "--file", "t.toml", "--json").json for name in ("alice", "bob")]
    known = Access.load(tmp_path / "t.toml")
    assert [known.check(each["token"]).name for each in made] == ["alice", "bob"]  # type: ignore[union-attr]
    assert [each["file"] for each in made] == ["t.toml", "t.toml"]
    before = (tmp_path / "t.toml").read_text()
    assert "have the same name" in cli.refuses("token", "alice", "--file", "t.toml")
    assert (tmp_path / "t.toml").read_text() == before


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("alice", "--send", "g1,,g2"), "the token alice: send: entry 2 is no group: write g1, g2 and so on"),
        (("alice", "--follow", "*,g1"), "follow: entry 1 is no group"),
        (("a b",), "name must be 1 to 64 letters"),
        (("alice", "--file", "."), "can't read"),
    ],
)
def test_token_refuses(cli: Cli, tmp_path: Path, args: tuple[object, ...], says: str) -> None:
    assert says in cli.refuses("token", *args)
    assert list(tmp_path.iterdir()) == []
