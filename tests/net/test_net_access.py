"""Tokens, rights and tickets: what they allow, what is refused, and that no secret shows."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
import tomllib
from datetime import date
from pathlib import Path

import pytest

from amcast.core import UsageError
from amcast.core.ids import CLIENT_ID_LIMIT
from amcast.net.security import access
from amcast.net.security.access import Access, Rights, Tickets, add_token, new_token
from amcast.net.security.certs import set_up

SECRET = bytes(range(32))


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def entry(name: str, token: str, rest: str = "") -> str:
    return f'[[token]]\nname = "{name}"\nsha256 = "{sha256(token)}"\n{rest}\n'


def is_valid(tickets: Tickets, client: int, name: str, ticket: bytes) -> bool:
    return tickets.problem_with(client, name, ticket) is None


def access_of(*entries: str) -> Access:
    return Access.parse("\n".join(entries).encode(), "tokens.toml")


# -- rights


def test_a_token_has_the_rights_of_its_entry() -> None:
    known = access_of(
        entry("alice", "a", 'send = ["g1", "g3"]\nfollow = ["g2"]'),
        entry("bob", "b", 'send = ["*"]\nfollow = ["*"]'),
        entry("carol", "c"),
    )
    alice, bob, carol = (known.check(token) for token in "abc")
    assert alice is not None
    assert alice.name == "alice"
    assert [alice.may_send(dst) for dst in ((1,), (3,), (1, 3), (2,), (1, 2), (1, 2, 3))] == [True] * 3 + [False] * 3
    assert [alice.may_follow(group) for group in (1, 2, 3)] == [False, True, False]
    assert bob is not None
    assert bob.may_send((1, 2, 65535))
    assert bob.may_follow(65535)
    assert carol is not None
    assert not carol.may_send((1,))
    assert not carol.may_follow(1)


@pytest.mark.parametrize("token", ["", "A", "a ", "d", sha256("a"), "\ud800", "x" * 100_000])
def test_other_tokens_have_none(token: str) -> None:
    assert access_of(entry("alice", "a")).check(token) is None
    assert access_of().check(token) is None


def test_without_a_file_everyone_may_do_everything() -> None:
    rights = Access.unrestricted().check("")
    assert rights is not None
    assert rights.may_send((1, 2, 3))
    assert rights.may_follow(7)


def test_a_token_ends_on_its_day() -> None:
    known = access_of(entry("alice", "a", "expires = 2027-01-31"))
    last = known.check("a", today=date(2027, 1, 30))
    assert last is not None
    assert last.expires == date(2027, 1, 31)
    assert known.check("a", today=date(2027, 1, 31)) is None
    assert access_of(entry("alice", "a", "expires = 2020-01-01")).check("a") is None
    assert access_of(entry("alice", "a", "expires = 9999-01-01")).check("a") is not None


class Comparisons:
    """Stands in for `hmac.compare_digest`, and counts."""

    def __init__(self) -> None:
        self.lengths: list[tuple[int, int]] = []

    def __call__(self, left: bytes, right: bytes) -> bool:
        self.lengths.append((len(left), len(right)))
        return left == right


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> Comparisons:
    counted = Comparisons()
    monkeypatch.setattr(access.hmac, "compare_digest", counted)
    return counted


@pytest.mark.parametrize("token", ["a", "b", "c", "nobody's"])
def test_every_token_is_compared_in_constant_time_whoever_asks(comparisons: Comparisons, token: str) -> None:
    known = access_of(entry("alice", "a"), entry("bob", "b"), entry("carol", "c"))
    found = known.check(token)
    assert (found is None) == (token == "nobody's")
    assert comparisons.lengths == [(32, 32)] * 3  # hashes, not tokens


def test_tickets_are_compared_in_constant_time(comparisons: Comparisons) -> None:
    tickets = Tickets(SECRET)
    assert is_valid(tickets, 7, "alice", tickets.issue(7, "alice"))
    assert not is_valid(tickets, 7, "alice", bytes(40))
    assert comparisons.lengths == [(40, 40)] * 2


def test_a_hash_in_capitals_is_the_same_hash() -> None:
    assert access_of(entry("alice", "a").replace(sha256("a"), sha256("a").upper())).check("a") is not None


# -- the file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[token]\n", "tokens.toml is no TOML: .*line 1"),
        ('[[token]]\nname = "alice\n', "tokens.toml is no TOML: .*line 2"),
        ("[[token]]\nPASTED\n", "tokens.toml is no TOML: .*line 2"),
        ("[tokens]\n", "unknown field 'tokens': tokens are tables"),
        ("token = 3\n", "token must be a list of tables"),
        ('token = ["PASTED"]\n', "token must be a list of tables"),
        ("[[token]]\n", "token 1: name must be 1 to 64 letters"),
        ('[[token]]\nname = "PASTED /"\n', "token 1: name must be"),
        ("[[token]]\nname = 7\n", "token 1: name must be"),
        ('[[token]]\nname = "a"\n', r"token 1 \(a\): sha256 must be 64 hexadecimal digits"),
        ('[[token]]\nname = "a"\nsha256 = "PASTED"\n', r"token 1 \(a\): sha256 must be"),
        ('[[token]]\nname = "a"\nsha256 = 12\n', r"token 1 \(a\): sha256 must be"),
        (entry("a", "x", 'sends = ["g1"]'), "token 1: unknown field 'sends': there are name, sha256, send"),
        (entry("a", "x", 'send = "g1"'), r"token 1 \(a\): send must be a list: write \[\"g1\", \"g2\"\]"),
        (entry("a", "x", 'send = ["g1", "PASTED"]'), r"token 1 \(a\): send: entry 2 is no group"),
        (entry("a", "x", 'send = ["g0"]'), "send: entry 1 is no group"),
        (entry("a", "x", 'send = ["g65536"]'), "send: entry 1 is no group"),
        (entry("a", "x", 'send = ["*", "g1"]'), r"send: entry 1 is no group: .* or \* alone"),
        (entry("a", "x", "follow = [1]"), r"token 1 \(a\): follow: entry 1 is no group"),
        (entry("a", "x", 'expires = "2027-01-31"'), r"token 1 \(a\): expires must be a date"),
        (entry("a", "x", "expires = 2027-01-31T00:00:00Z"), r"token 1 \(a\): expires must be a date"),
        (entry("a", "x") + entry("a", "y"), "tokens 1 and 2 have the same name"),
        (entry("a", "x") + entry("b", "y") + entry("c", "x"), "tokens 1 and 3 have the same sha256"),
        ('# fine\nname = "\udcff"', "line 2 is not UTF-8 text"),
    ],
)
def test_a_malformed_file_is_refused_by_line_or_field(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=says) as error:
        Access.load(file)
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)
    assert "PASTED" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tokens\.toml does not exist: .*make one with `amcast token add`"):
        Access.load(tmp_path / "tokens.toml")


# -- making tokens


def test_a_new_token_is_recognised_and_stored_as_a_hash_only() -> None:
    secret, text = new_token("alice", ["g1", "g2"], ["*"])
    assert secret not in text
    (made,) = tomllib.loads(text)["token"]
    assert made == {"name": "alice", "sha256": sha256(secret), "send": ["g1", "g2"], "follow": ["*"]}
    rights = access_of(text).check(secret)
    assert rights is not None
    assert rights.may_send((1, 2))
    assert not rights.may_send((3,))
    assert rights.may_follow(3)


def test_new_tokens_differ_and_are_long() -> None:
    made = {new_token("alice", [], [])[0] for _ in range(50)}
    assert len(made) == 50
    assert min(map(len, made)) >= 43  # 256 bits in base 64


@pytest.mark.parametrize(
    ("name", "send", "says"),
    [
        ("", [], "name must be"),
        ('a"', [], "name must be"),
        ("a", ["g1", "x"], "the token a: send: entry 2 is no group"),
    ],
)
def test_tokens_that_make_no_sense(name: str, send: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        new_token(name, send, [])


def test_tokens_are_added_to_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    first = add_token(file, "alice", ["g1"], [])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("# Keep me.\n" + file.read_text().rstrip("\n"))
    file.chmod(0o640)
    second = add_token(file, "bob", [], ["g1"])
    assert file.read_text().startswith("# Keep me.\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    known = Access.load(file)
    assert [rights and rights.name for rights in map(known.check, (first, second))] == ["alice", "bob"]
    assert os.listdir(tmp_path) == ["tokens.toml"]


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (entry("alice", "x"), "with the new entry: tokens 1 and 2 have the same name"),
        ("[[token]\n", "line 1"),
        (f'token = [{{name = "bob", sha256 = "{sha256("b")}"}}]\n', "with the new entry is no TOML"),
    ],
)
def test_a_file_that_can_not_take_the_token_stays_as_it_is(tmp_path: Path, before: str, says: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(before)
    with pytest.raises(UsageError, match=says):
        add_token(file, "alice", [], [])
    assert file.read_text() == before
    assert os.listdir(tmp_path) == ["tokens.toml"]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.toml").symlink_to(tmp_path / "true.toml")
    secret = add_token(tmp_path / "link.toml", "alice", [], [])
    assert (tmp_path / "link.toml").is_symlink()
    assert Access.load(tmp_path / "true.toml").check(secret) is not None


# -- tickets


def test_a_ticket_is_valid_at_every_node_that_has_the_secret(tmp_path: Path) -> None:
    for cluster in ("one", "other"):
        set_up(tmp_path / cluster, [])
    file = tmp_path / "one" / "cluster.secret"
    ticket = Tickets.load(file).issue(12, "alice")
    assert is_valid(Tickets.load(file), 12, "alice", ticket)
    assert not is_valid(Tickets.load(tmp_path / "other" / "cluster.secret"), 12, "alice", ticket)


def test_a_ticket_is_for_one_id_and_one_name() -> None:
    tickets = Tickets(SECRET)
    ticket = tickets.issue(12, "alice")
    assert is_valid(tickets, 12, "alice", ticket)
    for client_id, name in ((13, "alice"), (12, "alic"), (12, "Alice"), (12, ""), (12, "alice\0")):
        assert not is_valid(tickets, client_id, name, ticket)
    flipped = bytes([ticket[0] ^ 1]) + ticket[1:]
    for wrong in (b"", ticket[:-1], ticket + b"\0", flipped, bytes(32)):
        assert not is_valid(tickets, 12, "alice", wrong)


def test_a_ticket_ends_after_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_800_000_000
    monkeypatch.setattr(access, "_now_s", lambda: now_s)
    tickets, endless = Tickets(SECRET, life_s=100), Tickets(SECRET, life_s=0)
    ticket, other = tickets.issue(12, "alice"), endless.issue(12, "alice")
    now_s += 99
    assert is_valid(tickets, 12, "alice", ticket)
    now_s += 1
    assert tickets.problem_with(12, "alice", ticket) == (
        "the ticket for this client id has expired: open the client anew"
    )
    later = (now_s + 1_000).to_bytes(8, "big") + ticket[8:]
    assert tickets.problem_with(12, "alice", later) == "the ticket does not prove this client id"
    assert is_valid(endless, 12, "alice", other)
    assert not is_valid(tickets, 12, "alice", other)


@pytest.mark.parametrize("client_id", [-1, CLIENT_ID_LIMIT, 1 << 80])
def test_ids_that_no_node_gives_out_are_refused(client_id: int) -> None:
    assert not is_valid(Tickets(SECRET), client_id, "alice", bytes(32))


def test_a_ticket_is_not_the_bare_hmac_of_what_a_client_chooses() -> None:
    """Else whatever else is signed with the secret could be passed off as a ticket."""
    bare = hmac.digest(SECRET, (12).to_bytes(8, "big") + b"alice", "sha256")
    assert not is_valid(Tickets(SECRET), 12, "alice", bare)


@pytest.mark.parametrize("length", [0, 31])
def test_a_secret_that_is_too_short_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / "cluster.secret").write_bytes(bytes(length))
    with pytest.raises(UsageError, match=r"cluster\.secret is cut short"):
        Tickets.load(tmp_path / "cluster.secret")
    with pytest.raises(UsageError, match="missing does not exist: the cluster's secret is missing"):
        Tickets.load(tmp_path / "missing")


# -- nothing secret shows


def test_reprs_show_no_secret() -> None:
    known = access_of(entry("alice", "the-token", 'send = ["g2", "g1"]\nfollow = ["*"]'))
    rights = known.check("the-token")
    tickets = Tickets(b"the-secret-of-the-whole-cluster!")
    assert repr(rights) == str(rights) == "Rights('alice', send=g1,g2, follow=*)"
    assert repr(known) == "Access(1 tokens)"
    assert repr(Access.unrestricted()) == "Access(unrestricted)"
    assert repr(Rights("x", frozenset(), None)) == "Rights('x', send=none, follow=*)"
    shown = f"{known!r} {known} {tickets!r} {tickets}"
    for secret in (
        "the-token",
        sha256("the-token"),
        "the-secret",
        bytes.fromhex(sha256("the-token")).decode("latin-1"),
    ):
        assert secret not in shown
