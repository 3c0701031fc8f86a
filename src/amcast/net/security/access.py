"""Who may do what: tokens with rights for each group, and tickets that prove which id a client was given.

A file of tokens (TOML) holds the SHA-256 of each token: enough to recognise it, and of no use to a thief. No slow hash
is needed, since tokens are 256 random bits and not words that somebody chose.

    [[token]]
    name = "alice"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    send = ["g1", "g2"]      # messages may go to these groups; ["*"] is all of them, [] or nothing is none
    follow = ["*"]           # whose deliveries may be read
    expires = 2027-01-31     # optional: from this day on (UTC) the token is refused

Without a file of tokens, whoever may connect may do everything.

A client gets its id from the node where it connects first, with a ticket: an HMAC of id and name under the secret that
all nodes share. With the ticket it can use the id at every node; nobody without the ticket can.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import tomllib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from ...core import GroupId, UsageError
from ...core.ids import CLIENT_ID_LIMIT, GROUP_ID_LIMIT
from ._files import SECRET, Draft, read_file, write_all
from .identity import NAME_RULE, is_plain_name

Groups = frozenset[GroupId] | None  # None is every group, even one that is added later

_EVERYTHING = "*"
_TOKEN_PREFIX = "amcast_"  # so that scanners for leaked secrets recognise one
_FIELDS = ("name", "sha256", "send", "follow", "expires")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GROUP = re.compile(r"g([1-9][0-9]{0,4})")
_TICKET_PURPOSE = b"amcast ticket 1\0"  # so that nothing else that is signed with the secret can pass for a ticket
_SECRET_BYTES_MIN = 32


class Rights:
    """The rights of one token. They are checked for every message, so the sets are made once."""

    __slots__ = ("_follow", "_send", "expires", "name")

    def __init__(self, name: str, send: Groups, follow: Groups, expires: date | None = None) -> None:
        self.name = name
        self.expires = expires
        self._send = send
        self._follow = follow

    @classmethod
    def everything(cls) -> Rights:
        return cls("anyone", None, None)

    def may_send(self, dst: tuple[GroupId, ...]) -> bool:
        return self._send is None or self._send.issuperset(dst)

    @property
    def may_send_anything(self) -> bool:
        return self._send is None or bool(self._send)

    def may_follow(self, group: GroupId) -> bool:
        return self._follow is None or group in self._follow

    def __repr__(self) -> str:
        return f"Rights({self.name!r}, send={_group_names(self._send)}, follow={_group_names(self._follow)})"


class Access:
    def __init__(self, tokens: Sequence[tuple[bytes, Rights]] | None) -> None:
        """Pairs of a token's SHA-256 and its rights; None lets everyone in."""
        self._tokens = None if tokens is None else tuple(tokens)

    @classmethod
    def unrestricted(cls) -> Access:
        return cls(None)

    @classmethod
    def load(cls, path: str | Path) -> Access:
        content = read_file(Path(path), "the file of tokens", "make one with `amcast token`, or configure none")
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, content: bytes, where: str) -> Access:
        return cls(_parse_tokens(content, where))

    def check(self, token: str, today: date | None = None) -> Rights | None:
        """The rights of the token; None if it is unknown or has expired."""
        if self._tokens is None:
            return Rights.everything()
        shown = _hash(token)
        found: Rights | None = None
        # All are compared, each in constant time, so that the time of the answer does not help to guess a token.
        for known, rights in self._tokens:
            if hmac.compare_digest(known, shown):
                found = rights
        if found is None or found.expires is None:
            return found
        return found if (today or datetime.now(UTC).date()) < found.expires else None

    def __repr__(self) -> str:
        return "Access(unrestricted)" if self._tokens is None else f"Access({len(self._tokens)} tokens)"


class Tickets:
    """Signs and checks tickets. A ticket is valid until the secret is replaced."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        assert len(secret) >= _SECRET_BYTES_MIN
        self._secret = secret

    @classmethod
    def load(cls, path: str | Path) -> Tickets:
        secret = read_file(Path(path), "the cluster's secret", "make it with `amcast certs`, once for all nodes")
        if len(secret) < _SECRET_BYTES_MIN:
            raise UsageError(f"{path} is cut short: copy it again from another node, or make a new one for all nodes")
        return cls(secret)

    def issue(self, client_id: int, name: str) -> bytes:
        assert 0 <= client_id < CLIENT_ID_LIMIT, "ids are given out by nodes"
        return hmac.digest(self._secret, _TICKET_PURPOSE + client_id.to_bytes(8, "big") + _encode(name), "sha256")

    def is_valid(self, client_id: int, name: str, ticket: bytes) -> bool:
        if not 0 <= client_id < CLIENT_ID_LIMIT:  # a client may send anything
            return False
        return hmac.compare_digest(self.issue(client_id, name), ticket)

    def __repr__(self) -> str:
        return "Tickets()"


def new_token(name: str, send: Sequence[str], follow: Sequence[str]) -> tuple[str, str]:
    """The secret for the client, and the entry for the file of tokens; groups are named g1, g2, ... or *."""
    _check_name(name, "the token")
    for field, groups in (("send", send), ("follow", follow)):
        _parse_groups(list(groups), f"the token {name}: {field}")
    secret = _TOKEN_PREFIX + secrets.token_urlsafe(32)
    lines = (
        "[[token]]",
        f'name = "{name}"',
        f'sha256 = "{_hash(secret).hex()}"',
        f"send = [{_quoted(send)}]",
        f"follow = [{_quoted(follow)}]",
    )
    return secret, "\n".join(lines) + "\n"


def add_token(path: str | Path, name: str, send: Sequence[str], follow: Sequence[str]) -> str:
    """Adds an entry to the file, which is made if it is missing. Returns the secret, which is stored nowhere."""
    secret, entry = new_token(name, send, follow)
    target = Path(os.path.realpath(path))  # the file behind a link is replaced, not the link
    is_new = not os.path.lexists(target)
    before = b"" if is_new else read_file(target, "the file of tokens", "name another file")
    if before:
        Access.parse(before, str(path))
        before = before.rstrip(b"\n") + b"\n\n"
    after = before + entry.encode()
    Access.parse(after, f"{path} with the new entry")
    mode = SECRET if is_new else target.stat().st_mode & 0o777
    write_all([Draft(target, after, mode, replace=not is_new)])
    return secret


def _parse_tokens(content: bytes, where: str) -> list[tuple[bytes, Rights]]:
    try:
        document = tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(f"{where}: line {line} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is no TOML: {error}".replace("\n", " ")) from None
    entries = document.pop("token", [])
    if document:
        raise UsageError(f"{where}: unknown field {min(document)!r}: tokens are tables that begin with [[token]]")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{where}: token must be a list of tables: begin each with [[token]]")
    tokens = [_parse_token(entry, f"{where}: token {number}") for number, entry in enumerate(entries, 1)]
    _refuse_twice([rights.name for _, rights in tokens], where, "name")
    _refuse_twice([known for known, _ in tokens], where, "sha256")
    return tokens


def _parse_token(entry: dict[str, Any], where: str) -> tuple[bytes, Rights]:
    """Errors name the field and not its value, which may be a token that was pasted into the wrong place."""
    for field in entry:
        if field not in _FIELDS:
            raise UsageError(f"{where}: unknown field {field!r}: there are {', '.join(_FIELDS)}")
    name = _check_name(entry.get("name"), where)
    where = f"{where} ({name})"
    known = entry.get("sha256")
    if not isinstance(known, str) or _SHA256.fullmatch(known.lower()) is None:
        raise UsageError(f"{where}: sha256 must be 64 hexadecimal digits: make entries with `amcast token`")
    send, follow = (_parse_groups(entry.get(field, []), f"{where}: {field}") for field in ("send", "follow"))
    expires = entry.get("expires")
    if expires is not None and type(expires) is not date:
        raise UsageError(f"{where}: expires must be a date: write 2027-01-31, without quotes or a time")
    return bytes.fromhex(known), Rights(name, send, follow, expires)


def _check_name(name: object, where: str) -> str:
    if not isinstance(name, str) or not is_plain_name(name):
        raise UsageError(f"{where}: name must be {NAME_RULE}")
    return name


def _parse_groups(groups: object, where: str) -> Groups:
    if not isinstance(groups, list):
        raise UsageError(f'{where} must be a list: write ["g1", "g2"] or ["*"]')
    if groups == [_EVERYTHING]:
        return None
    found: list[GroupId] = []
    for number, group in enumerate(groups, 1):
        match = _GROUP.fullmatch(group) if isinstance(group, str) else None
        if match is None or int(match[1]) >= GROUP_ID_LIMIT:
            raise UsageError(f"{where}: entry {number} is no group: write g1, g2 and so on, or * alone for all")
        found.append(int(match[1]))
    return frozenset(found)


def _refuse_twice(values: Sequence[object], where: str, field: str) -> None:
    first: dict[object, int] = {}
    for number, value in enumerate(values, 1):
        if first.setdefault(value, number) != number:
            raise UsageError(f"{where}: tokens {first[value]} and {number} have the same {field}: change or remove one")


def _group_names(groups: Groups) -> str:
    return _EVERYTHING if groups is None else ",".join(f"g{group}" for group in sorted(groups)) or "none"


def _quoted(groups: Sequence[str]) -> str:
    return ", ".join(f'"{group}"' for group in groups)


def _hash(token: str) -> bytes:
    return hashlib.sha256(_encode(token)).digest()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # never fails, whatever a client sends
